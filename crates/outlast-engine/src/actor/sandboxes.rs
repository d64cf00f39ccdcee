//! What an owner does with the sandbox of its conversation: has it run, saved, paused, killed and asked.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use outlast_core::{
    CheckpointId, ConversationId, Effect, Ensure, ExecutionId, GenerationId, Report, SandboxId, SandboxState,
    Timestamp,
};

use super::Actor;
use super::works::Teller;
use crate::checkpoints::{Between, CheckpointError, Checkpoints, Difference, GitTruth, Restore, Take};
use crate::journal::RecordError;
use crate::sandbox::{Execution, Offsets, Output, SandboxError, Sandboxes, Span};

/// How long to leave a provider alone that had a passing fault, ...
const FAULT_WAIT: Duration = Duration::from_millis(500);
/// ... and how often before the conversation is told.
const FAULTS_MAX: u32 = 6;
/// How long a look into the sandbox may take, ...
const LOOK_TIME_MAX: Duration = Duration::from_secs(10);
/// ... and how much of what it finds is kept.
const LOOK_BYTES_MAX: usize = 16 * 1024;

/// Parts end with a zero byte, which no line of git's has.
const GIT: &str =
    "git rev-parse HEAD 2>&1; printf '\\0'; git status --porcelain 2>&1; printf '\\0'; git diff --stat 2>&1";
/// What is true of the workspace, for a model that goes on after a crash.
const LOOK: &str = "\
if git rev-parse --git-dir >/dev/null 2>&1; then
  echo \"HEAD $(git rev-parse HEAD 2>&1)\"; git status --porcelain; git diff --stat
else
  echo 'files, newest first:'; find . -type f -printf '%T@ %p\\n' | sort -rn | head -100 | cut -d' ' -f2-
fi";

/// Where the tools of a server run, and where their files are kept.
#[derive(Clone)]
pub struct Workshop {
    pub sandboxes: Arc<dyn Sandboxes>,
    pub checkpoints: Checkpoints,
    /// How long a tool may run when its call says nothing about it.
    pub tool_timeout: Duration,
}

impl Actor {
    /// Begins what should be under way and is not.
    pub(super) async fn begin(&mut self, effect: Effect) -> Result<(), RecordError> {
        if let Effect::CallModel { generation, .. } = &effect {
            return self.call_model(generation).await;
        }
        let workshop = match self.shared.workshop.clone() {
            Ok(workshop) => workshop,
            Err(reason) => return self.report(without_workshop(effect, reason)).await,
        };
        let (conversation, now) = (self.id.clone(), self.shared.clock.now());
        let shared = self.shared.clone();
        match effect.clone() {
            Effect::CallModel { .. } => {}
            Effect::RunTool { sandbox, generation, execution } => {
                let Some(run) = self.prepare(workshop, sandbox, &generation, &execution) else {
                    return Ok(());
                };
                self.works.start(&shared, effect, |teller| run.carry_out(teller));
            }
            Effect::EnsureSandbox { sandbox, how } => {
                self.works
                    .start(&shared, effect, |teller| workshop.ensure(conversation, sandbox, how, teller));
            }
            Effect::StopExecution { sandbox, execution } => {
                self.works.start(&shared, effect, |teller| workshop.stop(sandbox, execution, teller));
            }
            Effect::TakeCheckpoint { sandbox, checkpoint } => {
                let save = Save { conversation, sandbox, checkpoint, now };
                self.works.start(&shared, effect, |teller| workshop.checkpoint(save, teller));
            }
            Effect::PauseSandbox { sandbox } => {
                self.works.start(&shared, effect, |teller| workshop.pause(sandbox, teller));
            }
            Effect::KillSandbox { sandbox } => {
                self.works.start(&shared, effect, |teller| workshop.kill(sandbox, teller));
            }
            Effect::Summarize { generation, from, to } => {
                let between = Compared { conversation, generation, from, to };
                self.works.start(&shared, effect, |teller| workshop.summarize(between, teller));
            }
            Effect::Inspect { generation, sandbox } => {
                self.works
                    .start(&shared, effect, |teller| workshop.inspect(generation, sandbox, now, teller));
            }
        }
        Ok(())
    }
}

impl Actor {
    /// Kills the sandboxes of a conversation that is to be deleted and removes its checkpoints. What is left when this
    /// fails is removed when the person tries again: the conversation is still there.
    pub(super) async fn clear_workshop(&mut self) -> Result<(), String> {
        let (Some(state), Ok(workshop)) = (&self.state, &self.shared.workshop) else { return Ok(()) };
        self.works.keep(&[]);
        let known = state.sandbox.as_ref().map(|sandbox| sandbox.id.clone());
        for sandbox in known.into_iter().chain([state.next_sandbox_id()]) {
            workshop.sandboxes.kill(&sandbox).await.map_err(|error| error.to_string())?;
        }
        while !workshop.checkpoints.forget(&self.id).await.map_err(|error| error.to_string())? {}
        Ok(())
    }
}

