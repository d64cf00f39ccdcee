//! The one thread that writes. It gathers appends, commits them together, replies, and does housekeeping.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use outlast_core::{ConversationId, Seq};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use crate::contract::{Append, AppendError, Change, Fence, StoreError};
use crate::fault::point;
use crate::sqlite::Shared;
use crate::sqlite::batch::Waiting;
use crate::sqlite::failure::{Failure, broken};
use crate::sqlite::items::ItemWrite;
use crate::sqlite::opening::FENCE_BITS;
use crate::sqlite::pace::{self, Pace};
use crate::sqlite::removal::Removal;
use crate::sqlite::schema;
use crate::sqlite::wal::Wal;

/// A batch is closed when it holds this many bytes, so that one commit stays short.
const BATCH_BYTES: usize = 8 << 20;

/// A batch is closed when it holds this many appends.
const BATCH_APPENDS: usize = 4096;

/// Recent records may grow to this many times their limits before housekeeping goes ahead of appends.
pub(super) const OVERDUE: usize = 2;

pub(super) enum Command {
    Append { append: Append, answer: oneshot::Sender<Result<(), AppendError>> },
    Trim { conversation: ConversationId, first: Seq, last: Seq, answer: Answer },
    Delete { conversation: ConversationId, answer: Answer },
    Item(ItemWrite),
    RaiseFences { fence: Fence, answer: Answer },
    Settle { answer: Answer },
}

pub(super) type Answer = oneshot::Sender<Result<(), StoreError>>;

pub(super) struct Parts {
    pub(super) db: Connection,
    /// Held until the writer has ended, because only then may another process open the file.
    pub(super) lock: File,
    pub(super) next_position: i64,
    pub(super) chunk_bytes: usize,
    pub(super) cut_from: usize,
    pub(super) frame: Duration,
    /// Removals that were unfinished when the server last stopped.
    pub(super) removals: VecDeque<Removal>,
}

pub(super) struct Writer {
    pub(super) db: Connection,
    pub(super) shared: Arc<Shared>,
    /// Never used twice in one run, not even after a rollback, because readers identify snapshots by it.
    pub(super) next_position: i64,
    pub(super) chunk_bytes: usize,
    /// Fewer settled rows than this at the front of `recent` are not worth a transaction.
    pub(super) cut_from: usize,
    pub(super) wal: Wal,
    /// Conversations that are being removed, one at a time.
    pub(super) removals: VecDeque<Removal>,
    /// Set once, by a failure after which nothing may be written.
    pub(super) fatal: Option<Failure>,
}

/// Starts the thread. It ends when the last sender is dropped and every command is done.
pub(super) fn start(
    parts: Parts,
    commands: mpsc::Receiver<Command>,
    shared: Arc<Shared>,
) -> Result<JoinHandle<()>, StoreError> {
    let Parts { mut db, lock, next_position, chunk_bytes, cut_from, frame, removals } = parts;
    let wal = Wal::of(&mut db).map_err(broken)?;
    let run = move || {
        let alarm = Alarm(Arc::clone(&shared));
        let mut writer =
            Writer { db, shared, next_position, chunk_bytes, cut_from, wal, removals, fatal: None };
        writer.run(commands, frame);
        // In this order: close the database, then let other processes open it.
        drop(writer);
        drop(lock);
        drop(alarm);
    };
    let started = thread::Builder::new().name("outlast-writer".into()).spawn(run);
    started.map_err(|error| StoreError::Unavailable(format!("cannot start the writer: {error}")))
}

impl Writer {
    fn run(&mut self, mut commands: mpsc::Receiver<Command>, frame: Duration) {
        let mut pace = Pace::new(frame);
        let mut gathered = Gathered::default();
        let mut alone: Option<ConversationId> = None;
        self.tidy_up(|| !commands.is_empty());
        while let Some(first) = commands.blocking_recv() {
            gathered.add(first);
            gathered.wait(&pace, &mut commands, alone.as_ref());
            alone = gathered.only_conversation().cloned();
            pace.begin(Instant::now());
            point("append.received");
            if !gathered.appends.is_empty() {
                self.batch(&mut gathered.appends);
            }
            self.write_items(&mut gathered.items);
            for other in gathered.others.drain(..) {
                self.serve(other);
            }
            let Gathered { appends, items, others, .. } = gathered;
            gathered = Gathered { appends, items, others, ..Gathered::default() };
            self.tidy_up(|| !commands.is_empty());
        }
    }

