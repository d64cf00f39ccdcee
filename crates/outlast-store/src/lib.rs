//! Stores for the logs of conversations, behind one small contract.

mod contract;
mod convex;
mod items;
mod memory;
pub mod migrate;
mod open;
mod postgres;
mod redis;
mod sqlite;

mod chunk;
mod instances;
mod mailbox;
mod owners;
mod page;
mod sort_key;
mod wakes;

pub mod fault;
mod faulty;
#[doc(hidden)]
pub mod suite;

pub use crate::convex::ConvexStore;
pub use crate::redis::RedisStore;
pub use contract::{
    Append, AppendError, Change, ClaimError, Document, Fence, InstanceId, Limit, Listed, Loaded, MAIL_PAGE,
    Mail, MailId, Newest, PAGE_BYTES, Query, Record, Store, StoreError, TAG_BYTES_MAX, TAGS_MAX, Table,
};
pub use faulty::{Faults, FaultyStore, Rates};
pub use items::{Item, ItemQuery, Items, ListedItems, PutError, remove_due};
pub use memory::MemoryStore;
pub use open::{Durable, Opened, backup, open, open_existing, open_items};
pub use postgres::{Options as PostgresOptions, PostgresStore};
pub use sqlite::{Options as SqliteOptions, SqliteStore};
