//! Follows a log from a position to its live end and beyond.

use std::sync::Arc;

use outlast_core::{ConversationId, GenerationId, Seq};
use outlast_store::{Newest, StoreError};
use tokio::sync::watch;

use crate::engine::Shared;
use crate::feed::{Batch, Feed, Follow, Watching};

/// How much of the log is read at once for a follower that is behind. A stalled follower holds one encoded page
/// and the connection's buffer until it is dropped: less than 256 KiB.
const PAGE_BYTES: usize = 128 * 1024;

/// Reads a conversation's log from a position and then follows it live, without gaps or duplicates.
pub struct Follower {
    shared: Arc<Shared>,
    conversation: ConversationId,
    feed: Arc<Feed>,
    /// The feed's losses when this follower started.
    losses: u64,
    position: Seq,
    moved: watch::Receiver<()>,
    /// The generation it follows, if not the whole conversation, and that generation's first event.
    only: Option<(GenerationId, Seq)>,
    over: bool,
    /// The generation's last event, if it had ended when the follower started: then the log has everything.
    ended_at: Option<Seq>,
    _watching: Watching,
    _forget: Forget,
}

#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error("the log ends at {tail}")]
    Ahead { tail: Seq },
    /// Retention has removed the events that come next.
    #[error("the events after {after} are no longer kept")]
    Trimmed { after: Seq },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Follower {
    pub(crate) fn new(
        shared: Arc<Shared>,
        conversation: ConversationId,
        after: Seq,
        only: Option<(GenerationId, Seq)>,
    ) -> Follower {
        let feed = shared.followed_feed(&conversation);
        let watching = feed.watching();
        shared.figures.followers.inc();
        let forget = Forget { shared: shared.clone(), conversation: conversation.clone() };
        Follower {
            shared,
            conversation,
            losses: feed.losses(),
            moved: feed.moved(),
            feed,
            position: after,
            only,
            over: false,
            ended_at: None,
            _watching: watching,
            _forget: forget,
        }
    }

    /// For a generation that has ended: a follower at or after its last event has everything.
    pub(crate) fn of_ended(mut self, last: Seq) -> Follower {
        self.over = self.position >= last;
        self.ended_at = Some(last);
        self
    }

    /// Refuses a position after the end of the log. Call once before reading.
    pub async fn check(&self) -> Result<(), FollowError> {
        if self.ended_at.is_some_and(|last| self.position <= last) {
            return Ok(());
        }
        loop {
            match self.feed.follow(self.position, self.losses) {
                Follow::Next(_) | Follow::AtTail | Follow::Behind(_) => return Ok(()),
                Follow::Ahead(visible) => {
                    let tail = self.saved().await?.max(visible);
                    return if self.position <= tail { Ok(()) } else { Err(FollowError::Ahead { tail }) };
                }
                Follow::Lost(tail) => return Err(FollowError::Ahead { tail }),
                Follow::Unknown => self.feed.begin_at(self.saved().await?),
            }
        }
    }

    /// The next events, as soon as there are any; `None` after the end of the generation it follows.
    /// Dropping this future loses nothing.
    pub async fn next(&mut self) -> Result<Option<Arc<Batch>>, FollowError> {
        while !self.over {
            let batch = self.next_batch().await?;
            if let Some(last) = batch.last() {
                self.position = last;
            }
            let batch = self.filter(batch);
            self.over |= self.ended_at.is_some_and(|last| self.position >= last);
            if !batch.records().is_empty() {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    async fn next_batch(&mut self) -> Result<Arc<Batch>, FollowError> {
        if let Some(last) = self.ended_at {
            return self.read(last).await;
        }
        loop {
            // Mark as seen before asking, so that any later change ends the wait at once.
            self.moved.borrow_and_update();
            match self.feed.follow(self.position, self.losses) {
                Follow::Next(batch) => {
                    return Ok(batch.filtered(|record, _| record.seq > self.position));
                }
                Follow::AtTail => self.wait().await,
                Follow::Behind(tail) => return self.read(tail).await,
                Follow::Ahead(visible) => {
                    // A position that is saved but not visible yet is about to be published.
                    let tail = self.saved().await?.max(visible);
                    if self.position > tail {
                        return Err(FollowError::Ahead { tail });
                    }
                    self.wait().await;
                }
                Follow::Lost(tail) => return Err(FollowError::Ahead { tail }),
                Follow::Unknown => self.feed.begin_at(self.saved().await?),
            }
        }
    }

    async fn wait(&mut self) {
        // This fails only if the feed was dropped, but this follower holds it.
        self.moved.changed().await.ok();
    }

    /// Reads a page of the log, but only what is visible. The feed provides the rest.
    async fn read(&mut self, tail: Seq) -> Result<Arc<Batch>, FollowError> {
        let after = self.position;
        let mut records = self.shared.store.read(&self.conversation, after, PAGE_BYTES).await?;
        records.retain(|record| record.seq <= tail);
        let dense = records.iter().zip(1..).take_while(|(record, n)| record.seq == Seq(after.0 + n)).count();
        if dense == records.len() && dense > 0 {
            return Ok(Batch::stored(records));
        }
        if let Some((_, first)) = self.only {
            // Missing events of other generations do not matter to a follower of this one.
            if self.is_trimmed(first).await? {
                return Err(FollowError::Trimmed { after });
            }
            if records.is_empty() {
                self.position = tail;
            }
            return Ok(Batch::stored(records));
        }
        records.truncate(dense);
        if records.is_empty() { Err(FollowError::Trimmed { after }) } else { Ok(Batch::stored(records)) }
    }

    /// Whether events of this generation were removed. Retention removes from the first to the last, may be
    /// interrupted, and may keep a few that a retry needs. So both ends are checked.
    async fn is_trimmed(&self, first: Seq) -> Result<bool, StoreError> {
        for seq in [Some(first), self.ended_at].into_iter().flatten() {
            let before = Seq(seq.0.saturating_sub(1));
            let found = self.shared.store.read(&self.conversation, before, 1).await?;
            if found.first().is_none_or(|record| record.seq != seq) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where the saved log ends.
    async fn saved(&self) -> Result<Seq, StoreError> {
        let loaded = self.shared.store.load(&self.conversation, Newest::NONE).await?;
        Ok(loaded.map_or(Seq::ZERO, |loaded| loaded.last))
    }

    /// Drops the events of other generations and notices the end of this one.
    fn filter(&mut self, batch: Arc<Batch>) -> Arc<Batch> {
        let Some((only, _)) = &self.only else { return batch };
        let ours = batch.filtered(|_, head| head.generation_id.as_ref() == Some(only));
        self.over = ours.heads().iter().any(|head| head.is_end());
        ours
    }
}

/// Dropped after everything that holds the feed, so that the last follower can remove it.
struct Forget {
    shared: Arc<Shared>,
    conversation: ConversationId,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.shared.figures.followers.dec();
        self.shared.slots.forget(&self.conversation);
    }
}
