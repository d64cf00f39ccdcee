//! Reads of the store, each in one snapshot, on a small pool of connections.
//!
//! A read runs on one of tokio's blocking threads, but never more of them at once than there are
//! connections. A thousand clients that reconnect together wait as futures, not as threads.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use outlast_core::{ConversationId, Seq};
use rusqlite::{Connection, Transaction};
use tokio::sync::Semaphore;

use crate::contract::{Loaded, Newest, Query, Record, StoreError, Table};
use crate::page::Page;
use crate::sqlite::chunk::{Chunk, settled_last};
use crate::sqlite::failure::broken;
use crate::sqlite::hot::HotRow;
use crate::sqlite::{Options, Shared, documents, opening, sql_int};

pub(super) struct Readers {
    idle: Mutex<Vec<Connection>>,
    turns: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn open(path: &Path, options: &Options) -> Result<Self, StoreError> {
        let idle: Result<Vec<_>, _> = (0..options.readers).map(|_| opening::open_reader(path)).collect();
        Ok(Self { idle: Mutex::new(idle.map_err(broken)?), turns: Arc::new(Semaphore::new(options.readers)) })
    }

    /// Runs `look` when a connection is free. If the caller goes away meanwhile, the read still finishes.
    pub(super) async fn with<T: Send + 'static>(
        self: &Arc<Self>,
        look: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let turn = turn.map_err(|_| StoreError::Unavailable("the store is closed".into()))?;
        let readers = Arc::clone(self);
        let looking = tokio::task::spawn_blocking(move || {
            let mut borrowed = Borrowed::from(readers);
            let found = look(borrowed.db.as_mut().expect("there is a permit for each connection"));
            // Return the connection before the permit.
            drop(borrowed);
            drop(turn);
            found
        });
        looking.await.map_err(|error| StoreError::Unavailable(format!("a read was aborted: {error}")))?
    }
}

/// Returns the connection to the pool even if the read panics.
struct Borrowed {
    readers: Arc<Readers>,
    db: Option<Connection>,
}

impl From<Arc<Readers>> for Borrowed {
    fn from(readers: Arc<Readers>) -> Self {
        let db = readers.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Self { readers, db }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.readers.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(self.db.take());
    }
}

/// See [`crate::Store::read`].
pub(super) fn read(
    db: &mut Connection,
    shared: &Shared,
    conversation: &ConversationId,
    after: Seq,
    max_bytes: usize,
) -> Result<Vec<Record>, StoreError> {
    loop {
        let look = Look::begin(db, shared)?;
        if look.is_removed(conversation)? {
            return Ok(Vec::new());
        }
        if let Some((rows, _)) = look.hot(conversation, after) {
            return look.records(conversation, after, &rows, max_bytes);
        }
    }
}

/// See [`crate::Store::load`].
pub(super) fn load(
    db: &mut Connection,
    shared: &Shared,
    conversation: &ConversationId,
    newest: Newest,
) -> Result<Option<Loaded>, StoreError> {
    loop {
        let look = Look::begin(db, shared)?;
        let found = documents::get(&look.tx, Table::Conversations, conversation.as_str()).map_err(broken)?;
        let Some(document) = found else { return Ok(None) };
        let Some((rows, hot_last)) = look.hot(conversation, document.seq) else { continue };
        let records = look.records(conversation, document.seq, &rows, usize::MAX)?;
        let settled_last = settled_last(&look.tx, conversation.as_str()).map_err(broken)?;
        let query = Query {
            conversation: Some(conversation.clone()),
            limit: newest.messages,
            max_bytes: newest.max_bytes,
            ..Query::default()
        };
        let page = documents::list(&look.tx, Table::Messages, &query, |_| false).map_err(broken)?;
        let (messages, more_messages) = page.into_ascending();
        let last = settled_last.max(hot_last);
        return Ok(Some(Loaded { conversation: document, messages, more_messages, records, last }));
    }
}

/// One snapshot, and what is needed to use the index as of that snapshot.
struct Look<'a> {
    shared: &'a Shared,
    tx: Transaction<'a>,
    /// The newest position of `recent` in this snapshot. Later ones in the index were not committed when the
    /// snapshot was taken.
    newest: i64,
    removals: u64,
}

impl<'a> Look<'a> {
    fn begin(db: &'a mut Connection, shared: &'a Shared) -> Result<Self, StoreError> {
        let removals = shared.hot().removals();
        let tx = db.transaction().map_err(broken)?;
        // SQLite takes the snapshot at the first query, which is this one.
        let sql = "SELECT max(position) FROM recent";
        let newest: Option<i64> = tx
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .map_err(broken)?;
        Ok(Self { shared, tx, newest: newest.unwrap_or(0), removals })
    }

