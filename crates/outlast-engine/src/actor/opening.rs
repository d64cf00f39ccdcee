//! An owner begins: it claims the conversation and folds its log.

use std::collections::HashSet;
use std::sync::Arc;

use outlast_core::{Conversation, ConversationId, Generation, Seq};
use outlast_store::{ClaimError, Loaded, Newest, StoreError, fault};
use tokio::sync::mpsc;

use super::works::Works;
use super::{Actor, Mail, record};
use crate::documents::to_state;
use crate::engine::Shared;
use crate::feed::Feed;
use crate::journal::{Journal, release};
use crate::live::Share;

/// Why a conversation was not opened.
pub(crate) enum NotOpened {
    /// Another instance owns it.
    Held,
    Store(StoreError),
}

impl Actor {
    pub(crate) async fn open(
        shared: Arc<Shared>,
        id: ConversationId,
        feed: Arc<Feed>,
        mailbox: mpsc::Receiver<Mail>,
    ) -> Result<Actor, (NotOpened, mpsc::Receiver<Mail>)> {
        let lapses = shared.lease.lapses();
        let fence = match shared.store.claim(&id).await {
            Ok(fence) => fence,
            Err(ClaimError::HeldBy(_)) => return Err((NotOpened::Held, mailbox)),
            Err(ClaimError::Store(error)) => return Err((NotOpened::Store(error), mailbox)),
        };
        fault::point("recover.claimed");
        let (state, loaded) = match folded(&shared, &id).await {
            Ok(folded) => folded,
            Err(error) => {
                // An instance of a newer version may be able to read it.
                if matches!(error, StoreError::Broken(_)) {
                    release(&*shared.store, &id, fence).await;
                }
                return Err((NotOpened::Store(error), mailbox));
            }
        };
        let seq = state.as_ref().map_or(Seq::ZERO, |state| state.seq);
        let charged = state.as_ref().map_or(0, Conversation::stored_bytes);
        let unfolded = loaded.as_ref().map_or(0, |loaded| record::size(&loaded.records));
        let stored_due = loaded.as_ref().and_then(|loaded| loaded.conversation.due);
        let folded = loaded.and_then(|loaded| loaded.conversation.state).map(|state| state.len());
        feed.own_from(seq);
        let watchers = feed.watchers();
        let share = Share::new(shared.live.clone());
        let mut actor = Actor {
            journal: Journal::new(shared.store.clone(), id.clone(), fence, seq),
            worker_heard: shared.clock.now(),
            shared,
            id,
            feed,
            mailbox,
            watchers,
            unwatched_since: None,
            state,
            owned_after: seq,
            unfolded,
            folded,
            stored_due,
            call: None,
            works: Works::new(),
            sweeping: None,
            unsaved_files: Vec::new(),
            tried: HashSet::new(),
            share,
            letters_wait: true,
            answering: None,
            fenced: false,
            lapses,
            charged,
            owed: None,
            store_again: None,
            save_at: None,
        };
        actor.count_watchers();
        actor.count_live();
        if actor.state.as_ref().and_then(Conversation::active).is_some_and(Generation::is_at_work) {
            // An owner that ends by itself leaves no work behind.
            actor.shared.figures.takeovers.inc();
        }
        Ok(actor)
    }
}

async fn folded(
    shared: &Shared,
    id: &ConversationId,
) -> Result<(Option<Conversation>, Option<Loaded>), StoreError> {
    let loaded = shared.store.load(id, Newest::NONE).await?;
    let state = loaded.as_ref().map(to_state).transpose()?;
    fault::point("recover.folded");
    Ok((state, loaded))
}
