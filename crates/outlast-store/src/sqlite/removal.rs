//! Trim and delete. Both are rare and durable when they return.

use outlast_core::{ConversationId, Seq};
use rusqlite::Transaction;

use crate::sqlite::chunk::{Chunk, settled_last};
use crate::sqlite::failure::Failure;
use crate::sqlite::writer::Writer;
use crate::sqlite::{documents, settle, sql_int};

impl Writer {
    /// Removes records. What is recent is settled first, so that only `log` can have holes: a row of
    /// `recent` is then covered by `log` exactly if it ends before the end of the settled part.
    pub(super) fn trim(
        &mut self,
        conversation: &ConversationId,
        first: Seq,
        last: Seq,
    ) -> Result<(), Failure> {
        let rows = self.shared.hot().unsettled(conversation);
        let chunk_bytes = self.chunk_bytes;
        self.transact(|tx| {
            settle::copy(tx, conversation.as_str(), &rows, chunk_bytes)?;
            trim(tx, conversation.as_str(), first, last)
        })?;
        self.shared.hot().settled(conversation);
        Ok(())
    }

    /// Removes everything, also the settled rows that `recent` still has: at the next start nothing
    /// would tell them from records that were never settled.
    pub(super) fn delete(&mut self, conversation: &ConversationId) -> Result<(), Failure> {
        let positions = self.shared.hot().positions(conversation);
        self.transact(|tx| {
            documents::delete_all(tx, conversation.as_str())?;
            tx.prepare_cached("DELETE FROM log WHERE conversation = ?1")?.execute([conversation.as_str()])?;
            let mut statement = tx.prepare_cached("DELETE FROM recent WHERE position = ?1")?;
            for position in &positions {
                statement.execute([position])?;
            }
            Ok(())
        })?;
        self.shared.hot().forget(conversation);
        // No append comes in between: this thread would be the one to write it.
        self.shared.ownership().owners.evict(conversation);
        self.shared.wakes.wake(conversation, Seq::ZERO);
        Ok(())
    }
}

fn trim(tx: &Transaction<'_>, conversation: &str, first: Seq, last: Seq) -> rusqlite::Result<()> {
    let end = settled_last(tx, conversation)?;
    let last = last.min(end);
    if first > last {
        return Ok(());
    }
    for chunk in overlapping(tx, conversation, first, last)? {
        let sql = "DELETE FROM log WHERE conversation = ?1 AND first_seq = ?2";
        tx.prepare_cached(sql)?.execute((conversation, sql_int(chunk.first.0)))?;
        if let Some(before) = chunk.part(Seq::ZERO, Seq(first.0.saturating_sub(1))) {
            before.insert(tx, conversation)?;
        }
        if let Some(behind) = chunk.part(last.next(), end) {
            behind.insert(tx, conversation)?;
        }
    }
    if last == end {
        // The end of the log must be known although nothing is there any more.
        let sql = "INSERT OR IGNORE INTO log (conversation, first_seq, last_seq) VALUES (?1, ?2, ?2)";
        tx.prepare_cached(sql)?.execute((conversation, sql_int(end.0)))?;
    }
    Ok(())
}

fn overlapping(
    tx: &Transaction<'_>,
    conversation: &str,
    first: Seq,
    last: Seq,
) -> rusqlite::Result<Vec<Chunk>> {
    let sql = "SELECT first_seq, last_seq, bytes FROM log WHERE conversation = ?1 AND bytes IS NOT NULL \
               AND first_seq <= ?3 AND last_seq >= ?2 ORDER BY first_seq";
    let mut statement = tx.prepare_cached(sql)?;
    let chunks = statement.query_map((conversation, sql_int(first.0), sql_int(last.0)), |row| {
        Ok(Chunk {
            first: Seq(row.get::<_, i64>(0)?.cast_unsigned()),
            last: Seq(row.get::<_, i64>(1)?.cast_unsigned()),
            bytes: row.get(2)?,
        })
    })?;
    chunks.collect()
}
