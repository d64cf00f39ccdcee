//! Writes one owner's log: keeps the fence, checks whether an unconfirmed append was written, and holds back
//! text if the durability setting says so.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use outlast_core::{ConversationId, Seq};
use outlast_store::{
    Append, AppendError, Change, ClaimError, Fence, Limit, MailId, Record, Store, StoreError, fault,
};

/// How often an unconfirmed append is checked before the owner gives up and reloads.
const CONFIRM_TRIES: u32 = 10;
/// The wait between two checks.
const CONFIRM_WAIT: Duration = Duration::from_millis(100);

/// Why nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// Nothing was written, and the owner may retry.
    #[error("nothing was written: {0}")]
    Unavailable(String),
    /// Nothing was written, and the owner goes on: one of the limits, by its place, would be exceeded.
    #[error("limit {0} would be exceeded")]
    OverLimit(usize),
    /// Nothing was written, because another owner has the conversation now. Stop.
    #[error("ownership was lost: {0}")]
    Fenced(String),
    /// The lease of this instance runs out. Stop until it is renewed.
    #[error("the lease of this instance ran out")]
    Lapsed,
    /// It is unknown what the log holds. Stop.
    #[error("ownership was lost: {0}")]
    Lost(String),
}

/// What goes into the store together.
#[derive(Default)]
pub(crate) struct Write<'a> {
    pub(crate) records: &'a [Record],
    pub(crate) changes: Vec<Change>,
    /// Replies to other instances whose requests are carried out by this.
    pub(crate) replies: Vec<(MailId, Bytes)>,
    pub(crate) limits: Vec<Limit>,
}

pub(crate) struct Journal {
    store: Arc<dyn Store>,
    conversation: ConversationId,
    fence: Fence,
    /// Everything up to here is in the log.
    saved: Seq,
    /// Published but not in the log yet; starts after `saved`.
    unsaved: Vec<Record>,
    unsaved_bytes: usize,
}

impl Journal {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        conversation: ConversationId,
        fence: Fence,
        saved: Seq,
    ) -> Journal {
        Journal { store, conversation, fence, saved, unsaved: Vec::new(), unsaved_bytes: 0 }
    }

    /// Writes what was held back and what is given, atomically.
    pub(crate) async fn append(&mut self, write: Write<'_>) -> Result<(), RecordError> {
        let Write { records, changes, replies, limits } = write;
        let records = match self.unsaved.as_slice() {
            [] => Cow::Borrowed(records),
            unsaved => Cow::Owned([unsaved, records].concat()),
        };
        let last = records.last().map_or(self.saved, |record| record.seq);
        let mut unsure = false;
        for _ in 0..CONFIRM_TRIES {
            let append = Append {
                conversation: self.conversation.clone(),
                fence: self.fence,
                expected: self.saved,
                records: records.to_vec(),
                changes: changes.clone(),
                replies: replies.clone(),
                limits: limits.clone(),
            };
            match self.store.append(append).await {
                Ok(()) => {
                    self.saved_through(last);
                    return Ok(());
                }
                // Documents alone leave no trace in the log, so an earlier attempt may have written them.
                Err(AppendError::Unavailable(reason)) if unsure => return Err(RecordError::Lost(reason)),
                Err(AppendError::Unavailable(reason)) => return Err(RecordError::Unavailable(reason)),
                Err(AppendError::OverLimit { limit }) => return Err(RecordError::OverLimit(limit)),
                Err(error @ AppendError::Fenced { .. }) => {
                    return Err(RecordError::Fenced(error.to_string()));
                }
                Err(error @ (AppendError::Conflict { .. } | AppendError::Broken(_))) => {
                    return Err(RecordError::Lost(error.to_string()));
                }
                Err(AppendError::Unconfirmed(reason)) => {
                    tracing::warn!(conversation = ?self.conversation, reason, "append was not confirmed");
                    if self.confirm(&records).await? {
                        self.saved_through(last);
                        return Ok(());
                    }
                    unsure = records.is_empty();
                }
            }
        }
        Err(RecordError::Lost(format!("append was not confirmed {CONFIRM_TRIES} times")))
    }

    /// Holds records back until the next append.
    pub(crate) fn hold(&mut self, records: &[Record]) {
        self.unsaved_bytes += records.iter().map(|record| record.bytes.len()).sum::<usize>();
        self.unsaved.extend_from_slice(records);
    }

    /// Bytes held back.
    pub(crate) fn unsaved_bytes(&self) -> usize {
        self.unsaved_bytes
    }

    /// Gives the conversation up, and returns whether mail waits for its next owner.
    pub(crate) async fn release(&self) -> bool {
        release(&*self.store, &self.conversation, self.fence).await
    }

    fn saved_through(&mut self, last: Seq) {
        self.saved = last;
        self.unsaved.clear();
        self.unsaved_bytes = 0;
    }

    /// Whether records whose append was not confirmed are in the log. It takes a new fence first, so that an append
    /// still in flight is refused and the result stays valid.
    async fn confirm(&mut self, records: &[Record]) -> Result<bool, RecordError> {
        for _ in 0..CONFIRM_TRIES {
            match self.look(records).await {
                Ok(found) => return found,
                Err(error) => {
                    tracing::warn!(conversation = ?self.conversation, %error, "cannot read the log");
                    tokio::time::sleep(CONFIRM_WAIT).await;
                }
            }
        }
        Err(RecordError::Lost("the store cannot be reached to confirm an append".to_owned()))
    }

    async fn look(&mut self, records: &[Record]) -> Result<Result<bool, RecordError>, StoreError> {
        let fence = match self.store.claim(&self.conversation).await {
            Ok(fence) => fence,
            Err(held @ ClaimError::HeldBy(_)) => return Ok(Err(RecordError::Lost(held.to_string()))),
            Err(ClaimError::Store(error)) => return Err(error),
        };
        fault::point("confirm.claimed");
        let wanted: usize = records.iter().map(|record| record.bytes.len()).sum();
        let found = self.store.read(&self.conversation, self.saved, wanted.max(1)).await?;
        self.fence = fence;
        Ok(match (found.first(), records.first()) {
            (None, None) => Ok(false), // documents alone: writing them again changes nothing
            (None, Some(_)) => Ok(false),
            (Some(found), Some(wrote)) if found == wrote => Ok(true),
            (Some(_), _) => Err(RecordError::Lost("another owner wrote to the log".to_owned())),
        })
    }
}

/// Gives a conversation up, and returns whether mail waits for its next owner.
pub(crate) async fn release(store: &dyn Store, conversation: &ConversationId, fence: Fence) -> bool {
    match store.release(conversation, fence).await {
        Ok(mail_waits) => mail_waits,
        Err(error) => {
            // Mail and timers still find it: this instance holds it.
            tracing::warn!(?conversation, %error, "cannot release ownership");
            false
        }
    }
}
