//! Checkpoints: the workspace of a conversation at one moment, kept outside the sandbox.
//!
//! A checkpoint is a tree of blobs named by their content. Every directory is a listing that names the blobs
//! below it, and the record of the checkpoint names the listing of the root (`tree`). Two checkpoints share
//! whatever is the same in both, so taking one costs a walk over the files, plus storing the changed
//! ones with their directories.
//!
//! Read `tree` for what is stored, `take` for the order that makes a crash harmless, and `restore` for what is
//! checked before a file is written.

mod blobs;
mod compare;
mod diff;
mod error;
mod files;
mod gates;
mod hash;
mod index;
mod limits;
mod load;
#[cfg(target_os = "linux")]
mod local;
mod missing;
mod outputs;
mod reading;
mod restore;
mod retention;
mod take;
mod tree;
mod truth;
mod uploads;
mod walk;
mod workspace;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{ConversationId, Timestamp};
use tokio_util::sync::CancellationToken;

use self::blobs::{Area, Storage};
use self::gates::Gates;

pub use self::compare::Difference;
pub use self::error::CheckpointError;
pub use self::files::{FileContent, FileKind, FileVersion, ListedFile};
pub use self::hash::ContentHash;
pub use self::limits::Limits;
pub(crate) use self::limits::NAME_BYTES_MAX;
#[cfg(target_os = "linux")]
pub use self::local::LocalWorkspace;
pub use self::outputs::{KeptChunk, KeptOutput, KeptStream, OUTPUT_CHUNK_BYTES, OutputOf};
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

#[derive(Clone)]
pub struct Checkpoints {
    storage: Storage,
    limits: Limits,
    gates: Gates,
}

/// A checkpoint to take. Taking it again under the same id replaces the earlier one.
pub struct Take {
    pub conversation: ConversationId,
    pub id: String,
    pub workspace: Arc<dyn Workspace>,
    /// If the workspace is a repository: what git said in the sandbox.
    pub git: Option<GitTruth>,
    pub now: Timestamp,
}

/// What [`Checkpoints::take`] recorded.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Files and links.
    pub files: u64,
    /// The sizes of all files together.
    pub bytes: u64,
    /// `None` if the workspace is not a git repository and there is no earlier checkpoint to compare with.
    pub truth: Option<Truth>,
    pub left_out: LeftOut,
    /// What was added to the storage: files and listings that no earlier checkpoint had.
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
    /// What was left out when the checkpoint was taken.
    pub left_out: LeftOut,
}

/// Two checkpoints of a conversation. Without `before`, everything in `after` is new.
#[derive(Clone, Copy, Debug)]
pub struct Between<'a> {
    pub before: Option<&'a str>,
    pub after: &'a str,
}

/// The checkpoints of a conversation that are kept.
#[derive(Clone, Debug)]
pub struct Keep<'a> {
    pub conversation: &'a ConversationId,
    pub ids: &'a [String],
    pub now: Timestamp,
    /// Ends it between two steps. Dropping the call instead could leave a step under way, unnoticed by the next checkpoint.
    pub stop: CancellationToken,
}

/// What retention removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub checkpoints: u64,
    pub blobs: u64,
    pub bytes: u64,
    /// It was stopped, or a checkpoint was taken meanwhile, so something may be left. Call it again later.
    pub unfinished: bool,
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

    #[cfg(test)]
    pub(crate) fn in_store(store: Arc<dyn object_store::ObjectStore>) -> Checkpoints {
        Checkpoints::new(Storage::store(store))
    }

    fn new(storage: Storage) -> Checkpoints {
        Checkpoints { storage, limits: Limits::default(), gates: Gates::default() }
    }

    pub fn with_limits(self, limits: Limits) -> Checkpoints {
        Checkpoints { limits, ..self }
    }

    /// Records the workspace. When it returns, the checkpoint is durable; if it fails or the process dies, the
    /// earlier checkpoints are as they were.
    ///
    /// Programs may write to the workspace meanwhile. Each file has content that was read from it, but not all files are
    /// from the same moment; pause the sandbox if that matters.
    pub async fn take(&self, request: &Take) -> Result<Taken, CheckpointError> {
        let pass = self.gates.pass(&request.conversation);
        let _open = pass.take().await;
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

    /// The first path of a checkpoint that the workspace does not have as it was.
    pub async fn first_missing(
        &self,
        conversation: &ConversationId,
        id: &str,
        workspace: Arc<dyn Workspace>,
    ) -> Result<Option<PathBuf>, CheckpointError> {
        let (area, limits) = (self.area(conversation), self.limits);
        let record = area.read_record(id).await?;
        let tree = load::load_tree(&area, &limits, &record).await?;
        error::blocking(move || missing::first_missing(&*workspace, &tree, &limits)).await
    }

    /// The files of a checkpoint, sorted by path.
    pub async fn list(
        &self,
        conversation: &ConversationId,
        id: &str,
    ) -> Result<Vec<ListedFile>, CheckpointError> {
        files::list(&self.area(conversation), &self.limits, id).await
    }

    pub async fn open(
        &self,
        conversation: &ConversationId,
        id: &str,
        path: &Path,
    ) -> Result<FileContent, CheckpointError> {
        files::open(&self.area(conversation), &self.limits, id, path).await
    }

    /// What changed between two checkpoints, sorted by path.
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

    /// The same as a unified diff of text files, at most 1 MiB. A line in brackets says what was cut.
    pub async fn diff(
        &self,
        conversation: &ConversationId,
        between: Between<'_>,
    ) -> Result<String, CheckpointError> {
        diff::diff(&self.area(conversation), self.compare(conversation, between).await?).await
    }

    /// Removes all checkpoints of the conversation that are not listed, and the blobs that no remaining checkpoint
    /// uses. Records and blobs younger than an hour stay until a later call. It works in short steps and gives up as soon
    /// as a checkpoint of the conversation is taken, so nobody waits for it.
    pub async fn keep(&self, request: &Keep<'_>) -> Result<Swept, CheckpointError> {
        let pass = self.gates.pass(request.conversation);
        let Some(sweep) = pass.sweep() else { return Ok(Swept { unfinished: true, ..Swept::default() }) };
        retention::keep(&self.area(request.conversation), &self.limits, &sweep, request).await
    }

    /// Removes some of what is stored for a conversation that was deleted, and returns whether that was
    /// all. Call it only once no more checkpoints of the conversation can be taken.
    pub async fn forget(&self, conversation: &ConversationId) -> Result<bool, CheckpointError> {
        retention::forget(&self.area(conversation)).await
    }

    fn area(&self, conversation: &ConversationId) -> Area {
        self.storage.conversation(conversation.as_str())
    }
}
