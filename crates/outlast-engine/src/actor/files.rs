//! How an owner changes a file of the workspace for a person.
//!
//! The owner does it itself, between two commands, so that no tool can begin meanwhile. The person is told when the
//! file is in a checkpoint.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use outlast_core::{Change, Effect, Ensure, FileChange, Report, UserId, may_change_files, sandbox_for_files};
use tokio::sync::oneshot;

use super::sandboxes::{NotReady, Wanted, Workshop};
use super::waking::saved;
use super::{Actor, Answer, MAILBOX};
use crate::checkpoints::{ContentHash, Workspace};
use crate::error::EngineError;
use crate::file_changes::ChangedFile;
use crate::file_names::shown;
use crate::journal::RecordError;
use crate::sandbox::SandboxError;

/// How long it may take to get the sandbox running. Commands to this conversation wait meanwhile.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How often to try: a sandbox may turn out to be gone, and then its last checkpoint to be damaged.
const READY_TRIES: usize = 4;

/// What a person wants.
#[derive(Clone, Debug)]
pub(crate) struct WantedFile {
    /// Relative to the workspace, and checked.
    pub(crate) path: PathBuf,
    pub(crate) content: Content,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Put(Bytes),
    Removed,
}

/// A change that is in the sandbox and not in a checkpoint yet.
pub(super) struct Unsaved {
    changed: ChangedFile,
    reply: oneshot::Sender<Answer<ChangedFile>>,
}

impl Actor {
    pub(super) async fn change_file(
        &mut self,
        user: &UserId,
        wanted: WantedFile,
        reply: oneshot::Sender<Answer<ChangedFile>>,
    ) -> Result<(), RecordError> {
        match self.try_to_change(user, wanted).await {
            Ok(changed) if self.unsaved_files.len() < MAILBOX => {
                self.unsaved_files.push(Unsaved { changed, reply });
                Ok(())
            }
            other => self.answer(reply, other),
        }
    }

    /// Tells people what became of their changes, unless files are being saved.
    pub(super) fn tell_saved_files(&mut self, under_way: &[Effect]) {
        if under_way.iter().any(|effect| matches!(effect, Effect::TakeCheckpoint { .. })) {
            return;
        }
        let sandbox = self.state.as_ref().and_then(|state| state.sandbox.as_ref());
        let saved =
            sandbox.filter(|sandbox| sandbox.dirty.is_none()).and_then(|saved| saved.checkpoint.as_ref());
        for Unsaved { changed, reply } in self.unsaved_files.drain(..) {
            let checkpoint = saved.map(|checkpoint| checkpoint.id.clone());
            reply.send(Answer::Done(Ok(ChangedFile { checkpoint, ..changed }))).ok(); // the person may have left
        }
    }

    async fn try_to_change(&mut self, user: &UserId, wanted: WantedFile) -> Result<ChangedFile, EngineError> {
        let state = self.state.as_ref().filter(|state| state.user == *user).ok_or(EngineError::NotFound)?;
        let adds = match &wanted.content {
            Content::Put(content) => Some(content.len() as u64),
            Content::Removed if state.sandbox.is_none() => return Err(EngineError::NotFound),
            Content::Removed => None,
        };
        may_change_files(state, adds, &self.shared.settings.rules)?;
        let workshop = self.shared.workshop.clone().map_err(EngineError::NoSandbox)?;
        let workspace = self.ready_for_files(&workshop).await?;
        let (path, size) = (shown(&wanted.path), adds);
        let work = tokio::task::spawn_blocking(move || carry_out(&*workspace, &wanted));
        let done = work.await.unwrap_or_else(|error| Err(error.into()));
        let (change, hash) = done.map_err(|error| refused(&path, &error))?;
        let by = user.to_string();
        self.tell(Report::FileChanged(FileChange { path: path.clone(), change, size, by })).await?;
        Ok(ChangedFile { path, size, hash, change, checkpoint: None })
    }

