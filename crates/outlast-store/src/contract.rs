//! What every store promises. The engine relies on nothing else.
//!
//! A store keeps, for each conversation, a *log* of records that only grows at its end, and
//! *documents* that summarise it (conversation, message, generation). It never looks inside a record, and
//! of a document it knows only the keys defined here. Data outside conversations is kept as [`Items`].
//!
//! A store handle belongs to one *instance*, which is one running server. Several instances, each with its own
//! handle, may share the same data. At most one of them holds a conversation, and the others send it mail.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use outlast_core::{ConversationId, Seq, UserId};
use tokio::sync::watch;

use crate::items::Items;

/// The default size of a page of documents: a few of the largest messages, and small enough that a hundred
/// slow readers do not fill memory.
pub const PAGE_BYTES: usize = 1 << 20;

/// The maximum number of tags of a document. Each is an entry of an index, which a change of tags rewrites.
pub const TAGS_MAX: usize = 32;
/// The maximum size of a tag, which stores keep in index keys.
pub const TAG_BYTES_MAX: usize = 512;

/// Mechanism only: a store appends and reads; it has no notion of a generation's life cycle.
#[async_trait]
pub trait Store: Items {
    /// Appends records and changes documents atomically. They are durable when this returns `Ok`.
    ///
    /// It succeeds only if `fence` is the conversation's current fence and `expected` its last seq, so a
    /// stale owner can write nothing and nothing can be written twice. Limits are checked and replies to mail
    /// are written in the same transaction.
    async fn append(&self, append: Append) -> Result<(), AppendError>;

    /// Records after `after`, in order: about `max_bytes` of them, but at least one if there are any.
    /// Only durable records are returned. Trimmed ones are skipped, so the first record may be later
    /// than `after + 1`.
    async fn read(
        &self,
        conversation: &ConversationId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// One consistent snapshot of a conversation: its document, its newest messages in ascending order,
    /// every record after the document's `seq`, and the last seq. `None` if it does not exist.
    ///
    /// The records are not limited here: the owner, which writes the state, decides how far it may fall behind.
    async fn load(&self, conversation: &ConversationId, newest: Newest)
    -> Result<Option<Loaded>, StoreError>;

    /// One document by id.
    async fn get(&self, table: Table, id: &str) -> Result<Option<Document>, StoreError>;

    /// One page of the documents that match, without their `state`. The order is newest first by (order, id);
    /// with `due_by` it is longest due first by (due, id).
    async fn list(&self, query: Query) -> Result<Listed, StoreError>;

    /// This handle's instance. Every open handle has a different one.
    fn instance(&self) -> &InstanceId;

    /// Protects the conversations of this instance from being taken over for `lease` from now on, by the store's
    /// clock. Without a lease, or after it has expired, another instance may take them over at any time; until
    /// then this one can still write.
    async fn renew(&self, lease: Duration) -> Result<(), StoreError>;

    /// Ends the lease and gives up every conversation that this instance holds.
    async fn leave(&self) -> Result<(), StoreError>;

    /// The other instances that have a valid lease.
    async fn others(&self) -> Result<Vec<InstanceId>, StoreError>;

    /// Makes every later fence larger than `fence`, across restarts. Returns a fence that is at least as large as
    /// all handed out so far; `raise_fences(Fence(0))` only asks for it. No other instance may use the store meanwhile.
    async fn raise_fences(&self, fence: Fence) -> Result<Fence, StoreError>;

    /// Makes this instance the owner of the conversation, whether or not it exists yet. The fence is larger
    /// than any handed out for it before, across restarts. From now on appends with an older fence are
    /// refused, including those still in flight. An instance can claim its own conversations again, and those
    /// of another instance only after that one's lease has expired.
    async fn claim(&self, conversation: &ConversationId) -> Result<Fence, ClaimError>;

    /// Gives up ownership, and returns whether mail is waiting for the conversation. Does nothing if another
    /// owner has claimed the conversation since. An instance that sends mail and then claims either becomes the
    /// owner or is refused, and in that case this returns true.
    async fn release(&self, conversation: &ConversationId, fence: Fence) -> Result<bool, StoreError>;

    /// Sends a request to the owner of the conversation. Sending the same id again changes nothing. Mail is kept
    /// until its sender forgets it or leaves, but it is not delivered while the sender has no lease.
    async fn send(&self, mail: Mail) -> Result<(), StoreError>;

    /// The conversations held by this instance for which unanswered mail is waiting.
    async fn mail_waiting(&self) -> Result<Vec<ConversationId>, StoreError>;

    /// A conversation's unanswered mail, oldest first, at most [`MAIL_PAGE`].
    async fn mail(&self, conversation: &ConversationId) -> Result<Vec<Mail>, StoreError>;

    /// The reply to mail that this instance sent, once its owner has appended one.
    async fn reply(&self, mail: &MailId) -> Result<Option<Bytes>, StoreError>;

    /// Drops mail that this instance sent, and its reply. An owner that has already read it still carries it out.
    async fn forget(&self, mail: &MailId) -> Result<(), StoreError>;

    /// Changes whenever mail may have arrived for a conversation that this instance holds, or a reply to mail
    /// that it sent. Wake-ups may be merged, and some may be spurious.
    fn watch_mail(&self) -> watch::Receiver<()>;

    /// Changes whenever the conversation's log may have grown, no matter who wrote to it. The value is the last
    /// seq the store has seen since it was first watched, or zero. Wake-ups may be merged, but they are not lost
    /// while the receiver is held.
    fn watch(&self, conversation: &ConversationId) -> watch::Receiver<Seq>;

    /// Removes the records from `first` to `last`, both included. Documents stay.
    async fn trim(&self, conversation: &ConversationId, first: Seq, last: Seq) -> Result<(), StoreError>;

    /// Removes everything about a conversation. It becomes invisible at once, even if removing its data takes
    /// a while or is interrupted by a crash. After this has returned, the conversation can be created again.
    /// The fence is kept, so an owner that is still writing is refused.
    async fn delete(&self, conversation: &ConversationId) -> Result<(), StoreError>;
}

/// The name of a running server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub String);

/// Chosen by the sender, unique among all mail.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MailId(pub String);

/// A request to the owner of a conversation, opaque to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    pub id: MailId,
    pub conversation: ConversationId,
    pub body: Bytes,
}

