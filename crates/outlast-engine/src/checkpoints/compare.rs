//! What changed between two checkpoints. Only subtrees that differ are read.

use std::iter::Peekable;
use std::path::PathBuf;
use std::vec;

use outlast_core::{Change, ChangedFile};

use super::blobs::Area;
use super::hash::ContentHash;
use super::limits::Limits;
use super::load::{Budget, load_listing};
use super::tree::{Entry, FileNode, ListingRef, Node};
use super::{CheckpointError, FileKind, FileVersion};
use crate::file_names::shown;

/// A file or link that differs between the two. A different time alone does not count.
#[derive(Clone, Debug)]
pub struct Difference {
    pub path: PathBuf,
    /// Missing if it was added.
    pub before: Option<FileVersion>,
    /// Missing if it was deleted.
    pub after: Option<FileVersion>,
}

impl Difference {
    pub fn change(&self) -> Change {
        match (&self.before, &self.after) {
            (None, _) => Change::Added,
            (_, None) => Change::Deleted,
            (Some(_), Some(_)) => Change::Modified,
        }
    }

    pub fn changed_file(&self) -> ChangedFile {
        ChangedFile { path: shown(&self.path), change: self.change() }
    }
}

/// Two versions of a directory, one of which may be missing.
struct Pair {
    path: PathBuf,
    depth: usize,
    before: Option<ListingRef>,
    after: Option<ListingRef>,
}

/// Ordered by path. Without `before`, everything was added.
pub(super) async fn compare(
    area: &Area,
    limits: &Limits,
    before: Option<ListingRef>,
    after: ListingRef,
) -> Result<Vec<Difference>, CheckpointError> {
    let mut differences = Vec::new();
    let (mut budget_before, mut budget_after) = (Budget::new(limits), Budget::new(limits));
    let mut pairs = vec![Pair { path: PathBuf::new(), depth: 0, before, after: Some(after) }];
    while let Some(pair) = pairs.pop() {
        if pair.before.map(|listing| listing.hash) == pair.after.map(|listing| listing.hash) {
            continue;
        }
        let before = entries(area, limits, pair.before, pair.depth).await?;
        let after = entries(area, limits, pair.after, pair.depth).await?;
        before.as_slice().iter().try_for_each(|entry| budget_before.spend(entry))?;
        after.as_slice().iter().try_for_each(|entry| budget_after.spend(entry))?;
        for (before, after) in side_by_side(before, after) {
            compare_entries(&pair, before, after, &mut pairs, &mut differences);
        }
    }
    differences.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(differences)
}

async fn entries(
    area: &Area,
    limits: &Limits,
    listing: Option<ListingRef>,
    depth: usize,
) -> Result<vec::IntoIter<Entry>, CheckpointError> {
    let Some(listing) = listing else { return Ok(Vec::new().into_iter()) };
    Ok(load_listing(area, limits, listing, depth).await?.into_iter())
}

fn compare_entries(
    pair: &Pair,
    before: Option<Entry>,
    after: Option<Entry>,
    pairs: &mut Vec<Pair>,
    differences: &mut Vec<Difference>,
) {
    let Some(name) = before.as_ref().or(after.as_ref()).map(|entry| entry.name.clone()) else { return };
    let path = pair.path.join(name.as_path());
    let directory = |entry: &Option<Entry>| match entry.as_ref().map(|entry| &entry.node) {
        Some(Node::Directory(listing)) => Some(*listing),
        _ => None,
    };
    let (below_before, below_after) = (directory(&before), directory(&after));
    if below_before.is_some() || below_after.is_some() {
        let depth = pair.depth + 1;
        pairs.push(Pair { path: path.clone(), depth, before: below_before, after: below_after });
    }
    let (before, after) = (before.and_then(version), after.and_then(version));
    if before != after {
        differences.push(Difference { path, before, after });
    }
}

/// A file or a link as the API shows it; nothing for a directory.
pub(super) fn version(entry: Entry) -> Option<FileVersion> {
    let (kind, content) = match entry.node {
        Node::Directory(_) => return None,
        Node::File(content) => (FileKind::File, content),
        Node::Link { target } => {
            let size = target.0.len() as u64;
            let hash = ContentHash::of(&target.0);
            (
                FileKind::Link { target: target.as_path().to_owned() },
                FileNode { size, hash, chunks: Vec::new() },
            )
        }
    };
    Some(FileVersion {
        kind,
        mode: entry.mode,
        size: content.size,
        hash: content.hash,
        chunks: content.chunks,
    })
}

/// Pairs the entries of two listings by name. Both are in the order of names.
fn side_by_side(
    before: vec::IntoIter<Entry>,
    after: vec::IntoIter<Entry>,
) -> impl Iterator<Item = (Option<Entry>, Option<Entry>)> {
    let (mut before, mut after): (Peekable<_>, Peekable<_>) = (before.peekable(), after.peekable());
    std::iter::from_fn(move || {
        let order = match (before.peek(), after.peek()) {
            (None, None) => return None,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(before), Some(after)) => before.name.cmp(&after.name),
        };
        Some((
            if order.is_le() { before.next() } else { None },
            if order.is_ge() { after.next() } else { None },
        ))
    })
}
