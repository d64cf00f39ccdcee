//! What the core wants done in the outside world.

use crate::{CheckpointId, ConversationId, ExecutionId, GenerationId, NotificationId, SandboxId, Seq};

/// Work to be done outside. Two equal effects are the same piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    CallModel {
        generation: GenerationId,
        attempt: u32,
    },
    /// Get this sandbox running. Idempotent; reports `SandboxReady`, or why it cannot run.
    EnsureSandbox {
        sandbox: SandboxId,
        how: Ensure,
    },
    /// Run this tool call, or attach to it if it runs or ran already. Its name and input are in the state
    /// (`Generation::call`), and so is how much of its output is recorded (`Generation::execution`). A sandbox that
    /// turns out to be paused is simply resumed: the pause may have been dropped before it was recorded.
    RunTool {
        sandbox: SandboxId,
        generation: GenerationId,
        execution: ExecutionId,
    },
    /// Ask a tool elsewhere to carry out this call, with the execution id as idempotency key. What is dropped is
    /// cancelled as far as the other side allows.
    AskTool {
        generation: GenerationId,
        execution: ExecutionId,
    },
    /// Start the child that does the work of this call, if it has not been started, and wait.
    Delegate {
        generation: GenerationId,
        execution: ExecutionId,
    },
    /// Cancel the child that worked for this execution.
    CancelChild {
        execution: ExecutionId,
        child: ConversationId,
    },
    /// Tell the parent of this conversation what happened up to this position.
    TellParent {
        generation: GenerationId,
        seq: Seq,
    },
    /// Kill this execution and everything it started. If it has not started yet, make sure that it never does.
    StopExecution {
        sandbox: SandboxId,
        execution: ExecutionId,
    },
    /// Save the workspace under this id. Idempotent.
    TakeCheckpoint {
        sandbox: SandboxId,
        checkpoint: CheckpointId,
    },
    PauseSandbox {
        sandbox: SandboxId,
    },
    KillSandbox {
        sandbox: SandboxId,
    },
    /// Compare two checkpoints; without `from`, with an empty workspace.
    Summarize {
        generation: GenerationId,
        from: Option<CheckpointId>,
        to: CheckpointId,
    },
    /// Tell the user. What there is to tell is in the state. Idempotent: the notification is stored under this id.
    Notify {
        notification: NotificationId,
    },
    /// Ask the sandbox about the state of its files, for example by `git status`.
    Inspect {
        generation: GenerationId,
        sandbox: SandboxId,
    },
}

/// How to get a sandbox running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ensure {
    /// It is paused. If it is gone, `SandboxGone`.
    Resume,
    /// It is new, with an empty workspace.
    Create,
    /// It is new, with the files of this checkpoint. If an earlier owner left it half restored, that is removed first.
    Restore(CheckpointId),
}
