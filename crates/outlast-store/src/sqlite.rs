//! The embedded default: one SQLite file, one process, no server.
//!
//! One thread writes. It gathers the appends of all conversations into one transaction, so that a
//! thousand streams share each fsync, and replies only after the commit. Readers have their own connections
//! and see only committed transactions. New records go into `recent`, an append-only table. Between commits
//! they are settled: copied into `log` as larger chunks, keyed by conversation.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use outlast_core::{ConversationId, Seq};
use tokio::sync::{mpsc, oneshot, watch};

use crate::contract::{
    Append, AppendError, ClaimError, Document, Fence, InstanceId, Listed, Loaded, Mail, MailId, Newest,
    Query, Record, Store, StoreError, Table,
};
use crate::mailbox::Mailbox;
use crate::owners::Owners;
use crate::page;
use crate::wakes::Wakes;

pub(crate) mod backup;
mod batch;
mod chunk;
mod documents;
mod failure;
mod hot;
mod items;
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
pub(crate) use items::ItemFile;
use readers::Readers;
use writer::Command;

/// Limits of a [`SqliteStore`]. The defaults are for a server; tests make them tiny.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of reading connections, and so of concurrent reads. Further reads wait.
    pub readers: usize,
    /// How many calls may be queued for the writer. Further calls wait for a place in the queue.
    pub queue: usize,
    /// A conversation's recent records are settled once they have this many bytes: large enough that a long
    /// log has few rows, small enough that a reader at the tail reads little that it does not need.
    pub chunk_bytes: usize,
    /// The oldest recent records are settled when all recent records together exceed this many bytes.
    pub hot_bytes: usize,
    /// The same for the number of rows. Each row costs about 150 bytes of memory.
    pub hot_rows: usize,
    /// The same for the bytes of rows that are not settled. They are kept in memory.
    pub unsettled_bytes: usize,
    /// The time between the starts of two commits under load.
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

/// Keeps everything in one file. Dropping it waits until the writer has finished.
pub struct SqliteStore {
    instance: InstanceId,
    shared: Arc<Shared>,
    readers: Arc<Readers>,
    // `None` only while the store is dropped: first the sender goes, so that the writer ends, then its thread.
    commands: Option<mpsc::Sender<Command>>,
    writer: Option<JoinHandle<()>>,
}

/// Shared by the writer and the callers' tasks. Each lock is held for a few lines only.
struct Shared {
    ownership: Mutex<Ownership>,
    hot: Mutex<HotIndex>,
    wakes: Wakes,
    mailbox: Mailbox,
    /// The number of the last batch that is finished, committed or not.
    finished: watch::Sender<u64>,
    failed: watch::Sender<bool>,
}

/// The writer's thread has ended.
struct Gone;

struct Ownership {
    owners: Owners,
    /// The number of the last batch whose fences were checked.
    judged: u64,
}

