//! What clients and workers can ask for, and the refusals.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::even_null;
use crate::{
    Brief, ChildNews, ChildQuestion, ConversationId, Decided, GenerationId, GenerationStatus, MessageId,
    Part, Piece, RequestId, RetryMode, Role, Seq,
};

/// The maximum length of a conversation's queue. A client that sends more is not waiting for answers.
pub const QUEUE_MAX: usize = 16;

/// The maximum size of one tool result or one piece of tool output. It is stored in the log and the
/// transcript, and every reader receives it.
pub const TOOL_BYTES_MAX: usize = 256 * 1024;

/// It can be serialized, because it may have to travel to the instance that owns the conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Creates an empty conversation.
    Create {
        title: Option<String>,
        #[serde(default, deserialize_with = "even_null", skip_serializing_if = "Option::is_none")]
        metadata: Option<Value>,
        /// The client's own key, from which the conversation's id is derived.
        key: Option<String>,
        request: Option<RequestId>,
    },
    /// Sets the title or the metadata: `None` leaves a value as it is, null clears it.
    Update {
        #[serde(default, deserialize_with = "even_null", skip_serializing_if = "Option::is_none")]
        title: Option<Option<String>>,
        #[serde(default, deserialize_with = "even_null", skip_serializing_if = "Option::is_none")]
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
    /// A child tells what it is doing, and what came of it.
    ChildChanged(ChildNews),
    /// Makes the caller the worker of a generation. The previous worker can no longer append.
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
            Command::Create { .. } | Command::Update { .. } | Command::ChildChanged(_) => None,
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

#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// The key that a new conversation gets.
    pub key: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Retry {
    pub of: GenerationId,
    pub mode: RetryMode,
    /// The id that the new generation will have.
    pub generation: GenerationId,
    pub request: RequestId,
    pub digest: String,
    /// The API key that asks for it.
    pub api_key_id: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Decide {
    pub generation: GenerationId,
    pub tool_use_id: String,
    /// The hash of the question that the person saw, if the client sent it.
    pub hash: Option<String>,
    pub decided: Decided,
}

/// A batch from a worker, which is recorded as a whole or not at all.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earlier {
    pub generation: GenerationId,
    /// The user's message it answers.
    pub message: MessageId,
    /// Fingerprint of the earlier request.
    pub digest: String,
}

/// What to do with a message while a generation is running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhenBusy {
    #[default]
    Reject,
    /// Answer it afterwards.
    Queue,
    /// Cancel the running and the queued generations, and answer this message instead.
    Interrupt,
}

/// A refused command changes nothing. It is a normal reply, not a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
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
    #[error("the generation has already ended, and a later one has begun")]
    EndedLongAgo,
    #[error("the generation is {}, not interrupted", status.as_str())]
    NotInterrupted { status: GenerationStatus },
    #[error("the generation is produced by this server, not by a worker")]
    NotForWorkers,
    #[error("the generation is produced by a worker and continues when a worker claims it")]
    MadeByWorker,
    #[error("tool call {tool_use_id:?} is not waiting for a decision")]
    NotAsked { tool_use_id: String },
    /// The question is a child's: the decision goes there.
    #[error("tool call {:?} waits for a decision in conversation {}", .0.tool_use_id, .0.conversation_id)]
    AskedByChild(Box<ChildQuestion>),
    /// The call has ended, or was never delegated to this child.
    #[error("no call waits for this sub-agent")]
    NotDelegated,
    /// The conversation does the work of a call, and ends with it.
    #[error("this conversation belongs to a tool call of conversation {parent}; send your message there")]
    BelongsToParent { parent: ConversationId },
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
    #[error("tool call {tool_use_id:?} sent more than {TOOL_BYTES_MAX} bytes at once")]
    ToolTooLong { tool_use_id: String },
    /// Another worker has claimed it, or this one was silent for too long.
    #[error("epoch {epoch} is over: the generation is {} in epoch {current}", status.as_str())]
    StaleEpoch { epoch: u32, current: u32, status: GenerationStatus },
    #[error("this worker's last event is {last}, not {expected}")]
    SeqConflict { expected: Seq, last: Seq },
    #[error("only the conversation's last generation can be retried, and only if it failed or was cancelled")]
    NotRetryable,
    #[error("the prompt of this generation is no longer kept; send the message again")]
    PromptGone,
    /// Files cannot be changed under a tool that may read or write them.
    #[error("a tool is running in this conversation; change its files when the tool has ended")]
    ToolRunning,
    #[error("the files of this conversation would be larger than {limit} bytes together")]
    WorkspaceFull { limit: u64 },
    #[error("the files of this conversation could not be saved; try again later")]
    FilesNotSaved,
}
