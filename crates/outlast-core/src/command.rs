//! What clients may ask, and the answers that change nothing.

use serde_json::Value;

use crate::{
    Decided, GenerationId, GenerationStatus, MessageId, Part, Piece, Producer, Prompt, RequestId, RetryMode,
    Role, Seq,
};

/// How many generations may wait behind the one under way. More is a client that sends without reading.
pub const QUEUE_MAX: usize = 16;

/// How much one result of a tool, or one piece of its output, may hold, in bytes. It stands in the log and in
/// the transcript, and every reader gets it.
pub const TOOL_BYTES_MAX: usize = 256 * 1024;

/// Something a client asks for.
#[derive(Clone, Debug)]
pub enum Command {
    /// Answer a message.
    Start(Start),
    /// Stop a generation.
    Cancel {
        /// Which.
        generation: GenerationId,
    },
    /// Let an interrupted generation go on.
    Resume {
        /// Which.
        generation: GenerationId,
        /// Who says so.
        by: String,
    },
    /// End an interrupted generation as it stands.
    Dismiss {
        /// Which.
        generation: GenerationId,
    },
    /// Take up a generation that failed or was cancelled.
    Retry(Retry),
    /// Become the producer of a generation that a worker makes. Whoever was it before is no more.
    Claim {
        /// Which.
        generation: GenerationId,
        /// Whether what was shown stays.
        keep: bool,
    },
    /// Append what a worker made.
    Produce(Produce),
    /// Decide about a tool that waits for a person.
    Decide {
        /// Of which generation.
        generation: GenerationId,
        /// Which call.
        tool_use_id: String,
        /// What is decided.
        decided: Decided,
    },
    /// Set title or metadata.
    Update {
        /// The new title, if it is to change.
        title: Option<String>,
        /// The new metadata, if they are to change. Null takes them away.
        metadata: Option<Value>,
        /// The name that the client gave the request, if it did.
        request: Option<RequestId>,
    },
}

/// A message to be answered.
#[derive(Clone, Debug)]
pub struct Start {
    /// The id the generation will have.
    pub generation: GenerationId,
    /// The id the user's message will have.
    pub message: MessageId,
    /// The client's name for the request.
    pub request: RequestId,
    /// Fingerprint of the request.
    pub digest: String,
    /// Who speaks: the user, or whoever said the last message of a prompt.
    pub role: Role,
    /// What is said.
    pub parts: Vec<Part>,
    /// What the model is given instead of the transcript.
    pub prompt: Option<Prompt>,
    /// The id that the client wants its answer's first message to have.
    pub answer_id: Option<MessageId>,
    /// Who makes the answer, if not a model of the settings.
    pub producer: Option<Producer>,
    /// The model, by its name in the settings.
    pub model: String,
    /// Instructions for the model.
    pub system: Option<String>,
    /// Free JSON of the client.
    pub metadata: Option<Value>,
    /// What to do if one is under way.
    pub when_busy: WhenBusy,
    /// The generation that this request began before, if it did.
    pub earlier: Option<Earlier>,
}

/// A failed generation to be taken up.
#[derive(Clone, Debug)]
pub struct Retry {
    /// Which.
    pub of: GenerationId,
    /// Whether its partial answer is kept.
    pub mode: RetryMode,
    /// The id the new generation will have.
    pub generation: GenerationId,
    /// The client's name for the request.
    pub request: RequestId,
    /// Fingerprint of the request.
    pub digest: String,
    /// The generation that this request began before, if it did.
    pub earlier: Option<Earlier>,
}

/// A batch of a worker: all of it or nothing.
#[derive(Clone, Debug)]
pub struct Produce {
    /// For which generation.
    pub generation: GenerationId,
    /// The epoch that the worker was given: the attempt it makes.
    pub epoch: u32,
    /// The last event that the worker knows to be its own. A mere sign of life names none.
    pub expected: Option<Seq>,
    /// What it made, in order.
    pub pieces: Vec<Piece>,
    /// How it ended, if it did.
    pub end: Option<ProducedEnd>,
    /// The id for a new message, should one begin and its id not be settled.
    pub new_message: MessageId,
}