    fn serve(&mut self, command: Command) {
        let (answer, result) = match command {
            Command::Append { append, answer } => return self.batch(&mut vec![Waiting { append, answer }]),
            Command::Item(write) => return self.write_items(&mut vec![write]),
            Command::Trim { conversation, first, last, answer } => {
                (answer, self.trim(&conversation, first, last))
            }
            Command::Delete { conversation, answer } => return self.delete(conversation, answer),
            Command::RaiseFences { fence, answer } => {
                (answer, self.transact(|tx| schema::raise_epoch(tx, fence.0 >> FENCE_BITS)))
            }
            Command::Settle { answer } => (answer, self.settle_everything()),
        };
        // A caller that has gone away does not need its answer.
        answer.send(result.map_err(|failure| failure.to_store_error())).ok();
    }

    /// Does housekeeping before the next batch: one step if a caller waits, otherwise all there is. Callers
    /// wait longer only if housekeeping has fallen far behind.
    pub(super) fn tidy_up(&mut self, somebody_waits: impl Fn() -> bool) {
        while self.tidy() {
            if somebody_waits() && !self.shared.hot().outgrown(OVERDUE) {
                break;
            }
        }
    }

    /// One bounded step of housekeeping. Returns whether there is more to do.
    fn tidy(&mut self) -> bool {
        if self.fatal.is_some() {
            return false;
        }
        let removing = self.remove_step();
        let more = match self.settle_step() {
            Ok(more) => more || removing,
            Err(failure) => {
                // Nothing is lost: unsettled records stay in `recent` and are settled later.
                tracing::warn!(?failure, "cannot move recent records into chunks; will retry");
                removing
            }
        };
        if let Err(error) = self.wal.tidy(&self.db) {
            tracing::warn!(%error, "cannot checkpoint the write-ahead log");
            self.note(&Failure::before_commit(&error));
        }
        more
    }

    /// Runs `work` in a transaction and commits it. If it fails, nothing was written.
    pub(super) fn transact<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        if let Some(fatal) = &self.fatal {
            return Err(fatal.clone());
        }
        let result = transact(&mut self.db, work);
        if let Err(failure) = &result {
            self.note(failure);
        }
        result
    }

    /// After a fatal failure nothing more is written, and the server is notified so that it can exit.
    pub(super) fn note(&mut self, failure: &Failure) {
        if let Failure::Fatal(why) = failure
            && self.fatal.is_none()
        {
            tracing::error!(%why, "storage failed; nothing more is written until a restart");
            self.fatal = Some(failure.clone());
            self.shared.failed.send_replace(true);
        }
    }
}

fn transact<T>(
    db: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> Result<T, Failure> {
    // If it is dropped without a commit, the transaction is rolled back.
    let tx = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|error| Failure::before_commit(&error))?;
    let done = work(&tx).map_err(|error| Failure::before_commit(&error))?;
    tx.commit().map_err(|error| Failure::at_commit(&error))?;
    Ok(done)
}

/// The commands that are served together: appends, and the others in order.
#[derive(Default)]
struct Gathered {
    appends: Vec<Waiting>,
    items: Vec<ItemWrite>,
    others: Vec<Command>,
    bytes: usize,
    waiting: pace::Waiting,
}

impl Gathered {
    fn add(&mut self, command: Command) {
        self.waiting = self.waiting.and(command.waiting());
        match command {
            Command::Append { append, answer } => {
                self.bytes += text_bytes(&append) + document_bytes(&append);
                self.appends.push(Waiting { append, answer });
            }
            Command::Item(write) => self.items.push(write),
            Command::Trim { .. }
            | Command::Delete { .. }
            | Command::RaiseFences { .. }
            | Command::Settle { .. } => {
                self.others.push(command);
            }
        }
    }

