//! The embedded default: one SQLite file, one process, no server.
//!
//! One thread writes. It gathers the appends of all conversations into one transaction, so that a
//! thousand streams share each fsync, and answers only after the commit. Readers stand beside it on their
//! own connections and see committed transactions only. What is written first lands in `recent`, an
//! append-only table; chunks of it are settled into `log`, keyed by conversation, between commits.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use outlast_core::{ConversationId, Seq};
use tokio::sync::{mpsc, oneshot, watch};

use crate::contract::{
    Append, AppendError, Document, Fence, Listed, Loaded, Newest, Query, Record, Store, StoreError, Table,
};
use crate::owners::Owners;
use crate::page;
use crate::wakes::Wakes;

mod batch;
mod chunk;
mod documents;
mod failure;
mod hot;
mod opening;
mod pace;
mod private;
mod readers;
mod removal;
mod schema;
mod settle;
mod wal;
mod writer;

use hot::HotIndex;
use readers::Readers;
use writer::Command;

/// Limits of a [`SqliteStore`]. The defaults are for a server; tests make them tiny.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections that read, and so how many reads go on at once; the others wait.
    pub readers: usize,
    /// Calls that may wait for the writer; the next ones wait to be let in.
    pub queue: usize,
    /// A conversation's recent records are settled together once they are this many bytes: large enough
    /// that a long log is few rows, small enough that a reader at the tail reads little it does not want.
    pub chunk_bytes: usize,
    /// The oldest recent records are settled when there are more bytes than this of them, ...
    pub hot_bytes: usize,
    /// ... or more rows than this, each of which costs about 150 bytes of memory, ...
    pub hot_rows: usize,
    /// ... or more bytes than this that are not settled: those are kept in memory.
    pub unsettled_bytes: usize,
    /// Under load, commits begin this far apart.
    pub frame: Duration,
    /// The file may not grow beyond this many pages; for tests of a full disk.
    pub max_pages: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            readers: 4,
            queue: 4096,
            chunk_bytes: 32 << 10,
            hot_bytes: 64 << 20,
            hot_rows: 128 << 10,
            unsettled_bytes: 16 << 20,
            frame: pace::FRAME,
            max_pages: None,
        }
    }
}

/// Keeps everything in one file. Dropping it waits for what the writer has begun.
pub struct SqliteStore {
    shared: Arc<Shared>,
    readers: Arc<Readers>,
    // Both are there until the store is dropped; taken then, in this order, so that the writer ends.
    commands: Option<mpsc::Sender<Command>>,
    writer: Option<JoinHandle<()>>,
}

/// What the writer and the callers' tasks both touch, each lock for a few lines.
struct Shared {
    ownership: Mutex<Ownership>,
    hot: Mutex<HotIndex>,
    wakes: Wakes,
    /// The number of the last batch that is over, one way or the other.
    finished: watch::Sender<u64>,
    failed: watch::Sender<bool>,
}

/// The writer's thread has ended.
struct Gone;

struct Ownership {
    owners: Owners,
    /// The number of the last batch whose fences were judged.
    judged: u64,
}

impl SqliteStore {
    /// Opens or creates the file and takes it for this process alone.
    pub fn open(path: &Path) -> Result<SqliteStore, StoreError> {
        Self::open_with(path, Options::default())
    }

    /// Opens with other limits than the default ones.
    pub fn open_with(path: &Path, options: Options) -> Result<SqliteStore, StoreError> {
        let opened = opening::open(path, &options)?;
        let readers = Readers::open(path, &options)?;
        let shared = Arc::new(Shared::new(opened.hot, Owners::after(opened.fences_after)));
        let (commands, waiting) = mpsc::channel(options.queue);
        let parts = writer::Parts {
            db: opened.db,
            lock: opened.lock,
            next_position: opened.next_position,
            chunk_bytes: options.chunk_bytes,
            cut_from: (options.hot_rows / 64).max(1),
            frame: options.frame,
            removals: opened.removals,
        };
        let writer = writer::start(parts, waiting, Arc::clone(&shared))?;
        let readers = Arc::new(readers);
        Ok(Self { shared, readers, commands: Some(commands), writer: Some(writer) })
    }

    /// Turns true when the disk has failed under the writer. Nothing is written any more; reads go on.
    /// The process should end, so that the next one finds out what is on the disk.
    pub fn failed(&self) -> watch::Receiver<bool> {
        self.shared.failed.subscribe()
    }