/// What is reported where there is nothing to run tools in: the operator took it away, or this machine cannot.
fn without_workshop(effect: Effect, reason: String) -> Report {
    match effect {
        Effect::EnsureSandbox { sandbox, .. } => Report::SandboxFailed { sandbox, reason },
        Effect::StopExecution { execution, .. } => Report::Stopped { execution },
        Effect::TakeCheckpoint { checkpoint, .. } => Report::CheckpointFailed { checkpoint, reason },
        Effect::RunTool { sandbox, .. }
        | Effect::PauseSandbox { sandbox }
        | Effect::KillSandbox { sandbox } => Report::SandboxGone { sandbox, not_started: Vec::new() },
        Effect::Summarize { generation, .. } => Report::Summarized { generation, changes: Vec::new() },
        Effect::Inspect { generation, .. } => Report::Inspected { generation, truth: reason },
        Effect::CallModel { generation, .. } => Report::CallLost { generation },
    }
}

impl Workshop {
    /// Has the sandbox run, with the files it should have.
    pub(super) async fn ensure(
        self,
        conversation: ConversationId,
        sandbox: SandboxId,
        how: Ensure,
        teller: Teller,
    ) {
        let mut faults = 0;
        loop {
            let report = match self.try_to_ensure(&conversation, &sandbox, &how).await {
                Ok(state) => Report::SandboxReady { sandbox, state },
                Err(NotReady::Sandbox(SandboxError::Gone(_))) => {
                    Report::SandboxGone { sandbox, not_started: Vec::new() }
                }
                Err(error) if error.is_final() || faults >= FAULTS_MAX => match (&error, how) {
                    (NotReady::Checkpoint(error), Ensure::Restore(checkpoint)) if error.is_final() => {
                        Report::RestoreFailed { checkpoint, reason: error.to_string() }
                    }
                    _ => Report::SandboxFailed { sandbox, reason: error.to_string() },
                },
                Err(error) => {
                    tracing::warn!(?sandbox, %error, "trying again to prepare a sandbox");
                    faults += 1;
                    tokio::time::sleep(FAULT_WAIT).await;
                    continue;
                }
            };
            return teller.finish(report).await;
        }
    }

    async fn try_to_ensure(
        &self,
        conversation: &ConversationId,
        sandbox: &SandboxId,
        how: &Ensure,
    ) -> Result<SandboxState, NotReady> {
        match how {
            Ensure::Resume => {
                self.sandboxes.resume(sandbox).await?;
                Ok(SandboxState::Resumed)
            }
            Ensure::Create => {
                self.sandboxes.create(sandbox).await?;
                Ok(SandboxState::Created)
            }
            Ensure::Restore(checkpoint) => {
                // What an earlier try left half restored is not built upon.
                self.sandboxes.kill(sandbox).await?;
                self.sandboxes.create(sandbox).await?;
                let restore = Restore {
                    conversation: conversation.clone(),
                    id: checkpoint.to_string(),
                    workspace: self.sandboxes.workspace(sandbox)?,
                };
                self.checkpoints.restore(&restore).await?;
                Ok(SandboxState::Restored)
            }
        }
    }

    /// Kills an execution and everything it began, however long that takes.
    pub(super) async fn stop(self, sandbox: SandboxId, execution: ExecutionId, teller: Teller) {
        loop {
            match self.sandboxes.stop(&sandbox, &execution).await {
                // A sandbox that is gone has nothing running in it.
                Ok(()) | Err(SandboxError::Gone(_)) => break,
                Err(error) => {
                    tracing::error!(?sandbox, ?execution, %error, "cannot stop a tool; trying again");
                    tokio::time::sleep(FAULT_WAIT).await;
                }
            }
        }
        teller.finish(Report::Stopped { execution }).await;
    }

    pub(super) async fn pause(self, sandbox: SandboxId, teller: Teller) {
        let report = match self.sandboxes.pause(&sandbox).await {
            Ok(()) => Report::SandboxPaused { sandbox },
            Err(error) => self.unreachable(sandbox, &error).await,
        };
        teller.finish(report).await;
    }

    pub(super) async fn kill(self, sandbox: SandboxId, teller: Teller) {
        while let Err(error) = self.sandboxes.kill(&sandbox).await {
            tracing::error!(?sandbox, %error, "cannot kill a sandbox; trying again");
            tokio::time::sleep(FAULT_WAIT).await;
        }
        teller.finish(Report::SandboxKilled { sandbox }).await;
    }

    /// A sandbox that can be neither paused nor saved is as good as gone; so that it is not half there, it goes.
    async fn unreachable(&self, sandbox: SandboxId, error: &SandboxError) -> Report {
        if !matches!(error, SandboxError::Gone(_)) {
            tracing::error!(?sandbox, %error, "a sandbox does not obey; it is killed");
            if let Err(error) = self.sandboxes.kill(&sandbox).await {
                tracing::error!(?sandbox, %error, "cannot kill a sandbox");
            }
        }
        Report::SandboxGone { sandbox, not_started: Vec::new() }
    }

