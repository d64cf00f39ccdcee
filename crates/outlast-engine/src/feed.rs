//! The live end of a conversation's log, and how followers reach it.
//!
//! A follower passes its position. If the feed still holds the next batch, the follower gets it. At the tail it
//! waits. If it is further behind, it gets the end of the log, reads the gap from there and asks again. So there
//! is nothing to deduplicate and nothing to lose, and a follower that was slow for a moment needs no disk read,
//! which would slow down everyone if many did it at once.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use outlast_core::{DecodeError, Entry, Head, Heads, Seq};
use outlast_store::Record;
use tokio::sync::watch;

/// How many of the newest batches are kept for followers that pause or reconnect. They cover more than a second
/// of tokens, and more when the server is busy, because batches are larger then.
const RECENT_BATCHES: usize = 64;
/// The maximum total size of those batches, which is memory per live conversation.
const RECENT_BYTES: usize = 64 * 1024;
/// The newest batches that are kept in a protocol's form as well, for followers that read along at the same time.
const ENCODED_BATCHES: usize = 4;

/// The type of the event that replaces a line that cannot be read.
const UNREADABLE: &str = "event.unreadable";

/// That event. The time of the original is unknown.
fn in_place_of(seq: Seq) -> Bytes {
    let front =
        format!(r#"{{"seq":{seq},"ts":"1970-01-01T00:00:00.000Z","generationId":null,"requestId":null"#);
    format!(r#"{front},"type":"{UNREADABLE}","payload":{{}}}}"#).into()
}

/// Records that became visible together. Each has its head, so that no later code parses JSON to learn the type
/// or the generation of an event.
#[derive(Debug)]
pub struct Batch {
    records: Vec<Record>,
    /// One for each record.
    heads: Vec<Head>,
    wire: Mutex<Option<Bytes>>,
    /// When it became visible; `None` if it was read from the log.
    visible_since: Option<Instant>,
}

impl Batch {
    /// A batch that was just recorded. `records` are the encoded `entries`.
    pub(crate) fn live(entries: &[Entry], records: Vec<Record>) -> Arc<Batch> {
        Batch::new(records, entries.iter().map(Head::of).collect(), Some(Instant::now()))
    }

    /// A batch read from the log. A line that cannot be read must not hide the others, and a gap would make every
    /// follower start over, so it is replaced by an event that clients skip.
    pub(crate) fn stored(mut records: Vec<Record>) -> Arc<Batch> {
        let mut known = Heads::default();
        let heads: Vec<_> = records.iter().map(|record| known.of(&record.bytes)).collect();
        let legible = |(record, head): (&mut Record, Result<Head, DecodeError>)| {
            head.unwrap_or_else(|error| {
                tracing::error!(seq = record.seq.0, %error, "skipped an unreadable event");
                record.bytes = in_place_of(record.seq);
                Head { generation_id: None, kind: Cow::Borrowed(UNREADABLE) }
            })
        };
        let heads = records.iter_mut().zip(heads).map(legible).collect();
        Batch::new(records, heads, None)
    }

    fn new(records: Vec<Record>, heads: Vec<Head>, visible_since: Option<Instant>) -> Arc<Batch> {
        assert_eq!(records.len(), heads.len(), "every record must have a head");
        Arc::new(Batch { records, heads, wire: Mutex::default(), visible_since })
    }

    /// How long ago it became visible, if that was just now and not read from the log.
    pub fn age(&self) -> Option<Duration> {
        self.visible_since.map(|since| since.elapsed())
    }

    pub fn records(&self) -> &[Record] {
        &self.records
    }

    pub fn heads(&self) -> &[Head] {
        &self.heads
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Record, &Head)> {
        self.records.iter().zip(&self.heads)
    }

    pub fn last(&self) -> Option<Seq> {
        self.records.last().map(|record| record.seq)
    }

    /// The batch encoded for a protocol, once for the first follower that asks and then shared.
    pub fn wire(&self, encode: impl FnOnce(&Batch) -> Bytes) -> Bytes {
        self.lock_wire().get_or_insert_with(|| encode(self)).clone()
    }

    fn lock_wire(&self) -> MutexGuard<'_, Option<Bytes>> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The records that the filter keeps. Usually these are all, and the batch stays shared.
    pub(crate) fn filtered(self: &Arc<Self>, keep: impl Fn(&Record, &Head) -> bool) -> Arc<Batch> {
        if self.iter().all(|(record, head)| keep(record, head)) {
            return self.clone();
        }
        let kept = self.iter().filter(|(record, head)| keep(record, head));
        let (records, heads) = kept.map(|(record, head)| (record.clone(), head.clone())).unzip();
        Batch::new(records, heads, self.visible_since)
    }

    fn first(&self) -> Option<Seq> {
        self.records.first().map(|record| record.seq)
    }

    fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.bytes.len()).sum()
    }
}

