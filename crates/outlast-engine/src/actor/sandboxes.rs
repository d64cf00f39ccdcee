//! How an owner runs, saves, pauses, kills and inspects the sandbox of its conversation.

mod not_ready;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use outlast_core::{
    CheckpointId, Conversation, ConversationId, Effect, Ensure, ExecutionId, GenerationId, Report, SandboxId,
    SandboxState, Timestamp,
};

use super::Actor;
pub(super) use super::waking::Wanted;
use super::waking::{Waking, saved};
use super::works::Teller;
use crate::checkpoints::{Between, Checkpoints, Difference, GitTruth, Restore, Take};
use crate::journal::RecordError;
use crate::sandbox::{Execution, Offsets, Output, Presence, SandboxError, Sandboxes, Span};
pub(super) use not_ready::NotReady;

/// How long to wait after a temporary failure of the provider, ...
const FAULT_WAIT: Duration = Duration::from_millis(500);
/// ... and how many times to try before the conversation is told.
const FAULTS_MAX: u32 = 6;
/// How long to wait before pausing again after that failed. Nobody waits for a pause.
const PAUSE_WAIT: Duration = Duration::from_secs(10);
/// How long inspecting the sandbox may take, ...
const LOOK_TIME_MAX: Duration = Duration::from_secs(10);
/// ... and how much of the output is kept.
const LOOK_BYTES_MAX: usize = 16 * 1024;

/// Each part ends with a zero byte, which git never prints here.
const GIT: &str =
    "git rev-parse HEAD 2>&1; printf '\\0'; git status --porcelain 2>&1; printf '\\0'; git diff --stat 2>&1";
/// The state of the workspace, for a model that continues after a crash.
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
    /// How long a tool may run if its call does not say.
    pub tool_timeout: Duration,
}

