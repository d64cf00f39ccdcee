//! Where blobs and records are: a folder, or a bucket. One prefix for each conversation:
//! `<conversation>/blobs/ab/abcd…`, `<conversation>/checkpoints/<id>` and `<conversation>/outputs/…`.
//!
//! Conversations share nothing. Equal files of two users are stored twice, so a hash reveals nothing about what another
//! user has, and deleting a conversation means deleting a prefix.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::{Path, PathPart};
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload};
use outlast_core::GenerationId;

use super::error::blocking;
use super::hash::ContentHash;
use super::limits::{LISTING_BYTES_MAX, RECORD_BYTES_MAX};
use super::tree::{ChunkRef, Record, VERSION};
use super::{CheckpointError, OutputOf};

/// Level 1: checkpoints are taken between two steps of an agent, and somebody waits.
const COMPRESSION: i32 = 1;

#[derive(Clone)]
pub(super) struct Storage {
    /// Every write is durable when it returns.
    firm: Arc<dyn ObjectStore>,
    /// Writes are durable after `sync`. Faster for a folder; the same store for a bucket.
    lazy: Arc<dyn ObjectStore>,
    prefix: Path,
    folder: Option<Arc<LocalFileSystem>>,
}

impl Storage {
    pub(super) fn folder(folder: &std::path::Path) -> Result<Storage, CheckpointError> {
        // Everything that agents write ends up here, so no other user of this machine may read it.
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let files =
            || LocalFileSystem::new_with_prefix(folder).map(|files| files.with_automatic_cleanup(true));
        let firm = Arc::new(files()?.with_fsync(true));
        Ok(Storage { firm: firm.clone(), lazy: Arc::new(files()?), prefix: Path::ROOT, folder: Some(firm) })
    }

    pub(super) fn bucket(url: &str) -> Result<Storage, CheckpointError> {
        let prefix =
            url.strip_prefix("s3://").and_then(|place| place.split_once('/')).map_or("", |(_, path)| path);
        let bucket = Arc::new(AmazonS3Builder::from_env().with_url(url).build()?);
        Ok(Storage { firm: bucket.clone(), lazy: bucket, prefix: Path::parse(prefix)?, folder: None })
    }

    #[cfg(test)]
    pub(super) fn store(store: Arc<dyn ObjectStore>) -> Storage {
        Storage { firm: store.clone(), lazy: store, prefix: Path::ROOT, folder: None }
    }

    pub(super) fn conversation(&self, id: &str) -> Area {
        // With an empty name, the prefix would cover all conversations.
        let id = if id.is_empty() { "%" } else { id };
        Area { storage: self.clone(), prefix: self.prefix.clone().join(PathPart::from(id)) }
    }
}

/// What belongs to one conversation.
#[derive(Clone)]
pub(super) struct Area {
    storage: Storage,
    prefix: Path,
}

/// How a blob is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Write {
    Firm,
    Lazy,
}

impl Area {
    pub(super) fn blobs(&self) -> Path {
        self.prefix.clone().join("blobs")
    }

    fn blob(&self, hash: ContentHash) -> Path {
        let digits = hash.to_string();
        self.blobs().join(&digits[..2]).join(digits)
    }

    fn records(&self) -> Path {
        self.prefix.clone().join("checkpoints")
    }

    pub(super) fn record(&self, id: &str) -> Path {
        self.records().join(PathPart::from(id))
    }

    /// What tools of a generation wrote.
    pub(super) fn outputs(&self, generation: &GenerationId) -> Path {
        self.prefix.clone().join("outputs").join(PathPart::from(generation.as_str()))
    }

    /// An object of one tool's output.
    pub(super) fn output(&self, of: &OutputOf, name: &str) -> Path {
        self.outputs(&of.generation).join(PathPart::from(of.execution.as_str())).join(name)
    }

    /// Durable when it returns.
    pub(super) async fn put(&self, path: &Path, content: Bytes) -> Result<(), CheckpointError> {
        self.storage.firm.put(path, PutPayload::from(content)).await?;
        Ok(())
    }

    /// An object of at most `max` bytes, if there is one.
    pub(super) async fn get(&self, path: &Path, max: u64) -> Result<Option<Bytes>, CheckpointError> {
        match self.storage.firm.get(path).await {
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(found) if found.meta.size > max => Err(CheckpointError::limit("a stored object", max)),
            Ok(found) => Ok(Some(found.bytes().await?)),
        }
    }

    pub(super) async fn write_blob(
        &self,
        hash: ContentHash,
        packed: Bytes,
        how: Write,
    ) -> Result<(), CheckpointError> {
        let path = self.blob(hash);
        let store = match how {
            Write::Firm => &self.storage.firm,
            // A blob that is there may belong to another checkpoint. Replacing it lazily could leave neither
            // the old nor the new one after a power failure.
            Write::Lazy if self.storage.folder.is_some() && exists(&*self.storage.firm, &path).await? => {
                &self.storage.firm
            }
            Write::Lazy => &self.storage.lazy,
        };
        store.put(&path, PutPayload::from(packed)).await?;
        Ok(())
    }

