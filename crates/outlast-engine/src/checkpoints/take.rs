//! Taking a checkpoint: walk, store what is new, then write the record.
//!
//! The order is the promise. Blobs are durable before the record that names them, and the record is durable
//! before `take` returns, so a crash leaves either the former checkpoints or those and the new one.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use outlast_store::fault;

use super::blobs::Area;
use super::compare::compare;
use super::error::blocking;
use super::hash::ContentHash;
use super::index::{Index, IndexedFile, NewIndex, keep_index};
use super::limits::{LISTING_BYTES_MAX, Limits, TRANSFERS_MAX};
use super::reading::{FileRead, Reading, Step};
use super::tree::{Entry, ListingRef, Node, Record, VERSION, encode_listing};
use super::uploads::{Packed, Uploads};
use super::walk::{Draft, DraftEntry, DraftNode, walk};
use super::{Changes, CheckpointError, LeftOut, Take, Taken, Truth};

pub(super) async fn take(area: &Area, limits: &Limits, request: &Take) -> Result<Taken, CheckpointError> {
    let workspace = request.workspace.clone();
    let bytes = blocking(move || Ok(workspace.index()?)).await?;
    let index = Arc::new(Index::open(area, request.conversation.as_str(), bytes).await?);
    let is_built_on_another = index.base.is_some();
    match take_upon(area, limits, request, index).await {
        // The last checkpoint cannot be read, so its blobs cannot be relied on.
        Err(CheckpointError::Damaged(_)) if is_built_on_another => {
            take_upon(area, limits, request, Arc::new(Index::default())).await
        }
        taken => taken,
    }
}

async fn take_upon(
    area: &Area,
    limits: &Limits,
    request: &Take,
    index: Arc<Index>,
) -> Result<Taken, CheckpointError> {
    let base = index.base;
    let (workspace, walk_index, walk_limits) = (request.workspace.clone(), index.clone(), *limits);
    let mut draft = blocking(move || walk(&*workspace, &walk_index, &walk_limits)).await?;
    fault::point("take.walked");
    let uploads = Arc::new(Uploads::new(area.clone(), index));
    store_files(&mut draft, request, limits, &uploads).await?;
    fault::point("take.stored");

    let packing = uploads.clone();
    let Listed { root, files, bytes, left_out, indexed, listings, new } =
        blocking(move || list(draft, &packing)).await?;
    if bytes > limits.bytes {
        return Err(CheckpointError::limit("the size of all files", limits.bytes));
    }
    stream::iter(new)
        .map(|blob| uploads.write(blob))
        .buffer_unordered(TRANSFERS_MAX)
        .try_collect::<()>()
        .await?;
    uploads.finish().await?;
    fault::point("take.listed");

    let truth = match (&request.git, base) {
        (Some(git), _) => Some(Truth::Git(git.clone().cut())),
        (None, Some(_)) => Some(Truth::Changes(Changes::of(&compare(area, limits, base, root).await?))),
        (None, None) => None,
    };
    let record = Record { version: VERSION, root, files, bytes, taken_at: request.now, truth, left_out };
    area.write_record(&request.id, &record).await?;
    fault::point("take.recorded");
    let (conversation, checkpoint) = (request.conversation.to_string(), request.id.clone());
    let index = NewIndex { conversation, checkpoint, root: root.hash, files: indexed, listings };
    keep_index(&request.workspace, index).await;
    fault::point("take.indexed");
    let (new_blobs, new_bytes) = uploads.written();
    let Record { truth, left_out, .. } = record;
    Ok(Taken { files, bytes, truth, left_out, new_blobs, new_bytes })
}

