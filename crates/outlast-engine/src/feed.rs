//! The live end of a conversation's log, and the rule by which readers come to it.
//!
//! A reader says where it stands. If the next batch is among the last few it is handed that one; if it
//! stands at the tail it waits; if it is further behind it is told how far the log goes, reads the gap from
//! there and asks again. Nothing to deduplicate, nothing to lose, and a reader that was slow for a moment
//! does not have to go to the disk, where a crowd of them would make everybody slow.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use outlast_core::Seq;
use outlast_store::Record;
use tokio::sync::watch;

/// The last batches that are kept for readers, also for those who are away for a moment. More than a second
/// of tokens, and longer when the server is busy, because batches are larger then.
const RECENT_BATCHES: usize = 64;
/// They are kept up to this size together, whatever their number.
const RECENT_BYTES: usize = 64 * 1024;

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

    /// The first position in it.
    fn first(&self) -> Option<Seq> {
        self.records.first().map(|record| record.seq)
    }

    fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.bytes.len()).sum()
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
    /// Says that something has changed; what, is in the tail.
    moved: watch::Sender<()>,
    watchers: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Tail {
    /// The last visible seq; `None` until somebody has looked at the log.
    seq: Option<Seq>,
    /// How often events that were visible turned out not to be saved.
    losses: u64,
    /// The newest batches, without a hole, up to the tail.
    recent: VecDeque<Arc<Batch>>,
    recent_bytes: usize,
    /// How many of them, at the end, are not saved yet, where the durability setting allows it. Those are
    /// kept whatever the limits say: nobody else has them.
    unsaved: usize,
}

impl Tail {
    fn forget_recent(&mut self) {
        self.recent.clear();
        (self.recent_bytes, self.unsaved) = (0, 0);
    }
}

/// What a reader at some position is told.
pub(crate) enum Follow {
    /// Here is what comes next.
    Next(Arc<Batch>),
    /// It stands at the tail: wait until something has moved.
    AtTail,
    /// It is behind: the log has everything up to here.
    Behind(Seq),
    /// There is nothing visible at its position yet. It may be saved already and about to be shown.
    Ahead(Seq),
    /// What it was shown was not saved and is lost: its position means something else now.
    Lost(Seq),
    /// Nobody knows the tail: look at the log and call `begin_at`.
    Unknown,
}

impl Feed {
    pub(crate) fn new() -> Feed {
        Feed { tail: Mutex::default(), moved: watch::Sender::new(()), watchers: watch::Sender::new(0) }
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
        let before = tail.seq.replace(seq);
        if before == Some(seq) && tail.unsaved == 0 {
            return;
        }
        tail.losses += u64::from(before > Some(seq));
        tail.forget_recent();
        self.moved.send_replace(());
    }

    /// The log is gone, even if there was nothing in it: what is written under its name later is not for
    /// those who read it before.
    pub(crate) fn deleted(&self) {
        let mut tail = self.lock();
        tail.seq = Some(Seq::ZERO);
        tail.losses += 1;
        tail.forget_recent();
        self.moved.send_replace(());
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
        tail.unsaved = 0;
        self.show(&mut tail, batch);
    }

    /// Shows records that are not saved yet.
    pub(crate) fn publish_unsaved(&self, batch: Arc<Batch>) {
        let mut tail = self.lock();
        tail.unsaved += 1;
        self.show(&mut tail, batch);
    }

    /// Everything shown is saved now.
    pub(crate) fn saved(&self) {
        self.lock().unsaved = 0;
    }

    pub(crate) fn follow(&self, after: Seq, losses: u64) -> Follow {
        let tail = self.lock();
        let Some(seq) = tail.seq else { return Follow::Unknown };
        if losses != tail.losses {
            return Follow::Lost(seq);
        }
        if after == seq {
            return Follow::AtTail;
        }
        if after > seq {
            return Follow::Ahead(seq);
        }
        let place = tail.recent.partition_point(|batch| batch.last() <= Some(after));
        match tail.recent.get(place).filter(|batch| batch.first() <= Some(after.next())) {
            Some(batch) => Follow::Next(batch.clone()),
            None => Follow::Behind(tail.saved(seq)),
        }
    }

    /// Changes whenever `follow` may answer something else.
    pub(crate) fn moved(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
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
        tail.recent_bytes += batch.bytes();
        tail.recent.push_back(batch);
        while tail.recent.len() > tail.unsaved && tail.is_long() {
            let Some(old) = tail.recent.pop_front() else { break };
            tail.recent_bytes -= old.bytes();
        }
        self.moved.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tail {
    fn is_long(&self) -> bool {
        self.recent.len() > RECENT_BATCHES || self.recent_bytes > RECENT_BYTES
    }

    /// The last position that the log has.
    fn saved(&self, seq: Seq) -> Seq {
        let first_unsaved = self.recent.len().checked_sub(self.unsaved).and_then(|at| self.recent.get(at));
        first_unsaved.and_then(|batch| batch.first()).map_or(seq, |first| Seq(first.0 - 1))
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
