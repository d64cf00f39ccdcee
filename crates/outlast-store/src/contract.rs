//! What every store promises. The engine is written against this page alone.
//!
//! A store keeps, for each conversation, a *log* of records that only grows at its end, and
//! *documents* that summarise it (conversation, message, generation). It moves bytes: it never looks
//! inside a record, and of a document it knows only the keys named here.
//!
//! A store handle belongs to one *instance*: one running server. Several instances, each with its own handle,
//! may share what is stored. Each conversation is held by at most one of them, and the others reach it by mail.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use outlast_core::{ConversationId, Seq, UserId};
use tokio::sync::watch;

/// A page of documents is about this long unless the caller asks for another size: a few of the largest
/// messages, and small enough that a hundred slow readers do not fill the memory.
pub const PAGE_BYTES: usize = 1 << 20;

/// Mechanism only: a store appends and reads, it never "completes" anything.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Appends records and changes documents, all or nothing, durable when it returns `Ok`.
    ///
    /// Accepted only if `fence` is the conversation's current one and `expected` its last seq, so a
    /// stale owner can write nothing and nothing can be written twice. Limits are judged in the same
    /// transaction, and replies to mail are written in it.
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

    /// One consistent snapshot of a conversation: its document, its newest messages in ascending order,
    /// every record after the document's `seq`, and the last seq. `None` if it does not exist.
    ///
    /// The records are not limited here: whoever writes the state decides how far it may fall behind.
    async fn load(&self, conversation: &ConversationId, newest: Newest)
    -> Result<Option<Loaded>, StoreError>;

    /// One document by id.
    async fn get(&self, table: Table, id: &str) -> Result<Option<Document>, StoreError>;

    /// One page of the documents that match, without their `state`: newest first by (order, id), or with
    /// `due_by` the longest due first by (due, id).
    async fn list(&self, query: Query) -> Result<Listed, StoreError>;

    /// This handle's instance. No two handles that are open at the same time share one.
    fn instance(&self) -> &InstanceId;

    /// Keeps what this instance holds from being taken over for `lease` from now on, by the store's clock.
    /// An instance that never renewed, or whose lease has run out, may be taken over from at any time; until
    /// somebody does, it can still write.
    async fn renew(&self, lease: Duration) -> Result<(), StoreError>;

    /// Ends the lease and gives up every conversation that this instance holds.
    async fn leave(&self) -> Result<(), StoreError>;

    /// Makes this instance the owner of the conversation, known to the store or not. The fence is larger
    /// than any handed out for it before, across restarts; from now on appends with an older one are
    /// refused, including those still on their way. What this instance already holds can be claimed again;
    /// another instance's only if its lease has run out.
    async fn claim(&self, conversation: &ConversationId) -> Result<Fence, ClaimError>;

    /// Gives ownership up, and returns whether mail is waiting for the conversation. Harmless if ownership
    /// has passed to someone else already. Whoever sends mail and claims afterwards either is refused, and
    /// then this returns true, or becomes the owner.
    async fn release(&self, conversation: &ConversationId, fence: Fence) -> Result<bool, StoreError>;

    /// Leaves a request for whoever owns the conversation. Sending the same id again changes nothing. Mail is
    /// kept until its sender forgets it or leaves, but nobody is given it while the sender has no lease.
    async fn send(&self, mail: Mail) -> Result<(), StoreError>;

    /// The conversations held by this instance for which unanswered mail is waiting.
    async fn mail_waiting(&self) -> Result<Vec<ConversationId>, StoreError>;

    /// A conversation's unanswered mail, oldest first, at most [`MAIL_PAGE`].
    async fn mail(&self, conversation: &ConversationId) -> Result<Vec<Mail>, StoreError>;

    /// The reply to mail that this instance sent, once its owner has appended one.
    async fn reply(&self, mail: &MailId) -> Result<Option<Bytes>, StoreError>;

    /// Drops mail that this instance sent, and its reply. An owner that is about to answer it still does.
    async fn forget(&self, mail: &MailId) -> Result<(), StoreError>;

    /// Changes whenever mail may have arrived for a conversation that this instance holds, or a reply to mail
    /// that it sent. Wake-ups may be merged, and there may be some for nothing.
    fn watch_mail(&self) -> watch::Receiver<()>;

    /// Changes whenever the conversation's log may have grown, whoever wrote it. The value is the last
    /// seq the store has seen, or zero when it has seen none since the first watcher came. Wake-ups may
    /// be merged; they are not lost while the receiver is held.
    fn watch(&self, conversation: &ConversationId) -> watch::Receiver<Seq>;

    /// Removes the records from `first` to `last`, both included. Documents stay.
    async fn trim(&self, conversation: &ConversationId, first: Seq, last: Seq) -> Result<(), StoreError>;

    /// Removes everything about a conversation. Nobody sees any of it from the moment this takes effect,
    /// even if the rest takes a while or a crash interrupts it. When it has returned, the conversation can
    /// be created again. The fence is not forgotten: an owner that is still writing is refused.
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

