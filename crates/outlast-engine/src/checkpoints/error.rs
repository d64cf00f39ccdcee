//! What can go wrong with a checkpoint, and what the caller should do about it.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The checkpoint, or the file in it, does not exist.
    #[error("{0} not found")]
    NotFound(String),
    /// What is stored is not what was taken: a wrong hash, a missing blob, or a tree that no workspace can
    /// have. Trying again does not help; use another checkpoint.
    #[error("checkpoint is damaged: {0}")]
    Damaged(String),
    /// The workspace or the checkpoint is larger than allowed.
    #[error("{what} exceeds the limit of {limit}")]
    Limit { what: String, limit: u64 },
    /// `restore` writes only into an empty workspace. Clear it first.
    #[error("the workspace is not empty")]
    NotEmpty,
    /// The workspace could not be read or written.
    #[error("workspace: {0}")]
    Workspace(#[from] io::Error),
    /// The storage failed. Earlier checkpoints are intact; retry later.
    #[error("checkpoint storage: {0}")]
    Storage(#[from] object_store::Error),
    /// The server is stopping, or the work took longer than allowed. Nothing was promised.
    #[error("checkpoint was not finished: {0}")]
    Unfinished(&'static str),
}

impl From<object_store::path::Error> for CheckpointError {
    fn from(error: object_store::path::Error) -> Self {
        CheckpointError::Storage(error.into())
    }
}

impl CheckpointError {
    /// Whether a retry would fail in the same way.
    pub fn is_final(&self) -> bool {
        match self {
            CheckpointError::NotFound(_)
            | CheckpointError::Damaged(_)
            | CheckpointError::Limit { .. }
            | CheckpointError::NotEmpty => true,
            CheckpointError::Workspace(_) | CheckpointError::Storage(_) | CheckpointError::Unfinished(_) => {
                false
            }
        }
    }

    pub(super) fn limit(what: impl Into<String>, limit: impl TryInto<u64>) -> CheckpointError {
        CheckpointError::Limit { what: what.into(), limit: limit.try_into().unwrap_or(u64::MAX) }
    }
}

/// Runs `work` on the pool for blocking work and waits for it.
pub(super) async fn blocking<T, F>(work: F) -> Result<T, CheckpointError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, CheckpointError> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(CheckpointError::Unfinished("the server is stopping")),
    }
}
