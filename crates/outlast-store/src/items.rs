//! Data outside conversations: keys, sessions, notifications, deliveries.
//!
//! Items have no log and no owner. Each has a version, and a write names the version it replaces, so two writers
//! that read the same item cannot both succeed. That is enough here, and simple enough for every store.

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use outlast_core::UserId;

use crate::contract::{PAGE_BYTES, StoreError};

/// The part of [`crate::Store`] that a command needs while the server is running.
#[async_trait]
pub trait Items: Send + Sync + 'static {
    /// Writes an item and returns its new version. It is durable when this returns `Ok`. It succeeds only if the
    /// stored version is `item.version`; zero means that the item does not exist yet.
    async fn put_item(&self, item: Item) -> Result<u64, PutError>;

    async fn get_item(&self, kind: &str, id: &str) -> Result<Option<Item>, StoreError>;

    /// One page of the items of a kind. The order is newest first by (order, id); with `due_by` it is longest due
    /// first by (due, id).
    async fn list_items(&self, query: ItemQuery) -> Result<ListedItems, StoreError>;

    /// The kinds of all items, in order. There are few: each is a name in the code.
    async fn item_kinds(&self) -> Result<Vec<String>, StoreError>;

    /// Removes an item, and returns whether it existed. Of several concurrent callers, at most one gets `true`.
    async fn remove_item(&self, kind: &str, id: &str) -> Result<bool, StoreError>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub kind: String,
    /// Unique in its kind. Never reused, because versions start over after a removal.
    pub id: String,
    pub user: UserId,
    /// Sorts the items of one kind, larger is newer: usually milliseconds.
    pub order: i64,
    /// When the server must look at it again, in milliseconds; `None` if never.
    pub due: Option<i64>,
    /// The version that was read, or zero for a new item. A write stores the next one.
    pub version: u64,
    /// A JSON object, as text.
    pub body: String,
}

/// Which items to list. An item must match every key that is given.
#[derive(Clone, Debug)]
pub struct ItemQuery {
    pub kind: String,
    pub user: Option<UserId>,
    /// Only items whose `due` is this time or earlier, longest due first.
    pub due_by: Option<i64>,
    /// Only items after this key in the list's order: (order, id), or (due, id) with `due_by`.
    pub after: Option<(i64, String)>,
    /// The maximum number of items.
    pub limit: usize,
    /// The approximate maximum size of their bodies in total. A page has at least one item.
    pub max_bytes: usize,
}

impl ItemQuery {
    /// The newest items of a kind, at most `limit` of them.
    pub fn newest(kind: impl Into<String>, limit: usize) -> Self {
        Self { kind: kind.into(), user: None, due_by: None, after: None, limit, max_bytes: PAGE_BYTES }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedItems {
    pub items: Vec<Item>,
    /// Pass it as [`ItemQuery::after`] to get the next page; `None` after the last one.
    pub next: Option<(i64, String)>,
}

#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// The stored version is different, so nothing was written. Read the item again.
    #[error("the item has changed or already exists")]
    Conflict,
    /// Nothing was written. The write may be retried.
    #[error("nothing was written: {0}")]
    Unavailable(String),
    /// The item may or may not have been written. Read it again before deciding anything.
    #[error("write was not confirmed: {0}")]
    Unconfirmed(String),
}

/// Removals that are under way at the same time, so that they share commits: what is made in parallel must not be
/// removed one by one.
const REMOVED_AT_ONCE: usize = 64;
/// Items that are listed at a time to be removed.
const REMOVED_PAGE: usize = 500;

/// Removes the items of a kind that are due by this time, in milliseconds.
pub async fn remove_due(items: &dyn Items, kind: &str, by: i64) -> Result<(), StoreError> {
    let query = ItemQuery { due_by: Some(by), ..ItemQuery::newest(kind, REMOVED_PAGE) };
    loop {
        let due = items.list_items(query.clone()).await?;
        let removals = due.items.iter().map(|item| items.remove_item(kind, &item.id));
        stream::iter(removals).buffer_unordered(REMOVED_AT_ONCE).try_for_each(async |_| Ok(())).await?;
        if due.next.is_none() {
            return Ok(());
        }
    }
}
