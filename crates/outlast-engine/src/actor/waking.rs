//! Waking a sandbox that was paused, and not believing that its files are still there.

use outlast_core::{CheckpointId, Conversation, ConversationId, Ensure, SandboxId};

use crate::checkpoints::Checkpoints;
use crate::sandbox::{SandboxError, Sandboxes};

/// A sandbox that should run.
pub(super) struct Wanted {
    pub(super) conversation: ConversationId,
    /// To whom a new one belongs.
    pub(super) label: String,
    pub(super) sandbox: SandboxId,
    pub(super) how: Ensure,
    /// The checkpoint that has all its files.
    pub(super) saved: Option<CheckpointId>,
}

/// A sandbox to resume.
pub(super) struct Waking<'a> {
    pub(super) sandboxes: &'a dyn Sandboxes,
    pub(super) checkpoints: &'a Checkpoints,
    pub(super) conversation: &'a ConversationId,
    pub(super) sandbox: &'a SandboxId,
    /// The checkpoint that has all its files.
    pub(super) saved: Option<&'a CheckpointId>,
}

impl Waking<'_> {
    /// Resumes the sandbox. If files of the checkpoint are missing, the pause has lost them, and perhaps others: the
    /// sandbox is killed and counts as gone, so that the checkpoint is restored.
    pub(super) async fn wake(self) -> Result<(), SandboxError> {
        let Waking { sandboxes, checkpoints, conversation, sandbox, saved } = self;
        sandboxes.resume(sandbox).await?;
        let Some(saved) = saved.filter(|_| !sandboxes.keeps_files_asleep()) else { return Ok(()) };
        let workspace = sandboxes.workspace(sandbox)?;
        match checkpoints.first_missing(conversation, saved.as_str(), workspace).await {
            Ok(None) => Ok(()),
            Ok(Some(path)) => {
                tracing::error!(?sandbox, ?path, "files were lost in a pause; restoring the checkpoint");
                sandboxes.kill(sandbox).await?;
                Err(SandboxError::Gone(sandbox.clone()))
            }
            // Nothing to compare with, and nothing to restore either: what is there is all there is.
            Err(error) if error.is_final() => {
                tracing::error!(?sandbox, %error, "cannot compare a sandbox with its checkpoint");
                Ok(())
            }
            Err(error) => {
                let what = format!("cannot compare the sandbox with its checkpoint: {error}");
                Err(SandboxError::Io { what, error: std::io::ErrorKind::Other.into() })
            }
        }
    }
}

/// The checkpoint that has all files of the sandbox, if there is one.
pub(super) fn saved(state: &Conversation) -> Option<CheckpointId> {
    let sandbox = state.sandbox.as_ref().filter(|sandbox| sandbox.dirty.is_none())?;
    sandbox.checkpoint.as_ref().map(|checkpoint| checkpoint.id.clone())
}
