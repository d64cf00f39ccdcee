//! What clients and workers may ask, and the refusals that change nothing.

use serde_json::Value;

use crate::{
    Brief, Decided, GenerationId, GenerationStatus, MessageId, Part, Piece, RequestId, RetryMode, Role, Seq,
};

/// How many generations may wait behind the one under way. More is a client that sends without reading.
pub const QUEUE_MAX: usize = 16;

/// How much one result of a tool, or one piece of its output, may hold, in bytes. It stands in the log and in
/// the transcript, and every reader gets it.
pub const TOOL_BYTES_MAX: usize = 256 * 1024;

#[derive(Clone, Debug)]
pub enum Command {
    /// Create the conversation, empty.
    Create {
        title: Option<String>,
        metadata: Option<Value>,
        request: Option<RequestId>,
    },
    /// Set title or metadata: `None` leaves them as they are, null clears them.
    Update {
        title: Option<Option<String>>,
        metadata: Option<Value>,
    },
    /// Answer a message.
    Start(Start),
    Cancel {
        generation: GenerationId,
    },
    /// Let an interrupted generation go on.
    Resume {
        generation: GenerationId,
        by: String,
    },
    /// End an interrupted generation as it stands.
    Dismiss {
        generation: GenerationId,
    },
    /// Take up a generation that failed or was cancelled.
    Retry(Retry),
    /// Decide about a tool that waits for a person.
    Decide(Decide),
    /// Become the worker of a generation. Whoever was it before can append nothing any more.
    Claim {
        generation: GenerationId,
        /// Whether what was shown stays.
        keep: bool,
    },
    /// Append what a worker produced.
    Append(WorkerAppend),
}

impl Command {
    /// The generation that it is about, or that it starts.
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

/// A message to be answered.
#[derive(Clone, Debug)]
pub struct Start {
    /// The ids that the generation and the user's message will have.
    pub generation: GenerationId,
    pub message: MessageId,
    /// The client's idempotency key.
    pub request: RequestId,
    /// Fingerprint of the request.
    pub digest: String,
    /// Who speaks: the user, or whoever said the last message of a prompt.
    pub role: Role,
    pub parts: Vec<Part>,
    pub brief: Brief,
    pub when_busy: WhenBusy,
}

/// A failed generation to be taken up.
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
    /// The question that the person saw, if the client says which.
    pub hash: Option<String>,
    pub decided: Decided,
}

/// A batch of a worker: all of it or nothing.
#[derive(Clone, Debug)]
pub struct WorkerAppend {
    pub generation: GenerationId,
    /// The epoch that the worker was given: its attempt.
    pub epoch: u32,
    /// The last event that the worker knows to be its own. A heartbeat names none.
    pub expected: Option<Seq>,
    pub pieces: Vec<Piece>,
    pub end: Option<WorkerEnd>,
    /// The id for a new message, should one begin and its id not be settled.
    pub new_message: MessageId,
}

/// How a worker ends a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerEnd {
    Done {
        reason: String,
    },
    /// What was said stays.
    Failed {
        message: String,
        code: String,
    },
}

/// What the owner looked up for a command: `decide` itself looks at nothing but the state.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The generation that the same request started before.
    pub earlier: Option<Earlier>,
    /// Whether the id that the client wants its answer to have names a message already.
    pub answer_id_is_taken: bool,
    /// Whether the prompt of the generation to be retried is no longer kept.
    pub prompt_is_gone: bool,
}

/// What a request started when it came before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    pub generation: GenerationId,
    /// The user's message it answers.
    pub message: MessageId,
    /// Fingerprint of the request then.
    pub digest: String,
}

/// What to do with a message while a generation is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenBusy {
    #[default]
    Reject,
    /// Answer it afterwards.
    Queue,
    /// Cancel what is under way and answer this instead.
    Interrupt,
}

/// A reply that changes nothing. Not a failure.
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
    /// It ended before the last generation began: only its document still knows how.
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
    /// The person saw another question under this id.
    #[error("the question about tool call {tool_use_id:?} has changed since it was shown")]
    ApprovalChanged { tool_use_id: String },
    #[error("tool call {tool_use_id:?} is not running")]
    NotCalled { tool_use_id: String },
    /// A decision is about the arguments that a person saw: another question needs another id.
    #[error("tool call {tool_use_id:?} was already put to a person with a different tool or arguments")]
    AskedOtherwise { tool_use_id: String },
    /// A tool that writes this much should keep it elsewhere and say where.
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
