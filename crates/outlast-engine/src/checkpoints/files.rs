//! The files of a checkpoint, to list and to read.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use serde::Serialize;

use super::CheckpointError;
use super::blobs::Area;
use super::compare::version;
use super::hash::ContentHash;
use super::limits::Limits;
use super::load::{load_listing, load_tree};
use super::tree::{ChunkRef, FileNode, Node};
use crate::file_names::shown;

/// What a file was at a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileVersion {
    #[serde(flatten)]
    pub kind: FileKind,
    pub mode: u32,
    pub size: u64,
    /// Of the content; of the target, for a link.
    pub hash: ContentHash,
    #[serde(skip)]
    pub(super) chunks: Vec<ContentHash>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum FileKind {
    File,
    Link {
        #[serde(serialize_with = "as_text")]
        target: PathBuf,
    },
}

fn as_text<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&shown(path))
}

#[derive(Clone, Debug)]
pub struct ListedFile {
    pub path: PathBuf,
    pub version: FileVersion,
}

/// Files and links in the order of paths, without directories.
pub(super) async fn list(area: &Area, limits: &Limits, id: &str) -> Result<Vec<ListedFile>, CheckpointError> {
    let record = area.read_record(id).await?;
    let tree = load_tree(area, limits, &record).await?;
    let listed =
        |loaded: super::load::Loaded| Some(ListedFile { path: loaded.path, version: version(loaded.entry)? });
    let mut files: Vec<ListedFile> = tree.into_iter().filter_map(listed).collect();
    files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// A file of a checkpoint that is being read.
pub struct FileContent {
    pub version: FileVersion,
    area: Area,
    left: std::vec::IntoIter<ChunkRef>,
}

impl FileContent {
    pub(super) fn new(area: Area, version: FileVersion) -> FileContent {
        let blobs = match version.kind {
            FileKind::File => {
                let FileVersion { size, hash, chunks, .. } = version.clone();
                FileNode { size, hash, chunks }.blobs().collect()
            }
            FileKind::Link { .. } => Vec::new(),
        };
        FileContent { version, area, left: blobs.into_iter() }
    }

    /// The next piece, at most 4 MiB and verified; nothing at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CheckpointError> {
        match self.left.next() {
            Some(blob) => self.area.read_blob(blob).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Opens a file. A link is not followed: it has a target and no content.
pub(super) async fn open(
    area: &Area,
    limits: &Limits,
    id: &str,
    path: &Path,
) -> Result<FileContent, CheckpointError> {
    let missing = || CheckpointError::NotFound(format!("file {}", shown(path)));
    let steps: Option<Vec<&OsStr>> = path
        .components()
        .map(|step| match step {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let steps = steps.filter(|steps| !steps.is_empty()).ok_or_else(missing)?;
    let mut listing = area.read_record(id).await?.root;
    for (depth, name) in steps.iter().enumerate() {
        let mut entries = load_listing(area, limits, listing, depth).await?;
        let place =
            entries.binary_search_by(|entry| (*entry.name.0).cmp(name.as_bytes())).map_err(|_| missing())?;
        let entry = entries.swap_remove(place);
        match entry.node {
            Node::Directory(below) => listing = below,
            Node::File(_) | Node::Link { .. } if depth + 1 == steps.len() => {
                let version = version(entry).ok_or_else(missing)?;
                return Ok(FileContent::new(area.clone(), version));
            }
            Node::File(_) | Node::Link { .. } => return Err(missing()),
        }
    }
    Err(missing())
}
