//! Trim and delete. Both are rare, and durable when they return.
//!
//! A delete marks the conversation in one small transaction, which makes it invisible. Its data is removed in
//! bounded steps, so that other conversations can commit in between; after a crash the next start continues.
//! The delete returns after the last step, so that a conversation created again under the same id starts empty.

use outlast_core::{ConversationId, Seq};
use rusqlite::Transaction;

use crate::fault::point;
use crate::sqlite::chunk::{Chunk, settled_last};
use crate::sqlite::failure::Failure;
use crate::sqlite::writer::{Answer, Writer};
use crate::sqlite::{settle, sql_int};

/// The maximum number of documents that a step removes; each touches pages in several indexes. With these
/// three limits a step takes a few milliseconds, while appends wait.
const STEP_DOCUMENTS: usize = 256;
/// The maximum number of chunks, about 32 KiB each.
const STEP_CHUNKS: usize = 32;
/// The maximum number of recent rows.
const STEP_ROWS: usize = 1024;

macro_rules! remove_sql {
    ($table:literal, $key:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " WHERE rowid IN (SELECT rowid FROM ",
            $table,
            " WHERE ",
            $key,
            " = ?1 LIMIT ?2)"
        )
    };
}

impl Writer {
    /// Removes records. Recent ones are settled first, so that only `log` can have holes: a row of `recent`
    /// is then in `log` exactly if it ends before the settled part does.
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

    /// Makes the conversation invisible, durably, and queues the removal of its data. The caller gets its
    /// reply when the removal is done.
    pub(super) fn delete(&mut self, conversation: ConversationId, answer: Answer) {
        if let Some(removal) = self.removals.iter_mut().find(|removal| removal.conversation == conversation) {
            removal.answers.push(answer);
            return;
        }
        let marked = self.transact(|tx| {
            let id = conversation.as_str();
            tx.prepare_cached("INSERT OR IGNORE INTO removals VALUES (?1)")?.execute([id])?;
            Ok(())
        });
        if let Err(failure) = marked {
            // A caller that has gone away does not need its answer.
            answer.send(Err(failure.to_store_error())).ok();
            return;
        }
        point("delete.marked");
        // Including settled rows that are still in `recent`: after a restart they would look like records that
        // were never settled.
        let positions = self.shared.hot().positions(&conversation);
        self.shared.hot().forget(&conversation);
        // No append can come in between, because this thread writes all of them.
        self.shared.ownership().owners.evict(&conversation);
        self.shared.wakes.wake(&conversation, Seq::ZERO);
        self.removals.push_back(Removal { conversation, positions, answers: vec![answer] });
    }

    /// Removes a bounded part of a deleted conversation. Returns whether there is more to do.
    pub(super) fn remove_step(&mut self) -> bool {
        let Some(mut removal) = self.removals.pop_front() else { return false };
        let result = self.transact_unsynced(|tx| removal.step(tx));
        point("delete.step");
        match result {
            // After the commit, because a step that is rolled back has removed nothing.
            Ok(Step::Left(positions)) => {
                removal.positions.truncate(positions);
                self.removals.push_front(removal);
                true
            }
            Ok(Step::Done) => {
                for answer in removal.answers {
                    answer.send(Ok(())).ok();
                }
                !self.removals.is_empty()
            }
            Err(failure) => {
                // The rest stays invisible and marked, and is removed later.
                tracing::warn!(?failure, "a deleted conversation could not be removed completely");
                self.removals.push_back(removal);
                // It may be long before the store can write again, so the callers should not wait.
                for answer in self.removals.iter_mut().flat_map(|removal| removal.answers.drain(..)) {
                    answer.send(Err(failure.to_store_error())).ok();
                }
                false
            }
        }
    }
}

/// A deleted conversation whose data is removed in steps, so that other writers are not delayed.
pub(super) struct Removal {
    pub(super) conversation: ConversationId,
    /// Its rows in `recent`.
    pub(super) positions: Vec<i64>,
    pub(super) answers: Vec<Answer>,
}

/// What remains after a step has been committed.
enum Step {
    /// There is more to do, and this many of the positions remain.
    Left(usize),
    Done,
}

