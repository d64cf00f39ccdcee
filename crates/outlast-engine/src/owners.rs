//! Supervises owners: each conversation that has something to do has exactly one, even after a panic.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use outlast_core::ConversationId;
use outlast_store::StoreError;
use tokio::sync::mpsc;

use crate::actor::{Actor, Mail};
use crate::engine::Shared;
use crate::error::EngineError;
use crate::feed::Feed;

/// An owner that failed is replaced after this long.
const REOPEN_WAIT: Duration = Duration::from_millis(500);

/// Runs an owner, and replaces it if it panics: followers are waiting, and there may never be another command to
/// start the next owner.
pub(crate) async fn supervise(
    shared: Arc<Shared>,
    conversation: ConversationId,
    feed: Arc<Feed>,
    mailbox: mpsc::Receiver<Mail>,
) {
    let owning = own(shared.clone(), conversation.clone(), feed, mailbox);
    // Shared state stays consistent: no code panics halfway through a change under a lock, and the next owner
    // starts from the log.
    if AssertUnwindSafe(owning).catch_unwind().await.is_err() {
        tracing::error!(?conversation, "the owner panicked and is replaced");
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(REOPEN_WAIT) => {}
        }
        shared.send(&conversation, Mail::Wake).await;
    }
}

/// Owns a conversation until nothing is left to do, across failures of the store.
async fn own(
    shared: Arc<Shared>,
    conversation: ConversationId,
    feed: Arc<Feed>,
    mut mailbox: mpsc::Receiver<Mail>,
) {
    loop {
        mailbox = match Actor::open(shared.clone(), conversation.clone(), feed.clone(), mailbox).await {
            Ok(actor) => match actor.run().await {
                Ok(()) => break,
                Err(mailbox) => mailbox,
            },
            Err((error, mut mailbox)) => {
                tracing::error!(?conversation, %error, "cannot open a conversation");
                refuse_all(&shared, &conversation, &mut mailbox, &error).await;
                // Waiting does not make it readable. The next caller gets the error again.
                if matches!(error, StoreError::Broken(_)) && shared.slots.retire(&conversation, &mut mailbox)
                {
                    break;
                }
                mailbox
            }
        };
        tokio::select! {
            () = shared.stop.cancelled() => break,
            () = tokio::time::sleep(REOPEN_WAIT) => {}
        }
    }
    drop(feed);
    shared.slots.forget(&conversation);
}

/// Replies to the callers of a conversation that cannot be opened. It can still be deleted.
async fn refuse_all(
    shared: &Shared,
    conversation: &ConversationId,
    mailbox: &mut mpsc::Receiver<Mail>,
    error: &StoreError,
) {
    let refusal = || match error {
        StoreError::Unavailable(reason) => EngineError::Unavailable(reason.clone()),
        StoreError::Broken(reason) => EngineError::Broken(reason.clone()),
    };
    while let Ok(mail) = mailbox.try_recv() {
        match mail {
            Mail::Command(ask) => {
                ask.reply.send(Err(refusal())).ok();
            }
            Mail::Delete { reply, .. } => {
                // The caller has checked the user in its document, which is all that can be read.
                let deleted = shared.store.delete(conversation).await;
                reply.send(deleted.map_err(EngineError::from)).ok();
            }
            Mail::Trim { reply, .. } => {
                reply.send(Err(refusal())).ok();
            }
            Mail::Wake => {}
        }
    }
}
