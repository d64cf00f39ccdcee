//! Checkpoints: what the workspace of a conversation was at some moment, kept outside of the sandbox.
//!
//! A checkpoint is a tree of blobs named by their content. Every directory is a listing that names the blobs
//! below it, and the record of the checkpoint names the listing of the root (`tree`). Two checkpoints share
//! whatever is the same in both, so taking one costs a walk and the changed files with their directories.
//!
//! Read `tree` for what is stored, `take` for the order that makes a crash harmless, and `restore` for what is
//! checked before a file is written.

mod blobs;
mod compare;
mod diff;
mod error;
mod files;
mod hash;
mod index;
mod limits;
mod load;
#[cfg(target_os = "linux")]
mod local;
mod reading;
mod restore;
mod retention;
mod take;
mod tree;
mod truth;
mod uploads;
mod walk;
mod workspace;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{ConversationId, Timestamp};
use tokio::sync::RwLock;

use self::blobs::{Area, Storage};

pub use self::compare::Difference;
pub use self::error::CheckpointError;
pub use self::files::{FileContent, FileKind, FileVersion, ListedFile};
pub use self::hash::ContentHash;
pub use self::limits::Limits;
#[cfg(target_os = "linux")]
pub use self::local::LocalWorkspace;
pub use self::truth::{Changes, GitTruth, LeftOut, Truth};
pub use self::workspace::{Attributes, Found, FoundKind, NewFile, OpenFile, Stat, Workspace};

/// The places where a test may kill the process while it takes, restores or removes checkpoints.
pub const FAULT_POINTS: &[&str] = &[
    "take.walked",
    "take.stored",
    "take.listed",
    "take.recorded",
    "take.indexed",
    "keep.dropped",
    "keep.marked",
    "keep.swept",
    "restore.checked",
    "restore.begun",
    "restore.written",
];

/// Blobs are safe from retention for an hour, and a checkpoint must be complete before that.
const TAKE_TIME_MAX: Duration = Duration::from_secs(30 * 60);

/// Conversations share gates, so that there need not be one for each. Only retention keeps others waiting.
const GATES: usize = 64;

/// All checkpoints of a server.
#[derive(Clone)]
pub struct Checkpoints {
    storage: Storage,
    limits: Limits,
    /// Taking a checkpoint may come to need a blob that retention has already decided to remove, because a file
    /// has its former content again. So they exclude each other. In other instances nobody does either: a
    /// conversation has one owner.
    gates: Arc<[RwLock<()>; GATES]>,
}

/// A checkpoint to take. Repeating it under the same id replaces the former one.
pub struct Take {
    pub conversation: ConversationId,
    pub id: String,
    pub workspace: Arc<dyn Workspace>,
    /// If the workspace is a repository: what git said in the sandbox.
    pub git: Option<GitTruth>,
    pub now: Timestamp,
}

/// Durable.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Files and links.
    pub files: u64,
    /// The sizes of all files together.
    pub bytes: u64,
    /// Missing without git if there is no checkpoint to compare with.
    pub truth: Option<Truth>,
    pub left_out: LeftOut,
    /// What was added to the storage: files and listings that no former checkpoint had.
    pub new_blobs: u64,
    /// Their compressed size.
    pub new_bytes: u64,
}

/// A checkpoint to put into an empty workspace.
pub struct Restore {
    pub conversation: ConversationId,
    pub id: String,
    pub workspace: Arc<dyn Workspace>,
}

#[derive(Clone, Debug)]
pub struct Restored {
    pub files: u64,
    pub bytes: u64,
    /// What the workspace had and the checkpoint never did.
    pub left_out: LeftOut,
}

/// Two checkpoints of a conversation. Without `before`, everything in `after` is new.
#[derive(Clone, Copy, Debug)]
pub struct Between<'a> {
    pub before: Option<&'a str>,
    pub after: &'a str,
}

/// The checkpoints of a conversation that stay.
#[derive(Clone, Debug)]
pub struct Keep<'a> {
    pub conversation: &'a ConversationId,
    pub ids: &'a [String],
    pub now: Timestamp,
}

/// What retention removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub checkpoints: u64,
    pub blobs: u64,
    pub bytes: u64,
}

