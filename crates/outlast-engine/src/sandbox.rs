//! Sandboxes: where the tools of a conversation run, apart from the server and from each other.
//!
//! A provider is mechanism only: it runs programs, keeps their output and stops them. The engine decides which tool runs,
//! when a sandbox is paused, and what a lost outcome means.

mod e2b;
pub mod inside;
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

pub use e2b::{E2b, E2bSettings};
pub use local::{EXECUTIONS_INSIDE, FAULT_POINTS, Local, TOOL_INSIDE};
pub use memory::{Act, Acts, MemorySandboxes, Script};
pub use settings::{Network, SandboxSettings};

/// A provider of sandboxes.
///
/// Every method can be repeated, even by another server after this one has died, and does nothing twice. The provider keeps
/// no state that a restart would lose.
///
/// # Executions
///
/// A sandbox runs an execution **at most once by its id**, however often and from wherever `start` is called.
/// Output and outcome stay readable until the sandbox is killed. After `wait` reported an end, no process of the
/// execution is alive and its output no longer changes.
#[async_trait]
pub trait Sandboxes: Send + Sync + 'static {
    /// Creates an empty sandbox. Does nothing if it exists, running or paused. The label says to whom it belongs.
    async fn create(&self, id: &SandboxId, label: &str) -> Result<(), SandboxError>;

    /// The label of every sandbox that can be reached from here, even of one that is not complete.
    async fn labels(&self) -> Result<Vec<(SandboxId, String)>, SandboxError>;

    async fn look(&self, id: &SandboxId) -> Result<Presence, SandboxError>;

    /// Freezes every process of the sandbox. Files and memory stay.
    async fn pause(&self, id: &SandboxId) -> Result<(), SandboxError>;

    /// Resumes a paused sandbox. Does nothing if it is running.
    async fn resume(&self, id: &SandboxId) -> Result<(), SandboxError>;

    /// Ends every process of the sandbox, daemons included, and removes its files. A sandbox that is gone is `Ok`.
    async fn kill(&self, id: &SandboxId) -> Result<(), SandboxError>;

    /// Starts an execution, or finds that it was started before. In that case it starts nothing, whatever the rest of
    /// `execution` says, and `wait` tells what happened to it. After an error it may or may not have been started:
    /// call `start` again to find out.
    async fn start(&self, id: &SandboxId, execution: &Execution) -> Result<Started, SandboxError>;

    /// Up to `max` bytes of output from `offset` on. Empty at the end of what was written so far. `Unknown` if the
    /// execution was never started here.
    async fn read(&self, id: &SandboxId, span: &Span) -> Result<Bytes, SandboxError>;

    /// Returns as soon as there is more output than `beyond`, or when the execution has ended.
    async fn wait(
        &self,
        id: &SandboxId,
        execution: &ExecutionId,
        beyond: Offsets,
    ) -> Result<Progress, SandboxError>;

    /// The files of the sandbox, for checkpoints. A provider elsewhere finds out only when they are used that the sandbox is
    /// gone.
    fn workspace(&self, id: &SandboxId) -> Result<Arc<dyn Workspace>, SandboxError>;

    /// Whether files are certainly the same after a pause. Otherwise they are compared with the last checkpoint.
    fn keeps_files_asleep(&self) -> bool;

    /// The sandboxes in which programs may run and that only servers on this machine can reach, with their labels. If
    /// every server can reach them all, there are none of these.
    async fn running_here(&self) -> Result<Vec<(SandboxId, String)>, SandboxError>;

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
    /// It was started, and how far it got is unknown: the machine went down, or something outside killed the processes
    /// that supervise it.
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
    /// The execution was never started in this sandbox.
    #[error("execution {0} was not started")]
    Unknown(ExecutionId),
    /// The request itself is invalid; do not retry.
    #[error("{0}")]
    Refused(String),
    /// Temporary; the call may be retried.
    #[error("{what}")]
    Io {
        what: String,
        #[source]
        error: io::Error,
    },
}

/// Longer names leave no room for what providers add to them.
const ID_BYTES_MAX: usize = 120;

/// Whether an id can name a file, and stand in a URL as it is.
fn is_file_name(id: &str) -> bool {
    let plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    !id.is_empty() && id.len() <= ID_BYTES_MAX && plain
}
