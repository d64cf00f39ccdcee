//! Settling: rows of `recent` become chunks of `log`, and then the front of `recent` is cut off.
//!
//! Everything passes through here once. A conversation is settled when it has filled a chunk, or when it
//! is the oldest and `recent` has grown too long. Only the front is ever cut, as a range: to delete rows
//! here and there would dirty a page for each.
//!
//! A crash between the two transactions is harmless: rows that `log` covers are ignored at the next start.

use outlast_core::{ConversationId, Seq};
use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::fault::point;
use crate::sqlite::chunk::Chunk;
use crate::sqlite::failure::Failure;
use crate::sqlite::hot::HotRow;
use crate::sqlite::sql_int;
use crate::sqlite::writer::Writer;

/// A step settles about this many bytes, which takes a few milliseconds; appends wait meanwhile.
const STEP_BYTES: usize = 512 << 10;

/// A step settles at most this many conversations, each of which touches pages of its own.
const STEP_CONVERSATIONS: usize = 32;

/// A step cuts off at most this many rows.
const STEP_ROWS: usize = 8192;

type Due = (ConversationId, Vec<HotRow>);

impl Writer {
    /// Settles or cuts a bounded amount; whether there is more to do.
    pub(super) fn settle_step(&mut self) -> Result<bool, Failure> {
        let due = self.due();
        if !due.is_empty() {
            self.settle(&due)?;
            return Ok(true);
        }
        self.cut(self.cut_from)
    }

    /// Settles whatever there is, full or not, and cuts all of it off.
    pub(super) fn settle_everything(&mut self) -> Result<(), Failure> {
        loop {
            let oldest = self.shared.hot().oldest();
            let Some(conversation) = oldest else { break };
            let rows = self.shared.hot().unsettled(&conversation);
            self.settle(&[(conversation, rows)])?;
        }
        while self.cut(1)? {}
        Ok(())
    }

    fn due(&self) -> Vec<Due> {
        let mut hot = self.shared.hot();
        let mut due: Vec<Due> = Vec::new();
        let mut bytes = 0;
        while due.len() < STEP_CONVERSATIONS && bytes < STEP_BYTES {
            let Some(conversation) = hot.due() else { break };
            // The oldest stays the oldest until it is settled, which happens after this loop.
            if due.iter().any(|(already, _)| *already == conversation) {
                break;
            }
            let rows = hot.unsettled(&conversation);
            bytes += rows.iter().map(|row| row.bytes).sum::<usize>();
            due.push((conversation, rows));
        }
        due
    }

    fn settle(&mut self, due: &[Due]) -> Result<(), Failure> {
        point("settle.before");
        let chunk_bytes = self.chunk_bytes;
        self.transact_unsynced(|tx| {
            for (conversation, rows) in due {
                copy(tx, conversation.as_str(), rows, chunk_bytes)?;
            }
            point("settle.copied");
            Ok(())
        })?;
        point("settle.committed");
        let mut hot = self.shared.hot();
        for (conversation, rows) in due {
            self.written += rows.iter().map(|row| row.bytes).sum::<usize>();
            hot.settled(conversation);
        }
        Ok(())
    }

    /// Cuts off the settled rows at the front if there are at least so many; whether there are more.
    fn cut(&mut self, at_least: usize) -> Result<bool, Failure> {
        let (rows, below) = self.shared.hot().removable(STEP_ROWS);
        if rows < at_least {
            return Ok(false);
        }
        self.transact_unsynced(|tx| {
            tx.prepare_cached("DELETE FROM recent WHERE position < ?1")?.execute([below])?;
            Ok(())
        })?;
        point("truncate.committed");
        self.shared.hot().removed_below(below);
        Ok(true)
    }

    /// A transaction that need not be durable when it returns. It moves what is durable already, and the
    /// write-ahead log keeps the order: whatever survives a loss of power is a prefix, in which each
    /// record is in `recent`, in `log`, or in both. That saves an fsync for each step.
    fn transact_unsynced(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), Failure> {
        self.synchronous("NORMAL")?;
        let result = self.transact(work);
        self.synchronous("FULL")?;
        result
    }

    fn synchronous(&mut self, level: &str) -> Result<(), Failure> {
        let Err(error) = self.db.pragma_update(None, "synchronous", level) else { return Ok(()) };
        // Without certainty about the level no commit may be acknowledged.
        let failure = Failure::Fatal(error.to_string());
        self.note(&failure);
        Err(failure)
    }
}

/// Copies rows into `log` as chunks, the first of them joined to the last chunk there if that is small.
pub(super) fn copy(
    tx: &Transaction<'_>,
    conversation: &str,
    rows: &[HotRow],
    chunk_bytes: usize,
) -> rusqlite::Result<()> {
    let mut rows = rows.iter();
    let Some(first) = rows.next() else { return Ok(()) };
    let first_bytes = bytes_of(tx, first)?;
    let mut chunk = match take_last(tx, conversation, first.first, chunk_bytes / 2)? {
        Some(mut chunk) => {
            chunk.extend(first.last, &first_bytes);
            chunk
        }
        None => Chunk { first: first.first, last: first.last, bytes: first_bytes },
    };
    for row in rows {
        let bytes = bytes_of(tx, row)?;
        if chunk.bytes.len() + bytes.len() >= chunk_bytes {
            chunk.insert(tx, conversation)?;
            chunk = Chunk { first: row.first, last: row.last, bytes };
        } else {
            chunk.extend(row.last, &bytes);
        }
    }
    chunk.insert(tx, conversation)
}

fn bytes_of(db: &Connection, row: &HotRow) -> rusqlite::Result<Vec<u8>> {
    let mut statement = db.prepare_cached("SELECT bytes FROM recent WHERE position = ?1")?;
    statement.query_row([row.position], |found| found.get(0))
}

/// Takes the last chunk out of `log` if it ends just before `next` and is not longer than `at_most`.
fn take_last(
    tx: &Transaction<'_>,
    conversation: &str,
    next: Seq,
    at_most: usize,
) -> rusqlite::Result<Option<Chunk>> {
    let sql = "SELECT first_seq, bytes FROM log WHERE conversation = ?1 AND first_seq = \
               (SELECT max(first_seq) FROM log WHERE conversation = ?1) \
               AND last_seq = ?2 AND length(bytes) <= ?3";
    let params = (conversation, sql_int(next.0) - 1, sql_int(at_most as u64));
    let found: Option<(i64, Vec<u8>)> =
        tx.prepare_cached(sql)?.query_row(params, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((first, bytes)) = found else { return Ok(None) };
    let sql = "DELETE FROM log WHERE conversation = ?1 AND first_seq = ?2";
    tx.prepare_cached(sql)?.execute((conversation, first))?;
    Ok(Some(Chunk { first: Seq(first.cast_unsigned()), last: Seq(next.0 - 1), bytes }))
}