/// How much mail an owner gets at once. The rest follows when it has replied.
pub const MAIL_PAGE: usize = 64;

/// A number that increases with every claim. A write with an older one is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

/// One event as the log stores it: a line of JSON without the newline, opaque to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub seq: Seq,
    /// Exactly the bytes that every reader receives.
    pub bytes: Bytes,
}

/// What one owner writes atomically.
#[derive(Clone, Debug)]
pub struct Append {
    pub conversation: ConversationId,
    pub fence: Fence,
    /// The last seq before these records.
    pub expected: Seq,
    /// Numbered without gaps from `expected + 1`. May be empty when only documents change.
    pub records: Vec<Record>,
    /// Applied in order, together with the records.
    pub changes: Vec<Change>,
    /// Replies to mail for this conversation. One whose mail was forgotten is dropped.
    pub replies: Vec<(MailId, Bytes)>,
    /// Conditions that must hold after the changes; otherwise nothing is written.
    pub limits: Vec<Limit>,
}

/// A maximum number of matching documents, across all conversations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    pub table: Table,
    /// `None` for all users.
    pub user: Option<UserId>,
    pub statuses: Vec<String>,
    pub at_most: usize,
}

#[derive(Clone, Debug)]
pub enum Change {
    /// Inserts or replaces.
    Put(Document),
    /// Removes the document if it exists.
    Remove(Table, String),
}

/// The kinds of documents. A person can read each as a table of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    Conversations,
    Messages,
    Generations,
}

/// The keys that a store can search by, and an opaque body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    pub table: Table,
    /// Unique in its table.
    pub id: String,
    /// The conversation it belongs to (its own id, for a conversation).
    pub conversation: ConversationId,
    pub user: UserId,
    /// The position in the log that it reflects (for a conversation, that its `state` reflects); for a
    /// message, the position where it began.
    pub seq: Seq,
    /// Sorts documents of one table, larger is newer: milliseconds for conversations and generations,
    /// seq for messages. Never changes after the first `Put`.
    pub order: i64,
    /// When the server must look at it again, in milliseconds; `None` if never. Always `None` for messages.
    pub due: Option<i64>,
    /// Empty if the document has no status.
    pub status: String,
    /// The client's request id; empty for none.
    pub request: String,
    /// What its user can find it by, besides the other keys: opaque, sorted, no duplicates, at most [`TAGS_MAX`]
    /// of at most [`TAG_BYTES_MAX`]. Only conversations have any.
    pub tags: Vec<String>,
    /// A JSON object, as text.
    pub body: String,
    /// What the owner needs to continue from `seq` without reading the log before it. Opaque, and only
    /// conversations have one. A `Put` with `None` keeps the stored state and the stored `seq`, so that
    /// the rest of the document can change without rewriting the state.
    pub state: Option<String>,
}

