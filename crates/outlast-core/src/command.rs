//! What clients and workers can ask for, and the refusals.

use serde_json::Value;

use crate::{
    Brief, Decided, GenerationId, GenerationStatus, MessageId, Part, Piece, RequestId, RetryMode, Role, Seq,
};

/// The maximum length of a conversation's queue. A client that sends more is not waiting for answers.
pub const QUEUE_MAX: usize = 16;

/// The maximum size of one tool result or one piece of tool output. It is stored in the log and the
/// transcript, and every reader receives it.
pub const TOOL_BYTES_MAX: usize = 256 * 1024;

#[derive(Clone, Debug)]
pub enum Command {
    /// Creates an empty conversation.
    Create {
        title: Option<String>,
        metadata: Option<Value>,
        request: Option<RequestId>,
    },
    /// Sets the title or the metadata: `None` leaves a value as it is, null clears it.
    Update {
        title: Option<Option<String>>,
        metadata: Option<Value>,
    },
    Start(Start),
    Cancel {
        generation: GenerationId,
    },
    /// Continues an interrupted generation.
    Resume {
        generation: GenerationId,
        by: String,
    },
    /// Ends an interrupted generation and keeps its text.
    Dismiss {
        generation: GenerationId,
    },
    /// Retries or continues a generation that failed or was cancelled.
    Retry(Retry),
    /// Decides about a tool call that waits for approval.
    Decide(Decide),
    /// Makes the caller the worker of a generation. The previous worker can append nothing any more.
    Claim {
        generation: GenerationId,
        /// Whether to keep what was produced so far.
        keep: bool,
    },
    Append(WorkerAppend),
}

impl Command {
    /// The generation that the command is about, or that it starts.
    pub fn generation(&self) -> Option<&GenerationId> {
        match self {
            Command::Create { .. } | Command::Update { .. } => None,
            Command::Start(start) => Some(&start.generation),
            Command::Retry(retry) => Some(&retry.generation),
            Command::Decide(decide) => Some(&decide.generation),
            Command::Append(produce) => Some(&produce.generation),
            Command::Cancel { generation }
            | Command::Resume { generation, .. }
            | Command::Dismiss { generation }
            | Command::Claim { generation, .. } => Some(generation),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Start {
    /// The ids that the generation and the user's message will have.
    pub generation: GenerationId,
    pub message: MessageId,
    /// The client's idempotency key.
    pub request: RequestId,
    /// Fingerprint of the request.
    pub digest: String,
    /// The role of the message: the user's, or that of the last message of a prompt.
    pub role: Role,
    pub parts: Vec<Part>,
    pub brief: Brief,
    pub when_busy: WhenBusy,
}

#[derive(Clone, Debug)]
pub struct Retry {
    pub of: GenerationId,
    pub mode: RetryMode,
    /// The id that the new generation will have.
    pub generation: GenerationId,
    pub request: RequestId,
    pub digest: String,
}

#[derive(Clone, Debug)]
pub struct Decide {
    pub generation: GenerationId,
    pub tool_use_id: String,
    /// The hash of the question that the person saw, if the client sent it.
    pub hash: Option<String>,
    pub decided: Decided,
}

/// A batch from a worker, which is recorded as a whole or not at all.
#[derive(Clone, Debug)]
pub struct WorkerAppend {
    pub generation: GenerationId,
    /// The worker's epoch, which is its attempt.
    pub epoch: u32,
    /// The last event of the worker, as far as it knows. `None` for a heartbeat.
    pub expected: Option<Seq>,
    pub pieces: Vec<Piece>,
    pub end: Option<WorkerEnd>,
    /// The id for a new message, if one begins and its id is not determined otherwise.
    pub new_message: MessageId,
}

/// How a worker ends a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerEnd {
    Done {
        reason: String,
    },
    /// The text so far is kept.
    Failed {
        message: String,
        code: String,
    },
}

/// What the owner looked up for a command, because `decide` sees only the state.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The generation that the same request started before.
    pub earlier: Option<Earlier>,
    /// Whether the id that the client chose for the answer is already used by a message.
    pub answer_id_is_taken: bool,
    /// Whether the prompt of the generation to be retried is no longer kept.
    pub prompt_is_gone: bool,
}

/// What an earlier request with the same id started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    pub generation: GenerationId,
    /// The user's message it answers.
    pub message: MessageId,
    /// Fingerprint of the earlier request.
    pub digest: String,
}

/// What to do with a message while a generation is running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenBusy {
    #[default]
    Reject,
    /// Answer it afterwards.
    Queue,
    /// Cancel the running and the queued generations, and answer this message instead.
    Interrupt,
}

/// A refused command changes nothing. It is a normal reply, not a failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("this request was already accepted as generation {}", .0.generation)]
    Repeated(Earlier),
    #[error("this request id was already used with a different body, for generation {generation}")]
    IdempotencyConflict { generation: GenerationId },
    #[error("the conversation already exists")]
    AlreadyExists,
    #[error("generation {current} is already running in this conversation")]
    Busy { current: GenerationId },
    #[error("{QUEUE_MAX} generations are already waiting in this conversation")]
    QueueFull,
    #[error("the message id {id:?} is already used in this conversation")]
    MessageExists { id: MessageId },
    #[error("the generation has already ended: {}", status.as_str())]
    AlreadyEnded { status: GenerationStatus },
    /// It ended before the last generation began, so only its document still says how.
    #[error("the generation ended before the last one began")]
    EndedLongAgo,
    #[error("the generation is {}, not interrupted", status.as_str())]
    NotInterrupted { status: GenerationStatus },
    #[error("the generation is produced by this server, not by a worker")]
    NotForWorkers,
    #[error("the generation is produced by a worker and continues when a worker claims it")]
    MadeByWorker,
    #[error("tool call {tool_use_id:?} is not waiting for a decision")]
    NotAsked { tool_use_id: String },
    #[error("the decision was already made: {}", .0.decision.as_str())]
    AlreadyDecided(Decided),
    /// The person saw a different question under this id.
    #[error("the question about tool call {tool_use_id:?} has changed since it was shown")]
    ApprovalChanged { tool_use_id: String },
    #[error("tool call {tool_use_id:?} is not running")]
    NotCalled { tool_use_id: String },
    /// A decision applies to the arguments that a person saw, so a different question needs a different id.
    #[error("a person was already asked about tool call {tool_use_id:?} with a different tool or arguments")]
    AskedOtherwise { tool_use_id: String },
    /// A tool with that much output should store it elsewhere and return a reference.
    #[error("tool call {tool_use_id:?} sends more than {TOOL_BYTES_MAX} bytes at once")]
    ToolTooLong { tool_use_id: String },
    /// Another worker has claimed it, or this one was silent for too long.
    #[error("epoch {epoch} is over: the generation is {} in epoch {current}", status.as_str())]
    StaleEpoch { epoch: u32, current: u32, status: GenerationStatus },
    #[error("the last event of this worker is {last}, not {expected}")]
    SeqConflict { expected: Seq, last: Seq },
    #[error("only the conversation's last generation can be retried, and only if it failed or was cancelled")]
    NotRetryable,
    #[error("the prompt of this generation is no longer kept; send the message again")]
    PromptGone,
}
