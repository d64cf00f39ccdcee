//! Feeds the followers of a conversation that has no owner here: whenever the store says that the log has grown, it
//! is read once for all of them. It also notes that somebody watches, because the owner cannot see them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use outlast_core::{ConversationId, Seq};
use outlast_store::{Newest, StoreError, Table};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::engine::Shared;
use crate::feed::{Batch, Feed};
use crate::presence::NOTE_EVERY;

/// How much of the log is read at once.
const PAGE_BYTES: usize = 128 * 1024;
/// The wait after the store failed.
const STORE_WAIT: Duration = Duration::from_millis(500);
/// Followers that reconnect are not noted as gone.
const GONE_AFTER: Duration = Duration::from_secs(1);

impl Shared {
    /// The feed of a conversation for a follower. It is fed whether or not there is an owner here.
    pub(crate) fn followed_feed(self: &Arc<Self>, conversation: &ConversationId) -> Arc<Feed> {
        let feed = self.slots.feed(conversation);
        if feed.needs_relay() {
            let relay = Relay {
                shared: self.clone(),
                conversation: conversation.clone(),
                feed: Arc::downgrade(&feed),
                noted: None,
            };
            self.spawn(relay.run(feed.owned()));
        }
        feed
    }
}

struct Relay {
    shared: Arc<Shared>,
    conversation: ConversationId,
    feed: Weak<Feed>,
    /// When it was noted that somebody watches, and how often the lease had lapsed by then: a note may be removed while
    /// the instance that made it has no lease.
    noted: Option<(Instant, u64)>,
}

impl Relay {
    async fn run(mut self, owned: watch::Receiver<bool>) {
        self.feed(owned).await;
        tokio::select! {
            () = self.shared.stop.cancelled() => return, // the note ends with the lease
            () = sleep(GONE_AFTER) => {}
        }
        if self.shared.slots.is_followed(&self.conversation) {
            return; // by others, which have a relay of their own
        }
        if let Err(error) = self.shared.note_no_followers(&self.conversation).await {
            tracing::warn!(conversation = ?self.conversation, %error, "followers that have left are still noted");
        }
    }

    /// Ends with the feed.
    async fn feed(&mut self, mut owned: watch::Receiver<bool>) {
        loop {
            let unowned = async { owned.wait_for(|owned| !owned).await.is_ok() };
            tokio::select! {
                () = self.shared.stop.cancelled() => return,
                unowned = unowned => if !unowned { return },
            }
            let mut grown = self.shared.store.watch(&self.conversation);
            let mut woken = false;
            loop {
                let end = *grown.borrow_and_update();
                let pause = match self.catch_up(woken, end).await {
                    Ok(()) => None,
                    Err(error) => {
                        tracing::warn!(conversation = ?self.conversation, %error, "cannot read the log; will retry");
                        Some(STORE_WAIT)
                    }
                };
                woken = false;
                tokio::select! {
                    () = self.shared.stop.cancelled() => return,
                    () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
                    () = sleep(NOTE_EVERY), if pause.is_none() => {}
                    changed = grown.changed() => match changed {
                        Ok(()) => woken = true,
                        Err(_) => return,
                    },
                    changed = owned.changed() => match changed {
                        Ok(()) => break, // the owner, if there is one now, publishes itself
                        Err(_) => return,
                    },
                }
            }
        }
    }

    /// Publishes everything after the tail.
    async fn catch_up(&mut self, woken: bool, end: Seq) -> Result<(), StoreError> {
        let Some(feed) = self.feed.upgrade() else { return Ok(()) };
        let store = &self.shared.store;
        let tail = match feed.tail() {
            Some(tail) => tail,
            None => {
                let loaded = store.load(&self.conversation, Newest::NONE).await?;
                feed.begin_at(loaded.map_or(Seq::ZERO, |loaded| loaded.last));
                feed.tail().unwrap_or_default()
            }
        };
        if woken && end < tail && store.get(Table::Conversations, self.conversation.as_str()).await?.is_none()
        {
            feed.deleted();
        }
        loop {
            let after = feed.tail().unwrap_or_default();
            let records = store.read(&self.conversation, after, PAGE_BYTES).await?;
            if records.is_empty() {
                break;
            }
            feed.relay(Batch::stored(records));
            if feed.tail() == Some(after) {
                break; // there is an owner now
            }
        }
        let lapses = self.shared.lease.lapses();
        let is_noted = |(at, known): (Instant, u64)| at.elapsed() < NOTE_EVERY && known == lapses;
        if !self.noted.is_some_and(is_noted) && self.shared.note_followers(&self.conversation).await? {
            self.noted = Some((Instant::now(), lapses));
        }
        Ok(())
    }
}
