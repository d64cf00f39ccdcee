//! What can be sent to an owner, and what it replies.

use outlast_core::{Approval, Command, GenerationId, GenerationStatus, MessageId, Seq, UserId};
use tokio::sync::oneshot;

use crate::engine::CommandOptions;
use crate::error::EngineError;

pub(crate) enum Mail {
    Command(Box<Ask>),
    /// Remove everything.
    Delete {
        user: UserId,
        reply: oneshot::Sender<Result<(), EngineError>>,
    },
    /// Remove the events of a generation that ended long enough ago.
    Trim {
        generation: GenerationId,
        reply: oneshot::Sender<Result<bool, EngineError>>,
    },
    /// Look whether something should be going on: sent to every conversation that is due.
    Wake,
}

pub(crate) struct Ask {
    pub(crate) command: Command,
    pub(crate) user: UserId,
    pub(crate) options: CommandOptions,
    /// Replied to when the command is true.
    pub(crate) reply: oneshot::Sender<Result<Receipt, EngineError>>,
}

/// How the generation stands that a command was about. Small: a worker's heartbeat gets one too.
#[derive(Clone, Debug)]
pub(crate) struct Receipt {
    pub(crate) status: GenerationStatus,
    /// The user's message it answers.
    pub(crate) message: MessageId,
    pub(crate) attempt: u32,
    /// The last event that a worker appended.
    pub(crate) produced: Seq,
    /// What a person was asked, for a worker that wants to know.
    pub(crate) approvals: Vec<Approval>,
}
