//! Sandboxes on this machine: real bubblewrap, real processes, real kills.
//!
//! The tests need bubblewrap. They fail without it, because a wall that was not tried is not there.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod e2b;
mod once;
mod ordinary;
mod pausing;
mod stopping;
mod suite;
mod tools;
mod walls;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use outlast_core::{ExecutionId, SandboxId};
use outlast_engine::sandbox::{
    Execution, Local, Offsets, Outcome, Output, Progress, SandboxSettings, Sandboxes, Span,
};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the helper is, if not where it was built.
const HELPER: &str = "OUTLAST_SANDBOX_HELPER";

/// A folder with one sandbox, and a server that uses it.
struct World {
    folder: tempfile::TempDir,
    local: Local,
    id: SandboxId,
}

/// What a program left behind.
#[derive(Debug)]
struct Done {
    outcome: Outcome,
    stdout: String,
    stderr: String,
}

impl World {
    async fn new() -> World {
        World::with(SandboxSettings::default()).await
    }

    async fn with(settings: SandboxSettings) -> World {
        let folder = tempfile::tempdir().unwrap();
        let local = Local::open(folder.path(), settings, helper()).await.unwrap();
        let id = SandboxId::from(format!("test-{}", uuid::Uuid::now_v7()));
        local.create(&id, "test").await.unwrap();
        World { folder, local, id }
    }

    /// Another server on the same folder.
    async fn another(&self) -> Local {
        Local::open(self.folder.path(), SandboxSettings::default(), helper()).await.unwrap()
    }

    fn workspace(&self) -> PathBuf {
        self.local.folder(&self.id).unwrap()
    }

    /// Runs a script to its end.
    async fn bash(&self, script: &str) -> Done {
        let execution = bash(&uuid::Uuid::now_v7().to_string(), script);
        self.local.start(&self.id, &execution).await.unwrap();
        self.done(&self.local, &execution.id).await
    }

    async fn start(&self, name: &str, script: &str) -> ExecutionId {
        let execution = bash(name, script);
        self.local.start(&self.id, &execution).await.unwrap();
        execution.id
    }

    async fn done(&self, local: &dyn Sandboxes, execution: &ExecutionId) -> Done {
        let outcome = end(local, &self.id, execution).await;
        let stdout = all(local, &self.id, execution, Output::Stdout).await;
        let stderr = all(local, &self.id, execution, Output::Stderr).await;
        Done {
            outcome,
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }

    /// Waits until a program has written something to stdout, and returns it.
    async fn first_output(&self, execution: &ExecutionId) -> String {
        let progress = within(self.local.wait(&self.id, execution, Offsets::default())).await.unwrap();
        assert_eq!(progress.outcome, None);
        let text = all(&self.local, &self.id, execution, Output::Stdout).await;
        String::from_utf8(text).unwrap()
    }
}

impl Drop for World {
    /// Also after a failed test: nothing stays behind, neither processes nor control groups.
    fn drop(&mut self) {
        let mut killer = std::process::Command::new(helper());
        killer.arg("kill").arg(self.folder.path()).arg(self.id.as_str());
        assert!(killer.status().is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

impl Done {
    fn code(&self) -> i32 {
        match self.outcome {
            Outcome::Exited { code } => code,
            other => panic!("{other:?}, not an exit: {self:?}"),
        }
    }
}

fn helper() -> PathBuf {
    let built = || env!("CARGO_BIN_EXE_sandbox-helper").into();
    std::env::var_os(HELPER).map_or_else(built, PathBuf::from)
}

fn bash(id: &str, script: &str) -> Execution {
    Execution {
        id: ExecutionId::from(id),
        program: ["/bin/bash", "-c", script].map(str::to_owned).into(),
        stdin: Bytes::new(),
        env: BTreeMap::new(),
        deadline: None,
    }
}

fn in_seconds(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp::now() + jiff::SignedDuration::from_secs(seconds))
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it ends")
}

async fn end(sandboxes: &dyn Sandboxes, id: &SandboxId, execution: &ExecutionId) -> Outcome {
    let mut seen = Offsets::default();
    loop {
        let Progress { written, outcome } = within(sandboxes.wait(id, execution, seen)).await.unwrap();
        if let Some(outcome) = outcome {
            return outcome;
        }
        assert_ne!(written, seen, "it returns when there is news");
        seen = written;
    }
}

/// All output, read in pieces.
async fn all(sandboxes: &dyn Sandboxes, id: &SandboxId, execution: &ExecutionId, output: Output) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let offset = bytes.len() as u64;
        let span = Span { execution: execution.clone(), output, offset, max: 10_000 };
        let piece = sandboxes.read(id, &span).await.unwrap();
        if piece.is_empty() {
            return bytes;
        }
        bytes.extend_from_slice(&piece);
    }
}
