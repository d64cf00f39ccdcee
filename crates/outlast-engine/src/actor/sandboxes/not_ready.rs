//! Why a sandbox does not have the files it should have.

use crate::checkpoints::CheckpointError;
use crate::sandbox::SandboxError;

#[derive(Debug, thiserror::Error)]
pub(in crate::actor) enum NotReady {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl NotReady {
    /// Whether trying again is pointless.
    pub(super) fn is_final(&self) -> bool {
        match self {
            NotReady::Sandbox(error) => !matches!(error, SandboxError::Io { .. }),
            NotReady::Checkpoint(error) => error.is_final(),
        }
    }
}
