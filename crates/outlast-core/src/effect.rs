//! What the core wants done outside.

use crate::{CheckpointId, ExecutionId, GenerationId, SandboxId};

/// Work to be done outside. Two equal effects are the same piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    CallModel {
        generation: GenerationId,
        attempt: u32,
    },
    /// Have this sandbox run. Idempotent; reports `SandboxReady`, or what is in the way.
    EnsureSandbox {
        sandbox: SandboxId,
        how: Ensure,
    },
    /// Run this tool call, or attach to it if it runs or ran already. Its name and input are in the state
    /// (`Generation::call`), and so is how much of its output is recorded (`Generation::execution`). A sandbox that
    /// turns out to be paused is resumed without a word: a pause may have been dropped before it was recorded.
    RunTool {
        sandbox: SandboxId,
        generation: GenerationId,
        execution: ExecutionId,
    },
    /// Kill this execution and everything it began; see that it cannot begin if it has not.
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
    /// Ask the sandbox about the state of its files, for example by `git status`.
    Inspect {
        generation: GenerationId,
        sandbox: SandboxId,
    },
}

/// How a sandbox that does not run comes to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ensure {
    /// It is paused. If it is gone, `SandboxGone`.
    Resume,
    /// It is new, with an empty workspace.
    Create,
    /// It is new, with the files of this checkpoint. What a former owner left half restored is removed first.
    Restore(CheckpointId),
}
