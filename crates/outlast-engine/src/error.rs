//! Why a command did not do what was asked.

use outlast_core::{ConversationId, MessageId, Refusal, Seq};
use outlast_store::StoreError;

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The rules say no.
    #[error(transparent)]
    Refused(Refusal),
    /// There is no such thing, or it is not this user's.
    #[error("there is no such thing")]
    NotFound,
    /// There is no such model.
    #[error("there is no model {asked:?}; there are {known:?}")]
    UnknownModel {
        /// What was asked for.
        asked: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The user has too many under way.
    #[error("{limit} generations are under way already")]
    TooManyLive {
        /// How many may be.
        limit: usize,
    },
    /// The server has too many under way.
    #[error("{limit} generations are under way on this server already")]
    ServerIsFull {
        /// How many may be.
        limit: usize,
    },
    /// The id that the client chose for its answer names another message.
    #[error("there is a message {id} in this conversation already")]
    MessageExists {
        /// Which.
        id: MessageId,
    },
    /// A request of this name has made a conversation with another title or other metadata.
    #[error("a request of this name has made {conversation} otherwise")]
    MadeOtherwise {
        /// Which.
        conversation: ConversationId,
    },
    /// The position lies after the log's end.
    #[error("the log ends at {tail}")]
    CursorAhead {
        /// Where it ends.
        tail: Seq,
    },
    /// Too many read the same conversation.
    #[error("{limit} readers follow this conversation already")]
    TooManyReaders {
        /// How many may.
        limit: usize,
    },
    /// The cursor of a list was not made by this server.
    #[error("the cursor {0:?} was not made by this server")]
    BadCursor(String),
    /// Nothing was done; the store cannot write now.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// Nobody can say whether it was done. Asking again is safe when the request has a name.
    #[error("the outcome is not known: {0}")]
    Lost(String),
    /// What is stored cannot be understood.
    #[error("{0}")]
    Broken(String),
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> CommandError {
        match error {
            StoreError::Unavailable(reason) => CommandError::Unavailable(reason),
            StoreError::Broken(reason) => CommandError::Broken(reason),
        }
    }
}