    /// The conversation that all gathered commands are about, if there is only one.
    fn only_conversation(&self) -> Option<&ConversationId> {
        let first = &self.appends.first()?.append.conversation;
        let only = |waiting: &Waiting| waiting.append.conversation == *first;
        (self.others.is_empty() && self.items.is_empty() && self.appends.iter().all(only)).then_some(first)
    }

    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.appends.len() + self.items.len() >= BATCH_APPENDS
    }

    /// Gathers commands until it is time to commit or the batch is full. Senders wake this thread only for
    /// commands that may be urgent, because a wake-up for each token would cost more than its commit.
    ///
    /// While a single conversation writes, one append after another, there is nothing to gather.
    fn wait(&mut self, pace: &Pace, commands: &mut mpsc::Receiver<Command>, alone: Option<&ConversationId>) {
        loop {
            while !self.is_full() {
                let Ok(command) = commands.try_recv() else { break };
                self.add(command);
            }
            if alone.is_some() && self.only_conversation() == alone {
                return;
            }
            let wait = pace.wait(self.waiting, Instant::now());
            if wait.is_zero() || self.is_full() {
                return;
            }
            thread::park_timeout(wait);
        }
    }
}

impl Command {
    pub(super) fn waiting(&self) -> pace::Waiting {
        match self {
            Self::Append { append, .. } if append.changes.is_empty() => {
                pace::Waiting::text(text_bytes(append))
            }
            Self::Append { .. }
            | Self::Item(_)
            | Self::Trim { .. }
            | Self::Delete { .. }
            | Self::RaiseFences { .. }
            | Self::Settle { .. } => pace::Waiting::prompt(),
        }
    }
}

fn text_bytes(append: &Append) -> usize {
    append.records.iter().map(|record| record.bytes.len()).sum()
}

fn document_bytes(append: &Append) -> usize {
    let bytes = |change: &Change| match change {
        Change::Put(document) => document.body.len() + document.state.as_ref().map_or(0, String::len),
        Change::Remove(..) => 0,
    };
    append.changes.iter().map(bytes).sum()
}

/// If the writer panics, wakes waiting claims and notifies the server, which can then exit.
struct Alarm(Arc<Shared>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.failed.send_replace(true);
            self.0.finished.send_replace(u64::MAX);
        }
    }
}

/// A writer without a thread, which a test drives step by step.
#[cfg(test)]
pub(super) fn by_hand(folder: &std::path::Path, options: &crate::sqlite::Options) -> Writer {
    let opened = crate::sqlite::opening::open(&folder.join("outlast.db"), options);
    let mut opened = opened.expect("a temporary folder can hold a store");
    let owners = crate::owners::Owners::after(opened.fences_after);
    let wal = Wal::of(&mut opened.db).expect("a new store has a write-ahead log");
    Writer {
        db: opened.db,
        shared: Arc::new(Shared::new(opened.hot, owners)),
        next_position: opened.next_position,
        chunk_bytes: options.chunk_bytes,
        cut_from: (options.hot_rows / 64).max(1),
        wal,
        removals: opened.removals,
        fatal: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{append, conversation};
    use crate::{SqliteStore, Store};
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn under_load_commits_are_a_frame_apart() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(&folder.path().join("outlast.db")).unwrap());
        let began = Instant::now();
        let mut writers = JoinSet::new();
        for n in 0..20 {
            let store = Arc::clone(&store);
            writers.spawn(async move {
                let c = conversation(&format!("c{n}"));
                let fence = store.claim(&c).await.unwrap();
                for seq in 0..20 {
                    store.append(append(&c, fence, seq, &["a"])).await.unwrap();
                }
            });
        }
        while let Some(done) = writers.join_next().await {
            done.unwrap();
        }
        let (commits, frames) =
            (store.shared.ownership().judged, began.elapsed().div_duration_f64(pace::FRAME));
        assert!(commits >= 20 && commits as f64 <= frames + 2.0, "{commits} commits in {frames} frames");
    }

    #[tokio::test]
    async fn a_conversation_that_writes_alone_does_not_wait_for_a_frame() {
        const APPENDS: u64 = 200;
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("outlast.db")).unwrap();
        let c = conversation("alone");
        let fence = store.claim(&c).await.unwrap();
        let began = Instant::now();
        for seq in 0..APPENDS {
            store.append(append(&c, fence, seq, &["a"])).await.unwrap();
        }
        let frames = began.elapsed().div_duration_f64(pace::FRAME);
        assert!(frames < 0.7 * APPENDS as f64, "{APPENDS} appends took {frames} frames");
    }
}