    pub(super) async fn checkpoint(self, save: Save, teller: Teller) {
        let Save { conversation, sandbox, checkpoint, now } = save;
        let taken = async {
            let workspace = self.sandboxes.workspace(&sandbox)?;
            let git = self.git(&sandbox, &checkpoint, now).await;
            let id = checkpoint.to_string();
            Ok::<_, NotReady>(self.checkpoints.take(&Take { conversation, id, workspace, git, now }).await?)
        };
        let report = match taken.await {
            Ok(taken) => {
                let truth = taken.truth.and_then(|truth| serde_json::to_string(&truth).ok());
                Report::CheckpointTaken { checkpoint, files: taken.files, bytes: taken.bytes, truth }
            }
            Err(NotReady::Sandbox(SandboxError::Gone(_))) => {
                Report::SandboxGone { sandbox, not_started: Vec::new() }
            }
            Err(error) => {
                tracing::error!(?sandbox, %error, "cannot take a checkpoint");
                Report::CheckpointFailed { checkpoint, reason: error.to_string() }
            }
        };
        teller.finish(report).await;
    }

    pub(super) async fn summarize(self, compared: Compared, teller: Teller) {
        let Compared { conversation, generation, from, to } = compared;
        let between = Between { before: from.as_ref().map(CheckpointId::as_str), after: to.as_str() };
        let changes = match self.checkpoints.compare(&conversation, between).await {
            Ok(differences) => differences.iter().map(Difference::changed_file).collect(),
            Err(error) => {
                // The answer is complete without it; a run must not fail for its summary.
                tracing::error!(?conversation, %error, "cannot compare checkpoints");
                Vec::new()
            }
        };
        teller.finish(Report::Summarized { generation, changes }).await;
    }

    pub(super) async fn inspect(
        self,
        generation: GenerationId,
        sandbox: SandboxId,
        now: Timestamp,
        teller: Teller,
    ) {
        let id = ExecutionId::from(format!("inspect-{}", now.0).as_str());
        let truth = match self.said(&sandbox, id, LOOK, now).await {
            Ok(said) => said,
            Err(error) => format!("the sandbox does not say: {error}"),
        };
        teller.finish(Report::Inspected { generation, truth }).await;
    }

    /// What git says about the workspace, if it is a repository. Git runs in the sandbox, because a repository can
    /// make it run programs.
    async fn git(&self, sandbox: &SandboxId, checkpoint: &CheckpointId, now: Timestamp) -> Option<GitTruth> {
        let workspace = self.sandboxes.workspace(sandbox).ok()?;
        let listed = tokio::task::spawn_blocking(move || workspace.open(Path::new(".git/HEAD")).is_ok());
        if !listed.await.unwrap_or(false) {
            return None;
        }
        let id = ExecutionId::from(format!("git-{checkpoint}").as_str());
        let said = self.said(sandbox, id, GIT, now).await.ok()?;
        let mut parts = said.split('\0').map(str::to_owned);
        Some(GitTruth { head: parts.next()?, status: parts.next()?, stat: parts.next()? })
    }

    /// Runs a few lines of shell in the sandbox and returns what they print.
    async fn said(
        &self,
        sandbox: &SandboxId,
        id: ExecutionId,
        script: &str,
        now: Timestamp,
    ) -> Result<String, SandboxError> {
        let execution = Execution {
            id: id.clone(),
            program: vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()],
            stdin: Bytes::new(),
            env: BTreeMap::new(),
            deadline: deadline(now, LOOK_TIME_MAX),
        };
        self.sandboxes.start(sandbox, &execution).await?;
        let nothing_but_the_end = Offsets { stdout: u64::MAX, stderr: u64::MAX };
        self.sandboxes.wait(sandbox, &id, nothing_but_the_end).await?;
        let span = Span { execution: id, output: Output::Stdout, offset: 0, max: LOOK_BYTES_MAX };
        let said = self.sandboxes.read(sandbox, &span).await?;
        Ok(String::from_utf8_lossy(&said).trim_end().to_owned())
    }
}

/// A checkpoint to take.
pub(super) struct Save {
    pub(super) conversation: ConversationId,
    pub(super) sandbox: SandboxId,
    pub(super) checkpoint: CheckpointId,
    pub(super) now: Timestamp,
}

/// Two checkpoints to compare for a generation.
pub(super) struct Compared {
    pub(super) conversation: ConversationId,
    pub(super) generation: GenerationId,
    pub(super) from: Option<CheckpointId>,
    pub(super) to: CheckpointId,
}

/// Why a sandbox does not have the files it should have.
#[derive(Debug, thiserror::Error)]
enum NotReady {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl NotReady {
    /// Whether trying again is pointless.
    fn is_final(&self) -> bool {
        match self {
            NotReady::Sandbox(error) => !matches!(error, SandboxError::Io { .. }),
            NotReady::Checkpoint(error) => error.is_final(),
        }
    }
}

/// The wall clock in the words of the sandbox.
pub(super) fn deadline(from: Timestamp, time: Duration) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_millisecond(from.after(time).0).ok()
}