/// How a worker ends a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProducedEnd {
    /// Answered.
    Done {
        /// Why it stopped.
        reason: String,
    },
    /// Failed. What was said stays.
    Failed {
        /// For a person.
        message: String,
        /// For a program.
        code: String,
    },
}

/// What a request began when it came before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// The generation.
    pub generation: GenerationId,
    /// The user's message it answers.
    pub message: MessageId,
    /// Fingerprint of the request then.
    pub digest: String,
}

/// What to do with a message while a generation is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenBusy {
    /// Refuse it.
    #[default]
    Reject,
    /// Answer it afterwards.
    Queue,
    /// Cancel what is under way and answer this instead.
    Interrupt,
}

/// An answer that changes nothing. Not a failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The same request came before; this is what it began.
    #[error("the request was accepted before as generation {}", .0.generation)]
    Repeated(Earlier),
    /// The request's id was used before with another body.
    #[error("the request id was used before with another body, for generation {generation}")]
    IdempotencyConflict {
        /// What it began then.
        generation: GenerationId,
    },
    /// A generation is under way.
    #[error("generation {current} is under way in this conversation")]
    Busy {
        /// Which.
        current: GenerationId,
    },
    /// Too many are waiting.
    #[error("{QUEUE_MAX} generations are waiting in this conversation already")]
    QueueFull,
    /// It ended before.
    #[error("the generation has ended already: {}", status.as_str())]
    AlreadyEnded {
        /// How.
        status: GenerationStatus,
    },
    /// It ended before the last generation began: only its document still knows how.
    #[error("the generation ended before the last one began")]
    EndedLongAgo,
    /// Only an interrupted generation can be resumed or dismissed.
    #[error("the generation is {}, not interrupted", status.as_str())]
    NotInterrupted {
        /// What it is.
        status: GenerationStatus,
    },
    /// A worker can only make what was begun for one.
    #[error("the generation is made by this server, not by a worker")]
    NotExternal,
    /// Only the worker can let it go on: nobody else makes it.
    #[error("the generation is made by a worker: it goes on when a worker claims it")]
    External,
    /// No call of this name waits or waited for a decision.
    #[error("no tool call {tool_use_id:?} waits for a decision")]
    NotAsked {
        /// Which.
        tool_use_id: String,
    },
    /// Somebody decided before.
    #[error("it was decided before: {}", .0.decision.as_str())]
    AlreadyDecided(Decided),
    /// A worker can only tell of a tool that it began, and end it once.
    #[error("no tool call {tool_use_id:?} is under way")]
    NotCalled {
        /// Which.
        tool_use_id: String,
    },
    /// A decision is about the arguments that a person saw: another question needs another name.
    #[error(
        "a person was asked about tool call {tool_use_id:?} before, with another tool or other arguments"
    )]
    AskedOtherwise {
        /// Which.
        tool_use_id: String,
    },
    /// A tool that writes this much should keep it elsewhere and say where.
    #[error("tool call {tool_use_id:?} brings more than {TOOL_BYTES_MAX} bytes at once")]
    ToolTooLong {
        /// Which.
        tool_use_id: String,
    },
    /// Another one is the producer now, or the worker was silent for too long.
    #[error("epoch {epoch} is over: the generation is {} in epoch {current}", status.as_str())]
    StaleProducer {
        /// What the worker said.
        epoch: u32,
        /// What it is.
        current: u32,
        /// How far the generation is.
        status: GenerationStatus,
    },
    /// The batch does not begin where the last one ended.
    #[error("the producer's last event is {last}, not {expected}")]
    SeqConflict {
        /// What the worker said.
        expected: Seq,
        /// What it is.
        last: Seq,
    },
    /// Only the last generation, and only one that failed or was cancelled, can be taken up again.
    #[error("only the conversation's last generation can be retried, and only if it failed or was cancelled")]
    NotRetryable,
}
