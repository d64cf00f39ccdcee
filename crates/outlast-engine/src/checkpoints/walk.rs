//! The first step of a checkpoint: what is in the workspace, and which files must be read.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::index::Index;
use super::limits::Limits;
use super::tree::{FileNode, Name, stays_inside};
use super::workspace::{Found, FoundKind, Stat, Workspace};
use super::{CheckpointError, LeftOut};
use crate::file_names::shown;

/// A workspace on its way to a checkpoint. Parents come before their children, the workspace first. Only directories
/// store their path, because a tree may have many files.
pub(super) struct Draft {
    pub(super) directories: Vec<DraftDirectory>,
    pub(super) left_out: LeftOut,
    /// When the walk began, by the clock of the workspace.
    pub(super) walked: i64,
}

pub(super) struct DraftDirectory {
    pub(super) path: PathBuf,
    pub(super) depth: usize,
    /// In the order of names.
    pub(super) entries: Vec<DraftEntry>,
}

pub(super) struct DraftEntry {
    pub(super) name: Name,
    pub(super) stat: Stat,
    pub(super) node: DraftNode,
}

pub(super) enum DraftNode {
    /// Its content must be read.
    Unread,
    File {
        content: FileNode,
        /// Whether `stat` belongs to this content: the file did not change while it was read.
        steady: bool,
    },
    /// Its place in `Draft::directories`.
    Directory(usize),
    Link {
        target: Name,
    },
    /// It had disappeared or become unreadable before it was read.
    Gone,
}

impl DraftDirectory {
    pub(super) fn path_of(&self, entry: &DraftEntry) -> PathBuf {
        self.path.join(entry.name.as_path())
    }
}

/// Blocks for as long as it takes to look at every file once.
pub(super) fn walk(
    workspace: &dyn Workspace,
    index: &Index,
    limits: &Limits,
) -> Result<Draft, CheckpointError> {
    let mut draft = Draft { directories: Vec::new(), left_out: LeftOut::default(), walked: workspace.now() };
    draft.directories.push(DraftDirectory { path: PathBuf::new(), depth: 0, entries: Vec::new() });
    let mut room = limits.entries;
    let mut next = 0;
    while next < draft.directories.len() {
        let path = draft.directories[next].path.clone();
        let mut found = match workspace.list(&path, room) {
            Ok(found) => found,
            Err(error) if next == 0 => return Err(error.into()),
            Err(error) => {
                draft.left_out.unreadable(&path, &error);
                Vec::new()
            }
        };
        room = room
            .checked_sub(found.len())
            .ok_or_else(|| CheckpointError::limit("the number of files", limits.entries))?;
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut entries = Vec::with_capacity(found.len());
        for found in found {
            entries.extend(draft.add(next, found, index, limits)?);
        }
        draft.directories[next].entries = entries;
        next += 1;
    }
    Ok(draft)
}

impl Draft {
    fn add(
        &mut self,
        parent: usize,
        found: Found,
        index: &Index,
        limits: &Limits,
    ) -> Result<Option<DraftEntry>, CheckpointError> {
        let DraftDirectory { path, depth, .. } = &self.directories[parent];
        let (path, depth) = (path.join(OsStr::from_bytes(&found.name)), *depth);
        if path.as_os_str().len() > limits.path_bytes {
            return Err(CheckpointError::limit(
                format!("the length of {}", cut_short(&path)),
                limits.path_bytes,
            ));
        }
        let node = match found.kind {
            FoundKind::File => match index.unchanged(&found.stat) {
                Some(content) => DraftNode::File { content, steady: true },
                None => DraftNode::Unread,
            },
            FoundKind::Directory => {
                if depth + 1 > limits.depth {
                    return Err(CheckpointError::limit(
                        format!("the depth of {}", cut_short(&path)),
                        limits.depth,
                    ));
                }
                self.directories.push(DraftDirectory { path, depth: depth + 1, entries: Vec::new() });
                DraftNode::Directory(self.directories.len() - 1)
            }
            FoundKind::Link { target } if stays_inside(&target, depth) => {
                DraftNode::Link { target: Name(target.into()) }
            }
            FoundKind::Link { .. } => {
                self.left_out.link(&path);
                return Ok(None);
            }
            FoundKind::Special => {
                self.left_out.special(&path);
                return Ok(None);
            }
        };
        Ok(Some(DraftEntry { name: Name(found.name.into()), stat: found.stat, node }))
    }
}

/// A path in a message: cut short, because it may be as long as a path can be.
fn cut_short(path: &Path) -> String {
    let text = shown(path);
    if text.chars().count() <= 100 { text } else { text.chars().take(100).chain("…".chars()).collect() }
}