impl Actor {
    /// Starts an effect that should be under way and is not.
    pub(super) async fn begin(&mut self, effect: Effect) -> Result<(), RecordError> {
        if let Effect::CallModel { generation, .. } = &effect {
            return self.call_model(generation).await;
        }
        if let Effect::AskTool { generation, execution } = &effect {
            let (generation, execution) = (generation.clone(), execution.clone());
            self.ask_tool(&generation, &execution, effect);
            return Ok(());
        }
        if let Effect::Notify { notification } = &effect {
            self.notify(notification.clone(), effect);
            return Ok(());
        }
        if let Effect::Delegate { .. } | Effect::CancelChild { .. } | Effect::TellParent { .. } = &effect {
            self.begin_delegation(effect);
            return Ok(());
        }
        let workshop = match (self.shared.workshop.clone(), &effect) {
            (Ok(workshop), _) => workshop,
            (Err(reason), Effect::EnsureSandbox { sandbox, .. }) => {
                let sandbox = sandbox.clone();
                return self.report(Report::SandboxFailed { sandbox, reason }).await;
            }
            (Err(_), _) => return Ok(()),
        };
        let (conversation, now) = (self.id.clone(), self.shared.clock.now());
        let shared = self.shared.clone();
        match effect.clone() {
            Effect::CallModel { .. }
            | Effect::AskTool { .. }
            | Effect::Notify { .. }
            | Effect::Delegate { .. }
            | Effect::CancelChild { .. }
            | Effect::TellParent { .. } => {}
            Effect::RunTool { sandbox, generation, execution } => {
                let Some(run) = self.prepare(workshop, sandbox, &generation, &execution) else {
                    return Ok(());
                };
                self.works.start(&shared, effect, |teller| run.carry_out(teller));
            }
            Effect::EnsureSandbox { sandbox, how } => {
                let Some(label) = self.label().await else { return Ok(()) };
                let saved = self.state.as_ref().and_then(saved);
                let wanted = Wanted { conversation, label, sandbox, how, saved };
                self.works.start(&shared, effect, |teller| workshop.ensure(wanted, teller));
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
    /// Whether this server can carry it out. Without sandboxes it can neither look into one nor end what runs there, so it
    /// says nothing about them and only fails a run that needs one. The rest stays due for a server that has sandboxes.
    pub(super) fn can_begin(&self, effect: &Effect) -> bool {
        match effect {
            Effect::CallModel { .. }
            | Effect::AskTool { .. }
            | Effect::Notify { .. }
            | Effect::Delegate { .. }
            | Effect::CancelChild { .. }
            | Effect::TellParent { .. } => true,
            Effect::EnsureSandbox { .. } => {
                let active = self.state.as_ref().and_then(Conversation::active);
                self.shared.workshop.is_ok() || active.is_some()
            }
            Effect::RunTool { .. }
            | Effect::StopExecution { .. }
            | Effect::TakeCheckpoint { .. }
            | Effect::PauseSandbox { .. }
            | Effect::KillSandbox { .. }
            | Effect::Summarize { .. }
            | Effect::Inspect { .. } => self.shared.workshop.is_ok(),
        }
    }
}

impl Workshop {
    /// Gets the sandbox running, with the files it should have.
    pub(super) async fn ensure(self, wanted: Wanted, teller: Teller) {
        let mut faults = 0;
        loop {
            let sandbox = wanted.sandbox.clone();
            let report = match self.try_to_ensure(&wanted).await {
                Ok(state) => Report::SandboxReady { sandbox, state },
                Err(NotReady::Sandbox(SandboxError::Gone(_))) => {
                    Report::SandboxGone { sandbox, not_started: Vec::new() }
                }
                Err(error) if error.is_final() || faults >= FAULTS_MAX => match (&error, wanted.how) {
                    (NotReady::Checkpoint(error), Ensure::Restore(checkpoint)) if error.is_final() => {
                        Report::RestoreFailed { checkpoint, reason: error.to_string() }
                    }
                    _ => Report::SandboxFailed { sandbox, reason: error.to_string() },
                },
                Err(error) => {
                    tracing::warn!(?sandbox, %error, "cannot prepare a sandbox; will retry");
                    faults += 1;
                    tokio::time::sleep(FAULT_WAIT).await;
                    continue;
                }
            };
            return teller.finish(report).await;
        }
    }

    pub(super) async fn try_to_ensure(&self, wanted: &Wanted) -> Result<SandboxState, NotReady> {
        let Wanted { conversation, label, sandbox, how, saved } = wanted;
        match how {
            Ensure::Resume => {
                let (sandboxes, checkpoints, saved) = (&*self.sandboxes, &self.checkpoints, saved.as_ref());
                Waking { sandboxes, checkpoints, conversation, sandbox, saved }.wake().await?;
                Ok(SandboxState::Resumed)
            }
            Ensure::Create => {
                // An earlier owner may have begun to restore another checkpoint under this id.
                self.sandboxes.kill(sandbox).await?;
                self.sandboxes.create(sandbox, label).await?;
                Ok(SandboxState::Created)
            }
            Ensure::Restore(checkpoint) => {
                // An earlier try may have restored only some of the files, so start over.
                self.sandboxes.kill(sandbox).await?;
                self.sandboxes.create(sandbox, label).await?;
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

    /// Kills an execution and everything it started, however long that takes.
    pub(super) async fn stop(self, sandbox: SandboxId, execution: ExecutionId, teller: Teller) {
        loop {
            match self.sandboxes.stop(&sandbox, &execution).await {
                Ok(()) => break,
                // It is not on this machine. If it is on another, the record that it is lost ends it there.
                Err(SandboxError::Gone(_)) => {
                    teller.tell(Report::SandboxGone { sandbox, not_started: Vec::new() }).await;
                    break;
                }
                Err(error) => {
                    tracing::error!(?sandbox, ?execution, %error, "cannot stop a tool; will retry");
                    tokio::time::sleep(FAULT_WAIT).await;
                }
            }
        }
        teller.finish(Report::Stopped { execution }).await;
    }

    /// Pauses the sandbox, however long that takes. It may hold files that are not saved, so it is never given up.
    pub(super) async fn pause(self, sandbox: SandboxId, teller: Teller) {
        let report = loop {
            match self.sandboxes.pause(&sandbox).await {
                Ok(()) => break Report::SandboxPaused { sandbox },
                Err(SandboxError::Gone(_)) => {
                    break Report::SandboxGone { sandbox, not_started: Vec::new() };
                }
                Err(error) => {
                    tracing::error!(?sandbox, %error, "cannot pause a sandbox; will retry");
                    tokio::time::sleep(PAUSE_WAIT).await;
                }
            }
        };
        teller.finish(report).await;
    }

    pub(super) async fn kill(self, sandbox: SandboxId, teller: Teller) {
        while let Err(error) = self.sandboxes.kill(&sandbox).await {
            tracing::error!(?sandbox, %error, "cannot kill a sandbox; will retry");
            tokio::time::sleep(FAULT_WAIT).await;
        }
        teller.finish(Report::SandboxKilled { sandbox }).await;
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
                let (files, bytes, left_out) = (taken.files, taken.bytes, taken.left_out.in_words());
                Report::CheckpointTaken { checkpoint, files, bytes, truth, left_out }
            }
            Err(NotReady::Sandbox(SandboxError::Gone(_))) => {
                Report::SandboxGone { sandbox, not_started: Vec::new() }
            }
            // A provider elsewhere notices that a sandbox is gone only when its files are read.
            Err(_) if matches!(self.sandboxes.look(&sandbox).await, Ok(Presence::Gone)) => {
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
                // The answer is complete without the summary, so the run must not fail because of it.
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
            Err(error) => format!("the state of the sandbox is unknown: {error}"),
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

/// The wall clock, in the sandbox's type.
pub(super) fn deadline(from: Timestamp, time: Duration) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_millisecond(from.after(time).0).ok()
}

#[cfg(test)]
mod tests;
