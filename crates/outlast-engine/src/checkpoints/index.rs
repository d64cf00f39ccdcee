//! What the last checkpoint of a workspace knew about its files, so that the next one reads only those that
//! have changed since.
//!
//! The index is bound to a checkpoint. While that checkpoint is kept, every blob in the index is stored and
//! durable; once it is gone, the index is worth nothing and is ignored. Losing the index costs time only.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::CheckpointError;
use super::blobs::Area;
use super::hash::ContentHash;
use super::tree::FileNode;
use super::workspace::{Stat, Workspace};

const VERSION: u32 = 1;
/// A file that changed this shortly before the walk may change again without getting a new time: clocks of
/// file systems are coarse. It is read again the next time.
const RACY_NANOS: i64 = 2_000_000_000;

/// A file as it was when its content was stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct IndexedFile {
    node: u64,
    /// 0 if the content must be read again anyway.
    changed: i64,
    modified: i64,
    content: IndexedContent,
}

/// `FileNode` for a format without field names.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct IndexedContent {
    size: u64,
    hash: ContentHash,
    chunks: Vec<ContentHash>,
}

impl IndexedFile {
    /// `stat` was taken when the content was read, and `walked` is when that walk began.
    pub(super) fn new(stat: &Stat, content: &FileNode, walked: i64) -> IndexedFile {
        let FileNode { size, hash, chunks } = content.clone();
        let racy = stat.changed > walked.saturating_sub(RACY_NANOS);
        let content = IndexedContent { size, hash, chunks };
        IndexedFile {
            node: stat.node,
            changed: if racy { 0 } else { stat.changed },
            modified: stat.modified,
            content,
        }
    }

    /// A file whose blobs are stored but which may have changed since.
    pub(super) fn stored_only(content: &FileNode) -> IndexedFile {
        let nowhere = Stat { mode: 0, size: content.size, modified: 0, changed: 0, node: 0 };
        IndexedFile::new(&nowhere, content, i64::MAX)
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    conversation: String,
    checkpoint: String,
    files: Vec<IndexedFile>,
    listings: Vec<ContentHash>,
}

/// What to write after a checkpoint was taken or restored.
pub(super) struct NewIndex {
    pub(super) conversation: String,
    pub(super) checkpoint: String,
    pub(super) files: Vec<IndexedFile>,
    pub(super) listings: Vec<ContentHash>,
}

impl NewIndex {
    /// Blocks.
    pub(super) fn keep(self, workspace: &dyn Workspace) -> Result<(), CheckpointError> {
        let NewIndex { conversation, checkpoint, files, listings } = self;
        let stored = Stored { version: VERSION, conversation, checkpoint, files, listings };
        let mut bytes = postcard::to_stdvec(&stored).expect("an index has no maps of unknown length");
        let sum = ContentHash::of(&bytes);
        bytes.extend_from_slice(sum.to_string().as_bytes());
        Ok(workspace.keep_index(&bytes)?)
    }
}

/// The index of the last checkpoint, if it can be used.
#[derive(Default)]
pub(super) struct Index {
    /// The checkpoint whose blobs may be relied on.
    pub(super) checkpoint: Option<String>,
    files: HashMap<u64, IndexedFile>,
    blobs: HashSet<ContentHash>,
}

impl Index {
    /// `bytes` are what the workspace kept. Anything that is not an index of this conversation is ignored.
    pub(super) async fn open(
        area: &Area,
        conversation: &str,
        bytes: Option<Vec<u8>>,
    ) -> Result<Index, CheckpointError> {
        let Some(stored) = bytes.as_deref().and_then(decode) else { return Ok(Index::default()) };
        let ours = stored.version == VERSION && stored.conversation == conversation;
        if !ours || !area.has_record(&stored.checkpoint).await? {
            return Ok(Index::default());
        }
        let mut blobs: HashSet<ContentHash> = stored.listings.into_iter().collect();
        let mut files = HashMap::with_capacity(stored.files.len());
        for file in stored.files {
            blobs.insert(file.content.hash);
            blobs.extend(&file.content.chunks);
            if file.changed != 0 {
                files.insert(file.node, file);
            }
        }
        Ok(Index { checkpoint: Some(stored.checkpoint), files, blobs })
    }

    /// The content of a file that has not changed.
    pub(super) fn unchanged(&self, stat: &Stat) -> Option<FileNode> {
        let known = self.files.get(&stat.node)?;
        let same = known.changed == stat.changed
            && known.modified == stat.modified
            && known.content.size == stat.size;
        let IndexedContent { size, hash, chunks } = &known.content;
        same.then(|| FileNode { size: *size, hash: *hash, chunks: chunks.clone() })
    }

    pub(super) fn is_stored(&self, blob: ContentHash) -> bool {
        self.blobs.contains(&blob)
    }
}

/// Nothing for an index that was only half written when the machine stopped.
fn decode(bytes: &[u8]) -> Option<Stored> {
    let (bytes, sum) = bytes.split_last_chunk::<64>()?;
    let intact = ContentHash::of(bytes).to_string().as_bytes() == sum;
    intact.then(|| postcard::from_bytes(bytes).ok())?
}
