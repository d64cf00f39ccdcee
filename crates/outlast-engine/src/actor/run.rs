//! Runs a tool call in the sandbox, or attaches to it, and reports what it writes and how it ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use outlast_core::{
    ExecutionId, GenerationId, Offsets, Output, Ran, Report, RunEnd, SandboxId, ToolStream,
};
use serde_json::Value;

use super::works::Teller;
use crate::sandbox::{self, Execution, Outcome, SandboxError, Sandboxes, Span};
use crate::tools::{self, Captured};

/// A report carries at most this much of each stream.
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// This much of the output is streamed. All of it stays in the sandbox, and the result says where.
const STREAMED_BYTES_MAX: u64 = 256 * 1024;
/// How long to leave a sandbox alone that had a passing fault, ...
const FAULT_WAIT: Duration = Duration::from_millis(200);
/// ... and how often before the call ends with that fault.
const FAULTS_MAX: u32 = 25;

/// A tool call on its way.
pub(super) struct Run {
    pub(super) sandboxes: Arc<dyn Sandboxes>,
    pub(super) sandbox: SandboxId,
    pub(super) generation: GenerationId,
    pub(super) execution: Execution,
    /// How much of the output the log has.
    pub(super) recorded: Offsets,
    /// Whether nobody can have started it before.
    pub(super) is_first_start: bool,
}

impl Run {
    /// Reports output until the end.
    pub(super) async fn carry_out(mut self, teller: Teller) {
        let mut faults = 0;
        loop {
            match self.follow(&teller).await {
                Ok(end) => return teller.finish(end).await,
                Err(error) => {
                    if let Some(end) = self.give_up(&error, faults) {
                        return teller.finish(end).await;
                    }
                    tracing::warn!(sandbox = ?self.sandbox, %error, "trying again to run a tool");
                    faults += 1;
                    tokio::time::sleep(FAULT_WAIT).await;
                }
            }
        }
    }

    async fn follow(&mut self, teller: &Teller) -> Result<Report, SandboxError> {
        self.start().await?;
        self.is_first_start = false;
        loop {
            let beyond = match self.may_stream() {
                true => sandbox::Offsets { stdout: self.recorded.stdout, stderr: self.recorded.stderr },
                false => sandbox::Offsets { stdout: u64::MAX, stderr: u64::MAX },
            };
            let progress = self.sandboxes.wait(&self.sandbox, &self.execution.id, beyond).await?;
            let ended = progress.outcome.is_some();
            loop {
                let output = self.read(ended).await?;
                if output.is_empty() {
                    break;
                }
                teller.tell(self.report(output, None)).await;
            }
            if let Some(outcome) = progress.outcome {
                let end = self.end(outcome).await?;
                return Ok(self.report(Vec::new(), Some(end)));
            }
        }
    }

    /// Another server may have paused the sandbox and died before anybody was told.
    async fn start(&self) -> Result<(), SandboxError> {
        match self.sandboxes.start(&self.sandbox, &self.execution).await {
            Err(SandboxError::Paused(_)) => {
                self.sandboxes.resume(&self.sandbox).await?;
                self.sandboxes.start(&self.sandbox, &self.execution).await.map(|_| ())
            }
            started => started.map(|_| ()),
        }
    }

    fn may_stream(&self) -> bool {
        self.recorded.stdout + self.recorded.stderr < STREAMED_BYTES_MAX
    }

    /// The next piece of each stream. What may be half a character waits for the rest, unless there is none.
    async fn read(&mut self, ended: bool) -> Result<Vec<Output>, SandboxError> {
        let mut pieces = Vec::new();
        for stream in [ToolStream::Stdout, ToolStream::Stderr] {
            if !self.may_stream() {
                break;
            }
            let offset = self.recorded.of(stream);
            let bytes = self.bytes(stream, offset, PIECE_BYTES_MAX).await?;
            let whole = if ended && bytes.len() < PIECE_BYTES_MAX { bytes.len() } else { whole(&bytes) };
            if whole == 0 {
                continue;
            }
            let text = String::from_utf8_lossy(&bytes[..whole]).into_owned();
            let bytes = whole as u64;
            pieces.push(Output { stream, offset, bytes, text });
            match stream {
                ToolStream::Stdout => self.recorded.stdout += bytes,
                ToolStream::Stderr => self.recorded.stderr += bytes,
            }
        }
        Ok(pieces)
    }

    async fn bytes(&self, stream: ToolStream, offset: u64, max: usize) -> Result<Bytes, SandboxError> {
        let output = match stream {
            ToolStream::Stdout => sandbox::Output::Stdout,
            ToolStream::Stderr => sandbox::Output::Stderr,
        };
        let execution = self.execution.id.clone();
        self.sandboxes.read(&self.sandbox, &Span { execution, output, offset, max }).await
    }

    fn report(&self, output: Vec<Output>, end: Option<RunEnd>) -> Report {
        let (generation, execution) = (self.generation.clone(), self.execution.id.clone());
        Report::Ran(Ran { generation, execution, output, end })
    }
}

/// How many of the bytes are whole characters, or no characters at all.
fn whole(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(_) => bytes.len(),
        // The last one is cut if only its beginning is there.
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Err(_) => {
            let tail = bytes.len().saturating_sub(3);
            let cut = (tail..bytes.len()).find(|place| {
                std::str::from_utf8(&bytes[*place..]).is_err_and(|error| {
                    error.valid_up_to() == 0 && error.error_len().is_none()
                })
            });
            cut.unwrap_or(bytes.len())
        }
    }
}
