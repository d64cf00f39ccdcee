//! A reader's way through a log: from where it stands to the live end, and on.

use std::sync::Arc;

use outlast_core::{ConversationId, GenerationId, Heads, Seq};
use outlast_store::{Newest, Record, StoreError};
use tokio::sync::watch;

use crate::engine::Shared;
use crate::feed::{Batch, Feed, Follow, Watching};

/// How much of the log is read at once for one reader: what it holds in memory while it catches up, and what a
/// reader that stalls holds until it is dropped. An answer of 2,000 tokens is one page, and one look at the store.
const PAGE_BYTES: usize = 512 * 1024;

/// Reads a conversation's log from a position and then follows it live, without gap or repeat.
pub struct Follower {
    shared: Arc<Shared>,
    conversation: ConversationId,
    feed: Arc<Feed>,
    /// How often shown events had been lost when this reader came.
    losses: u64,
    position: Seq,
    moved: watch::Receiver<()>,
    /// The generation it is about, if not the whole conversation, and where that begins.
    only: Option<(GenerationId, Seq)>,
    over: bool,
    /// Where its generation has ended, if it had when the reader came: then the log has everything.
    ended_at: Option<Seq>,
    _watching: Watching,
    _forget: Forget,
}

/// Why there is nothing to follow here.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The position lies after the log's end.
    #[error("the log ends at {tail}")]
    Ahead {
        /// Where it ends.
        tail: Seq,
    },
    /// The events at this position are no longer kept.
    #[error("the events after {after} are no longer kept")]
    Trimmed {
        /// The position.
        after: Seq,
    },
    /// The log cannot be read now.
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
        let feed = shared.slots.feed(&conversation);
        let watching = feed.watching();
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

    /// The same, for a generation that has ended there. A reader that stands behind it has everything.
    pub(crate) fn of_ended(mut self, last: Seq) -> Follower {
        self.over = self.position >= last;
        self.ended_at = Some(last);
        self
    }

    /// Whose log it reads.
    pub fn conversation(&self) -> &ConversationId {
        &self.conversation
    }

    /// Whether the position exists. Call once before reading, to refuse a cursor from the future.
    pub async fn check(&self) -> Result<(), FollowError> {
        if self.ended_at.is_some_and(|last| self.position <= last) {
            return Ok(());
        }
        loop {
            match self.feed.follow(self.position, self.losses) {
                Follow::Next(_) | Follow::AtTail | Follow::Behind(_) => return Ok(()),
                Follow::Ahead(tail) => return self.is_saved(tail).await,
                Follow::Lost(tail) => return Err(FollowError::Ahead { tail }),
                Follow::Unknown => self.look_at_tail().await?,
            }
        }
    }

    /// The next events, as soon as there are any; `None` after the end of the generation it is about.
    /// Dropping this future loses nothing.
    pub async fn next(&mut self) -> Result<Option<Arc<Batch>>, FollowError> {
        while !self.over {
            let batch = self.next_batch().await?;
            if let Some(last) = batch.last() {
                self.position = last;
            }
            let batch = self.filter(batch);
            self.over |= self.ended_at.is_some_and(|last| self.position >= last);
            if batch.is_some() {
                return Ok(batch);
            }
        }
        Ok(None)
    }

    async fn next_batch(&mut self) -> Result<Arc<Batch>, FollowError> {
        if let Some(last) = self.ended_at {
            return self.read(last).await;
        }
        loop {
            // Noted before the question: what moves after it ends the wait at once.
            self.moved.borrow_and_update();
            match self.feed.follow(self.position, self.losses) {
                Follow::Next(batch) => return Ok(self.beyond(batch)),
                Follow::AtTail => self.wait().await,
                Follow::Behind(tail) => return self.read(tail).await,
                Follow::Ahead(tail) => {
                    self.is_saved(tail).await?;
                    self.wait().await;
                }
                Follow::Lost(tail) => return Err(FollowError::Ahead { tail }),
                Follow::Unknown => self.look_at_tail().await?,
            }
        }
    }

    async fn wait(&mut self) {
        // Fails only if the feed is gone, which this reader itself holds.
        self.moved.changed().await.ok();
    }

    /// Reads on, but never past what is visible: what lies further is handed out by the feed.
    async fn read(&mut self, tail: Seq) -> Result<Arc<Batch>, FollowError> {
        let after = self.position;
        let mut records = self.shared.store.read(&self.conversation, after, PAGE_BYTES).await?;
        records.retain(|record| record.seq <= tail);
        let dense = records.iter().zip(1..).take_while(|(record, n)| record.seq == Seq(after.0 + n)).count();
        if dense == records.len() && dense > 0 {
            return Ok(Batch::new(records));
        }
        if let Some((_, first)) = self.only {
            // A hole that others left is none to a reader of this generation.
            if self.is_trimmed(first).await? {
                return Err(FollowError::Trimmed { after });
            }
            if records.is_empty() {
                self.position = tail;
            }
            return Ok(Batch::new(records));
        }
        records.truncate(dense);
        if records.is_empty() { Err(FollowError::Trimmed { after }) } else { Ok(Batch::new(records)) }
    }

    /// Whether the generation's own events are no longer kept. They are removed from the first on.
    async fn is_trimmed(&self, first: Seq) -> Result<bool, StoreError> {
        let before = Seq(first.0.saturating_sub(1));
        let found = self.shared.store.read(&self.conversation, before, 1).await?;
        Ok(found.first().is_none_or(|record| record.seq != first))
    }

    /// A position beyond what is visible is right if it is saved: then it is about to be shown. Others have
    /// it from a look at the log, or from nowhere.
    async fn is_saved(&self, tail: Seq) -> Result<(), FollowError> {
        let loaded = self.shared.store.load(&self.conversation, Newest::NONE).await?;
        let saved = loaded.map_or(Seq::ZERO, |loaded| loaded.last);
        if self.position <= saved { Ok(()) } else { Err(FollowError::Ahead { tail: tail.max(saved) }) }
    }

    /// The batch without what the reader has already.
    fn beyond(&self, batch: Arc<Batch>) -> Arc<Batch> {
        if batch.records().first().is_some_and(|first| first.seq > self.position) {
            return batch; // the usual case: shared with every other reader
        }
        let new = batch.records().iter().filter(|record| record.seq > self.position);
        Batch::new(new.cloned().collect())
    }

    async fn look_at_tail(&self) -> Result<(), StoreError> {
        let loaded = self.shared.store.load(&self.conversation, Newest::NONE).await?;
        self.feed.begin_at(loaded.map_or(Seq::ZERO, |loaded| loaded.last));
        Ok(())
    }

    /// Leaves out what belongs to other generations and notices the end.
    fn filter(&mut self, batch: Arc<Batch>) -> Option<Arc<Batch>> {
        let Some((only, _)) = &self.only else { return Some(batch) };
        let (mut over, mut heads) = (false, Heads::default());
        let mut kept = Vec::with_capacity(batch.records().len());
        for record in batch.records() {
            let head = heads.of(&record.bytes).ok();
            let ours = head.as_ref().is_some_and(|head| head.generation_id.as_deref() == Some(only.as_str()));
            over |= ours && head.is_some_and(|head| head.is_end());
            kept.push(ours);
        }
        self.over = over;
        if kept.iter().all(|kept| *kept) {
            return Some(batch); // the usual case: shared with every other reader, encoded once
        }
        let records = batch.records().iter().zip(kept).filter(|(_, kept)| *kept);
        let records: Vec<Record> = records.map(|(record, _)| record.clone()).collect();
        (!records.is_empty()).then(|| Batch::new(records))
    }
}

/// Dropped after everything that holds the feed, so that the last reader leaves nothing behind.
struct Forget {
    shared: Arc<Shared>,
    conversation: ConversationId,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.shared.slots.forget(&self.conversation);
    }
}
