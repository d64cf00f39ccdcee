//! Keeps the whole output of a tool that has ended, for the time after its sandbox.
//!
//! Most outputs are short text, and the log has all of it. Only what the log does not have is kept.

use bytes::BytesMut;
use outlast_core::{ConversationId, ToolStream};

use super::run::{Run, STREAMED_BYTES_MAX};
use crate::checkpoints::{
    CheckpointError, Checkpoints, KeptOutput, KeptStream, OUTPUT_CHUNK_BYTES, OutputOf,
};
use crate::sandbox::{Offsets, SandboxError};

/// How much of one stream is kept: as much as a program may write without other settings.
const STREAM_BYTES_MAX: u64 = 64 << 20;
/// How much is stored for all tools of a generation. An agent that prints more than that is not worth a full disk.
const GENERATION_BYTES_MAX: u64 = 256 << 20;

/// Where outputs are kept.
pub(super) struct Keeper {
    pub(super) checkpoints: Checkpoints,
    pub(super) conversation: ConversationId,
}

#[derive(Debug, thiserror::Error)]
enum NotKept {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl Run {
    /// A tool that ran is done, whether or not its output can be kept.
    pub(super) async fn keep_output(&self, written: Offsets) {
        if let Err(error) = self.try_to_keep(written).await {
            tracing::warn!(execution = ?self.execution, %error, "cannot keep the output of a tool");
        }
    }

    async fn try_to_keep(&self, written: Offsets) -> Result<(), NotKept> {
        if written.stdout + written.stderr < STREAMED_BYTES_MAX && self.is_text(written).await? {
            return Ok(()); // the log has it
        }
        let Keeper { checkpoints, conversation } = &self.keeper;
        let of = OutputOf {
            conversation: conversation.clone(),
            generation: self.generation.clone(),
            execution: self.execution.clone(),
        };
        if checkpoints.kept_output(&of).await?.is_some() {
            return Ok(()); // by a server that died before it could tell
        }
        let stored = checkpoints.output_bytes(conversation, &self.generation).await?;
        let room = GENERATION_BYTES_MAX.saturating_sub(stored);
        let stdout = self.keep_stream(&of, ToolStream::Stdout, written.stdout, room).await?;
        let room = room.saturating_sub(stdout.kept());
        let stderr = self.keep_stream(&of, ToolStream::Stderr, written.stderr, room).await?;
        checkpoints.keep_output(&of, &KeptOutput { stdout, stderr }).await?;
        Ok(())
    }

    /// Whether the text in the log is the output, to the byte.
    async fn is_text(&self, written: Offsets) -> Result<bool, SandboxError> {
        for (stream, size) in [(ToolStream::Stdout, written.stdout), (ToolStream::Stderr, written.stderr)] {
            let bytes = self.bytes(stream, 0, usize::try_from(size).unwrap_or(usize::MAX)).await?;
            if std::str::from_utf8(&bytes).is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn keep_stream(
        &self,
        of: &OutputOf,
        stream: ToolStream,
        total: u64,
        room: u64,
    ) -> Result<KeptStream, NotKept> {
        let mut kept = KeptStream { total, chunks: Vec::new() };
        let mut left = total.min(room).min(STREAM_BYTES_MAX);
        let mut offset = 0;
        while left > 0 {
            let max = usize::try_from(left).unwrap_or(usize::MAX).min(OUTPUT_CHUNK_BYTES);
            let mut chunk = BytesMut::with_capacity(max);
            while chunk.len() < max {
                let piece = self.bytes(stream, offset + chunk.len() as u64, max - chunk.len()).await?;
                if piece.is_empty() {
                    break;
                }
                chunk.extend_from_slice(&piece);
            }
            if chunk.is_empty() {
                kept.total = offset; // the program has cut its own output meanwhile
                break;
            }
            (offset, left) = (offset + chunk.len() as u64, left - chunk.len() as u64);
            kept.chunks.push(self.keeper.checkpoints.keep_chunk(of, chunk.freeze()).await?);
        }
        Ok(kept)
    }
}