    /// Whether the removal of the conversation has begun.
    fn is_removed(&self, conversation: &ConversationId) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM removals WHERE conversation = ?1";
        let mut statement = self.tx.prepare_cached(sql).map_err(broken)?;
        statement.exists([conversation.as_str()]).map_err(broken)
    }

    /// The recent rows after `after`, and the last seq among all recent rows. `None` if rows have been removed
    /// from the index since the snapshot: the snapshot may need them, so read again.
    fn hot(&self, conversation: &ConversationId, after: Seq) -> Option<(Vec<HotRow>, Seq)> {
        let hot = self.shared.hot();
        if hot.removals() != self.removals {
            return None;
        }
        let last = hot.last_until(conversation, self.newest).unwrap_or(Seq::ZERO);
        Some((hot.rows(conversation, after, self.newest), last))
    }

    /// Records after `after`: first the settled ones, then the recent ones.
    fn records(
        &self,
        conversation: &ConversationId,
        after: Seq,
        recent: &[HotRow],
        max_bytes: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let mut page = Page::of(max_bytes);
        let Some(reached) = self.settled(conversation, after, &mut page)? else {
            return Ok(page.into_items());
        };
        let sql = "SELECT bytes FROM recent WHERE position = ?1";
        let mut statement = self.tx.prepare_cached(sql).map_err(broken)?;
        for row in recent.iter().filter(|row| row.last > reached) {
            let bytes = match &row.lines {
                Some(lines) => lines.clone().into(),
                None => {
                    let mut found = statement.query([row.position]).map_err(broken)?;
                    // A row is missing only if the conversation was deleted before this snapshot.
                    let Some(found) = found.next().map_err(broken)? else { break };
                    found.get(0).map_err(broken)?
                }
            };
            let chunk = Chunk { first: row.first, last: row.last, bytes };
            if !add(&mut page, chunk, after)? {
                break;
            }
        }
        Ok(page.into_items())
    }

    /// Adds settled records. Returns the last seq among them, or `None` if the page is full.
    fn settled(
        &self,
        conversation: &ConversationId,
        after: Seq,
        page: &mut Page<Record>,
    ) -> Result<Option<Seq>, StoreError> {
        // Chunks do not overlap, so of those that start at or before `after`, only the last can reach beyond it.
        let sql = "SELECT max(first_seq) FROM log WHERE conversation = ?1 AND first_seq <= ?2";
        let mut statement = self.tx.prepare_cached(sql).map_err(broken)?;
        let start: Option<i64> = statement
            .query_row((conversation.as_str(), sql_int(after.0)), |row| row.get(0))
            .map_err(broken)?;
        let sql = "SELECT first_seq, last_seq, bytes FROM log WHERE conversation = ?1 AND first_seq >= ?2 \
                   ORDER BY first_seq";
        let mut statement = self.tx.prepare_cached(sql).map_err(broken)?;
        let mut rows = statement.query((conversation.as_str(), start.unwrap_or(0))).map_err(broken)?;
        let mut reached = after;
        while let Some(row) = rows.next().map_err(broken)? {
            let first = Seq(row.get::<_, i64>(0).map_err(broken)?.cast_unsigned());
            let last = Seq(row.get::<_, i64>(1).map_err(broken)?.cast_unsigned());
            if last <= after {
                continue;
            }
            reached = last;
            let Some(bytes) = row.get(2).map_err(broken)? else { continue };
            if !add(page, Chunk { first, last, bytes }, after)? {
                return Ok(None);
            }
        }
        Ok(Some(reached))
    }
}

/// Adds the records after `after`. Returns false once the page is full.
fn add(page: &mut Page<Record>, chunk: Chunk, after: Seq) -> Result<bool, StoreError> {
    for record in chunk.records()? {
        let bytes = record.bytes.len();
        if record.seq > after && !page.add(record, bytes) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{all, conversation, write};
    use crate::{SqliteStore, Store};

    #[tokio::test]
    async fn a_read_notices_that_rows_it_may_need_have_left_the_index() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outlast.db");
        let store = SqliteStore::open(&path).unwrap();
        let (settled, deleted) = (conversation("settled"), conversation("deleted"));
        write(&store, &settled, 0, &["a", "b"]).await;
        write(&store, &deleted, 0, &["a"]).await;
        let (mut first, mut second) =
            (opening::open_reader(&path).unwrap(), opening::open_reader(&path).unwrap());

        let look = Look::begin(&mut first, &store.shared).unwrap();
        assert_eq!(look.hot(&settled, Seq::ZERO).unwrap().1, Seq(2));
        store.delete(&deleted).await.unwrap();
        assert!(look.hot(&deleted, Seq::ZERO).is_none(), "this snapshot still has the row");

        let look = Look::begin(&mut second, &store.shared).unwrap();
        store.settle().await.unwrap();
        assert!(look.hot(&settled, Seq::ZERO).is_none(), "this snapshot has it in `recent` only");
        assert_eq!(all(&store, &settled).await.len(), 2);
    }

    #[tokio::test]
    async fn a_read_sees_the_log_as_of_its_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outlast.db");
        let store = SqliteStore::open(&path).unwrap();
        let c = conversation("c");
        write(&store, &c, 0, &["a"]).await;
        let mut db = opening::open_reader(&path).unwrap();
        let look = Look::begin(&mut db, &store.shared).unwrap();
        write(&store, &c, 1, &["b"]).await;
        let (rows, last) = look.hot(&c, Seq::ZERO).unwrap();
        assert_eq!((rows.len(), last), (1, Seq(1)));
        assert_eq!(look.records(&c, Seq::ZERO, &rows, 100).unwrap().len(), 1);
    }
}
