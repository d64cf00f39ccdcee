//! Checkpoints of the write-ahead log.
//!
//! SQLite reports the pages of each commit, so everything counts: records, documents, states, indexes, and
//! what settling and removal write.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rusqlite::Connection;

use crate::sqlite::opening::{BUSY, PAGE_BYTES};

/// Pages are copied into the database after about 16 MiB: often enough that readers search a short log,
/// rarely enough that a page written many times is copied once.
const CHECKPOINT_PAGES: i64 = (16 << 20) / PAGE_BYTES;

/// The log can start over only when no reader uses it. If there always was one and the log has become this
/// long, the writer waits for the readers.
const RESTART_PAGES: i64 = (32 << 20) / PAGE_BYTES;

/// How long the writer waits for readers. Our own reads are shorter.
const READERS: Duration = Duration::from_millis(50);

pub(super) struct Wal {
    /// The length of the log after the last commit.
    pages: Arc<AtomicI64>,
    /// Its length at the last checkpoint.
    checkpointed: i64,
}

impl Wal {
    /// Counts the pages that this connection commits.
    pub(super) fn of(db: &mut Connection) -> rusqlite::Result<Self> {
        let pages = Arc::new(AtomicI64::new(0));
        let counted = Arc::clone(&pages);
        db.wal_hook(Some(move |_: &mut _, pages| {
            counted.store(i64::from(pages), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { pages, checkpointed: 0 })
    }

    /// Runs a checkpoint if enough was written since the last one.
    pub(super) fn tidy(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let pages = self.pages.load(Ordering::Relaxed);
        // If the log is shorter than before, it has started over.
        let before = if pages < self.checkpointed { 0 } else { self.checkpointed };
        if pages - before < CHECKPOINT_PAGES {
            return Ok(());
        }
        self.checkpointed = pages;
        // A passive checkpoint never waits for readers. What it cannot copy now, it copies next time.
        db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        if pages >= RESTART_PAGES { restart(db) } else { Ok(()) }
    }
}

/// Waits a little for the readers. A long one, such as a person with `sqlite3` and an open transaction,
/// costs disk space but does not delay appends.
fn restart(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(READERS)?;
    let done = db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
    db.busy_timeout(BUSY)?;
    done
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::contract::{Append, Change, Document, Table};
    use crate::sqlite::batch::Waiting;
    use crate::sqlite::writer::by_hand;
    use crate::sqlite::{Options, opening};
    use crate::suite::{append, conversation, document, head};
    use tokio::sync::oneshot;

    #[test]
    fn a_long_reader_does_not_delay_the_writer() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = by_hand(folder.path(), &Options::default());
        let mut reader = opening::open_reader(&folder.path().join("outlast.db")).unwrap();
        let staying = reader.transaction().unwrap();
        staying.query_row("SELECT count(*) FROM recent", [], |_| Ok(())).unwrap();
        let c = conversation("c");
        let fence = writer.shared.ownership().owners.claim(&c);
        for expected in 0..2 {
            let (answer, mut answered) = oneshot::channel();
            writer.batch(&mut vec![Waiting { append: append(&c, fence, expected, &["a"]), answer }]);
            answered.try_recv().unwrap().unwrap();
            let began = Instant::now();
            restart(&writer.db).unwrap();
            assert!(began.elapsed() < BUSY / 2, "waited {:?}", began.elapsed());
        }
    }

    /// In an earlier version, 240 tool calls of 4 KB wrote 564 MB of documents without a single checkpoint.
    #[test]
    fn i18_documents_and_states_count_towards_the_checkpoint() {
        const ROUNDS: u64 = 400;
        const EACH: usize = 100_000;
        let folder = tempfile::tempdir().unwrap();
        let mut writer = by_hand(folder.path(), &Options::default());
        let c = conversation("c");
        let fence = writer.shared.ownership().owners.claim(&c);
        let (mut most, mut written) = (0, 0);
        for round in 0..ROUNDS {
            let text = "x".repeat(EACH);
            let message = document(Table::Messages, &round.to_string(), &c, 1);
            let changes = vec![
                Change::Put(Document { state: Some(text.clone()), ..head(&c, round) }),
                Change::Put(Document { body: text, ..message }),
            ];
            written += 2 * EACH as u64;
            let (answer, mut answered) = oneshot::channel();
            let append = Append { changes, ..append(&c, fence, round, &["a"]) };
            writer.batch(&mut vec![Waiting { append, answer }]);
            answered.try_recv().unwrap().unwrap();
            writer.tidy_up(|| true);
            most = most.max(std::fs::metadata(folder.path().join("outlast.db-wal")).unwrap().len());
        }
        assert!(written > 64 << 20 && most < 64 << 20, "{written} bytes written, WAL of {most}");
    }
}
