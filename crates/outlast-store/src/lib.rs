//! Stores for the logs of conversations, behind one small contract.

mod contract;
mod items;
mod memory;
mod open;
mod postgres;
mod sqlite;

mod chunk;
mod instances;
mod mailbox;
mod owners;
mod page;
mod wakes;

pub mod fault;
mod faulty;
#[doc(hidden)]
pub mod suite;

pub use contract::{
    Append, AppendError, Change, ClaimError, Document, Fence, InstanceId, Limit, Listed, Loaded, MAIL_PAGE,
    Mail, MailId, Newest, PAGE_BYTES, Query, Record, Store, StoreError, Table,
};
pub use faulty::{Faults, FaultyStore, Rates};
pub use items::{Item, ItemQuery, Items, ListedItems, PutError};
pub use memory::MemoryStore;
pub use open::{Opened, open, open_items};
pub use postgres::{Options as PostgresOptions, PostgresStore};
pub use sqlite::{Options as SqliteOptions, SqliteStore};
