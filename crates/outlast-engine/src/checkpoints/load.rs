//! The tree of a checkpoint, read back and checked.

use std::path::PathBuf;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::CheckpointError;
use super::blobs::Area;
use super::limits::{Limits, TRANSFERS_MAX};
use super::tree::{ChunkRef, Entry, ListingRef, Node, Record, decode_listing};

pub(super) struct Loaded {
    pub(super) path: PathBuf,
    pub(super) entry: Entry,
}

/// One directory of a checkpoint; `depth` is its own.
pub(super) async fn load_listing(
    area: &Area,
    limits: &Limits,
    listing: ListingRef,
    depth: usize,
) -> Result<Vec<Entry>, CheckpointError> {
    let ListingRef { hash, size } = listing;
    let json = area.read_blob(ChunkRef { hash, size }).await?;
    decode_listing(&json, depth, limits)
}

/// Everything in a checkpoint, parents before children.
pub(super) async fn load_tree(
    area: &Area,
    limits: &Limits,
    record: &Record,
) -> Result<Vec<Loaded>, CheckpointError> {
    let mut tree: Vec<Loaded> = Vec::new();
    let (mut files, mut budget) = (0, Budget::new(limits));
    let mut level = vec![(PathBuf::new(), record.root)];
    // Listings deeper than the limit are refused, so that the last level has nothing below it.
    for depth in 0..=limits.depth {
        let mut below = Vec::new();
        let mut listings = stream::iter(level)
            .map(|(path, listing)| async move {
                let entries = load_listing(area, limits, listing, depth).await?;
                Ok::<_, CheckpointError>((path, entries))
            })
            .buffered(TRANSFERS_MAX);
        while let Some((directory, entries)) = listings.try_next().await? {
            for entry in entries {
                budget.spend(&entry)?;
                let path = directory.join(entry.name.as_path());
                if path.as_os_str().len() > limits.path_bytes {
                    return Err(CheckpointError::limit("the length of a path", limits.path_bytes));
                }
                match entry.node {
                    Node::Directory(listing) => below.push((path.clone(), listing)),
                    Node::File(_) | Node::Link { .. } => files += 1,
                }
                tree.push(Loaded { path, entry });
            }
        }
        level = below;
    }
    if (files, budget.bytes) != (record.files, record.bytes) {
        return Err(CheckpointError::Damaged(
            "its record and its tree disagree about the number of files".to_owned(),
        ));
    }
    Ok(tree)
}

/// Counts the files that a tree expands to. A few listings that refer to each other many times are small in storage but
/// enormous in a workspace.
pub(super) struct Budget<'a> {
    limits: &'a Limits,
    entries: usize,
    bytes: u64,
}

impl Budget<'_> {
    pub(super) fn new(limits: &Limits) -> Budget<'_> {
        Budget { limits, entries: 0, bytes: 0 }
    }

    pub(super) fn spend(&mut self, entry: &Entry) -> Result<(), CheckpointError> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(CheckpointError::limit("the number of files", self.limits.entries));
        }
        if let Node::File(file) = &entry.node {
            self.bytes += file.size; // both are far below 2^63
        }
        if self.bytes > self.limits.bytes {
            return Err(CheckpointError::limit("the size of all files", self.limits.bytes));
        }
        Ok(())
    }
}
