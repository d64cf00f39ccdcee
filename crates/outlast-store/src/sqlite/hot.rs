//! The in-memory index of `recent`: where each conversation's rows are. The table has no such index on disk.
//!
//! The index is a superset of what any reader may see. The writer adds rows before it commits them, and
//! removes them after it has committed their removal. A reader's snapshot decides which of them exist.
//!
//! Rows that are not settled yet are kept in memory as well, and are settled from there. Looking each row up
//! again would cost more than writing it did.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use bytes::Bytes;
use outlast_core::{ConversationId, Seq};

/// One row of `recent`, which holds the records of one append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HotRow {
    pub(super) position: i64,
    pub(super) first: Seq,
    pub(super) last: Seq,
    /// The size of its lines.
    pub(super) bytes: usize,
    /// `None` once it is settled, and for rows that an earlier start wrote: then only the table has them.
    pub(super) lines: Option<Bytes>,
}

/// Limits on what stays in `recent`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) chunk_bytes: usize,
    pub(super) hot_bytes: usize,
    pub(super) hot_rows: usize,
    pub(super) unsettled_bytes: usize,
}

/// How much is settled in one step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) conversations: usize,
    pub(super) bytes: usize,
}

pub(super) struct HotIndex {
    limits: Limits,
    conversations: HashMap<ConversationId, HotLog>,
    /// Every row, oldest first, so that the front can be cut off. It may include rows that were deleted since.
    order: VecDeque<Placed>,
    /// The first unsettled row of each conversation that has one. The front cannot be cut beyond the lowest.
    pinning: BTreeMap<i64, ConversationId>,
    /// Conversations that have filled a chunk.
    full: VecDeque<ConversationId>,
    bytes: usize,
    unsettled_bytes: usize,
    removals: u64,
}

struct Placed {
    position: i64,
    bytes: usize,
    conversation: ConversationId,
}

#[derive(Default)]
struct HotLog {
    rows: VecDeque<HotRow>,
    /// How many rows at the front are also in `log`.
    settled: usize,
    unsettled_bytes: usize,
}

