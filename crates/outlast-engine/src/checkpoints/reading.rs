//! Reading one file of a workspace, a chunk at a time, while somebody may still be writing to it.

use std::io::{self, Read};
use std::path::Path;

use super::CheckpointError;
use super::hash::ContentHash;
use super::limits::CHUNK_BYTES;
use super::tree::FileNode;
use super::uploads::{Packed, Uploads};
use super::workspace::{OpenFile, Stat, Workspace};

/// A file that is being read. The result is exactly the bytes that were read, even if the file changes meanwhile.
pub(super) struct Reading {
    file: Box<dyn OpenFile>,
    /// As it was before the first byte was read.
    stat: Stat,
    limit: u64,
    whole: blake3::Hasher,
    size: u64,
    chunks: Vec<ContentHash>,
}

pub(super) enum Step {
    /// Write the blob, if there is one, then continue.
    Chunk {
        reading: Box<Reading>,
        blob: Option<Packed>,
    },
    Ended {
        read: FileRead,
        blob: Option<Packed>,
    },
}

pub(super) struct FileRead {
    pub(super) stat: Stat,
    /// Whether it was still the same after the last byte.
    pub(super) steady: bool,
    pub(super) content: FileNode,
}

impl Reading {
    pub(super) fn open(workspace: &dyn Workspace, path: &Path, limit: u64) -> io::Result<Reading> {
        let file = workspace.open(path)?;
        let stat = file.stat()?;
        Ok(Reading { file, stat, limit, whole: blake3::Hasher::new(), size: 0, chunks: Vec::new() })
    }

    /// Reads the next chunk. Blocks.
    pub(super) fn step(mut self, uploads: &Uploads) -> Result<Step, CheckpointError> {
        let left = self.stat.size.saturating_sub(self.size).min(CHUNK_BYTES as u64);
        let mut chunk = Vec::with_capacity(left as usize + 1); // one more: the read that finds the end is free
        (&mut self.file).take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
        self.size += chunk.len() as u64;
        if self.size > self.limit {
            return Err(CheckpointError::limit("the size of a file", self.limit));
        }
        let is_last = chunk.len() < CHUNK_BYTES;
        let mut blob = None;
        if !chunk.is_empty() {
            let hash = ContentHash::of(&chunk);
            if !is_last || !self.chunks.is_empty() {
                self.whole.update(&chunk);
            }
            self.chunks.push(hash);
            blob = uploads.pack(hash, &chunk)?;
        }
        if !is_last {
            return Ok(Step::Chunk { reading: Box::new(self), blob });
        }
        Ok(Step::Ended { read: self.end()?, blob })
    }

    fn end(self) -> io::Result<FileRead> {
        let Reading { file, stat, whole, size, mut chunks, .. } = self;
        let hash = match chunks.as_slice() {
            [only] => *only,
            _ => whole.finalize().into(),
        };
        if chunks.len() == 1 {
            chunks.clear();
        }
        let steady = file.stat()? == stat && stat.size == size;
        Ok(FileRead { stat, steady, content: FileNode { size, hash, chunks } })
    }
}
