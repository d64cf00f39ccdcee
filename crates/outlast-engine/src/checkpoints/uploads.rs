//! The blobs that one checkpoint adds.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::CheckpointError;
use super::blobs::{Area, Write, pack};
use super::hash::ContentHash;
use super::index::Index;

/// Up to this many blobs are synced individually. Beyond that, one sync of the whole file system is cheaper, even though it
/// also waits for what other processes have written.
const FIRM_WRITES_MAX: u64 = 64;

pub(super) struct Uploads {
    area: Area,
    index: Arc<Index>,
    /// Blobs whose writing has begun, so that equal files are stored once.
    begun: Mutex<HashSet<ContentHash>>,
    any_lazy: AtomicBool,
    blobs: AtomicU64,
    bytes: AtomicU64,
}

/// A blob that is compressed and not stored yet.
pub(super) struct Packed {
    pub(super) hash: ContentHash,
    bytes: Bytes,
}

impl Uploads {
    pub(super) fn new(area: Area, index: Arc<Index>) -> Uploads {
        Uploads {
            area,
            index,
            begun: Mutex::default(),
            any_lazy: AtomicBool::new(false),
            blobs: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// The blob to write for this content; nothing if it is stored or another file has it too. Blocks.
    pub(super) fn pack(&self, hash: ContentHash, content: &[u8]) -> Result<Option<Packed>, CheckpointError> {
        if self.index.is_stored(hash)
            || !self.begun.lock().unwrap_or_else(PoisonError::into_inner).insert(hash)
        {
            return Ok(None);
        }
        Ok(Some(Packed { hash, bytes: pack(content)? }))
    }

    pub(super) async fn write(&self, blob: Packed) -> Result<(), CheckpointError> {
        self.bytes.fetch_add(blob.bytes.len() as u64, Ordering::Relaxed);
        let before = self.blobs.fetch_add(1, Ordering::Relaxed);
        let how = if before < FIRM_WRITES_MAX { Write::Firm } else { Write::Lazy };
        if how == Write::Lazy {
            self.any_lazy.store(true, Ordering::Relaxed);
        }
        self.area.write_blob(blob.hash, blob.bytes, how).await
    }

    /// Called after the last write. Everything is durable when it returns.
    pub(super) async fn finish(&self) -> Result<(), CheckpointError> {
        if self.any_lazy.load(Ordering::Relaxed) { self.area.sync().await } else { Ok(()) }
    }

    /// Blobs and compressed bytes.
    pub(super) fn written(&self) -> (u64, u64) {
        (self.blobs.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}
