//! What the server keeps outside of conversations: keys, sessions, notifications, deliveries.
//!
//! Items have no log and no owner. Each carries a version, and a write names the version it replaces, so two
//! writers that read the same item cannot both succeed. That is enough for what lives here, and small enough
//! that every store can do it.

use async_trait::async_trait;
use outlast_core::UserId;

use crate::contract::{PAGE_BYTES, StoreError};

/// The part of [`crate::Store`] that a command beside a running server needs.
#[async_trait]
pub trait Items: Send + Sync + 'static {
    /// Writes an item, durable when it returns `Ok`, which holds the new version. Accepted only if the stored
    /// version is `item.version`, zero meaning that there is none yet.
    async fn put_item(&self, item: Item) -> Result<u64, PutError>;

    async fn get_item(&self, kind: &str, id: &str) -> Result<Option<Item>, StoreError>;

    /// One page of the items of a kind: newest first by (order, id), or with `due_by` the longest due first
    /// by (due, id).
    async fn list_items(&self, query: ItemQuery) -> Result<ListedItems, StoreError>;

    /// Removes an item; whether it was there. Of several callers at most one is told `true`, so whoever
    /// removes an item has it for itself.
    async fn remove_item(&self, kind: &str, id: &str) -> Result<bool, StoreError>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub kind: String,
    /// Unique in its kind, and never used again for something else: versions start over after a removal.
    pub id: String,
    /// Whose it is.
    pub user: UserId,
    /// Sorts the items of one kind, larger is newer: usually milliseconds.
    pub order: i64,
    /// When somebody should look at it, in milliseconds; `None` if nobody needs to.
    pub due: Option<i64>,
    /// The version that was read, or zero for a new item. A write stores the next one.
    pub version: u64,
    /// A JSON object, as text.
    pub body: String,
}

/// Which items to list. Every given key must match.
#[derive(Clone, Debug)]
pub struct ItemQuery {
    pub kind: String,
    pub user: Option<UserId>,
    /// Only items whose `due` is this time or earlier, the longest due first.
    pub due_by: Option<i64>,
    /// Only what follows this key in the list's order: (order, id), or (due, id) with `due_by`.
    pub after: Option<(i64, String)>,
    /// At most this many items, ...
    pub limit: usize,
    /// ... and about this many bytes of bodies, but at least one item.
    pub max_bytes: usize,
}

impl ItemQuery {
    /// The newest items of a kind, at most `limit` of them.
    pub fn newest(kind: impl Into<String>, limit: usize) -> Self {
        Self { kind: kind.into(), user: None, due_by: None, after: None, limit, max_bytes: PAGE_BYTES }
    }
}

/// One page of items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedItems {
    pub items: Vec<Item>,
    /// What to pass as [`ItemQuery::after`] for the next page; `None` if nothing follows.
    pub next: Option<(i64, String)>,
}

#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// The stored version is another one, so nothing was written. Read the item again.
    #[error("the item has changed or exists already")]
    Conflict,
    /// Nothing was written. May be tried again.
    #[error("nothing was written: {0}")]
    Unavailable(String),
    /// The item may or may not have been written. Read it again before deciding anything.
    #[error("write was not confirmed: {0}")]
    Unconfirmed(String),
}
