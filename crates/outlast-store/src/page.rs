//! The small rules every store must apply alike: what a sound append is, where a page of records ends,
//! how the newest messages are handed out.

use crate::contract::{Append, Document, Record};

/// Panics on an append that breaks the contract. That is a bug of the caller, found in the caller's task;
/// written down, it would spoil the log for good.
pub(crate) fn assert_sound(append: &Append) {
    let mut expected = append.expected;
    for record in &append.records {
        expected = expected.next();
        assert_eq!(record.seq, expected, "records of {} must be dense", append.conversation);
        assert!(!record.bytes.contains(&b'\n'), "record {expected} of {} has a newline", append.conversation);
    }
}

/// Collects records up to a number of bytes, but at least one.
pub(crate) struct Page {
    records: Vec<Record>,
    room: usize,
}

impl Page {
    pub(crate) fn of(max_bytes: usize) -> Self {
        Self { records: Vec::new(), room: max_bytes }
    }

    /// Takes the record if there is room, or if it would be the first; false once the page is complete.
    pub(crate) fn add(&mut self, record: Record) -> bool {
        let size = record.bytes.len();
        if size > self.room && !self.records.is_empty() {
            return false;
        }
        self.room = self.room.saturating_sub(size);
        self.records.push(record);
        true
    }

    pub(crate) fn into_records(self) -> Vec<Record> {
        self.records
    }
}

/// Turns the newest `wanted + 1` messages, newest first, into the newest `wanted` in reading order, and
/// says whether there are older ones.
pub(crate) fn ascending(mut newest: Vec<Document>, wanted: usize) -> (Vec<Document>, bool) {
    let more = newest.len() > wanted;
    newest.truncate(wanted);
    newest.reverse();
    (newest, more)
}
