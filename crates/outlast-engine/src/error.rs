//! Why a command or a read failed.

use outlast_core::{ConversationId, Refusal, Seq};
use outlast_store::StoreError;
use serde::{Deserialize, Serialize};

/// It can be serialized, because it may be the reply of another instance.
#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Refused(Refusal),
    /// It does not exist, or it belongs to another user.
    #[error("not found")]
    NotFound,
    #[error("unknown model {asked:?}; known models are {known:?}")]
    UnknownModel { asked: String, known: Vec<String> },
    /// Not offered, or no tool is and this is why.
    #[error("the tool {asked:?} is not available{}", why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    UnknownTool { asked: String, why: Option<String> },
    #[error("you already have {limit} live generations")]
    TooManyLive { limit: usize },
    #[error("the server already has {limit} live generations")]
    ServerIsFull { limit: usize },
    #[error("this request id already created {conversation} with a different title or metadata")]
    MadeOtherwise { conversation: ConversationId },
    #[error("you already have {limit} webhooks")]
    TooManyWebhooks { limit: usize },
    #[error("too many of your {limit} browsers were added and removed; try again")]
    TooManyBrowsers { limit: usize },
    /// A link decides once.
    #[error("this link was already used to decide")]
    LinkUsed,
    /// The position is after the end of the log.
    #[error("the position is past the end of the log, {tail}")]
    CursorAhead { tail: Seq },
    #[error("this conversation already has {limit} followers")]
    TooManyReaders { limit: usize },
    #[error("invalid cursor {0:?}")]
    BadCursor(String),
    /// The server has no sandboxes, and this is why.
    #[error("there is no place for files here: {0}")]
    NoSandbox(String),
    /// There can be no file under this path.
    #[error("{0}")]
    BadPath(String),
    /// It is no longer kept.
    #[error("{0}")]
    Gone(String),
    /// Nothing was done, because the store is not available.
    #[error("not available: {0}")]
    Unavailable(String),
    /// It is unknown whether it was done. Repeating it is safe with an idempotency key.
    #[error("the outcome is unknown: {0}")]
    Lost(String),
    /// The stored data cannot be read.
    #[error("{0}")]
    Broken(String),
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> EngineError {
        match error {
            StoreError::Unavailable(reason) => EngineError::Unavailable(reason),
            StoreError::Broken(reason) => EngineError::Broken(reason),
        }
    }
}
