//! Records as rows: many small ones in one row, and a large one in several.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use super::{integer, seq};
use crate::chunk::Chunk;
use crate::{Record, StoreError};

/// A row of Convex holds at most 1 MiB. Smaller rows make smaller steps.
const ROW_BYTES: usize = 256 << 10;

/// A row as it is written.
#[derive(Serialize)]
pub(super) struct Line {
    first: String,
    last: String,
    part: usize,
    more: bool,
    base64: bool,
    pub(super) text: String,
}

/// A row as it is read.
#[derive(Deserialize)]
pub(super) struct Stored {
    first: String,
    last: String,
    more: bool,
    base64: bool,
    text: String,
}

/// The rows of an append. Records that are not text, or too large for one row, have rows of their own.
pub(super) fn rows(records: &[Record]) -> Vec<Line> {
    let mut rows = Vec::new();
    let mut run: Vec<Record> = Vec::new();
    let mut size = 0;
    for record in records {
        let Ok(text) = std::str::from_utf8(&record.bytes) else {
            close(&mut run, &mut rows);
            let parts: Vec<String> =
                record.bytes.chunks(ROW_BYTES / 4 * 3).map(|part| BASE64_STANDARD.encode(part)).collect();
            add_parts(record, parts, true, &mut rows);
            continue;
        };
        if text.len() > ROW_BYTES {
            close(&mut run, &mut rows);
            add_parts(record, split(text), false, &mut rows);
            continue;
        }
        let joined = if run.is_empty() { text.len() } else { size + 1 + text.len() };
        if joined > ROW_BYTES {
            close(&mut run, &mut rows);
        }
        size = if run.is_empty() { text.len() } else { joined };
        run.push(record.clone());
    }
    close(&mut run, &mut rows);
    rows
}

/// Joins a run of small records.
fn close(run: &mut Vec<Record>, rows: &mut Vec<Line>) {
    if let (Some(first), Some(last)) = (run.first(), run.last()) {
        let text = String::from_utf8_lossy(&Chunk::join(run)).into_owned();
        let (first, last) = (integer(first.seq.0), integer(last.seq.0));
        rows.push(Line { first, last, part: 0, more: false, base64: false, text });
    }
    run.clear();
}

fn add_parts(record: &Record, parts: Vec<String>, base64: bool, rows: &mut Vec<Line>) {
    let count = parts.len();
    for (part, text) in parts.into_iter().enumerate() {
        let (first, last) = (integer(record.seq.0), integer(record.seq.0));
        rows.push(Line { first, last, part, more: part + 1 < count, base64, text });
    }
}

fn split(mut text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let mut end = ROW_BYTES.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let (part, rest) = text.split_at(end);
        parts.push(part.to_owned());
        text = rest;
    }
    parts
}

/// The records of rows in the order of the log.
pub(super) fn records(rows: Vec<Stored>) -> Result<Vec<Record>, StoreError> {
    let mut records = Vec::new();
    let mut bytes = Vec::new();
    for row in rows {
        if row.base64 {
            let broken = |_| StoreError::Broken(format!("the record {} cannot be read", row.first));
            bytes.extend(BASE64_STANDARD.decode(&row.text).map_err(broken)?);
        } else {
            bytes.extend_from_slice(row.text.as_bytes());
        }
        if !row.more {
            let bytes = std::mem::take(&mut bytes);
            let chunk = Chunk { first: seq(&row.first)?, last: seq(&row.last)?, bytes };
            records.extend(chunk.records()?);
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use outlast_core::Seq;

    use super::*;

    fn stored(line: Line) -> Stored {
        assert!(line.text.len() <= ROW_BYTES, "{} bytes in a row", line.text.len());
        let Line { first, last, more, base64, text, .. } = line;
        Stored { first, last, more, base64, text }
    }

    #[test]
    fn records_of_all_sizes_come_back() {
        let sizes = [0, 1, 5, ROW_BYTES - 1, ROW_BYTES, ROW_BYTES + 1, 3, 3 * ROW_BYTES + 2, 0, 0];
        let mut written = Vec::new();
        for (size, n) in sizes.into_iter().zip(1_u64..) {
            // A row would end in the middle of a character.
            let text = format!("{}{}", "x".repeat(size % 3), "世".repeat(size / 3));
            written.push(Record { seq: Seq(2 * n - 1), bytes: Bytes::from(text) });
            written.push(Record { seq: Seq(2 * n), bytes: Bytes::from(vec![0xff; size]) });
        }
        let read = rows(&written).into_iter().map(stored).collect();
        assert_eq!(records(read).unwrap(), written);
    }

    #[test]
    fn small_records_share_a_row() {
        let record = |seq, bytes: usize| Record { seq: Seq(seq), bytes: Bytes::from(vec![b'x'; bytes]) };
        assert_eq!(rows(&(1..=100).map(|seq| record(seq, 100)).collect::<Vec<_>>()).len(), 1);
        assert_eq!(rows(&(1..=100).map(|seq| record(seq, ROW_BYTES / 10)).collect::<Vec<_>>()).len(), 12);
        assert_eq!(rows(&(1..=4096).map(|seq| record(seq, 0)).collect::<Vec<_>>()).len(), 1);
    }
}
