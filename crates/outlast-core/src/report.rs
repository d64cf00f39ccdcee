//! What the world reports to a conversation.

use serde_json::Value;

use crate::message::TextKind;
use crate::{Failure, GenerationId, MessageId, ToolStream};

/// Something that happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The model said something, and may have come to an end with it.
    Streamed(Streamed),
    /// The attempt that the log tells of, or the wait for the next one, is not under way: its owner is gone.
    CallLost { generation: GenerationId },
    /// The wait before a retry is over.
    RetryDue { generation: GenerationId },
    /// Nothing runs and this queued generation is next.
    TurnCame { generation: GenerationId },
    /// Nobody has watched it for too long.
    Abandoned { generation: GenerationId },
    /// The worker that produces the answer was silent for too long.
    WorkerSilent { generation: GenerationId },
}

/// What a call to a model brought since the last report.
#[derive(Clone, Debug, PartialEq)]
pub struct Streamed {
    pub generation: GenerationId,
    pub attempt: u32,
    /// What arrived, in order.
    pub pieces: Vec<Piece>,
    /// Whether the call is over, and how.
    pub end: Option<CallEnd>,
    /// The id for a new message, should one begin; further ones are named after it.
    pub new_message: MessageId,
}

/// A piece of a model's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text {
        kind: TextKind,
        text: String,
        /// How many chunks of the upstream they were.
        chunks: u32,
    },
    /// The model asks for a tool.
    ToolCall {
        id: String,
        name: String,
        /// Arguments: an object, or the literal text if the model wrote something else.
        input: Value,
    },
    /// A tool wrote something while it ran.
    ToolOutput { id: String, stream: ToolStream, text: String },
    /// A tool is done.
    ToolEnd { id: String, result: Value, is_error: bool },
    /// A tool waits for a person's decision.
    Approval { id: String, name: String, input: Value },
    /// What it cost.
    Usage { input_tokens: u64, output_tokens: u64 },
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The model was done.
    Finished {
        /// Why it stopped, in the upstream's words.
        reason: String,
    },
    /// It broke.
    Failed {
        failure: Failure,
        /// Random, to spread retries.
        jitter: u8,
    },
}
