//! What every store promises. The engine is written against this page alone.
//!
//! A store keeps, for each conversation, a *log* of records that only grows at its end, and
//! *documents* that summarise it (conversation, message, generation). It moves bytes: it never looks
//! inside a record, and of a document it knows only the keys named here.

use async_trait::async_trait;
use bytes::Bytes;
use outlast_core::{ConversationId, Seq, UserId};
use tokio::sync::watch;

/// Mechanism only: a store appends and reads, it never "completes" anything.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Appends records and changes documents, all or nothing, durable when it returns `Ok`.
    ///
    /// Accepted only if `fence` is the conversation's current one and `expected` its last seq, so a
    /// stale owner can write nothing and nothing can be written twice.
    async fn append(&self, append: Append) -> Result<(), AppendError>;

    /// Records after `after`, in order, at least one if there is any, and about `max_bytes` of them.
    /// Only durable records are ever returned. Trimmed ones are skipped: the first record may lie
    /// further than `after + 1`.
    async fn read(
        &self,
        conversation: &ConversationId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// One consistent look at a conversation: its document, its newest `messages` message documents in
    /// ascending order, every record after the document's `seq`, and the last seq. `None` if unknown.
    async fn load(
        &self,
        conversation: &ConversationId,
        messages: usize,
    ) -> Result<Option<Loaded>, StoreError>;

    /// One document by id.
    async fn get(&self, table: Table, id: &str) -> Result<Option<Document>, StoreError>;

    /// Documents that match, newest first (by `seq`-independent `order`, then id).
    async fn list(&self, query: Query) -> Result<Vec<Document>, StoreError>;

    /// Makes the caller the owner of the conversation, known to the store or not. The fence is larger
    /// than any handed out for it before, across restarts; from now on appends with an older one are
    /// refused, including those still on their way.
    async fn claim(&self, conversation: &ConversationId) -> Result<Fence, StoreError>;

    /// Gives ownership up. Harmless if it has passed to someone else already.
    async fn release(&self, conversation: &ConversationId, fence: Fence) -> Result<(), StoreError>;

    /// Changes whenever the conversation's log may have grown, whoever wrote it. The value is the last
    /// seq the store has seen, or zero when it has seen none since the first watcher came. Wake-ups may
    /// be merged; they are not lost while the receiver is held.
    fn watch(&self, conversation: &ConversationId) -> watch::Receiver<Seq>;

    /// Removes the records from `first` to `last`, both included. Documents stay.
    async fn trim(&self, conversation: &ConversationId, first: Seq, last: Seq) -> Result<(), StoreError>;

    /// Removes everything about a conversation. The fence is not forgotten: an owner that is still
    /// writing is refused.
    async fn delete(&self, conversation: &ConversationId) -> Result<(), StoreError>;
}

/// Permission to write, which only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

/// One event as the log keeps it: a line of JSON without a newline, opaque to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its position.
    pub seq: Seq,
    /// Its bytes, exactly as every reader will see them.
    pub bytes: Bytes,
}

/// What one owner wants written at once.
#[derive(Clone, Debug)]
pub struct Append {
    /// Whose log.
    pub conversation: ConversationId,
    /// The writer's permission.
    pub fence: Fence,
    /// The last seq before these records.
    pub expected: Seq,
    /// Dense from `expected + 1`. May be empty when only documents change.
    pub records: Vec<Record>,
    /// Applied in order, together with the records.
    pub changes: Vec<Change>,
}

/// A change to a document.
#[derive(Clone, Debug)]
pub enum Change {
    /// Insert or replace.
    Put(Document),
    /// Remove, if it is there.
    Remove(Table, String),
}

/// The kinds of documents. A person can read each as a table of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// One per conversation.
    Conversations,
    /// One per message of a transcript.
    Messages,
    /// One per generation.
    Generations,
}

/// A document: the keys a store may search by, and a body it only carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Where it belongs.
    pub table: Table,
    /// Unique in its table.
    pub id: String,
    /// The conversation it belongs to (its own id, for a conversation).
    pub conversation: ConversationId,
    /// Whose it is.
    pub user: UserId,
    /// The position in the log that it reflects; for a message, the position where it began.
    pub seq: Seq,
    /// Sorts documents of one table, larger is newer: milliseconds for conversations and generations,
    /// seq for messages. Never changes after the first `Put`.
    pub order: i64,
    /// A status to search by; empty for none.
    pub status: String,
    /// The client's name for the request; empty for none.
    pub request: String,
    /// A JSON object, as text.
    pub body: String,
    /// What the owner needs to go on from `seq` without reading the log before it; for conversations
    /// only, else empty. Opaque.
    pub state: String,
}

/// Which documents to list. Every given key must match.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Which table; `None` is refused.
    pub table: Option<Table>,
    /// Only this user's.
    pub user: Option<UserId>,
    /// Only this conversation's.
    pub conversation: Option<ConversationId>,
    /// Only with one of these statuses; empty for any.
    pub statuses: Vec<String>,
    /// Only with this request id.
    pub request: Option<String>,
    /// Only what sorts strictly before this (order, id).
    pub before: Option<(i64, String)>,
    /// At most this many.
    pub limit: usize,
}

/// A consistent look at one conversation.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its document.
    pub conversation: Document,
    /// The newest messages, ascending.
    pub messages: Vec<Document>,
    /// Whether there are older ones.
    pub more_messages: bool,
    /// Records after the conversation document's `seq`.
    pub records: Vec<Record>,
    /// The last seq of the log.
    pub last: Seq,
}

/// Why an append did not happen, or may not have.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Another owner has this conversation now. Stop; do not retry.
    #[error("conversation is owned by fence {}", current.0)]
    Fenced {
        /// The fence in force.
        current: Fence,
    },
    /// The log does not end where the writer believes. Reload.
    #[error("log ends at {last}, not where the writer expected")]
    Conflict {
        /// Where the log ends.
        last: Seq,
    },
    /// Nothing was written: the store cannot be reached or the disk is full. May be tried again.
    #[error("nothing was written: {0}")]
    Unavailable(String),
    /// The records may or may not be in the log. Claim again and look before deciding anything.
    #[error("append was not confirmed: {0}")]
    Unconfirmed(String),
}

/// Why a look or a housekeeping call failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Cannot be reached now. May be tried again.
    #[error("store cannot be reached: {0}")]
    Unavailable(String),
    /// What is stored cannot be understood, or the call was wrong. Trying again will not help.
    #[error("store is broken: {0}")]
    Broken(String),
}
