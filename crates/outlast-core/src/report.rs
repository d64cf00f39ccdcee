//! Reports from outside: from a call to a model, from a timer, or about a lost owner.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::TextKind;
use crate::{
    ChangedFile, CheckpointId, ExecutionId, Failure, FileChange, GenerationId, MessageId, NotificationId,
    SandboxId, SandboxState, Seq, ToolStream,
};

#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The model sent something, and the call may have ended.
    Streamed(Streamed),
    /// The attempt that the log tells of, or the wait for the next one, is not under way: its owner is gone.
    CallLost {
        generation: GenerationId,
    },
    /// The server stops while the call is under way.
    HandedOver {
        generation: GenerationId,
    },
    /// The wait before a retry is over.
    RetryDue {
        generation: GenerationId,
    },
    /// Nothing runs and this queued generation is next.
    TurnCame {
        generation: GenerationId,
    },
    /// Nobody has watched it for too long.
    Abandoned {
        generation: GenerationId,
    },
    /// It has worked for longer than the operator allows.
    TimeUsedUp {
        generation: GenerationId,
    },
    /// The worker that produces the answer was silent for too long.
    WorkerSilent {
        generation: GenerationId,
    },
    /// Tool calls may begin now.
    ToolsDue {
        generation: GenerationId,
    },
    /// All tool calls of the round have ended.
    RoundDone {
        generation: GenerationId,
    },
    /// An execution wrote something, and may have ended with it.
    Ran(Ran),
    /// The parent knows what happened up to this position.
    ParentTold {
        seq: Seq,
    },
    /// The parent is gone, or does not wait for this conversation any more.
    ParentGone,
    /// The execution is dead, whether or not it ever began.
    Stopped {
        execution: ExecutionId,
    },
    /// The sandbox of this id runs.
    SandboxReady {
        sandbox: SandboxId,
        state: SandboxState,
    },
    /// The sandbox cannot be made or resumed, though it is not gone.
    SandboxFailed {
        sandbox: SandboxId,
        reason: String,
    },
    SandboxPaused {
        sandbox: SandboxId,
    },
    SandboxKilled {
        sandbox: SandboxId,
    },
    /// The sandbox no longer exists.
    SandboxGone {
        sandbox: SandboxId,
        /// Executions that certainly never began in it.
        not_started: Vec<ExecutionId>,
    },
    /// A person changed a file in the sandbox.
    FileChanged(FileChange),
    CheckpointTaken {
        checkpoint: CheckpointId,
        files: u64,
        bytes: u64,
        truth: Option<String>,
        left_out: Option<String>,
    },
    CheckpointFailed {
        checkpoint: CheckpointId,
        reason: String,
    },
    /// The sandbox could not be made because this checkpoint cannot be restored: it is damaged or missing.
    RestoreFailed {
        checkpoint: CheckpointId,
        reason: String,
    },
    /// What the generation changed in the workspace.
    Summarized {
        generation: GenerationId,
        changes: Vec<ChangedFile>,
    },
    /// The notification is stored.
    Notified {
        notification: NotificationId,
    },
    /// What the sandbox of a resumed run says is true.
    Inspected {
        generation: GenerationId,
        truth: String,
    },
}

/// What an execution brought since the last report.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    pub generation: GenerationId,
    pub execution: ExecutionId,
    /// What it wrote, each stream without gaps from the position that the state knows.
    pub output: Vec<Output>,
    pub end: Option<RunEnd>,
}

/// A piece of a stream. The text ends at a character's end wherever the bytes are UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub stream: ToolStream,
    pub offset: u64,
    /// How many bytes of the stream this is.
    pub bytes: u64,
    pub text: String,
}

/// How an execution ended.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEnd {
    Ended {
        /// What the model is told.
        result: Value,
        is_error: bool,
        exit_code: Option<i32>,
    },
    /// The sandbox is there but has no record of how it ended.
    Lost,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// A tool wrote something while it ran.
    ToolOutput { id: String, stream: ToolStream, text: String },
    /// A tool is done.
    ToolEnd { id: String, result: Value, is_error: bool },
    /// A tool waits for a person's decision.
    Approval { id: String, name: String, input: Value },
    /// The vendor's signature of the thinking before it.
    Signature { signature: String },
    /// What it cost.
    Usage { input_tokens: u64, output_tokens: u64 },
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