impl HotIndex {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            conversations: HashMap::new(),
            order: VecDeque::new(),
            pinning: BTreeMap::new(),
            full: VecDeque::new(),
            bytes: 0,
            unsettled_bytes: 0,
            removals: 0,
        }
    }

    pub(super) fn push(&mut self, conversation: &ConversationId, row: HotRow) {
        let (position, bytes) = (row.position, row.bytes);
        let log = match self.conversations.get_mut(conversation) {
            Some(log) => log,
            None => self.conversations.entry(conversation.clone()).or_default(),
        };
        if log.settled == log.rows.len() {
            self.pinning.insert(position, conversation.clone());
        }
        let was_full = log.unsettled_bytes >= self.limits.chunk_bytes;
        log.rows.push_back(row);
        log.unsettled_bytes += bytes;
        if !was_full && log.unsettled_bytes >= self.limits.chunk_bytes {
            self.full.push_back(conversation.clone());
        }
        self.bytes += bytes;
        self.unsettled_bytes += bytes;
        self.order.push_back(Placed { position, bytes, conversation: conversation.clone() });
    }

    /// Removes the newest rows, which were not committed.
    pub(super) fn undo(&mut self, rows: usize) {
        for _ in 0..rows {
            let Some(Placed { position, bytes, conversation }) = self.order.pop_back() else { return };
            self.bytes -= bytes;
            let Some(log) = self.conversations.get_mut(&conversation) else { continue };
            log.rows.pop_back();
            log.unsettled_bytes -= bytes;
            self.unsettled_bytes -= bytes;
            self.pinning.remove(&position);
            if log.rows.is_empty() {
                self.conversations.remove(&conversation);
            }
        }
    }

    /// The last seq of a conversation that has rows here, committed or not. For the writer.
    pub(super) fn last(&self, conversation: &ConversationId) -> Option<Seq> {
        self.conversations.get(conversation)?.rows.back().map(|row| row.last)
    }

    /// A counter of removals. A reader reads it before it takes its snapshot. If it has not changed after the
    /// reader has used the index, no row that the snapshot needs is missing from the index.
    pub(super) fn removals(&self) -> u64 {
        self.removals
    }

    /// The rows that hold records after `after`, up to position `newest`.
    pub(super) fn rows(&self, conversation: &ConversationId, after: Seq, newest: i64) -> Vec<HotRow> {
        let Some(log) = self.conversations.get(conversation) else { return Vec::new() };
        let from = log.rows.partition_point(|row| row.last <= after);
        let to = log.rows.partition_point(|row| row.position <= newest);
        log.rows.range(from.min(to)..to).cloned().collect()
    }

    /// The last seq among the rows up to position `newest`.
    pub(super) fn last_until(&self, conversation: &ConversationId, newest: i64) -> Option<Seq> {
        let log = self.conversations.get(conversation)?;
        let to = log.rows.partition_point(|row| row.position <= newest);
        log.rows.get(to.checked_sub(1)?).map(|row| row.last)
    }

    /// The conversations to settle now, with their rows, up to the size of a step: those that have filled a
    /// chunk, and the oldest ones while `recent` exceeds its limits.
    pub(super) fn due(&mut self, step: Step) -> Vec<(ConversationId, Vec<HotRow>)> {
        let mut due = Vec::new();
        let mut taken = HashSet::new();
        let mut bytes = 0;
        while due.len() < step.conversations && bytes < step.bytes {
            let Some(conversation) = self.full.pop_front() else { break };
            let log = self.conversations.get(&conversation);
            let Some(log) = log.filter(|log| log.unsettled_bytes >= self.limits.chunk_bytes) else {
                continue;
            };
            bytes += log.unsettled_bytes;
            if taken.insert(conversation.clone()) {
                due.push((conversation.clone(), self.unsettled(&conversation)));
            }
        }
        if !self.outgrown(1) {
            return due;
        }
        for conversation in self.pinning.values() {
            if due.len() >= step.conversations || bytes >= step.bytes {
                break;
            }
            if taken.insert(conversation.clone()) {
                let rows = self.unsettled(conversation);
                bytes += rows.iter().map(|row| row.bytes).sum::<usize>();
                due.push((conversation.clone(), rows));
            }
        }
        due
    }

    /// Whether `recent` is larger than `times` times its limits.
    pub(super) fn outgrown(&self, times: usize) -> bool {
        self.bytes > times * self.limits.hot_bytes
            || self.order.len() > times * self.limits.hot_rows
            || self.unsettled_bytes > times * self.limits.unsettled_bytes
    }

    /// The conversation whose unsettled row keeps the front from being cut.
    pub(super) fn oldest(&self) -> Option<ConversationId> {
        self.pinning.first_key_value().map(|(_, conversation)| conversation.clone())
    }

    /// The rows of a conversation that are not in `log` yet.
    pub(super) fn unsettled(&self, conversation: &ConversationId) -> Vec<HotRow> {
        let Some(log) = self.conversations.get(conversation) else { return Vec::new() };
        log.rows.range(log.settled..).cloned().collect()
    }

    /// Records that all rows that were `unsettled` are in `log` now.
    pub(super) fn settled(&mut self, conversation: &ConversationId) {
        let Some(log) = self.conversations.get_mut(conversation) else { return };
        if let Some(first) = log.rows.get(log.settled) {
            self.pinning.remove(&first.position);
        }
        for row in log.rows.range_mut(log.settled..) {
            row.lines = None;
        }
        log.settled = log.rows.len();
        self.unsettled_bytes -= std::mem::take(&mut log.unsettled_bytes);
    }

    /// How many rows can be cut off at the front, up to `at_most`, and the position below which to cut.
    pub(super) fn removable(&self, at_most: usize) -> (usize, i64) {
        let pinned = self.pinning.first_key_value().map_or(i64::MAX, |(position, _)| *position);
        let count = self.order.iter().take(at_most).take_while(|row| row.position < pinned).count();
        let below = match count.checked_sub(1) {
            Some(at) => self.order[at].position + 1,
            None => 0,
        };
        (count, below)
    }

    /// Records that the rows below this position are no longer in `recent`.
    pub(super) fn removed_below(&mut self, below: i64) {
        self.removals += 1;
        while let Some(row) = self.order.front()
            && row.position < below
        {
            let Some(Placed { position, bytes, conversation }) = self.order.pop_front() else { return };
            self.bytes -= bytes;
            let Some(log) = self.conversations.get_mut(&conversation) else { continue };
            if log.rows.front().is_some_and(|front| front.position == position) {
                log.rows.pop_front();
                log.settled -= 1;
            }
            if log.rows.is_empty() {
                self.conversations.remove(&conversation);
            }
        }
    }

    /// The positions of all rows of a conversation, settled or not.
    pub(super) fn positions(&self, conversation: &ConversationId) -> Vec<i64> {
        let Some(log) = self.conversations.get(conversation) else { return Vec::new() };
        log.rows.iter().map(|row| row.position).collect()
    }

    /// Records that the conversation no longer has rows.
    pub(super) fn forget(&mut self, conversation: &ConversationId) {
        self.removals += 1;
        let Some(log) = self.conversations.remove(conversation) else { return };
        if let Some(first) = log.rows.get(log.settled) {
            self.pinning.remove(&first.position);
        }
        self.unsettled_bytes -= log.unsettled_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { chunk_bytes: 100, hot_bytes: 1000, hot_rows: 6, unsettled_bytes: 1000 };

    fn due(index: &mut HotIndex) -> Vec<ConversationId> {
        let step = Step { conversations: 2, bytes: 1000 };
        index.due(step).into_iter().map(|(conversation, _)| conversation).collect()
    }

    fn id(name: &str) -> ConversationId {
        ConversationId::from(name)
    }

    fn row(position: i64, seq: u64, bytes: usize) -> HotRow {
        HotRow { position, first: Seq(seq), last: Seq(seq), bytes, lines: None }
    }

    #[test]
    fn a_full_chunk_is_due_and_frees_the_front_once_settled() {
        let mut index = HotIndex::new(LIMITS);
        let a = id("a");
        index.push(&a, row(1, 1, 60));
        assert!(due(&mut index).is_empty());
        index.push(&a, row(2, 2, 60));
        assert_eq!(due(&mut index), std::slice::from_ref(&a));
        assert_eq!(index.unsettled(&a).len(), 2);
        assert_eq!(index.removable(10), (0, 0));
        index.settled(&a);
        assert_eq!(index.rows(&a, Seq(0), i64::MAX).len(), 2, "readable until the front is cut");
        assert_eq!(index.removable(1), (1, 2));
        assert_eq!(index.removable(10), (2, 3));
        index.removed_below(3);
        assert!(index.conversations.is_empty() && index.order.is_empty() && index.bytes == 0);
    }

    #[test]
    fn an_old_row_is_settled_when_the_table_exceeds_its_limit() {
        let mut index = HotIndex::new(LIMITS);
        index.push(&id("old"), row(1, 1, 1));
        for position in 2..=6 {
            index.push(&id("busy"), row(position, position as u64, 1));
        }
        assert!(due(&mut index).is_empty());
        index.push(&id("busy"), row(7, 7, 1));
        assert_eq!(due(&mut index), [id("old"), id("busy")], "the oldest first");
        index.settled(&id("old"));
        index.removed_below(2);
        assert!(due(&mut index).is_empty());
    }

    #[test]
    fn what_is_kept_in_memory_is_limited_and_given_back_once_settled() {
        let mut index = HotIndex::new(Limits { unsettled_bytes: 150, ..LIMITS });
        for (position, name) in (1..).zip(["a", "b", "c"]) {
            let lines = Some(Bytes::from_static(&[b'x'; 60]));
            index.push(&id(name), HotRow { lines, ..row(position, 1, 60) });
        }
        assert!(index.outgrown(1) && !index.outgrown(2));
        assert_eq!(due(&mut index), [id("a"), id("b")], "the oldest first, although no chunk is full");
        index.settled(&id("a"));
        assert!(!index.outgrown(1));
        assert_eq!(index.rows(&id("a"), Seq(0), 9), [row(1, 1, 60)], "the table still has its lines");
        index.forget(&id("b"));
        assert_eq!(index.unsettled_bytes, 60);
    }

    #[test]
    fn undo_leaves_no_trace() {
        let mut index = HotIndex::new(LIMITS);
        let (a, b) = (id("a"), id("b"));
        index.push(&a, row(1, 1, 10));
        index.settled(&a);
        index.push(&a, row(2, 2, 10));
        index.push(&b, row(3, 1, 10));
        index.undo(2);
        assert_eq!((index.last(&a), index.last(&b)), (Some(Seq(1)), None));
        assert_eq!((index.oldest(), index.bytes, index.order.len()), (None, 10, 1));
        assert_eq!(index.unsettled_bytes, 0);
        assert_eq!(index.removable(9), (1, 2));
    }

    #[test]
    fn a_snapshot_sees_only_its_own_positions() {
        let mut index = HotIndex::new(LIMITS);
        let a = id("a");
        for position in 1..=4 {
            index.push(&a, row(position, position as u64, 1));
        }
        assert_eq!(index.rows(&a, Seq(1), 3), [row(2, 2, 1), row(3, 3, 1)]);
        assert_eq!(index.rows(&a, Seq(4), 3), []);
        assert_eq!(index.last_until(&a, 3), Some(Seq(3)));
        assert_eq!(index.last_until(&a, 0), None);
    }

    #[test]
    fn a_forgotten_conversation_pins_nothing() {
        let mut index = HotIndex::new(LIMITS);
        let a = id("a");
        index.push(&a, row(1, 1, 1));
        let before = index.removals();
        index.forget(&a);
        assert_ne!(index.removals(), before);
        index.push(&a, row(2, 1, 1));
        assert_eq!(index.removable(9), (1, 2));
        index.removed_below(2);
        assert_eq!(index.rows(&a, Seq(0), 9), [row(2, 1, 1)]);
    }
}
