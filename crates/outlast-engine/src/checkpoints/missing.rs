//! What a workspace has lost since a checkpoint, without reading its files.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::CheckpointError;
use super::limits::Limits;
use super::load::Loaded;
use super::tree::{Entry, Node};
use super::workspace::{Found, FoundKind, Stat, Workspace};

/// The first path of the checkpoint that is not there as it was. A file that was written later is not missing: whoever wrote
/// it is to be believed. Blocks.
pub(super) fn first_missing(
    workspace: &dyn Workspace,
    tree: &[Loaded],
    limits: &Limits,
) -> Result<Option<PathBuf>, CheckpointError> {
    let mut listed: HashMap<PathBuf, HashMap<Vec<u8>, Found>> = HashMap::new();
    for loaded in tree {
        let directory = loaded.path.parent().unwrap_or(Path::new(""));
        if !listed.contains_key(directory) {
            let found = workspace.list(directory, limits.entries)?;
            let by_name = found.into_iter().map(|found| (found.name.clone(), found)).collect();
            listed.insert(directory.to_owned(), by_name);
        }
        let name = loaded.path.file_name().unwrap_or(OsStr::new("")).as_bytes();
        let found = listed.get(directory).and_then(|entries| entries.get(name));
        if !found.is_some_and(|found| is_intact(&loaded.entry, found)) {
            return Ok(Some(loaded.path.clone()));
        }
    }
    Ok(None)
}

fn is_intact(entry: &Entry, found: &Found) -> bool {
    match (&entry.node, &found.kind) {
        (Node::File(content), FoundKind::File) => {
            let Stat { size, modified, .. } = found.stat;
            modified > entry.modified || (modified == entry.modified && size == content.size)
        }
        (Node::Directory(_), FoundKind::Directory) | (Node::Link { .. }, FoundKind::Link { .. }) => true,
        _ => false,
    }
}