/// Where the owner publishes and followers wait.
#[derive(Debug)]
pub(crate) struct Feed {
    tail: Mutex<Tail>,
    /// Notified whenever the tail changes.
    moved: watch::Sender<()>,
    watchers: watch::Sender<usize>,
    /// Whether an owner publishes here. If not, the log is relayed from the store.
    owned: watch::Sender<bool>,
    relayed: AtomicBool,
}

#[derive(Debug, Default)]
struct Tail {
    /// The last visible seq; `None` until the log has been read.
    seq: Option<Seq>,
    /// How often events that were visible turned out not to be saved.
    losses: u64,
    /// The newest batches up to the tail, without gaps.
    recent: VecDeque<Recent>,
    recent_bytes: usize,
    /// How many of the last batches are not saved yet, where the durability setting allows it. They are kept
    /// regardless of the limits, because they are nowhere else.
    unsaved: usize,
}

/// A batch, and what is needed to find and count it without touching it.
#[derive(Debug)]
struct Recent {
    first: Seq,
    last: Seq,
    bytes: usize,
    batch: Arc<Batch>,
}

impl Tail {
    fn forget_recent(&mut self) {
        self.recent.clear();
        (self.recent_bytes, self.unsaved) = (0, 0);
    }

    fn is_long(&self) -> bool {
        self.recent.len() > RECENT_BATCHES || self.recent_bytes > RECENT_BYTES
    }

    /// The last saved position, given the last visible one.
    fn saved(&self, visible: Seq) -> Seq {
        let first_unsaved = self.recent.len().checked_sub(self.unsaved).and_then(|at| self.recent.get(at));
        first_unsaved.map_or(visible, |unsaved| Seq(unsaved.first.0 - 1))
    }
}

/// What a follower at a given position should do.
pub(crate) enum Follow {
    /// Take this batch.
    Next(Arc<Batch>),
    /// Wait until the tail changes.
    AtTail,
    /// Read the log, which has everything up to here.
    Behind(Seq),
    /// The position is not visible yet. It may already be saved and about to be published.
    Ahead(Seq),
    /// Events that were shown were not saved and are lost. The position means something else now.
    Lost(Seq),
    /// The tail is unknown: read the log and call `begin_at`.
    Unknown,
}

impl Feed {
    pub(crate) fn new() -> Feed {
        Feed {
            tail: Mutex::default(),
            moved: watch::Sender::new(()),
            watchers: watch::Sender::new(0),
            owned: watch::Sender::new(false),
            relayed: AtomicBool::new(false),
        }
    }

    /// Called by a follower that has read where the log ends. It has an effect only if the tail is unknown. An owner
    /// calls `own_from` before it writes, so a follower that reads during a write cannot make it visible too early.
    pub(crate) fn begin_at(&self, seq: Seq) {
        self.lock().seq.get_or_insert(seq);
    }

    /// Called by an owner before it writes anything. If an earlier owner failed between saving and publishing,
    /// followers at another position are sent back to the log.
    pub(crate) fn own_from(&self, seq: Seq) {
        let mut tail = self.lock();
        self.owned.send_replace(true);
        let before = tail.seq.replace(seq);
        if before == Some(seq) && tail.unsaved == 0 {
            return;
        }
        tail.losses += u64::from(before > Some(seq));
        tail.forget_recent();
        self.moved.send_replace(());
    }

