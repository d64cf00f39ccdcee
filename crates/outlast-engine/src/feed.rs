//! The live end of a conversation's log, and the rule by which readers come to it.
//!
//! The live feed is handed out only to a reader that stands exactly at the tail. One that is behind is
//! told the tail instead, reads the gap from the log and asks again: nothing to deduplicate, nothing to
//! lose.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use outlast_core::Seq;
use outlast_store::Record;
use tokio::sync::{broadcast, watch};

/// Batches that a reader may fall behind before it is sent back to the log. Small: the log is there.
const LIVE_BATCHES: usize = 32;

/// Records that became visible together.
#[derive(Debug)]
pub struct Batch {
    records: Vec<Record>,
    wire: OnceLock<Bytes>,
}

impl Batch {
    pub(crate) fn new(records: Vec<Record>) -> Arc<Batch> {
        Arc::new(Batch { records, wire: OnceLock::new() })
    }

    /// The records, in order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The last position in it.
    pub fn last(&self) -> Option<Seq> {
        self.records.last().map(|record| record.seq)
    }

    /// The batch in a protocol's form, made by the first reader that asks and shared by the rest.
    pub fn wire(&self, encode: impl FnOnce(&[Record]) -> Bytes) -> Bytes {
        self.wire.get_or_init(|| encode(&self.records)).clone()
    }
}

/// Where the owner publishes and readers follow.
#[derive(Debug)]
pub(crate) struct Feed {
    tail: Mutex<Tail>,
    live: broadcast::Sender<Arc<Batch>>,
    watchers: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Tail {
    /// The last visible seq; `None` until somebody has looked at the log.
    seq: Option<Seq>,
    /// How often events that were visible turned out not to be saved.
    losses: u64,
    /// Visible but not saved yet, where the durability setting allows it. Ends at the tail.
    unsaved: Vec<Arc<Batch>>,
}

/// What a reader at some position is told.
pub(crate) enum Follow {
    /// It stands at the tail: here is what comes.
    Live(broadcast::Receiver<Arc<Batch>>),
    /// It has everything that is saved: here is the rest up to the tail.
    Unsaved(Vec<Arc<Batch>>),
    /// It is behind: the log has everything up to here.
    Behind(Seq),
    /// There is nothing visible at its position yet. It may be saved already and about to be shown: if so,
    /// this is what comes, from a little before its position.
    Ahead(Seq, broadcast::Receiver<Arc<Batch>>),
    /// What it was shown was not saved and is lost: its position means something else now.
    Lost(Seq),
    /// Nobody knows the tail: look at the log and call `begin_at`.
    Unknown,
}

impl Feed {
    pub(crate) fn new() -> Feed {
        let (live, _) = broadcast::channel(LIVE_BATCHES);
        Feed { tail: Mutex::default(), live, watchers: watch::Sender::new(0) }
    }

    /// A reader tells where the log ends. Counts only if nobody knew: an owner says it before it writes,
    /// so a reader that looked while the owner wrote cannot set what is not visible yet.
    pub(crate) fn begin_at(&self, seq: Seq) {
        self.lock().seq.get_or_insert(seq);
    }

    /// An owner tells where the log ends, before it writes anything. Readers that stood elsewhere, because
    /// an earlier owner failed between saving and showing, are sent back to the log.
    pub(crate) fn own_from(&self, seq: Seq) {
        let mut tail = self.lock();
        tail.unsaved.clear();
        let before = tail.seq.replace(seq);
        if before > Some(seq) {
            tail.losses += 1;
        }
        if before.is_some_and(|before| before != seq) {
            self.live.send(Batch::new(Vec::new())).ok();
        }
    }

    /// How often events that were shown have been lost. A reader notes it when it comes.
    pub(crate) fn losses(&self) -> u64 {
        self.lock().losses
    }

    /// The last visible position, if it is known.
    pub(crate) fn tail(&self) -> Option<Seq> {
        self.lock().seq
    }

    /// Shows records that are saved, together with everything shown before.
    pub(crate) fn publish(&self, batch: Arc<Batch>) {
        let mut tail = self.lock();
        tail.unsaved.clear();
        self.show(&mut tail, batch);
    }

    /// Shows records that are not saved yet.
    pub(crate) fn publish_unsaved(&self, batch: Arc<Batch>) {
        let mut tail = self.lock();
        tail.unsaved.push(batch.clone());
        self.show(&mut tail, batch);
    }

    /// Everything shown is saved now.
    pub(crate) fn saved(&self) {
        self.lock().unsaved.clear();
    }

    pub(crate) fn follow(&self, after: Seq, losses: u64) -> Follow {
        let tail = self.lock();
        let Some(seq) = tail.seq else { return Follow::Unknown };
        if losses != tail.losses {
            return Follow::Lost(seq);
        }
        if after == seq {
            return Follow::Live(self.live.subscribe());
        }
        if after > seq {
            return Follow::Ahead(seq, self.live.subscribe());
        }
        let unsaved_from = tail.unsaved.first().and_then(|batch| batch.records.first());
        let saved = unsaved_from.map_or(seq, |record| Seq(record.seq.0 - 1));
        if after < saved {
            return Follow::Behind(saved);
        }
        let rest = tail.unsaved.iter().filter(|batch| batch.last() > Some(after)).cloned().collect();
        Follow::Unsaved(rest)
    }

    /// Counts one more watcher until the guard is dropped.
    pub(crate) fn watching(self: &Arc<Self>) -> Watching {
        self.watchers.send_modify(|count| *count += 1);
        Watching(self.clone())
    }

    /// How many watch, and when that changes.
    pub(crate) fn watchers(&self) -> watch::Receiver<usize> {
        self.watchers.subscribe()
    }

    fn show(&self, tail: &mut Tail, batch: Arc<Batch>) {
        tail.seq = batch.last().or(tail.seq);
        // Fails only when nobody listens, which is nothing to worry about.
        self.live.send(batch).ok();
    }

    fn lock(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody watches for as long as this is held.
#[derive(Debug)]
pub(crate) struct Watching(Arc<Feed>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watchers.send_modify(|count| *count -= 1);
    }
}
