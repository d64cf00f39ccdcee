//! Putting a checkpoint into an empty workspace: all of it, or nothing.

use std::path::Path;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use outlast_store::fault;

use super::blobs::Area;
use super::error::blocking;
use super::hash::ContentHash;
use super::index::{IndexedFile, NewIndex, keep_index};
use super::limits::{Limits, TRANSFERS_MAX};
use super::load::{Loaded, load_tree};
use super::tree::{FileNode, Node};
use super::workspace::{Attributes, Workspace};
use super::{CheckpointError, Restore, Restored};
use crate::file_names::shown;

/// The tree is read and checked as a whole before anything is written. If writing fails after that, the
/// workspace is cleared.
pub(super) async fn restore(
    area: &Area,
    limits: &Limits,
    request: &Restore,
) -> Result<Restored, CheckpointError> {
    let record = area.read_record(&request.id).await?;
    let workspace = request.workspace.clone();
    if !blocking(move || Ok(workspace.list(Path::new(""), 1)?.is_empty())).await? {
        return Err(CheckpointError::NotEmpty);
    }
    let tree = Arc::new(load_tree(area, limits, &record).await?);
    fault::point("restore.checked");
    if let Err(error) = fill(area, request, &tree).await {
        let workspace = request.workspace.clone();
        blocking(move || Ok(workspace.clear()?)).await?;
        return Err(error);
    }
    keep_index(&request.workspace, index(request, &tree, record.root.hash)).await;
    Ok(Restored { files: record.files, bytes: record.bytes, left_out: record.left_out })
}

async fn fill(area: &Area, request: &Restore, tree: &Arc<Vec<Loaded>>) -> Result<(), CheckpointError> {
    let (workspace, loaded) = (request.workspace.clone(), tree.clone());
    blocking(move || make_directories(&*workspace, &loaded)).await?;
    fault::point("restore.begun");
    stream::iter(0..tree.len())
        .map(|place| write_entry(area, request, &tree[place]))
        .buffer_unordered(TRANSFERS_MAX)
        .try_collect::<()>()
        .await?;
    fault::point("restore.written");
    let (workspace, loaded) = (request.workspace.clone(), tree.clone());
    blocking(move || make_links_and_set_attributes(&*workspace, &loaded)).await
}

fn make_directories(workspace: &dyn Workspace, tree: &[Loaded]) -> Result<(), CheckpointError> {
    for loaded in tree {
        if matches!(loaded.entry.node, Node::Directory(_)) {
            workspace.make_directory(&loaded.path)?;
        }
    }
    Ok(())
}

async fn write_entry(area: &Area, request: &Restore, loaded: &Loaded) -> Result<(), CheckpointError> {
    match &loaded.entry.node {
        Node::File(file) => write_file(area, request, loaded, file).await,
        Node::Directory(_) | Node::Link { .. } => Ok(()),
    }
}

async fn write_file(
    area: &Area,
    request: &Restore,
    loaded: &Loaded,
    content: &FileNode,
) -> Result<(), CheckpointError> {
    let attributes = Attributes { mode: loaded.entry.mode, modified: loaded.entry.modified };
    let (workspace, path) = (request.workspace.clone(), loaded.path.clone());
    if content.chunks.is_empty() {
        // Nearly all files: one trip to the pool for blocking work.
        let bytes = match content.blobs().next() {
            Some(blob) => area.read_blob(blob).await?,
            None => bytes::Bytes::new(),
        };
        if bytes.is_empty() && content.hash != ContentHash::of(b"") {
            return Err(CheckpointError::Damaged(format!("{} is empty and should not be", shown(&path))));
        }
        return blocking(move || {
            let mut file = workspace.make_file(&path)?;
            file.write_all(&bytes)?;
            Ok(file.finish(attributes)?)
        })
        .await;
    }
    let mut file = blocking(move || Ok(workspace.make_file(&path)?)).await?;
    let mut whole = blake3::Hasher::new();
    for blob in content.blobs() {
        let bytes = area.read_blob(blob).await?;
        (file, whole) = blocking(move || {
            whole.update(&bytes);
            file.write_all(&bytes)?;
            Ok((file, whole))
        })
        .await?;
    }
    if ContentHash::from(whole.finalize()) != content.hash {
        return Err(CheckpointError::Damaged(format!(
            "the chunks of {} are not its content",
            shown(&loaded.path)
        )));
    }
    blocking(move || Ok(file.finish(attributes)?)).await
}

/// Children before parents: writing into a directory changes its time, and its mode may forbid it.
fn make_links_and_set_attributes(workspace: &dyn Workspace, tree: &[Loaded]) -> Result<(), CheckpointError> {
    for Loaded { path, entry } in tree.iter().rev() {
        let attributes = Attributes { mode: entry.mode, modified: entry.modified };
        match &entry.node {
            Node::File(_) => continue,
            Node::Link { target } => workspace.make_link(path, target.as_path())?,
            Node::Directory(_) => {}
        }
        workspace.set_attributes(path, attributes)?;
    }
    Ok(())
}

/// The next checkpoint reads every file again, but has to store only those that have changed.
fn index(request: &Restore, tree: &[Loaded], root: ContentHash) -> NewIndex {
    let (mut files, mut listings) = (Vec::new(), vec![root]);
    for loaded in tree {
        match &loaded.entry.node {
            Node::File(content) => files.push(IndexedFile::stored_only(content)),
            Node::Directory(listing) => listings.push(listing.hash),
            Node::Link { .. } => {}
        }
    }
    let (conversation, checkpoint) = (request.conversation.to_string(), request.id.clone());
    NewIndex { conversation, checkpoint, root, files, listings }
}
