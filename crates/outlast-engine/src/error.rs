//! Why a command did not do what was asked.

use outlast_core::{ConversationId, Refusal, Seq};
use outlast_store::StoreError;

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Refused(Refusal),
    /// It does not exist, or it is not this user's.
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
    /// The position lies after the end of the log.
    #[error("the log ends at {tail}")]
    CursorAhead { tail: Seq },
    #[error("{limit} followers already read this conversation")]
    TooManyReaders { limit: usize },
    #[error("invalid cursor {0:?}")]
    BadCursor(String),
    /// Nothing was done; the store cannot write now.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// Nobody can say whether it was done. Repeating it is safe with an idempotency key.
    #[error("the outcome is unknown: {0}")]
    Lost(String),
    /// What is stored cannot be understood.
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
