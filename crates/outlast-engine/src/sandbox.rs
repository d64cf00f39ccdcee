//! Sandboxes: where the tools of a conversation run, apart from the server and from each other.
//!
//! A provider offers mechanism only: it runs programs, keeps their output and stops them. Which tool runs,
//! when a sandbox is paused and what a lost outcome means is decided by the engine.

mod local;
mod memory;
mod settings;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use outlast_core::{ExecutionId, SandboxId};

use crate::checkpoints::Workspace;

pub use local::{EXECUTIONS_INSIDE, FAULT_POINTS, Local, TOOL_INSIDE};
pub use memory::{Act, Acts, MemorySandboxes, Script};
pub use settings::{Network, SandboxSettings};

/// A provider of sandboxes.
///
/// All methods may be repeated, also by another server after this one died: what was done before is not done
/// again. The provider keeps no state that a restart would lose.
///
/// # Executions
///
/// A sandbox runs an execution **at most once by its id**, however often and from wherever `start` is called.
/// Output and outcome stay readable until the sandbox is killed. After `wait` reported an end, no process of the
/// execution is alive and its output does not change any more.
#[async_trait]
pub trait Sandboxes: Send + Sync + 'static {
    /// Creates an empty sandbox. Does nothing if it exists, running or paused.
    async fn create(&self, id: &SandboxId) -> Result<(), SandboxError>;

    async fn look(&self, id: &SandboxId) -> Result<Presence, SandboxError>;

    /// Stops the clock for every process of the sandbox. Files and memory stay.
    async fn pause(&self, id: &SandboxId) -> Result<(), SandboxError>;

    /// Lets a paused sandbox go on. Does nothing if it runs.
    async fn resume(&self, id: &SandboxId) -> Result<(), SandboxError>;

    /// Ends every process of the sandbox, daemons included, and removes its files. A sandbox that is gone is `Ok`.
    async fn kill(&self, id: &SandboxId) -> Result<(), SandboxError>;

    /// Starts an execution, or finds out that it was started before. Then nothing is started, whatever the rest of
    /// `execution` says; `wait` tells what became of it. After an error it may or may not have been started:
    /// call `start` again to find out.
    async fn start(&self, id: &SandboxId, execution: &Execution) -> Result<Started, SandboxError>;

    /// Up to `max` bytes of output from `offset` on. Empty at the end of what was written so far.
    async fn read(&self, id: &SandboxId, span: &Span) -> Result<Bytes, SandboxError>;

    /// Returns as soon as there is more output than `beyond`, or when the execution has ended.
    async fn wait(
        &self,
        id: &SandboxId,
        execution: &ExecutionId,
        beyond: Offsets,
    ) -> Result<Progress, SandboxError>;

    /// The files of the sandbox, for checkpoints.
    fn workspace(&self, id: &SandboxId) -> Result<Arc<dyn Workspace>, SandboxError>;

    /// Ends an execution with its whole process tree within a second. If it was not started yet, it never will be.
    /// Does nothing if it has ended.
    async fn stop(&self, id: &SandboxId, execution: &ExecutionId) -> Result<(), SandboxError>;
}

/// Whether a sandbox is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Running,
    Paused,
    /// It was killed, or never created.
    Gone,
}

/// A program to run in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    pub id: ExecutionId,
    /// The program and its arguments. It starts in the workspace.
    pub program: Vec<String>,
    pub stdin: Bytes,
    /// Added to the few variables that every program gets.
    pub env: BTreeMap<String, String>,
    /// When it is stopped if it is still running, on the wall clock, so that a restart does not extend it.
    pub deadline: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// This call started it.
    Now,
    /// It was started, or stopped, by an earlier call.
    Before,
}

/// How many bytes of output there are, or were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    pub stdout: u64,
    pub stderr: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Stdout,
    Stderr,
}

/// A part of an execution's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub execution: ExecutionId,
    pub output: Output,
    pub offset: u64,
    pub max: usize,
}

/// How far an execution got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub written: Offsets,
    /// Absent while it runs.
    pub outcome: Option<Outcome>,
}

/// How an execution ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program ended by itself, or a signal ended it: then the code is 128 plus the signal's number.
    Exited { code: i32 },
    /// By `stop`.
    Stopped,
    /// It ran into its deadline.
    TimedOut,
    /// It was ended because it used more than the settings allow.
    OverLimit(Limit),
    /// It was started, and nobody can say how far it got: the machine went down meanwhile, or something from
    /// outside killed the processes that watch over it.
    Lost,
}

/// A limit that ends an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The files of the sandbox together.
    Disk,
    /// What one execution writes to stdout and stderr together.
    Output,
}

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// This machine cannot isolate programs. The message tells the operator what to do.
    #[error("{0}")]
    Unavailable(String),
    /// Create a new sandbox and restore its files.
    #[error("sandbox {0} is gone")]
    Gone(SandboxId),
    /// Resume it first.
    #[error("sandbox {0} is paused")]
    Paused(SandboxId),
    /// The sandbox never heard of this execution: it was not started.
    #[error("execution {0} was not started")]
    Unknown(ExecutionId),
    /// The request itself cannot be carried out; repeating it is pointless.
    #[error("{0}")]
    Refused(String),
    /// May be tried again.
    #[error("{what}")]
    Io {
        what: String,
        #[source]
        error: io::Error,
    },
}