    /// Makes every lazy write durable.
    pub(super) async fn sync(&self) -> Result<(), CheckpointError> {
        let Some(folder) = &self.storage.folder else { return Ok(()) };
        let folder = folder.path_to_filesystem(&self.prefix)?;
        blocking(move || {
            let folder = std::fs::File::open(folder)?;
            Ok(rustix::fs::syncfs(&folder).map_err(std::io::Error::from)?)
        })
        .await
    }

    /// The content of a blob, verified: exactly the declared size, and the hash that is its name.
    pub(super) async fn read_blob(&self, blob: ChunkRef) -> Result<Bytes, CheckpointError> {
        let ChunkRef { hash, size } = blob;
        let found = match self.storage.firm.get(&self.blob(hash)).await {
            Err(object_store::Error::NotFound { .. }) => {
                return Err(CheckpointError::Damaged(format!("blob {hash} is missing")));
            }
            found => found?,
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if found.meta.size > zstd::zstd_safe::compress_bound(size) as u64 {
            return Err(CheckpointError::Damaged(format!("blob {hash} is larger than declared")));
        }
        let packed = found.bytes().await?;
        blocking(move || unpack(&packed, hash, size)).await
    }

    /// Durable when it returns.
    pub(super) async fn write_record(&self, id: &str, record: &Record) -> Result<(), CheckpointError> {
        let json =
            serde_json::to_vec(record).expect("a record has text keys only: it can be written as JSON");
        if json.len() as u64 > RECORD_BYTES_MAX {
            return Err(CheckpointError::limit("the record of a checkpoint", RECORD_BYTES_MAX));
        }
        self.storage.firm.put(&self.record(id), PutPayload::from(json)).await?;
        Ok(())
    }

    pub(super) async fn read_record(&self, id: &str) -> Result<Record, CheckpointError> {
        match self.read_record_at(&self.record(id)).await {
            Err(CheckpointError::Storage(object_store::Error::NotFound { .. })) => {
                Err(CheckpointError::NotFound(format!("checkpoint {id}")))
            }
            record => record,
        }
    }

    pub(super) async fn read_record_at(&self, path: &Path) -> Result<Record, CheckpointError> {
        let found = self.storage.firm.get(path).await?;
        if found.meta.size > RECORD_BYTES_MAX {
            return Err(CheckpointError::limit("the record of a checkpoint", RECORD_BYTES_MAX));
        }
        let json = found.bytes().await?;
        let record: Record = serde_json::from_slice(&json)
            .map_err(|error| CheckpointError::Damaged(format!("its record cannot be read: {error}")))?;
        if record.version != VERSION {
            return Err(CheckpointError::Damaged(format!("it has the unknown version {}", record.version)));
        }
        if record.root.size > LISTING_BYTES_MAX {
            return Err(CheckpointError::limit("the size of a listing", LISTING_BYTES_MAX));
        }
        Ok(record)
    }

    pub(super) fn list(&self, path: &Path) -> BoxStream<'static, Result<ObjectMeta, object_store::Error>> {
        self.storage.firm.list(Some(path))
    }

    pub(super) async fn list_records(&self) -> Result<Vec<ObjectMeta>, CheckpointError> {
        Ok(self.list(&self.records()).try_collect().await?)
    }

    /// An object that is already gone is not an error.
    pub(super) async fn delete(&self, paths: Vec<Path>) -> Result<(), CheckpointError> {
        let paths = stream::iter(paths).map(Ok).boxed();
        let mut deleted = self.storage.firm.delete_stream(paths);
        while let Some(result) = deleted.next().await {
            match result {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(super) fn everything(&self) -> Path {
        self.prefix.clone()
    }

    /// Removes what listings do not show: half-written files that a crash left behind.
    pub(super) async fn remove_remains(&self) -> Result<(), CheckpointError> {
        let Some(folder) = &self.storage.folder else { return Ok(()) };
        let remains = folder.path_to_filesystem(&self.prefix)?;
        blocking(move || match std::fs::remove_dir_all(remains) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        })
        .await
    }
}

async fn exists(store: &dyn ObjectStore, path: &Path) -> Result<bool, CheckpointError> {
    match store.head(path).await {
        Ok(_) => Ok(true),
        Err(object_store::Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn pack(content: &[u8]) -> Result<Bytes, CheckpointError> {
    let packed = zstd::bulk::compress(content, COMPRESSION);
    Ok(packed.map_err(|_| CheckpointError::Unfinished("no memory to compress a file"))?.into())
}

/// Never writes more than `size` bytes, whatever the compressed data claims.
pub(super) fn unpack(packed: &[u8], hash: ContentHash, size: usize) -> Result<Bytes, CheckpointError> {
    let damaged = |why: &str| CheckpointError::Damaged(format!("blob {hash} {why}"));
    let content =
        zstd::bulk::decompress(packed, size).map_err(|_| damaged("is larger than declared or not zstd"))?;
    if content.len() != size {
        return Err(damaged("is smaller than declared"));
    }
    if ContentHash::of(&content) != hash {
        return Err(damaged("does not match its hash"));
    }
    Ok(content.into())
}