/// Which documents to list. A document must match every key that is given.
#[derive(Clone, Debug)]
pub struct Query {
    /// Required: `None` is refused.
    pub table: Option<Table>,
    pub user: Option<UserId>,
    pub conversation: Option<ConversationId>,
    /// One of these statuses; empty for any.
    pub statuses: Vec<String>,
    pub request: Option<String>,
    /// Only conversations with exactly this tag. The cost of a page does not grow with the number of other
    /// conversations. Refused for other tables, and without `user`.
    pub tag: Option<String>,
    /// Only documents whose `due` is this time or earlier, longest due first. Refused for messages, which
    /// have no `due`.
    pub due_by: Option<i64>,
    /// Only documents of conversations that neither this instance nor another one with a valid lease holds.
    pub unowned: bool,
    /// Only documents after this key in the list's order: (order, id), or (due, id) with `due_by`.
    pub after: Option<(i64, String)>,
    /// The maximum number of documents.
    pub limit: usize,
    /// The approximate maximum size of their bodies in total. A page has at least one document.
    pub max_bytes: usize,
}

impl Default for Query {
    fn default() -> Self {
        Self {
            table: None,
            user: None,
            conversation: None,
            statuses: Vec::new(),
            request: None,
            tag: None,
            due_by: None,
            unowned: false,
            after: None,
            limit: 0,
            max_bytes: PAGE_BYTES,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// In the order of the list.
    pub documents: Vec<Document>,
    /// Pass it as [`Query::after`] to get the next page; `None` after the last one.
    pub next: Option<(i64, String)>,
}

/// How many of a conversation's newest messages to load.
#[derive(Clone, Copy, Debug)]
pub struct Newest {
    /// The maximum number of messages.
    pub messages: usize,
    /// The approximate maximum size of their bodies in total. At least one is loaded unless `messages` is zero.
    pub max_bytes: usize,
}

impl Newest {
    pub const NONE: Newest = Newest { messages: 0, max_bytes: 0 };

    /// At most this many messages, and at most [`PAGE_BYTES`].
    pub fn of(messages: usize) -> Self {
        Self { messages, max_bytes: PAGE_BYTES }
    }
}

/// A consistent snapshot of one conversation.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub conversation: Document,
    /// The newest messages, in ascending order.
    pub messages: Vec<Document>,
    /// Whether older messages were left out.
    pub more_messages: bool,
    /// Records after the conversation document's `seq`.
    pub records: Vec<Record>,
    /// The last seq of the log.
    pub last: Seq,
}

/// Why an append failed, or may have failed.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Another owner has this conversation now. Stop; do not retry.
    #[error("conversation is owned by fence {}", current.0)]
    Fenced { current: Fence },
    /// The log does not end where the writer expected. Reload.
    #[error("log ends at {last}, not where the writer expected")]
    Conflict {
        /// Where the log ends.
        last: Seq,
    },
    /// Nothing was written, because one of the append's limits would be exceeded.
    #[error("limit {limit} of the append would be exceeded")]
    OverLimit {
        /// Its position in [`Append::limits`].
        limit: usize,
    },
    /// Nothing was written: the store is unreachable or the disk is full. The append may be retried.
    #[error("nothing was written: {0}")]
    Unavailable(String),
    /// Nothing was written: the append itself is invalid. Retrying will not help.
    #[error("append is not allowed: {0}")]
    Broken(String),
    /// The records may or may not be in the log. Claim again and read the log before deciding anything.
    #[error("append was not confirmed: {0}")]
    Unconfirmed(String),
}

/// Why a conversation was not claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another instance owns it. Send it mail.
    #[error("the conversation is held by instance {}", .0.0)]
    HeldBy(InstanceId),
    /// The claim may or may not have taken effect. Claim again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a read or a housekeeping call failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store is unreachable now. The call may be retried.
    #[error("store cannot be reached: {0}")]
    Unavailable(String),
    /// The stored data is invalid, or the call was. Retrying will not help.
    #[error("store is broken: {0}")]
    Broken(String),
}
