//! What the state knows of a conversation's sandbox and of the tools that run in it.

use serde::{Deserialize, Serialize};

use crate::ids::derived;
use crate::{
    CheckpointId, Conversation, Decision, ExecutionId, Patterns, SandboxId, SandboxState, Seq, Timestamp,
    ToolStream,
};

/// How many decisions for always a conversation remembers; the oldest go first. Each is a click of a person.
pub(crate) const ALWAYS_MAX: usize = 256;

/// The sandbox of a conversation and the checkpoints of its workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sandbox {
    pub id: SandboxId,
    pub state: SandboxState,
    /// Since when it is in this state, and why.
    pub since: Timestamp,
    pub reason: String,
    /// When a tool, or a person who decides about one, last needed it.
    pub used_at: Timestamp,
    /// The last tool call began here that may have changed files since the last checkpoint.
    pub dirty: Option<Seq>,
    /// The newest checkpoint. It outlives the sandbox.
    pub checkpoint: Option<Checkpoint>,
    /// The newest checkpoint before the current generation changed anything.
    pub before: Option<CheckpointId>,
    /// Failed attempts to take a checkpoint since the last that succeeded.
    pub failures: u32,
    pub failed_at: Timestamp,
    /// How many sandboxes this conversation has had: the next one is named after it.
    pub count: u32,
}

/// A checkpoint, and what decides whether it may still be restored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub id: CheckpointId,
    pub taken_at: Timestamp,
    /// `metadata.branch` of the conversation at that time.
    pub branch: Option<String>,
}

/// One run of a tool call that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    pub tool_use_id: String,
    pub id: ExecutionId,
    pub sandbox: SandboxId,
    pub began_seq: Seq,
    pub began_at: Timestamp,
    /// How much of its output is in the log.
    pub offsets: Offsets,
    /// Whether this is another run of a read-only call whose first run was lost.
    pub again: bool,
}

/// Positions in the two streams of an execution, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offsets {
    pub stdout: u64,
    pub stderr: u64,
}

impl Offsets {
    pub fn of(&self, stream: ToolStream) -> u64 {
        match stream {
            ToolStream::Stdout => self.stdout,
            ToolStream::Stderr => self.stderr,
        }
    }

    pub(crate) fn advance(&mut self, stream: ToolStream, to: u64) {
        match stream {
            ToolStream::Stdout => self.stdout = to,
            ToolStream::Stderr => self.stderr = to,
        }
    }
}

/// An execution whose generation ended. It is owed a kill until an event says that it is dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwedStop {
    pub tool_use_id: String,
    pub execution: ExecutionId,
    pub sandbox: SandboxId,
}

/// A person's decision that holds for all further calls of a tool, or for those that match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Always {
    pub tool: String,
    pub decision: Decision,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Patterns>,
}

impl Conversation {
    /// The id of the sandbox that is made next. It may have been made already by an owner that died before it could say
    /// so; whoever deletes the conversation kills this one too.
    pub fn next_sandbox_id(&self) -> SandboxId {
        let count = self.sandbox.as_ref().map_or(0, |sandbox| sandbox.count);
        let created = self.created_at.to_string();
        let parts = [self.user.as_str(), self.id.as_str(), &created, &count.to_string()];
        derived("sbx", &parts).into()
    }
}