    /// Called when the owner ends. It may go on at another instance.
    pub(crate) fn disown(&self) {
        let tail = self.lock();
        self.owned.send_replace(false);
        drop(tail);
    }

    /// Whether there is an owner here. The receiver fails once the feed is gone.
    pub(crate) fn owned(&self) -> watch::Receiver<bool> {
        self.owned.subscribe()
    }

    /// Whether somebody must start to relay; true for the first caller.
    pub(crate) fn needs_relay(&self) -> bool {
        !self.relayed.swap(true, Ordering::SeqCst)
    }

    /// Publishes what was read from the log after the tail, unless there is an owner, which publishes it itself.
    pub(crate) fn relay(&self, batch: Arc<Batch>) {
        let mut tail = self.lock();
        let (Some(seq), Some(first), Some(last)) = (tail.seq, batch.first(), batch.last()) else { return };
        if *self.owned.borrow() || last <= seq {
            return;
        }
        tail.unsaved = 0;
        if first == seq.next() && last == seq.plus(batch.records.len()) {
            return self.show(&mut tail, batch);
        }
        // Retention has removed events in between. Followers read the log and find the gap.
        tail.seq = Some(last);
        tail.forget_recent();
        self.moved.send_replace(());
    }

    /// Called when the log was deleted, even if it was empty: followers of the old log must not see what is
    /// written under the same id later.
    pub(crate) fn deleted(&self) {
        let mut tail = self.lock();
        tail.seq = Some(Seq::ZERO);
        tail.losses += 1;
        tail.forget_recent();
        self.moved.send_replace(());
    }

    /// How often published events were lost. A follower remembers this when it starts.
    pub(crate) fn losses(&self) -> u64 {
        self.lock().losses
    }

    /// The last visible position, if known.
    pub(crate) fn tail(&self) -> Option<Seq> {
        self.lock().seq
    }

    /// Publishes saved records. Everything published before is saved too.
    pub(crate) fn publish(&self, batch: Arc<Batch>) {
        let mut tail = self.lock();
        tail.unsaved = 0;
        self.show(&mut tail, batch);
    }

    /// Publishes records that are not saved yet.
    pub(crate) fn publish_unsaved(&self, batch: Arc<Batch>) {
        let mut tail = self.lock();
        tail.unsaved += 1;
        self.show(&mut tail, batch);
    }

    /// Marks everything published as saved.
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
        let place = tail.recent.partition_point(|recent| recent.last <= after);
        match tail.recent.get(place).filter(|recent| recent.first <= after.next()) {
            Some(recent) => Follow::Next(recent.batch.clone()),
            None => Follow::Behind(tail.saved(seq)),
        }
    }

    /// Changes whenever `follow` may return something else.
    pub(crate) fn moved(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
    }

    /// Counts a watcher until the guard is dropped.
    pub(crate) fn watching(self: &Arc<Self>) -> Watching {
        self.watchers.send_modify(|count| *count += 1);
        Watching(self.clone())
    }

    /// The number of watchers.
    pub(crate) fn watchers(&self) -> watch::Receiver<usize> {
        self.watchers.subscribe()
    }

    fn show(&self, tail: &mut Tail, batch: Arc<Batch>) {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return };
        let bytes = batch.bytes();
        tail.seq = Some(last);
        tail.recent_bytes += bytes;
        tail.recent.push_back(Recent { first, last, bytes, batch });
        if let Some(older) = tail.recent.iter().rev().nth(ENCODED_BATCHES) {
            older.batch.lock_wire().take();
        }
        while tail.recent.len() > tail.unsaved && tail.is_long() {
            let Some(old) = tail.recent.pop_front() else { break };
            tail.recent_bytes -= old.bytes;
        }
        self.moved.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts as a watcher until it is dropped.
#[derive(Debug)]
pub(crate) struct Watching(Arc<Feed>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watchers.send_modify(|count| *count -= 1);
    }
}
