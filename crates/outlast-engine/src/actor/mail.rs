//! The messages that can be sent to an owner, and its replies.

use outlast_core::{Approval, Command, GenerationId, GenerationStatus, MessageId, Seq, UserId};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::files::WantedFile;
use crate::engine::CommandOptions;
use crate::error::EngineError;
use crate::file_changes::ChangedFile;

pub(crate) enum Mail {
    Ask(Box<Ask>),
    /// Changes a file of the workspace for a person. The reply comes when the change is saved.
    ChangeFile {
        user: UserId,
        wanted: WantedFile,
        reply: oneshot::Sender<Answer<ChangedFile>>,
    },
    /// Removes the events of a generation whose retention time is over.
    Trim {
        generation: GenerationId,
        reply: oneshot::Sender<Answer<bool>>,
    },
    /// Removes what a deleted conversation with this id has left.
    Clear {
        reply: oneshot::Sender<Answer<()>>,
    },
    /// Makes the owner check what should be under way. Sent to every conversation that is due.
    Wake {
        /// Kept until the owner has caught up, which limits how many do that at a time.
        turn: Option<OwnedSemaphorePermit>,
    },
    /// Requests from other instances may wait in the store.
    Letters,
}

/// A request of a client, and where its reply goes after its events are durable.
pub(crate) struct Ask {
    pub(crate) request: Request,
    pub(crate) reply: oneshot::Sender<Answer<Receipt>>,
}

/// What a client wants. It is the same for a local owner and, as mail, for one at another instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Command {
        command: Box<Command>,
        user: UserId,
        options: CommandOptions,
    },
    /// Deletes the conversation.
    Delete {
        user: UserId,
    },
}

pub(crate) enum Answer<T> {
    Done(Result<T, EngineError>),
    /// Nothing was done, because another instance owns the conversation.
    Elsewhere,
}

/// The state of the generation that a command was about. It is small, because every heartbeat gets one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) status: GenerationStatus,
    /// The user's message it answers.
    pub(crate) message: MessageId,
    pub(crate) attempt: u32,
    /// The last event that a worker appended.
    pub(crate) produced: Seq,
    /// The questions to a person, for a worker.
    pub(crate) approvals: Vec<Approval>,
}

impl Receipt {
    /// For a request that is about no generation, or about one that ended while it was queued.
    pub(crate) fn empty() -> Receipt {
        Receipt {
            status: GenerationStatus::Cancelled,
            message: MessageId::from(""),
            attempt: 0,
            produced: Seq::ZERO,
            approvals: Vec::new(),
        }
    }
}
