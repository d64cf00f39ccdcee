//! Items in their table. The writer commits waiting writes together. A command that runs while the server is
//! running writes through its own connection.
//!
//! The lock on the file keeps out a second *store*, because it would assign positions and fences that the first
//! does not know. Items are not affected: SQLite orders the transactions of several processes, and the version
//! decides between two writers of one item. So [`ItemFile`] needs no lock.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use outlast_core::UserId;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, TransactionBehavior, params_from_iter};
use tokio::sync::oneshot;

use crate::contract::StoreError;
use crate::items::{Item, ItemQuery, Items, ListedItems, PutError};
use crate::page::ItemPage;
use crate::sqlite::failure::{Failure, broken};
use crate::sqlite::writer::{Command, Writer};
use crate::sqlite::{SqliteStore, opening, sql_int};

/// A write of an item, and the channel to the caller that waits for it.
pub(super) enum ItemWrite {
    Put { item: Item, answer: oneshot::Sender<Result<u64, PutError>> },
    Remove { kind: String, id: String, answer: oneshot::Sender<Result<bool, StoreError>> },
}

/// The result of a write inside its transaction.
enum Written {
    /// The new version, or `None` for a conflict.
    Put(Option<u64>),
    Removed(bool),
}

impl ItemWrite {
    fn write(&self, db: &Connection) -> rusqlite::Result<Written> {
        match self {
            Self::Put { item, .. } => put(db, item).map(Written::Put),
            Self::Remove { kind, id, .. } => remove(db, kind, id).map(Written::Removed),
        }
    }

    // If the caller has gone away, nobody needs the reply.
    fn answer(self, result: Result<Written, Failure>) {
        match self {
            Self::Put { answer, .. } => answer.send(put_result(result)).ok().unwrap_or_default(),
            Self::Remove { answer, .. } => answer.send(remove_result(result)).ok().unwrap_or_default(),
        }
    }
}

fn put_result(result: Result<Written, Failure>) -> Result<u64, PutError> {
    match result {
        Ok(Written::Put(Some(version))) => Ok(version),
        Ok(Written::Put(None) | Written::Removed(_)) => Err(PutError::Conflict),
        Err(Failure::Refused(why)) => Err(PutError::Unavailable(why)),
        Err(Failure::Fatal(why)) => {
            Err(PutError::Unconfirmed(format!("storage failed; restart the server: {why}")))
        }
    }
}

fn remove_result(result: Result<Written, Failure>) -> Result<bool, StoreError> {
    match result {
        Ok(written) => Ok(matches!(written, Written::Removed(true))),
        Err(failure) => Err(failure.to_store_error()),
    }
}

impl Writer {
    /// Writes all of them in one transaction. A conflict affects only its own write.
    pub(super) fn write_items(&mut self, waiting: &mut Vec<ItemWrite>) {
        if waiting.is_empty() {
            return;
        }
        let written =
            self.transact(|tx| waiting.iter().map(|one| one.write(tx)).collect::<Result<Vec<_>, _>>());
        match written {
            Ok(written) => {
                for (one, written) in waiting.drain(..).zip(written) {
                    one.answer(Ok(written));
                }
            }
            Err(failure) => {
                for one in waiting.drain(..) {
                    one.answer(Err(failure.clone()));
                }
            }
        }
    }
}

