//! The messages that can be sent to an owner, and its replies.

use outlast_core::{Approval, Command, GenerationId, GenerationStatus, MessageId, Seq, UserId};
use tokio::sync::oneshot;

use crate::engine::CommandOptions;
use crate::error::EngineError;

pub(crate) enum Mail {
    Command(Box<Ask>),
    /// Deletes the conversation.
    Delete {
        user: UserId,
        reply: oneshot::Sender<Result<(), EngineError>>,
    },
    /// Removes the events of a generation whose retention time is over.
    Trim {
        generation: GenerationId,
        reply: oneshot::Sender<Result<bool, EngineError>>,
    },
    /// Makes the owner check what should be under way. Sent to every conversation that is due.
    Wake,
}

pub(crate) struct Ask {
    pub(crate) command: Command,
    pub(crate) user: UserId,
    pub(crate) options: CommandOptions,
    /// Gets the reply after the command's events are durable.
    pub(crate) reply: oneshot::Sender<Result<Receipt, EngineError>>,
}

/// The state of the generation that a command was about. It is small, because every heartbeat gets one.
#[derive(Clone, Debug)]
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