impl SqliteStore {
    /// Opens or creates the file and locks it, so that no other process can use it.
    pub fn open(path: &Path) -> Result<SqliteStore, StoreError> {
        Self::open_with(path, Options::default())
    }

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
        // The lock on the file keeps other processes out, so there is only one instance.
        let instance = InstanceId("sqlite".to_owned());
        Ok(Self { instance, shared, readers, commands: Some(commands), writer: Some(writer) })
    }

    /// Becomes true when the disk has failed. After that nothing is written; reads continue. The process
    /// should exit, so that the next one finds out what is on the disk.
    pub fn failed(&self) -> watch::Receiver<bool> {
        self.shared.failed.subscribe()
    }

    /// Settles everything now instead of when the writer is idle. For tests.
    #[doc(hidden)]
    pub async fn settle(&self) -> Result<(), StoreError> {
        self.ask(|answer| Command::Settle { answer }).await
    }

    async fn ask(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<(), StoreError>>) -> Command,
    ) -> Result<(), StoreError> {
        let gone = |_| StoreError::Broken("the storage writer has stopped; restart the server".into());
        let (answer, answered) = oneshot::channel();
        self.command(command(answer)).await.map_err(gone)?;
        answered.await.map_err(|_| gone(Gone))?
    }

    /// Returns once every batch up to this one is finished.
    async fn wait_for_batch(&self, judged: u64) -> Result<(), StoreError> {
        let mut finished = self.shared.finished.subscribe();
        let waited = finished.wait_for(|finished| *finished >= judged).await;
        waited
            .map(|_| ())
            .map_err(|_| StoreError::Broken("the storage writer has stopped; restart the server".into()))
    }

    async fn command(&self, command: Command) -> Result<(), Gone> {
        let may_hurry = command.waiting().may_hurry();
        let commands = self.commands.as_ref().expect("set until the store is dropped");
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
        // If the writer has stopped, this append was certainly not written. It is still reported as unconfirmed,
        // because retrying cannot help.
        let gone = |_| AppendError::Unconfirmed("the storage writer has stopped; restart the server".into());
        self.command(Command::Append { append, answer }).await.map_err(gone)?;
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
        let shared = Arc::clone(&self.shared);
        let list = move |db: &mut _| {
            let is_owned = |conversation: &_| shared.ownership().owners.is_owned(conversation);
            documents::list(db, table, &query, is_owned).map_err(failure::broken)
        };
        Ok(self.readers.with(list).await?.into_listed(by_due))
    }

    fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// Does nothing, because no other instance can open the file and take anything over.
    async fn renew(&self, _lease: Duration) -> Result<(), StoreError> {
        Ok(())
    }

    async fn leave(&self) -> Result<(), StoreError> {
        let judged = {
            let mut ownership = self.shared.ownership();
            ownership.owners.evict_all();
            ownership.judged
        };
        self.shared.mailbox.leave(&self.instance);
        self.wait_for_batch(judged).await
    }

    async fn others(&self) -> Result<Vec<InstanceId>, StoreError> {
        Ok(Vec::new())
    }

    async fn raise_fences(&self, fence: Fence) -> Result<Fence, StoreError> {
        if fence > Fence(0) {
            self.ask(|answer| Command::RaiseFences { fence, answer }).await?;
        }
        Ok(self.shared.ownership().owners.raise(fence))
    }

    async fn claim(&self, conversation: &ConversationId) -> Result<Fence, ClaimError> {
        let (fence, judged) = {
            let mut ownership = self.shared.ownership();
            (ownership.owners.claim(conversation), ownership.judged)
        };
        // An append of the previous owner may have passed the fence check and not be committed yet. The new
        // owner must not read the log before that batch is finished, or the log would change under it.
        self.wait_for_batch(judged).await?;
        Ok(fence)
    }

    async fn release(&self, conversation: &ConversationId, fence: Fence) -> Result<bool, StoreError> {
        self.shared.ownership().owners.release(conversation, fence);
        Ok(!self.shared.mailbox.of(conversation, |_| true).is_empty())
    }

    async fn send(&self, mail: Mail) -> Result<(), StoreError> {
        self.shared.mailbox.send(&self.instance, mail);
        Ok(())
    }

    async fn mail_waiting(&self) -> Result<Vec<ConversationId>, StoreError> {
        let mut waiting = self.shared.mailbox.waiting(|_| true);
        waiting.retain(|conversation| self.shared.ownership().owners.is_owned(conversation));
        Ok(waiting)
    }

    async fn mail(&self, conversation: &ConversationId) -> Result<Vec<Mail>, StoreError> {
        Ok(self.shared.mailbox.of(conversation, |_| true))
    }

    async fn reply(&self, mail: &MailId) -> Result<Option<Bytes>, StoreError> {
        Ok(self.shared.mailbox.reply(mail))
    }

    async fn forget(&self, mail: &MailId) -> Result<(), StoreError> {
        self.shared.mailbox.forget(mail);
        Ok(())
    }

    fn watch_mail(&self) -> watch::Receiver<()> {
        self.shared.mailbox.watch()
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
            mailbox: Mailbox::default(),
            finished: watch::Sender::new(0),
            failed: watch::Sender::new(false),
        }
    }

    // Every critical section leaves its value consistent, so a poisoned lock can be used.
    fn ownership(&self) -> MutexGuard<'_, Ownership> {
        self.ownership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hot(&self) -> MutexGuard<'_, HotIndex> {
        self.hot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// SQLite's integers are signed. No seq gets that large, but a caller may pass `u64::MAX` for "to the end".
fn sql_int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