#[async_trait]
impl Items for SqliteStore {
    async fn put_item(&self, item: Item) -> Result<u64, PutError> {
        let gone = || PutError::Unconfirmed("the storage writer has stopped; restart the server".into());
        let (answer, answered) = oneshot::channel();
        self.command(Command::Item(ItemWrite::Put { item, answer })).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    async fn get_item(&self, kind: &str, id: &str) -> Result<Option<Item>, StoreError> {
        let (kind, id) = (kind.to_owned(), id.to_owned());
        self.readers.with(move |db| get(db, &kind, &id).map_err(broken)).await
    }

    async fn list_items(&self, query: ItemQuery) -> Result<ListedItems, StoreError> {
        self.readers.with(move |db| list(db, &query).map_err(broken)).await
    }

    async fn item_kinds(&self) -> Result<Vec<String>, StoreError> {
        self.readers.with(|db| kinds(db).map_err(broken)).await
    }

    async fn remove_item(&self, kind: &str, id: &str) -> Result<bool, StoreError> {
        let gone = || StoreError::Broken("the storage writer has stopped; restart the server".into());
        let (answer, answered) = oneshot::channel();
        let (kind, id) = (kind.to_owned(), id.to_owned());
        self.command(Command::Item(ItemWrite::Remove { kind, id, answer })).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

/// The items of a file that another process may have open as its store.
#[derive(Clone)]
pub(crate) struct ItemFile(Arc<Mutex<Connection>>);

impl ItemFile {
    /// Opens the file, even while a server is running, or creates it.
    pub(crate) fn open(path: &Path) -> Result<ItemFile, StoreError> {
        Ok(ItemFile(Arc::new(Mutex::new(opening::open_items(path)?))))
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let db = Arc::clone(&self.0);
        let working =
            tokio::task::spawn_blocking(move || work(&mut db.lock().unwrap_or_else(PoisonError::into_inner)));
        working.await.map_err(|error| Failure::Fatal(format!("the call was aborted: {error}")))?
    }

    async fn write(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<Written> + Send + 'static,
    ) -> Result<Written, Failure> {
        self.with(move |db| {
            let before = |error| Failure::before_commit(&error);
            let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(before)?;
            let written = work(&tx).map_err(before)?;
            tx.commit().map_err(|error| Failure::at_commit(&error))?;
            Ok(written)
        })
        .await
    }
}

#[async_trait]
impl Items for ItemFile {
    async fn put_item(&self, item: Item) -> Result<u64, PutError> {
        put_result(self.write(move |db| put(db, &item).map(Written::Put)).await)
    }

    async fn get_item(&self, kind: &str, id: &str) -> Result<Option<Item>, StoreError> {
        let (kind, id) = (kind.to_owned(), id.to_owned());
        let got = self.with(move |db| get(db, &kind, &id).map_err(|error| Failure::before_commit(&error)));
        got.await.map_err(|failure| failure.to_store_error())
    }

    async fn list_items(&self, query: ItemQuery) -> Result<ListedItems, StoreError> {
        let listed = self.with(move |db| list(db, &query).map_err(|error| Failure::before_commit(&error)));
        listed.await.map_err(|failure| failure.to_store_error())
    }

    async fn item_kinds(&self) -> Result<Vec<String>, StoreError> {
        let listed = self.with(|db| kinds(db).map_err(|error| Failure::before_commit(&error)));
        listed.await.map_err(|failure| failure.to_store_error())
    }

    async fn remove_item(&self, kind: &str, id: &str) -> Result<bool, StoreError> {
        let (kind, id) = (kind.to_owned(), id.to_owned());
        remove_result(self.write(move |db| remove(db, &kind, &id).map(Written::Removed)).await)
    }
}

const INSERT: &str = "INSERT INTO items (kind, id, user_id, ord, due, version, body) \
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6 + 1, ?7) ON CONFLICT DO NOTHING";
const UPDATE: &str = "UPDATE items SET user_id = ?3, ord = ?4, due = ?5, version = ?6 + 1, body = ?7 \
                      WHERE kind = ?1 AND id = ?2 AND version = ?6";

/// The new version, or `None` if the stored one is not what the writer expected.
fn put(db: &Connection, item: &Item) -> rusqlite::Result<Option<u64>> {
    let sql = if item.version == 0 { INSERT } else { UPDATE };
    let Item { kind, id, user, order, due, version, body } = item;
    let changed =
        db.prepare_cached(sql)?.execute((kind, id, user.as_str(), order, due, sql_int(*version), body))?;
    Ok((changed > 0).then_some(version + 1))
}

fn kinds(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = db.prepare_cached("SELECT DISTINCT kind FROM items ORDER BY kind")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

fn remove(db: &Connection, kind: &str, id: &str) -> rusqlite::Result<bool> {
    Ok(db.prepare_cached("DELETE FROM items WHERE kind = ?1 AND id = ?2")?.execute((kind, id))? > 0)
}

fn get(db: &Connection, kind: &str, id: &str) -> rusqlite::Result<Option<Item>> {
    let sql = "SELECT kind, id, user_id, ord, due, version, body FROM items WHERE kind = ?1 AND id = ?2";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query((kind, id))?;
    rows.next()?.map(item).transpose()
}

fn list(db: &Connection, query: &ItemQuery) -> rusqlite::Result<ListedItems> {
    let mut sql = String::from("SELECT kind, id, user_id, ord, due, version, body FROM items WHERE kind = ?");
    let mut values: Vec<Value> = vec![query.kind.clone().into()];
    if let Some(user) = &query.user {
        sql.push_str(" AND user_id = ?");
        values.push(user.as_str().to_owned().into());
    }
    if let Some(by) = query.due_by {
        sql.push_str(" AND due <= ?");
        values.push(by.into());
    }
    let (beyond, order) = match query.due_by {
        Some(_) => (" AND (due, id) > (?, ?)", " ORDER BY due, id LIMIT ?"),
        None => (" AND (ord, id) < (?, ?)", " ORDER BY ord DESC, id DESC LIMIT ?"),
    };
    if let Some((key, id)) = &query.after {
        sql.push_str(beyond);
        values.extend([Value::from(*key), id.clone().into()]);
    }
    sql.push_str(order);
    // One more than the limit, to tell whether another page follows.
    values.push(sql_int((query.limit as u64).saturating_add(1)).into());
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut page = ItemPage::new(query.limit, query.max_bytes);
    while let Some(row) = rows.next()? {
        if !page.add(item(row)?) {
            break;
        }
    }
    Ok(page.into_listed(query.due_by.is_some()))
}

fn item(row: &Row<'_>) -> rusqlite::Result<Item> {
    Ok(Item {
        kind: row.get(0)?,
        id: row.get(1)?,
        user: UserId::from(row.get_ref(2)?.as_str()?),
        order: row.get(3)?,
        due: row.get(4)?,
        version: row.get::<_, i64>(5)?.cast_unsigned(),
        body: row.get(6)?,
    })
}

#[cfg(test)]
mod tests;