    /// The workspace of a sandbox that runs.
    async fn ready_for_files(&mut self, workshop: &Workshop) -> Result<Arc<dyn Workspace>, EngineError> {
        for _ in 0..READY_TRIES {
            let state = self.state.as_ref().ok_or(EngineError::NotFound)?;
            let report = match sandbox_for_files(state, &self.shared.settings.rules) {
                Some((sandbox, how)) => {
                    let saved = saved(state);
                    self.clear_former().await?;
                    let (conversation, label) = (self.id.clone(), self.shared.label(&self.id).await?);
                    get_ready(workshop, Wanted { conversation, label, sandbox, how, saved }).await?
                }
                None => {
                    let sandbox = state.sandbox.as_ref().ok_or(EngineError::NotFound)?.id.clone();
                    match workshop.sandboxes.workspace(&sandbox) {
                        Ok(workspace) => return Ok(workspace),
                        Err(SandboxError::Gone(_)) => {
                            Report::SandboxGone { sandbox, not_started: Vec::new() }
                        }
                        Err(error) => return Err(EngineError::Unavailable(error.to_string())),
                    }
                }
            };
            self.tell(report).await?;
        }
        Err(EngineError::Unavailable("the sandbox does not start".to_owned()))
    }

    /// Records a report, or fails: a report that has to wait for the store must not be displaced by the next one.
    async fn tell(&mut self, report: Report) -> Result<(), EngineError> {
        let unavailable = || EngineError::Unavailable("the store cannot write".to_owned());
        if self.owed.is_some() {
            return Err(unavailable());
        }
        self.report(report).await?;
        if self.owed.is_some() { Err(unavailable()) } else { Ok(()) }
    }
}

/// Gets a sandbox running, and says what came of it.
async fn get_ready(workshop: &Workshop, wanted: Wanted) -> Result<Report, EngineError> {
    let unavailable = |error: &dyn std::fmt::Display| EngineError::Unavailable(error.to_string());
    let ready = workshop.try_to_ensure(&wanted);
    let Ok(ready) = tokio::time::timeout(READY_WITHIN, ready).await else {
        return Err(unavailable(&"the sandbox does not start"));
    };
    let Wanted { sandbox, how, .. } = wanted;
    match (ready, how) {
        (Ok(state), _) => Ok(Report::SandboxReady { sandbox, state }),
        (Err(NotReady::Sandbox(SandboxError::Gone(_))), _) => {
            Ok(Report::SandboxGone { sandbox, not_started: Vec::new() })
        }
        (Err(NotReady::Checkpoint(error)), Ensure::Restore(checkpoint)) if error.is_final() => {
            Ok(Report::RestoreFailed { checkpoint, reason: error.to_string() })
        }
        (Err(error), _) => Err(unavailable(&error)),
    }
}

/// Blocks.
fn carry_out(workspace: &dyn Workspace, wanted: &WantedFile) -> io::Result<(Change, Option<ContentHash>)> {
    match &wanted.content {
        Content::Put(content) => {
            let replaced = workspace.put_file(&wanted.path, content)?;
            let change = if replaced { Change::Modified } else { Change::Added };
            Ok((change, Some(ContentHash::of(content))))
        }
        Content::Removed => {
            workspace.remove_file(&wanted.path)?;
            Ok((Change::Deleted, None))
        }
    }
}

fn refused(path: &str, error: &io::Error) -> EngineError {
    let is_link = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    match error.kind() {
        io::ErrorKind::NotFound => EngineError::NotFound,
        _ if is_link => EngineError::BadPath(format!("a folder of {path:?} is a link")),
        io::ErrorKind::NotADirectory => EngineError::BadPath(format!("a folder of {path:?} is a file")),
        io::ErrorKind::AlreadyExists | io::ErrorKind::IsADirectory => {
            EngineError::BadPath(format!("{path:?} is a folder, or something else that is no file"))
        }
        _ => EngineError::Unavailable(format!("cannot change the file: {error}")),
    }
}
