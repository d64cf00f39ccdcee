//! Records as they are stored in tables: one line each, joined by newlines.

use std::io::BufRead;

use bytes::Bytes;
use outlast_core::Seq;

use crate::{Record, StoreError};

/// Consecutive records of one conversation, stored as one value.
pub(crate) struct Chunk {
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    pub(crate) bytes: Vec<u8>,
}

impl Chunk {
    /// Joins the lines of these records, without a final newline.
    pub(crate) fn join(records: &[Record]) -> Bytes {
        // Nearly every append has one record, whose bytes need not be copied.
        if let [record] = records {
            return record.bytes.clone();
        }
        let size = records.iter().map(|record| record.bytes.len() + 1).sum();
        let mut joined = Vec::with_capacity(size);
        for (n, record) in records.iter().enumerate() {
            if n > 0 {
                joined.push(b'\n');
            }
            joined.extend_from_slice(&record.bytes);
        }
        joined.into()
    }

    /// Adds the lines that directly follow.
    pub(crate) fn extend(&mut self, last: Seq, bytes: &[u8]) {
        self.last = last;
        self.bytes.push(b'\n');
        self.bytes.extend_from_slice(bytes);
    }

    /// Splits the chunk into records that share its memory.
    pub(crate) fn records(self) -> Result<Vec<Record>, StoreError> {
        let broken =
            || StoreError::Broken(format!("a chunk that should end at {} has too few records", self.last));
        let whole = Bytes::from(self.bytes);
        let count = (self.last.0 + 1).checked_sub(self.first.0).ok_or_else(broken)?;
        let mut records = Vec::new();
        let mut start = 0;
        for n in 1..=count {
            let mut rest = &whole[start..];
            let end = if n == count {
                whole.len()
            } else {
                // `skip_until` uses the standard library's `memchr`, and includes the newline.
                let taken = rest.skip_until(b'\n').map_err(|_| broken())?;
                if taken == 0 || whole[start + taken - 1] != b'\n' {
                    return Err(broken());
                }
                start + taken - 1
            };
            records.push(Record { seq: Seq(self.first.0 + n - 1), bytes: whole.slice(start..end) });
            start = end + 1;
        }
        Ok(records)
    }

    /// The records from `first` to `last` inclusive; `None` if the chunk has none of them.
    pub(crate) fn part(&self, first: Seq, last: Seq) -> Option<Chunk> {
        let (first, last) = (first.max(self.first), last.min(self.last));
        if first > last {
            return None;
        }
        let skip = (first.0 - self.first.0) as usize;
        let take = (last.0 - first.0 + 1) as usize;
        let lines: Vec<&[u8]> = self.bytes.split(|byte| *byte == b'\n').skip(skip).take(take).collect();
        Some(Chunk { first, last, bytes: lines.join(&b'\n') })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(first: u64, text: &str) -> Chunk {
        let lines = text.split('\n').count() as u64;
        Chunk { first: Seq(first), last: Seq(first + lines - 1), bytes: text.into() }
    }

    fn texts(chunk: Chunk) -> Vec<(u64, String)> {
        let records = chunk.records().unwrap();
        records.iter().map(|r| (r.seq.0, String::from_utf8(r.bytes.to_vec()).unwrap())).collect()
    }

    #[test]
    fn joined_lines_split_into_the_same_lines_even_empty_ones() {
        for text in ["a", "", "\n", "a\n\nb", "\n\n", "a\n"] {
            let expected: Vec<_> =
                text.split('\n').map(str::to_owned).zip(7..).map(|(t, n)| (n, t)).collect();
            assert_eq!(texts(chunk(7, text)), expected);
        }
    }

    #[test]
    fn a_chunk_with_too_few_lines_is_an_error() {
        for text in ["", "a", "a\nb"] {
            let short = Chunk { first: Seq(1), last: Seq(3), bytes: text.into() };
            assert!(matches!(short.records(), Err(StoreError::Broken(_))), "{text:?}");
        }
    }

    #[test]
    fn parts_keep_their_positions() {
        let whole = chunk(3, "c\nd\n\nf");
        assert_eq!(texts(whole.part(Seq(0), Seq(4)).unwrap()), [(3, "c".into()), (4, "d".into())]);
        assert_eq!(texts(whole.part(Seq(5), Seq(9)).unwrap()), [(5, String::new()), (6, "f".into())]);
        assert!(whole.part(Seq(7), Seq(9)).is_none() && whole.part(Seq(4), Seq(3)).is_none());
    }
}
