//! Why a command or a read failed.

use outlast_core::{ConversationId, Refusal, Seq};
use outlast_store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Refused(Refusal),
    /// It does not exist, or it belongs to another user.
    #[error("not found")]
    NotFound,
    #[error("unknown model {asked:?}; known models are {known:?}")]
    UnknownModel { asked: String, known: Vec<String> },
    #[error("you already have {limit} live generations")]
    TooManyLive { limit: usize },
    #[error("the server already has {limit} live generations")]
    ServerIsFull { limit: usize },
    #[error("this request id already created {conversation} with a different title or metadata")]
    MadeOtherwise { conversation: ConversationId },
    /// The position is after the end of the log.
    #[error("the log ends at {tail}")]
    CursorAhead { tail: Seq },
    #[error("this conversation already has {limit} followers")]
    TooManyReaders { limit: usize },
    #[error("invalid cursor {0:?}")]
    BadCursor(String),
    /// Nothing was done, because the store is not available.
    #[error("the store is not available: {0}")]
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