/// Reads and stores every file that the index does not know.
async fn store_files(
    draft: &mut Draft,
    request: &Take,
    limits: &Limits,
    uploads: &Arc<Uploads>,
) -> Result<(), CheckpointError> {
    let mut unread = Vec::new();
    for (place, directory) in draft.directories.iter().enumerate() {
        for (line, entry) in directory.entries.iter().enumerate() {
            if matches!(entry.node, DraftNode::Unread) {
                unread.push((place, line));
            }
        }
    }
    let read: Vec<_> = stream::iter(unread)
        .map(|(place, line)| {
            let directory = &draft.directories[place];
            let path = directory.path_of(&directory.entries[line]);
            async move { store_file(path, request, limits, uploads).await.map(|read| (place, line, read)) }
        })
        .buffer_unordered(TRANSFERS_MAX)
        .try_collect()
        .await?;
    for (place, line, read) in read {
        let entry = &mut draft.directories[place].entries[line];
        match read {
            Ok(FileRead { stat, steady, content }) => {
                entry.stat = stat;
                entry.node = DraftNode::File { content, steady };
            }
            Err(error) => {
                entry.node = DraftNode::Gone;
                let directory = &draft.directories[place];
                let path = directory.path_of(&directory.entries[line]);
                draft.left_out.unreadable(&path, &error);
            }
        }
    }
    Ok(())
}

/// The inner error is a file that cannot be read; the checkpoint leaves it out.
async fn store_file(
    path: PathBuf,
    request: &Take,
    limits: &Limits,
    uploads: &Arc<Uploads>,
) -> Result<io::Result<FileRead>, CheckpointError> {
    let (workspace, limit, packing) = (request.workspace.clone(), limits.file_bytes, uploads.clone());
    let mut step = blocking(move || Reading::open(&*workspace, &path, limit)?.step(&packing)).await;
    loop {
        match step {
            Ok(Step::Ended { read, blob }) => {
                upload(uploads, blob).await?;
                return Ok(Ok(read));
            }
            Ok(Step::Chunk { reading, blob }) => {
                upload(uploads, blob).await?;
                let packing = uploads.clone();
                step = blocking(move || reading.step(&packing)).await;
            }
            Err(CheckpointError::Workspace(error)) => return Ok(Err(error)),
            Err(error) => return Err(error),
        }
    }
}

async fn upload(uploads: &Uploads, blob: Option<Packed>) -> Result<(), CheckpointError> {
    match blob {
        Some(blob) => uploads.write(blob).await,
        None => Ok(()),
    }
}

/// A whole tree, with the listings that are not stored yet.
struct Listed {
    root: ListingRef,
    files: u64,
    bytes: u64,
    left_out: LeftOut,
    indexed: Vec<IndexedFile>,
    listings: Vec<ContentHash>,
    new: Vec<Packed>,
}

/// Makes the listings, from the leaves to the root. Blocks.
fn list(draft: Draft, uploads: &Uploads) -> Result<Listed, CheckpointError> {
    let Draft { directories, left_out, walked } = draft;
    let (mut files, mut bytes) = (0, 0);
    let (mut indexed, mut new) = (Vec::new(), Vec::new());
    let mut made: Vec<Option<ListingRef>> = vec![None; directories.len()];
    for (place, directory) in directories.into_iter().enumerate().rev() {
        let mut entries = Vec::with_capacity(directory.entries.len());
        for DraftEntry { name, stat, node } in directory.entries {
            let node = match node {
                DraftNode::Unread | DraftNode::Gone => continue,
                DraftNode::Directory(place) => {
                    Node::Directory(made[place].expect("children stand behind their parents"))
                }
                DraftNode::Link { target } => {
                    files += 1;
                    Node::Link { target }
                }
                DraftNode::File { content, steady } => {
                    files += 1;
                    bytes += content.size;
                    indexed.push(match steady {
                        true => IndexedFile::new(&stat, &content, walked),
                        false => IndexedFile::stored_only(&content),
                    });
                    Node::File(content)
                }
            };
            entries.push(Entry { name, mode: stat.mode, modified: stat.modified, node });
        }
        let json = encode_listing(&entries);
        let hash = ContentHash::of(&json);
        if json.len() as u64 > LISTING_BYTES_MAX {
            return Err(CheckpointError::limit("the size of a listing", LISTING_BYTES_MAX));
        }
        new.extend(uploads.pack(hash, &json)?);
        made[place] = Some(ListingRef { hash, size: json.len() as u64 });
    }
    let root = made[0].expect("the workspace itself is always there");
    let listings = made.into_iter().flatten().map(|listing| listing.hash).collect();
    Ok(Listed { root, files, bytes, left_out, indexed, listings, new })
}