impl Checkpoints {
    /// In a folder of this machine, which is created if it is missing.
    pub fn in_folder(folder: &Path) -> Result<Checkpoints, CheckpointError> {
        Ok(Checkpoints::new(Storage::folder(folder)?))
    }

    /// In a bucket that several instances share: `s3://bucket/prefix`. Credentials, region and endpoint come from
    /// the environment, under the names that AWS's own tools use.
    pub fn in_bucket(url: &str) -> Result<Checkpoints, CheckpointError> {
        Ok(Checkpoints::new(Storage::bucket(url)?))
    }

    fn new(storage: Storage) -> Checkpoints {
        Checkpoints {
            storage,
            limits: Limits::default(),
            gates: Arc::new([const { RwLock::const_new(()) }; GATES]),
        }
    }

    pub fn with_limits(self, limits: Limits) -> Checkpoints {
        Checkpoints { limits, ..self }
    }

    /// Records the workspace. When it returns, the checkpoint is durable; if it fails or the process dies, the
    /// former checkpoints are as they were.
    ///
    /// Programs may write in the workspace meanwhile. Every file in the checkpoint has a content that was read
    /// from it, but files need not be from the same moment; pause the sandbox where that matters.
    pub async fn take(&self, request: &Take) -> Result<Taken, CheckpointError> {
        let _open = self.gate(&request.conversation).read().await;
        let area = self.area(&request.conversation);
        match tokio::time::timeout(TAKE_TIME_MAX, take::take(&area, &self.limits, request)).await {
            Ok(taken) => taken,
            Err(_) => Err(CheckpointError::Unfinished("it took longer than 30 minutes")),
        }
    }

    /// Puts a checkpoint into an empty workspace and verifies every hash. After an error the workspace is
    /// empty. If the process dies or the call is dropped, the workspace may hold a part of the files: clear it and
    /// repeat.
    pub async fn restore(&self, request: &Restore) -> Result<Restored, CheckpointError> {
        restore::restore(&self.area(&request.conversation), &self.limits, request).await
    }

    /// The files of a checkpoint in the order of paths.
    pub async fn list(
        &self,
        conversation: &ConversationId,
        id: &str,
    ) -> Result<Vec<ListedFile>, CheckpointError> {
        files::list(&self.area(conversation), &self.limits, id).await
    }

    /// Opens a file of a checkpoint for reading.
    pub async fn open(
        &self,
        conversation: &ConversationId,
        id: &str,
        path: &Path,
    ) -> Result<FileContent, CheckpointError> {
        files::open(&self.area(conversation), &self.limits, id, path).await
    }

    /// What changed between two checkpoints, in the order of paths.
    pub async fn compare(
        &self,
        conversation: &ConversationId,
        between: Between<'_>,
    ) -> Result<Vec<Difference>, CheckpointError> {
        let area = self.area(conversation);
        let before = match between.before {
            Some(id) => Some(area.read_record(id).await?.root),
            None => None,
        };
        let after = area.read_record(between.after).await?.root;
        compare::compare(&area, &self.limits, before, after).await
    }

    /// The same as a unified diff of text files, at most 1 MiB. What is cut short says so in a line in brackets.
    pub async fn diff(
        &self,
        conversation: &ConversationId,
        between: Between<'_>,
    ) -> Result<String, CheckpointError> {
        diff::diff(&self.area(conversation), self.compare(conversation, between).await?).await
    }

    /// Removes all other checkpoints of the conversation, and the blobs that none of the rest needs. Records and
    /// blobs younger than an hour stay until a later call. A checkpoint that is being taken is waited for.
    pub async fn keep(&self, request: &Keep<'_>) -> Result<Swept, CheckpointError> {
        let _closed = self.gate(request.conversation).write().await;
        retention::keep(&self.area(request.conversation), &self.limits, request).await
    }

    /// Removes some of what is stored for a conversation that was deleted, and says whether that was all. No
    /// checkpoint of it may be taken any more.
    pub async fn forget(&self, conversation: &ConversationId) -> Result<bool, CheckpointError> {
        retention::forget(&self.area(conversation)).await
    }

    fn gate(&self, conversation: &ConversationId) -> &RwLock<()> {
        &self.gates[usize::from(blake3::hash(conversation.as_str().as_bytes()).as_bytes()[0]) % GATES]
    }

    fn area(&self, conversation: &ConversationId) -> Area {
        self.storage.conversation(conversation.as_str())
    }
}
