//! What the last checkpoint of a workspace knew about its files, so that the next one reads only those that
//! have changed since.
//!
//! The index is bound to a checkpoint. While that checkpoint is kept, every blob in the index is stored and
//! durable; once it is gone, the index is worth nothing and is ignored. Losing the index costs time only.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::CheckpointError;
use super::blobs::Area;
use super::error::blocking;
use super::hash::ContentHash;
use super::tree::{FileNode, ListingRef};
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
    /// The tree that the checkpoint had. An id can be used again for another tree.
    root: ContentHash,
    files: Vec<IndexedFile>,
    listings: Vec<ContentHash>,
}

/// What to write after a checkpoint was taken or restored.
pub(super) struct NewIndex {
    pub(super) conversation: String,
    pub(super) checkpoint: String,
    pub(super) root: ContentHash,
    pub(super) files: Vec<IndexedFile>,
    pub(super) listings: Vec<ContentHash>,
}

/// Failing costs time at the next checkpoint and nothing else, so it is only logged.
pub(super) async fn keep_index(workspace: &Arc<dyn Workspace>, index: NewIndex) {
    let (workspace, conversation) = (workspace.clone(), index.conversation.clone());
    if let Err(error) = blocking(move || Ok(workspace.keep_index(&encode(index))?)).await {
        tracing::warn!(%conversation, %error, "cannot write the index of a workspace");
    }
}

fn encode(index: NewIndex) -> Vec<u8> {
    let NewIndex { conversation, checkpoint, root, files, listings } = index;
    let stored = Stored { version: VERSION, conversation, checkpoint, root, files, listings };
    let mut bytes = postcard::to_stdvec(&stored).expect("an index has no maps of unknown length");
    let sum = ContentHash::of(&bytes);
    bytes.extend_from_slice(sum.to_string().as_bytes());
    bytes
}

/// The index of the last checkpoint, if it can be used.
#[derive(Default)]
pub(super) struct Index {
    /// The tree whose blobs may be relied on.
    pub(super) base: Option<ListingRef>,
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
        if stored.version != VERSION || stored.conversation != conversation {
            return Ok(Index::default());
        }
        let base = match area.read_record(&stored.checkpoint).await {
            Ok(record) if record.root.hash == stored.root => record.root,
            Ok(_) | Err(CheckpointError::NotFound(_) | CheckpointError::Damaged(_)) => {
                return Ok(Index::default());
            }
            Err(error) => return Err(error),
        };
        let mut blobs: HashSet<ContentHash> = stored.listings.into_iter().collect();
        let mut files = HashMap::with_capacity(stored.files.len());
        for file in stored.files {
            blobs.insert(file.content.hash);
            blobs.extend(&file.content.chunks);
            if file.changed != 0 {
                files.insert(file.node, file);
            }
        }
        Ok(Index { base: Some(base), files, blobs })
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