/// How much mail an owner is given at once. What is answered makes room for the rest.
pub const MAIL_PAGE: usize = 64;

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
    /// Replies to mail for this conversation. One whose mail was forgotten is dropped.
    pub replies: Vec<(MailId, Bytes)>,
    /// What must be true once the changes are applied; otherwise nothing is written.
    pub limits: Vec<Limit>,
}

/// At most so many documents, of all conversations, may match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    pub table: Table,
    /// Only this user's; `None` for everybody's.
    pub user: Option<UserId>,
    pub statuses: Vec<String>,
    pub at_most: usize,
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
    /// The position in the log that it reflects (for a conversation, that its `state` reflects); for a
    /// message, the position where it began.
    pub seq: Seq,
    /// Sorts documents of one table, larger is newer: milliseconds for conversations and generations,
    /// seq for messages. Never changes after the first `Put`.
    pub order: i64,
    /// When somebody should look at it, in milliseconds; `None` if nobody needs to. Never set for messages.
    pub due: Option<i64>,
    /// A status to search by; empty for none.
    pub status: String,
    /// The client's name for the request; empty for none.
    pub request: String,
    /// A JSON object, as text.
    pub body: String,
    /// What the owner needs to continue from `seq` without reading the log before it. Opaque, and only
    /// conversations have one. A `Put` with `None` keeps the stored state and the stored `seq`, so that
    /// the rest of the document can change without rewriting the state.
    pub state: Option<String>,
}

/// Which documents to list. Every given key must match.
#[derive(Clone, Debug)]
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
    /// Only documents whose `due` is this time or earlier, the longest due first. Messages have none, so
    /// asking for theirs is refused.
    pub due_by: Option<i64>,
    /// Only documents of conversations that no instance holds: neither this one, nor another whose lease has
    /// not run out.
    pub unowned: bool,
    /// Only what follows this key in the list's order: (order, id), or (due, id) with `due_by`.
    pub after: Option<(i64, String)>,
    /// At most this many documents, ...
    pub limit: usize,
    /// ... and about this many bytes of bodies, but at least one document.
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
            due_by: None,
            unowned: false,
            after: None,
            limit: 0,
            max_bytes: PAGE_BYTES,
        }
    }
}

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// In the order of the list.
    pub documents: Vec<Document>,
    /// What to pass as [`Query::after`] for the next page; `None` if nothing follows.
    pub next: Option<(i64, String)>,
}

/// How many of a conversation's newest messages to load.
#[derive(Clone, Copy, Debug)]
pub struct Newest {
    /// At most this many, ...
    pub messages: usize,
    /// ... and about this many bytes of bodies, but at least one message unless `messages` is zero.
    pub max_bytes: usize,
}

impl Newest {
    /// No messages.
    pub const NONE: Newest = Newest { messages: 0, max_bytes: 0 };

    /// At most this many messages, and no more than a page of a list may hold.
    pub fn of(messages: usize) -> Self {
        Self { messages, max_bytes: PAGE_BYTES }
    }
}

/// A consistent look at one conversation.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its document.
    pub conversation: Document,
    /// The newest messages, ascending.
    pub messages: Vec<Document>,
    /// Whether there are older ones, left out because of their number or their bytes.
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
    /// Nothing was written: it would exceed this one of the append's limits.
    #[error("limit {limit} of the append would be exceeded")]
    OverLimit {
        /// Its position in [`Append::limits`].
        limit: usize,
    },
    /// Nothing was written: the store cannot be reached or the disk is full. May be tried again.
    #[error("nothing was written: {0}")]
    Unavailable(String),
    /// Nothing was written: the append itself is wrong. Trying again will not help.
    #[error("append is not allowed: {0}")]
    Broken(String),
    /// The records may or may not be in the log. Claim again and look before deciding anything.
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
