//! Supervises owners: each conversation that has something to do has exactly one, even after a panic.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use outlast_core::{ConversationId, UserId};
use outlast_store::StoreError;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::actor::{Actor, Answer, Ending, Mail, NotOpened, Receipt, Request};
use crate::engine::Shared;
use crate::error::EngineError;
use crate::feed::Feed;
use crate::removals::Removal;

/// An owner that failed is replaced after this long.
const REOPEN_WAIT: Duration = Duration::from_millis(500);
/// How long a conversation that cannot be read here, or needs a sandbox that is not here, is left to other instances.
const LEFT_WAIT: Duration = Duration::from_secs(60);
/// How many of them are remembered. More than that are woken in vain.
const LEFT_MAX: usize = 10_000;

/// Runs an owner, and replaces it if it panics: followers are waiting, and there may never be another command to
/// start the next owner.
pub(crate) async fn supervise(
    shared: Arc<Shared>,
    conversation: ConversationId,
    feed: Arc<Feed>,
    mailbox: mpsc::Receiver<Mail>,
) {
    let owning = own(shared.clone(), conversation.clone(), feed.clone(), mailbox);
    // Shared state stays consistent: no code panics halfway through a change under a lock, and the next owner
    // starts from the log.
    if AssertUnwindSafe(owning).catch_unwind().await.is_err() {
        tracing::error!(?conversation, "the owner of a conversation panicked; starting another");
        feed.disown();
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(REOPEN_WAIT) => {}
        }
        shared.send(&conversation, Mail::Wake { turn: None }).await;
    }
}

/// Owns a conversation until nothing is left to do, across failures of the store. It ends if another instance owns
/// the conversation: whoever asked is sent there.
async fn own(
    shared: Arc<Shared>,
    conversation: ConversationId,
    feed: Arc<Feed>,
    mut mailbox: mpsc::Receiver<Mail>,
) {
    let mut lapsed = None;
    loop {
        let opened = Actor::open(shared.clone(), conversation.clone(), feed.clone(), mailbox).await;
        mailbox = match opened.map(|actor| actor.after(lapsed.take())) {
            Ok(actor) => match actor.run().await {
                Ok(()) => break,
                Err((Ending::Fenced, mut mailbox)) => {
                    send_elsewhere(&shared, &conversation, &mut mailbox);
                    break;
                }
                Err((Ending::Lapsed { ended }, mut mailbox)) => {
                    lapsed = ended;
                    wait_for_lease(&shared, &conversation, &mut mailbox).await;
                    mailbox
                }
                Err((Ending::Lost, mailbox)) => mailbox,
            },
            Err((NotOpened::Held, mut mailbox)) => {
                send_elsewhere(&shared, &conversation, &mut mailbox);
                break;
            }
            Err((NotOpened::Store(error), mut mailbox)) => {
                tracing::error!(?conversation, %error, "cannot open a conversation");
                refuse_all(&shared, &conversation, &mut mailbox, &error).await;
                // Waiting does not make it readable here. The next caller gets the error again.
                if matches!(error, StoreError::Broken(_)) {
                    shared.left_to_others.add(&conversation);
                    if shared.slots.retire(&conversation, &mut mailbox) {
                        break;
                    }
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

/// Says to everybody who asked that the owner is at another instance, and removes this one.
fn send_elsewhere(shared: &Shared, conversation: &ConversationId, mailbox: &mut mpsc::Receiver<Mail>) {
    loop {
        while let Ok(mail) = mailbox.try_recv() {
            match mail {
                Mail::Ask(ask) => {
                    ask.reply.send(Answer::Elsewhere).ok();
                }
                Mail::Trim { reply, .. } => {
                    reply.send(Answer::Elsewhere).ok();
                }
                Mail::ChangeFile { reply, .. } => {
                    reply.send(Answer::Elsewhere).ok();
                }
                Mail::Clear { reply } => {
                    reply.send(Answer::Elsewhere).ok();
                }
                Mail::Wake { .. } | Mail::Letters => {}
            }
        }
        if shared.slots.retire(conversation, mailbox) {
            return;
        }
    }
}

/// Without a lease nothing may be claimed. Whoever asks meanwhile should ask another instance.
async fn wait_for_lease(shared: &Shared, conversation: &ConversationId, mailbox: &mut mpsc::Receiver<Mail>) {
    let lapsed = StoreError::Unavailable("the lease of this instance ran out".to_owned());
    while !shared.lease.is_safe() {
        refuse_all(shared, conversation, mailbox, &lapsed).await;
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = shared.lease.held() => return,
            () = tokio::time::sleep(REOPEN_WAIT) => {}
        }
    }
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
            Mail::Ask(ask) => {
                let done = match (&ask.request, error) {
                    // The caller has checked the user in its document, which is all that can be read.
                    (Request::Delete { user }, StoreError::Broken(_)) => {
                        let deleted = delete_unread(shared, conversation, user).await;
                        deleted.map(|()| Receipt::empty()).map_err(EngineError::from)
                    }
                    _ => Err(refusal()),
                };
                ask.reply.send(Answer::Done(done)).ok();
            }
            Mail::Trim { reply, .. } => {
                reply.send(Answer::Done(Err(refusal()))).ok();
            }
            Mail::ChangeFile { reply, .. } => {
                reply.send(Answer::Done(Err(refusal()))).ok();
            }
            Mail::Clear { reply } => {
                reply.send(Answer::Done(Err(refusal()))).ok();
            }
            Mail::Wake { .. } | Mail::Letters => {}
        }
    }
}

/// Which sandboxes it had is unknown; they are found by their labels.
async fn delete_unread(
    shared: &Shared,
    conversation: &ConversationId,
    user: &UserId,
) -> Result<(), StoreError> {
    shared.owe_removal(conversation, user, Removal::default()).await?;
    shared.store.delete(conversation).await
}

/// Conversations that this instance can do nothing for, each with the time until which it is not woken again: it cannot
/// read them, or it has no sandboxes. Another instance can, and asking every second changes nothing.
#[derive(Debug, Default)]
pub(crate) struct LeftToOthers(Mutex<HashMap<ConversationId, Instant>>);

impl LeftToOthers {
    pub(crate) fn add(&self, conversation: &ConversationId) {
        let mut known = self.lock();
        let now = Instant::now();
        known.retain(|_, until| *until > now);
        if known.len() < LEFT_MAX {
            known.insert(conversation.clone(), now + LEFT_WAIT);
        }
    }

    pub(crate) fn has(&self, conversation: &ConversationId) -> bool {
        self.lock().get(conversation).is_some_and(|until| *until > Instant::now())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConversationId, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
