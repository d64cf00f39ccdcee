//! Settling: rows of `recent` are copied into `log` as chunks, and then the front of `recent` is cut off.
//!
//! Every record is settled once. A conversation is settled when it has filled a chunk, or when it is the
//! oldest and `recent` has grown too long. Only the front is cut, as a range, because deleting scattered rows
//! would dirty a page for each.
//!
//! A crash between the two transactions is harmless: the next start ignores rows that are also in `log`.

use bytes::Bytes;
use outlast_core::{ConversationId, Seq};
use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::fault::point;
use crate::sqlite::chunk::Chunk;
use crate::sqlite::failure::Failure;
use crate::sqlite::hot::{HotRow, Step};
use crate::sqlite::sql_int;
use crate::sqlite::writer::Writer;

/// How much a step settles. It takes a few milliseconds, while appends wait. Conversations are limited too,
/// because each touches different pages.
const STEP: Step = Step { bytes: 512 << 10, conversations: 32 };

/// The maximum number of rows that a step cuts off.
const STEP_ROWS: usize = 8192;

type Due = (ConversationId, Vec<HotRow>);

impl Writer {
    /// Cuts or settles a bounded amount. Returns whether there is more to do.
    pub(super) fn settle_step(&mut self) -> Result<bool, Failure> {
        // Cut first: while conversations write, something is always due, and `recent` would never be cut.
        if self.cut(self.cut_from)? {
            return Ok(true);
        }
        let due = self.shared.hot().due(STEP);
        if due.is_empty() {
            return Ok(false);
        }
        self.settle(&due)?;
        Ok(true)
    }

    /// Settles everything, full chunks or not, and cuts all of it off.
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
        for (conversation, _) in due {
            hot.settled(conversation);
        }
        Ok(())
    }

    /// Cuts off the settled rows at the front if there are at least `at_least`. Returns whether there are more.
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

    /// A transaction that need not be durable when it returns, which saves an fsync for each step. It moves
    /// what is already durable, or removes what is durably marked for removal. The write-ahead log keeps the
    /// order: whatever survives a power loss is a prefix, in which each record is in `recent`, in `log`, or in
    /// both.
    pub(super) fn transact_unsynced<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        self.synchronous("NORMAL")?;
        let result = self.transact(work);
        self.synchronous("FULL")?;
        result
    }

    fn synchronous(&mut self, level: &str) -> Result<(), Failure> {
        let Err(error) = self.db.pragma_update(None, "synchronous", level) else { return Ok(()) };
        // If the synchronous level is unknown, no later commit may be acknowledged.
        let failure = Failure::Fatal(error.to_string());
        self.note(&failure);
        Err(failure)
    }
}

/// Copies rows into `log` as chunks. The first is joined to the last chunk there if that one is small.
pub(super) fn copy(
    tx: &Transaction<'_>,
    conversation: &str,
    rows: &[HotRow],
    chunk_bytes: usize,
) -> rusqlite::Result<()> {
    let mut rows = rows.iter();
    let Some(first) = rows.next() else { return Ok(()) };
    let lines = lines_of(tx, first)?;
    let mut chunk = match take_last(tx, conversation, first.first, chunk_bytes / 4)? {
        Some(mut chunk) => {
            chunk.extend(first.last, &lines);
            chunk
        }
        None => Chunk { first: first.first, last: first.last, bytes: lines.into() },
    };
    for row in rows {
        let lines = lines_of(tx, row)?;
        if chunk.bytes.len() + lines.len() >= chunk_bytes {
            chunk.insert(tx, conversation)?;
            chunk = Chunk { first: row.first, last: row.last, bytes: lines.into() };
        } else {
            chunk.extend(row.last, &lines);
        }
    }
    chunk.insert(tx, conversation)
}

fn lines_of(db: &Connection, row: &HotRow) -> rusqlite::Result<Bytes> {
    if let Some(lines) = &row.lines {
        return Ok(lines.clone());
    }
    let mut statement = db.prepare_cached("SELECT bytes FROM recent WHERE position = ?1")?;
    statement.query_row([row.position], |found| found.get::<_, Vec<u8>>(0)).map(Bytes::from)
}

/// Removes and returns the last chunk of `log` if it ends just before `next` and is at most `at_most` long.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Append;
    use crate::sqlite::Options;
    use crate::sqlite::batch::Waiting;
    use crate::sqlite::writer::{OVERDUE, by_hand};
    use crate::suite::{append, conversation};

    fn count(writer: &Writer, table: &str) -> usize {
        let sql = format!("SELECT count(*) FROM {table}");
        writer.db.query_row(&sql, [], |row| row.get::<_, u32>(0)).unwrap() as usize
    }

    const LINE: &str = "a line of about fifty bytes, as a token may well be";

    #[test]
    fn recent_stays_within_its_limits_although_appends_always_wait() {
        const CONVERSATIONS: usize = 50;
        const ROUNDS: u64 = 400;
        let folder = tempfile::tempdir().unwrap();
        let options = Options { chunk_bytes: 4000, hot_rows: 1000, ..Options::default() };
        let mut writer = by_hand(folder.path(), &options);
        let ids: Vec<_> = (0..CONVERSATIONS).map(|n| conversation(&format!("c{n}"))).collect();
        let fences: Vec<_> = ids.iter().map(|id| writer.shared.ownership().owners.claim(id)).collect();
        let mut most = 0;
        for round in 0..ROUNDS {
            let appends = ids.iter().zip(&fences).map(|(id, fence)| append(id, *fence, round, &[LINE]));
            writer.batch(&mut appends.map(unheard).collect());
            writer.tidy_up(|| true);
            most = most.max(count(&writer, "recent"));
        }
        assert!(most < 2 * options.hot_rows, "recent grew to {most} rows");
        // A conversation is settled once per round, not row by row.
        let rows = CONVERSATIONS * ROUNDS as usize;
        let chunks = count(&writer, "log");
        assert!(chunks > 0 && chunks < rows / 15, "{chunks} chunks for {rows} rows");
    }

    #[test]
    fn many_small_conversations_cannot_outrun_the_writer() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { hot_rows: 500, ..Options::default() };
        let mut writer = by_hand(folder.path(), &options);
        for round in 0..20 {
            let mut batch = Vec::new();
            for n in 0..200 {
                let id = conversation(&format!("c{round}.{n}"));
                let fence = writer.shared.ownership().owners.claim(&id);
                batch.push(unheard(append(&id, fence, 0, &[LINE])));
            }
            writer.batch(&mut batch);
            writer.tidy_up(|| true);
            let rows = count(&writer, "recent");
            assert!(rows <= OVERDUE * options.hot_rows, "recent grew to {rows} rows");
        }
    }

    fn unheard(append: Append) -> Waiting {
        let (answer, _) = tokio::sync::oneshot::channel();
        Waiting { append, answer }
    }
}