    /// Settles everything there is to settle now instead of in idle moments. For tests.
    #[doc(hidden)]
    pub async fn settle(&self) -> Result<(), StoreError> {
        self.ask(|answer| Command::Settle { answer }).await
    }

    async fn ask(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<(), StoreError>>) -> Command,
    ) -> Result<(), StoreError> {
        let gone = |_| StoreError::Broken("the storage writer has ended, restart".into());
        let (answer, answered) = oneshot::channel();
        self.send(command(answer)).await.map_err(gone)?;
        answered.await.map_err(|_| gone(Gone))?
    }

    async fn send(&self, command: Command) -> Result<(), Gone> {
        let may_hurry = command.waiting().may_hurry();
        let commands = self.commands.as_ref().expect("there until the store is dropped");
        commands.send(command).await.map_err(|_| Gone)?;
        if may_hurry && let Some(writer) = &self.writer {
            writer.thread().unpark();
        }
        Ok(())
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the storage writer panicked");
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn append(&self, append: Append) -> Result<(), AppendError> {
        page::assert_sound(&append);
        let (answer, answered) = oneshot::channel();
        // A writer that is gone may have taken earlier appends with it, but surely not this one; still it
        // is unconfirmed, because trying again cannot help.
        let gone = |_| AppendError::Unconfirmed("the storage writer has ended, restart".into());
        self.send(Command::Append { append, answer }).await.map_err(gone)?;
        answered.await.map_err(|_| gone(Gone))?
    }

    async fn read(
        &self,
        conversation: &ConversationId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let (shared, conversation) = (Arc::clone(&self.shared), conversation.clone());
        self.readers.with(move |db| readers::read(db, &shared, &conversation, after, max_bytes)).await
    }

    async fn load(
        &self,
        conversation: &ConversationId,
        newest: Newest,
    ) -> Result<Option<Loaded>, StoreError> {
        let (shared, conversation) = (Arc::clone(&self.shared), conversation.clone());
        self.readers.with(move |db| readers::load(db, &shared, &conversation, newest)).await
    }

    async fn get(&self, table: Table, id: &str) -> Result<Option<Document>, StoreError> {
        let id = id.to_owned();
        self.readers.with(move |db| documents::get(db, table, &id).map_err(failure::broken)).await
    }

    async fn list(&self, query: Query) -> Result<Listed, StoreError> {
        let table = page::check(&query)?;
        let by_due = query.due_by.is_some();
        let list = move |db: &mut _| documents::list(db, table, &query).map_err(failure::broken);
        Ok(self.readers.with(list).await?.into_listed(by_due))
    }

    async fn claim(&self, conversation: &ConversationId) -> Result<Fence, StoreError> {
        let (fence, judged) = {
            let mut ownership = self.shared.ownership();
            (ownership.owners.claim(conversation), ownership.judged)
        };
        // An append of the former owner may have been judged already and not be committed yet. The new
        // owner must not look at the log before that is over, or the log would move under it.
        let mut finished = self.shared.finished.subscribe();
        let waited = finished.wait_for(|finished| *finished >= judged).await;
        waited.map_err(|_| StoreError::Broken("the storage writer has ended, restart".into()))?;
        Ok(fence)
    }

    async fn release(&self, conversation: &ConversationId, fence: Fence) -> Result<(), StoreError> {
        self.shared.ownership().owners.release(conversation, fence);
        Ok(())
    }

    fn watch(&self, conversation: &ConversationId) -> watch::Receiver<Seq> {
        self.shared.wakes.watch(conversation)
    }

    async fn trim(&self, conversation: &ConversationId, first: Seq, last: Seq) -> Result<(), StoreError> {
        let conversation = conversation.clone();
        self.ask(|answer| Command::Trim { conversation, first, last, answer }).await
    }

    async fn delete(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        let conversation = conversation.clone();
        self.ask(|answer| Command::Delete { conversation, answer }).await
    }
}

impl Shared {
    fn new(hot: HotIndex, owners: Owners) -> Self {
        Self {
            ownership: Mutex::new(Ownership { owners, judged: 0 }),
            hot: Mutex::new(hot),
            wakes: Wakes::default(),
            finished: watch::Sender::new(0),
            failed: watch::Sender::new(false),
        }
    }

    // Every critical section leaves its value whole, so a panic elsewhere does not spoil it.
    fn ownership(&self) -> MutexGuard<'_, Ownership> {
        self.ownership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hot(&self) -> MutexGuard<'_, HotIndex> {
        self.hot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// SQLite's integers are signed. No seq comes near the difference, but a caller may mean "to the end".
fn sql_int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
