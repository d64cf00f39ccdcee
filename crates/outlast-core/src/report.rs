//! Reports from outside: from a call to a model, from a timer, or about a lost owner.

use serde_json::Value;

use crate::message::TextKind;
use crate::{Failure, GenerationId, MessageId, ToolStream};

#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The model sent something, and the call may have ended.
    Streamed(Streamed),
    /// The attempt in the log, or the delay before the next one, was lost with its owner.
    CallLost { generation: GenerationId },
    /// The delay before a retry is over.
    RetryDue { generation: GenerationId },
    /// Nothing runs and this queued generation is next.
    TurnCame { generation: GenerationId },
    /// Nobody has followed it for too long.
    Abandoned { generation: GenerationId },
    /// The worker that produces the answer was silent for too long.
    WorkerSilent { generation: GenerationId },
}

/// What a call to a model returned since the last report.
#[derive(Clone, Debug, PartialEq)]
pub struct Streamed {
    pub generation: GenerationId,
    pub attempt: u32,
    /// In the order of arrival.
    pub pieces: Vec<Piece>,
    /// How the call ended, if it did.
    pub end: Option<CallEnd>,
    /// The id for a new message, if one begins. The ids of further messages are derived from it.
    pub new_message: MessageId,
}

/// A piece of a model's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text {
        kind: TextKind,
        text: String,
        /// How many pieces from the upstream were combined.
        chunks: u32,
    },
    ToolCall {
        id: String,
        name: String,
        /// Its arguments: an object, or the model's literal text if that is not a JSON object.
        input: Value,
    },
    /// A running tool wrote something.
    ToolOutput {
        id: String,
        stream: ToolStream,
        text: String,
    },
    ToolEnd {
        id: String,
        result: Value,
        is_error: bool,
    },
    /// A tool call waits for a person's decision.
    Approval {
        id: String,
        name: String,
        input: Value,
    },
    Usage {
        input_tokens: u64,
        output_tokens: u64,
    },
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    Finished {
        /// Why the model stopped, in the upstream's words.
        reason: String,
    },
    Failed {
        failure: Failure,
        /// Random, to spread retries over time.
        jitter: u8,
    },
}
