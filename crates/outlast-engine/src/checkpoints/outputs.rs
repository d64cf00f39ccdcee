//! The whole output of tools, kept with the checkpoints: `<conversation>/outputs/<generation>/<execution>/…`.
//!
//! An output is stored in chunks named by their content, and then a record that names the chunks. Without its record it
//! does not exist, so a crash in between leaves nothing that could be taken for the whole. It goes with the events of its
//! generation, or with the conversation.

use bytes::Bytes;
use futures_util::TryStreamExt;
use outlast_core::{ConversationId, ExecutionId, GenerationId};
use serde::{Deserialize, Serialize};

use super::blobs::{Area, pack, unpack};
use super::error::blocking;
use super::{CheckpointError, Checkpoints, ContentHash};

/// What is stored at once.
pub const OUTPUT_CHUNK_BYTES: usize = 1 << 20;
/// The largest record: more chunks than a stream can have.
const RECORD_BYTES_MAX: u64 = 64 << 10;
/// The name of the record. No chunk has it.
const RECORD: &str = "record";

/// Whose output it is.
#[derive(Clone, Debug)]
pub struct OutputOf {
    pub conversation: ConversationId,
    pub generation: GenerationId,
    pub execution: ExecutionId,
}

/// The two streams of an output that was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptOutput {
    pub stdout: KeptStream,
    pub stderr: KeptStream,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptStream {
    /// How many bytes were written. The chunks have fewer if that was too much to keep.
    pub total: u64,
    /// All but the last have [`OUTPUT_CHUNK_BYTES`].
    pub chunks: Vec<KeptChunk>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptChunk {
    hash: ContentHash,
    pub size: u64,
}

impl KeptStream {
    /// How many bytes the chunks have.
    pub fn kept(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.size).sum()
    }
}

impl Checkpoints {
    /// Stores a chunk. Durable when it returns.
    pub async fn keep_chunk(&self, of: &OutputOf, content: Bytes) -> Result<KeptChunk, CheckpointError> {
        let chunk = KeptChunk { hash: ContentHash::of(&content), size: content.len() as u64 };
        let packed = blocking(move || pack(&content)).await?;
        let area = self.area(&of.conversation);
        area.put(&area.output(of, &chunk.hash.to_string()), packed).await?;
        Ok(chunk)
    }

    /// Stores the record. From then on the output is kept.
    pub async fn keep_output(&self, of: &OutputOf, output: &KeptOutput) -> Result<(), CheckpointError> {
        let json =
            serde_json::to_vec(output).expect("a record has text keys only: it can be written as JSON");
        let area = self.area(&of.conversation);
        area.put(&area.output(of, RECORD), json.into()).await
    }

    pub async fn kept_output(&self, of: &OutputOf) -> Result<Option<KeptOutput>, CheckpointError> {
        let area = self.area(&of.conversation);
        let Some(json) = area.get(&area.output(of, RECORD), RECORD_BYTES_MAX).await? else { return Ok(None) };
        let damaged =
            |error| CheckpointError::Damaged(format!("the record of an output cannot be read: {error}"));
        serde_json::from_slice(&json).map(Some).map_err(damaged)
    }

    /// The content of a chunk, verified.
    pub async fn read_chunk(&self, of: &OutputOf, chunk: KeptChunk) -> Result<Bytes, CheckpointError> {
        let damaged = |why: &str| CheckpointError::Damaged(format!("a part of an output {why}"));
        let size = usize::try_from(chunk.size).ok().filter(|size| *size <= OUTPUT_CHUNK_BYTES);
        let size = size.ok_or_else(|| damaged("is too large"))?;
        let area = self.area(&of.conversation);
        let max = zstd::zstd_safe::compress_bound(size) as u64;
        let packed = area.get(&area.output(of, &chunk.hash.to_string()), max).await?;
        let packed = packed.ok_or_else(|| damaged("is missing"))?;
        blocking(move || unpack(&packed, chunk.hash, size)).await
    }

    /// How much is stored for the outputs of a generation.
    pub async fn output_bytes(
        &self,
        conversation: &ConversationId,
        generation: &GenerationId,
    ) -> Result<u64, CheckpointError> {
        let area = self.area(conversation);
        let sizes = area.list(&area.outputs(generation)).map_ok(|object| object.size);
        Ok(sizes.try_fold(0, async |sum: u64, size| Ok(sum.saturating_add(size))).await?)
    }

    /// Removes all outputs of a generation.
    pub async fn forget_outputs(
        &self,
        conversation: &ConversationId,
        generation: &GenerationId,
    ) -> Result<(), CheckpointError> {
        let area: Area = self.area(conversation);
        let mut steps =
            area.list(&area.outputs(generation)).map_ok(|object| object.location).try_chunks(STEP);
        while let Some(step) = steps.try_next().await.map_err(|error| error.1)? {
            area.delete(step).await?;
        }
        Ok(())
    }
}

/// Objects that are removed at once.
const STEP: usize = 1_000;
