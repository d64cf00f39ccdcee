//! Files that people put into the workspace of a conversation, or take away.

use std::path::PathBuf;

use bytes::Bytes;
use outlast_core::{Change, CheckpointId, ConversationId, UserId};

use crate::actor::{Answer, Content, Mail, WantedFile};
use crate::checkpoints::{ContentHash, Limits, NAME_BYTES_MAX};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::file_names::named;

/// The largest file that a person can put there at once. It is held in memory until it is written.
pub const FILE_BYTES_MAX: usize = 16 << 20;

/// A file that a person has changed.
#[derive(Clone, Debug)]
pub struct ChangedFile {
    /// Relative to the workspace.
    pub path: String,
    pub change: Change,
    /// Absent if the file was taken away, and so is the next one.
    pub size: Option<u64>,
    pub hash: Option<ContentHash>,
    /// The checkpoint that has the change; none if it could not be saved yet. Then it is in the sandbox, and in the next
    /// checkpoint.
    pub checkpoint: Option<CheckpointId>,
}

impl Engine {
    /// Creates or replaces a file. Refused while a tool runs.
    pub async fn put_file(
        &self,
        user: &UserId,
        id: &ConversationId,
        path: &str,
        content: Bytes,
    ) -> Result<ChangedFile, EngineError> {
        self.change_file(user, id, WantedFile { path: checked(path)?, content: Content::Put(content) }).await
    }

    /// Removes a file or link. Refused while a tool runs.
    pub async fn delete_file(
        &self,
        user: &UserId,
        id: &ConversationId,
        path: &str,
    ) -> Result<ChangedFile, EngineError> {
        self.change_file(user, id, WantedFile { path: checked(path)?, content: Content::Removed }).await
    }

    async fn change_file(
        &self,
        user: &UserId,
        id: &ConversationId,
        wanted: WantedFile,
    ) -> Result<ChangedFile, EngineError> {
        self.must_own(user, id).await?; // or everybody could wake owners of what is not theirs
        let mail = |reply| Mail::ChangeFile { user: user.clone(), wanted: wanted.clone(), reply };
        match self.ask_here(id, mail).await? {
            Answer::Done(changed) => changed,
            // A file does not fit into a letter, and the sandbox is there.
            Answer::Elsewhere => Err(EngineError::Unavailable(
                "another server has the sandbox of this conversation".to_owned(),
            )),
        }
    }
}

/// A path below the workspace, as a checkpoint can hold it.
fn checked(path: &str) -> Result<PathBuf, EngineError> {
    let limits = Limits::default();
    let wrong = |what: &str| Err(EngineError::BadPath(format!("the path {what}")));
    if path.contains('\0') {
        return wrong("contains a zero byte");
    }
    if path.len() > limits.path_bytes {
        return wrong(&format!("is longer than {} bytes", limits.path_bytes));
    }
    if path.starts_with('/') {
        return wrong("must be relative to the workspace");
    }
    let names: Vec<&str> = path.split('/').collect();
    if names.iter().any(|name| ["", ".", ".."].contains(name)) {
        return wrong("must consist of names; none may be empty, . or ..");
    }
    if names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
        return wrong(&format!("has a name longer than {NAME_BYTES_MAX} bytes"));
    }
    if names.len() > limits.depth {
        return wrong(&format!("is deeper than {} folders", limits.depth));
    }
    Ok(named(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_below_the_workspace_are_paths() {
        for path in ["a", "a/b.txt", ".env", "..a/b..", "a b/ü", "-rf", "a\\b"] {
            assert_eq!(checked(path).unwrap(), PathBuf::from(path));
        }
        let (long, deep) = ("x".repeat(256), "d/".repeat(200) + "f");
        let longer = ["x".repeat(200).as_str(); 30].join("/");
        let refused =
            ["", "/", "/etc/passwd", "..", "../a", "a/..", "a/../b", ".", "./a", "a/.", "a//b", "a/"];
        for path in refused.into_iter().chain(["a\0b", &long, &deep, &longer]) {
            assert!(matches!(checked(path), Err(EngineError::BadPath(_))), "{path:?}");
        }
    }
}