impl Removal {
    /// Removes a bounded part. The last step also removes the mark.
    fn step(&self, tx: &Transaction<'_>) -> rusqlite::Result<Step> {
        let id = self.conversation.as_str();
        for (sql, most) in [
            (remove_sql!("stored_messages", "conversation_id"), STEP_DOCUMENTS),
            (remove_sql!("stored_generations", "conversation_id"), STEP_DOCUMENTS),
            (remove_sql!("log", "conversation"), STEP_CHUNKS),
        ] {
            if tx.prepare_cached(sql)?.execute((id, sql_int(most as u64)))? >= most {
                return Ok(Step::Left(self.positions.len()));
            }
        }
        let left = self.positions.len().saturating_sub(STEP_ROWS);
        let mut statement = tx.prepare_cached("DELETE FROM recent WHERE position = ?1")?;
        for position in &self.positions[left..] {
            statement.execute([position])?;
        }
        if left > 0 {
            return Ok(Step::Left(left));
        }
        for sql in [
            "DELETE FROM stored_states WHERE id = ?1",
            "DELETE FROM stored_conversations WHERE id = ?1",
            "DELETE FROM removals WHERE conversation = ?1",
        ] {
            tx.prepare_cached(sql)?.execute([id])?;
        }
        Ok(Step::Done)
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
        // The end of the log must stay known although its last records are gone.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Append, Change, Newest, Table};
    use crate::sqlite::batch::Waiting;
    use crate::sqlite::writer::by_hand;
    use crate::sqlite::{Options, documents, opening, readers};
    use crate::suite::{append, conversation, document, head};
    use tokio::sync::oneshot;

    fn write(writer: &mut Writer, append: Append) {
        let (answer, mut answered) = oneshot::channel();
        writer.batch(&mut vec![Waiting { append, answer }]);
        answered.try_recv().unwrap().unwrap();
    }

    #[test]
    fn others_write_between_the_steps_of_a_delete_and_nobody_sees_what_is_left() {
        const MESSAGES: usize = 5_000;
        let folder = tempfile::tempdir().unwrap();
        let mut writer = by_hand(folder.path(), &Options::default());
        let (large, other) = (conversation("large"), conversation("other"));
        let fence = writer.shared.ownership().owners.claim(&large);
        let message = |n: usize| document(Table::Messages, &format!("m{n}"), &large, n as i64);
        let changes = (0..MESSAGES).map(message).chain([head(&large, 0)]).map(Change::Put).collect();
        let line = "x".repeat(50_000);
        write(&mut writer, Append { changes, ..append(&large, fence, 0, &[line.as_str(); 100]) });
        writer.settle_everything().unwrap();

        let (answer, mut answered) = oneshot::channel();
        writer.delete(large.clone(), answer);
        let fence = writer.shared.ownership().owners.claim(&other);
        let mut db = opening::open_reader(&folder.path().join("outlast.db")).unwrap();
        let mut between = 0;
        while answered.try_recv().is_err() {
            assert!(readers::load(&mut db, &writer.shared, &large, Newest::NONE).unwrap().is_none());
            assert!(readers::read(&mut db, &writer.shared, &large, Seq::ZERO, 9).unwrap().is_empty());
            assert!(documents::get(&db, Table::Messages, "m4999").unwrap().is_none());
            write(&mut writer, append(&other, fence, between, &["a"]));
            writer.tidy_up(|| true);
            between += 1;
        }
        assert!(between as usize > MESSAGES / STEP_DOCUMENTS, "{between} appends in between");
        let left = "SELECT (SELECT count(*) FROM stored_messages) + (SELECT count(*) FROM removals)";
        assert_eq!(writer.db.query_row(left, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    }

    #[tokio::test]
    async fn a_delete_that_was_interrupted_is_continued_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let c = conversation("c");
        {
            let mut writer = by_hand(folder.path(), &Options::default());
            let fence = writer.shared.ownership().owners.claim(&c);
            let changes = vec![Change::Put(head(&c, 0))];
            write(&mut writer, Append { changes, ..append(&c, fence, 0, &["a", "b"]) });
            let (answer, _) = oneshot::channel();
            writer.delete(c.clone(), answer);
        }
        let mut writer = by_hand(folder.path(), &Options::default());
        let mut db = opening::open_reader(&folder.path().join("outlast.db")).unwrap();
        assert!(readers::load(&mut db, &writer.shared, &c, Newest::NONE).unwrap().is_none());
        writer.tidy_up(|| false);
        let fence = writer.shared.ownership().owners.claim(&c);
        write(&mut writer, append(&c, fence, 0, &["new"]));
        let found = readers::read(&mut db, &writer.shared, &c, Seq::ZERO, 9).unwrap();
        assert_eq!((found.len(), &found[0].bytes[..]), (1, &b"new"[..]));
    }
}
