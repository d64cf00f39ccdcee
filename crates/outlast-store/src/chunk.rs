//! Records as tables hold them: the lines of a chunk, joined by newlines.

use std::io::BufRead;

use bytes::Bytes;
use outlast_core::Seq;

use crate::{Record, StoreError};

/// Consecutive records of one conversation in one value.
pub(crate) struct Chunk {
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    pub(crate) bytes: Vec<u8>,
}

impl Chunk {
    /// The lines of these records, without a newline at the end.
    pub(crate) fn join(records: &[Record], joined: &mut Vec<u8>) {
        joined.clear();
        for (n, record) in records.iter().enumerate() {
            if n > 0 {
                joined.push(b'\n');
            }
            joined.extend_from_slice(&record.bytes);
        }
    }

    /// Adds lines that follow directly.
    pub(crate) fn extend(&mut self, last: Seq, bytes: &[u8]) {
        self.last = last;
        self.bytes.push(b'\n');
        self.bytes.extend_from_slice(bytes);
    }

    /// The records, sharing the chunk's memory.
    pub(crate) fn records(self) -> Result<Vec<Record>, StoreError> {
        let broken = || StoreError::Broken(format!("a chunk lacks records up to {}", self.last));
        let whole = Bytes::from(self.bytes);
        let count = (self.last.0 + 1).checked_sub(self.first.0).ok_or_else(broken)?;
        let mut records = Vec::new();
        let mut start = 0;
        for n in 1..=count {
            let mut rest = &whole[start..];
            let end = if n == count {
                whole.len()
            } else {
                // `skip_until` is the standard library's `memchr`; it includes the newline it finds.
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

    /// The part between two positions, both included, if any of it is there.
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
    fn lines_come_apart_as_they_were_joined_even_empty_ones() {
        for text in ["a", "", "\n", "a\n\nb", "\n\n", "a\n"] {
            let expected: Vec<_> =
                text.split('\n').map(str::to_owned).zip(7..).map(|(t, n)| (n, t)).collect();
            assert_eq!(texts(chunk(7, text)), expected);
        }
    }

    #[test]
    fn a_chunk_that_lacks_lines_is_broken() {
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
