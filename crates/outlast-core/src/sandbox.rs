//! What the state knows about a conversation's sandbox and the tools that run in it.

use serde::{Deserialize, Serialize};

use crate::ids::derived;
use crate::{
    CheckpointId, Child, Conversation, ConversationId, Decision, ExecutionId, Patterns, Place, SandboxId,
    SandboxState, Seq, Timestamp, ToolStream,
};

/// How many "always" decisions a conversation remembers; the oldest is dropped first. Each one was a person's click.
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
    /// Where the last tool call began, or a person changed a file, since the last checkpoint.
    pub dirty: Option<Seq>,
    /// Whether it was a person. They wait until the file is saved.
    #[serde(default)]
    pub changed_by_person: bool,
    /// The newest checkpoint. It outlives the sandbox.
    pub checkpoint: Option<Checkpoint>,
    /// The newest checkpoint before the current generation changed anything.
    pub before: Option<CheckpointId>,
    /// Failed attempts to take a checkpoint since the last that succeeded.
    pub failures: u32,
    pub failed_at: Timestamp,
    /// How many sandboxes this conversation has had: the next one is named after it.
    pub count: u32,
    /// Whether a command was started in its background. It may change files at any time.
    #[serde(default)]
    pub background: bool,
}

/// A checkpoint, and the facts that decide whether it may still be restored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub id: CheckpointId,
    pub taken_at: Timestamp,
    /// `metadata.branch` of the conversation at that time.
    pub branch: Option<String>,
    /// The sizes of all its files together; 0 in states that older versions wrote.
    #[serde(default)]
    pub bytes: u64,
    /// What the workspace had and the checkpoint has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

/// One run of a tool call that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    pub tool_use_id: String,
    pub id: ExecutionId,
    /// The sandbox it runs in, if it runs in one.
    pub sandbox: Option<SandboxId>,
    /// As recorded. [`Execution::runs_in`] is also right for a state that an older version stored.
    #[serde(default)]
    pub place: Place,
    /// What is known of the child that does the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<Box<Child>>,
    pub began_seq: Seq,
    pub began_at: Timestamp,
    /// How much of its output is already in the log.
    pub offsets: Offsets,
    /// Whether this is another run of a read-only call whose first run was lost.
    pub again: bool,
    /// Whether a tool elsewhere may be asked again under this id.
    #[serde(default)]
    pub repeatable: bool,
}

impl Execution {
    /// Where it runs. Older versions did not store the place: what has no sandbox runs elsewhere.
    pub(crate) fn runs_in(&self) -> Place {
        match (self.place, &self.sandbox) {
            (Place::Sandbox, None) => Place::Elsewhere,
            (place, _) => place,
        }
    }
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

/// An execution whose generation has ended. It must be killed, and stays here until an event says that it is dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwedStop {
    pub tool_use_id: String,
    pub execution: ExecutionId,
    /// Where it runs.
    pub sandbox: Option<SandboxId>,
    /// The child that works for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<ConversationId>,
}

/// A person's decision for all further calls of a tool, or for those that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Always {
    pub tool: String,
    pub decision: Decision,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Patterns>,
}

impl Conversation {
    /// The id of the sandbox to create next. An owner that died before it could record this may have created it already,
    /// so deleting the conversation kills this one too.
    pub fn next_sandbox_id(&self) -> SandboxId {
        let count = self.sandbox.as_ref().map_or(0, |sandbox| sandbox.count);
        let created = self.created_at.to_string();
        let parts = [self.user.as_str(), self.id.as_str(), &created, &count.to_string()];
        derived("sbx", &parts).into()
    }
}
