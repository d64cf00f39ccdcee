//! The whole output of a tool call: from its sandbox while that exists, then from where it was kept, or from the log.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use outlast_core::{
    Event, ExecutionId, GenerationDocument, GenerationId, Outcome, SandboxId, Seq, ToolStream, UserId, decode,
};

use crate::actor::STREAMED_BYTES_MAX;
use crate::checkpoints::{Checkpoints, KeptStream, OUTPUT_CHUNK_BYTES, OutputOf};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::files::unreadable;
use crate::sandbox::{Output, SandboxError, Sandboxes, Span};

/// How much of a log is read at once to find a tool call.
const READ_BYTES: usize = 256 * 1024;
/// A piece of a tool's output.
const PIECE_BYTES: usize = 256 * 1024;
/// How much of a tool's output one response has, so that a program that writes without end cannot keep one open.
const OUTPUT_BYTES_MAX: u64 = 64 << 20;

/// Which output to read.
#[derive(Clone, Copy, Debug)]
pub struct ToolCall<'a> {
    pub tool_use_id: &'a str,
    pub stream: ToolStream,
    /// The first byte.
    pub offset: u64,
}

impl Engine {
    /// A tool call's output from a position on, as far as it was written.
    pub async fn tool_output(
        &self,
        user: &UserId,
        id: &GenerationId,
        call: &ToolCall<'_>,
    ) -> Result<ToolOutput, EngineError> {
        let (generation, _) = self.generation_now(user, id).await?;
        let logged = self.logged(&generation, call).await?.ok_or(EngineError::NotFound)?;
        let output =
            |source, first| Ok(ToolOutput { source, offset: call.offset, first, left: OUTPUT_BYTES_MAX });
        if let Ok(workshop) = &self.shared.workshop {
            let sandbox = generation.sandbox_id.as_deref().map(SandboxId::from);
            if let Some(sandbox) = sandbox {
                let sandboxes = workshop.sandboxes.clone();
                let stream = match call.stream {
                    ToolStream::Stdout => Output::Stdout,
                    ToolStream::Stderr => Output::Stderr,
                };
                let source =
                    Source::Sandbox { sandboxes, sandbox, execution: logged.execution.clone(), stream };
                // Read before anything is answered, so that what is gone is an error and not a broken stream.
                match source.read(call.offset).await {
                    Err(EngineError::Gone(_)) => {}
                    first => return output(source, Some(first?)),
                }
            }
            let of = OutputOf {
                conversation: generation.conversation_id.clone(),
                generation: generation.id.clone(),
                execution: logged.execution.clone(),
            };
            if let Some(kept) = workshop.checkpoints.kept_output(&of).await.map_err(unreadable)? {
                let stream = match call.stream {
                    ToolStream::Stdout => kept.stdout,
                    ToolStream::Stderr => kept.stderr,
                };
                let source = Source::Kept { checkpoints: workshop.checkpoints.clone(), of, stream };
                let first = source.read(call.offset).await?;
                return output(source, Some(first));
            }
        }
        match logged.is_whole {
            true => output(Source::Log(logged.output), None),
            false => Err(gone(
                "the sandbox of this tool call is gone; what the log has of its output is all that is left",
            )),
        }
    }

    /// What the log has of a call's last execution; nothing if it never began.
    async fn logged(
        &self,
        generation: &GenerationDocument,
        call: &ToolCall<'_>,
    ) -> Result<Option<Logged>, EngineError> {
        let mut found: Option<Logging> = None;
        let mut after = Seq(generation.first_seq.0.saturating_sub(1));
        while after < generation.last_seq {
            let records = self.shared.store.read(&generation.conversation_id, after, READ_BYTES).await?;
            let Some(last) = records.last().map(|record| record.seq) else { break };
            for record in &records {
                let entry = decode(&record.bytes).map_err(|error| EngineError::Broken(error.to_string()))?;
                if entry.generation.as_ref() == Some(&generation.id) {
                    Logging::add(&mut found, entry.event, call);
                }
            }
            after = last;
        }
        Ok(found.map(Logging::finish))
    }
}

/// The output of a tool call that is being read.
pub struct ToolOutput {
    source: Source,
    offset: u64,
    first: Option<Bytes>,
    left: u64,
}

enum Source {
    Sandbox { sandboxes: Arc<dyn Sandboxes>, sandbox: SandboxId, execution: ExecutionId, stream: Output },
    Kept { checkpoints: Checkpoints, of: OutputOf, stream: KeptStream },
    Log(Bytes),
}

impl ToolOutput {
    /// The next piece; nothing at the end of what was written so far.
    pub async fn next(&mut self) -> Result<Option<Bytes>, EngineError> {
        if self.left == 0 {
            return Ok(None);
        }
        let piece = match self.first.take() {
            Some(first) => first,
            None => self.source.read(self.offset).await?,
        };
        let length = (piece.len() as u64).min(self.left);
        self.left -= length;
        self.offset += length;
        Ok((length > 0).then(|| piece.slice(..usize::try_from(length).unwrap_or(piece.len()))))
    }
}

impl Source {
    /// A piece from this position on; empty at the end.
    async fn read(&self, offset: u64) -> Result<Bytes, EngineError> {
        match self {
            Source::Sandbox { sandboxes, sandbox, execution, stream } => {
                let (execution, output) = (execution.clone(), *stream);
                let span = Span { execution, output, offset, max: PIECE_BYTES };
                sandboxes.read(sandbox, &span).await.map_err(not_readable)
            }
            Source::Kept { checkpoints, of, stream } => {
                let (chunk, skip) = (offset / OUTPUT_CHUNK_BYTES as u64, offset % OUTPUT_CHUNK_BYTES as u64);
                let chunk = usize::try_from(chunk).ok().and_then(|place| stream.chunks.get(place));
                let kept = stream.kept();
                let Some(chunk) = chunk.filter(|_| offset < kept) else {
                    if offset < stream.total {
                        let (kept, total) = (kept, stream.total);
                        return Err(gone(&format!(
                            "the first {kept} of {total} bytes were kept when the sandbox was removed"
                        )));
                    }
                    return Ok(Bytes::new());
                };
                let content = checkpoints.read_chunk(of, *chunk).await.map_err(unreadable)?;
                Ok(content.slice(usize::try_from(skip).unwrap_or(usize::MAX).min(content.len())..))
            }
            Source::Log(output) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(output.len());
                Ok(output.slice(from..))
            }
        }
    }
}

/// What the log has of a call.
struct Logged {
    execution: ExecutionId,
    output: Bytes,
    /// Whether that is all of it, to the byte.
    is_whole: bool,
}

/// The same, while the log is being read.
struct Logging {
    execution: ExecutionId,
    output: BytesMut,
    /// Of both streams.
    bytes: u64,
    is_text: bool,
    ended: bool,
}

impl Logging {
    fn add(found: &mut Option<Logging>, event: Event, call: &ToolCall<'_>) {
        match (event, found) {
            (Event::ToolBegan { tool_use_id, execution_id, .. }, found)
                if tool_use_id == call.tool_use_id =>
            {
                let (output, execution) = (BytesMut::new(), execution_id);
                *found = Some(Logging { execution, output, bytes: 0, is_text: true, ended: false });
            }
            (Event::ToolOutput { tool_use_id, stream, text, bytes, .. }, Some(logging))
                if tool_use_id == call.tool_use_id =>
            {
                logging.is_text &= bytes.is_none();
                logging.bytes += bytes.unwrap_or(text.len() as u64);
                if stream == call.stream {
                    logging.output.extend_from_slice(text.as_bytes());
                }
            }
            (Event::ToolEnd { tool_use_id, outcome, .. }, Some(logging))
                if tool_use_id == call.tool_use_id =>
            {
                logging.ended = outcome != Some(Outcome::Unknown);
            }
            _ => {}
        }
    }

    fn finish(self) -> Logged {
        let is_whole = self.ended && self.is_text && self.bytes < STREAMED_BYTES_MAX;
        Logged { execution: self.execution, output: self.output.freeze(), is_whole }
    }
}

fn gone(why: &str) -> EngineError {
    EngineError::Gone(why.to_owned())
}

fn not_readable(error: SandboxError) -> EngineError {
    match error {
        SandboxError::Gone(_) | SandboxError::Unknown(_) => gone("the sandbox of this tool call is gone"),
        SandboxError::Unavailable(_)
        | SandboxError::Paused(_)
        | SandboxError::Refused(_)
        | SandboxError::Io { .. } => EngineError::Unavailable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn kept(folder: &std::path::Path, total: u64, parts: &[&'static [u8]]) -> Source {
        let checkpoints = Checkpoints::in_folder(folder).unwrap();
        let of = OutputOf { conversation: "conv".into(), generation: "gen".into(), execution: "exec".into() };
        let mut stream = KeptStream { total, chunks: Vec::new() };
        for part in parts {
            stream.chunks.push(checkpoints.keep_chunk(&of, Bytes::from_static(part)).await.unwrap());
        }
        Source::Kept { checkpoints, of, stream }
    }

    #[tokio::test]
    async fn an_output_that_was_too_large_to_keep_says_so_where_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let source = kept(folder.path(), 9, &[b"hello"]).await;
        assert_eq!(source.read(1).await.unwrap(), "ello");
        let cut = source.read(5).await.unwrap_err();
        assert!(matches!(&cut, EngineError::Gone(why) if why.contains("the first 5 of 9 bytes")), "{cut}");
        assert_eq!(source.read(9).await.unwrap(), "", "there is nothing more to be had");
    }

    #[tokio::test]
    async fn a_damaged_output_is_never_taken_for_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let source = kept(folder.path(), 5, &[b"hello"]).await;
        let stored = folder.path().join("conv/outputs/gen/exec");
        for entry in std::fs::read_dir(stored).unwrap() {
            let path = entry.unwrap().path();
            let mut bytes = std::fs::read(&path).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(path, bytes).unwrap();
        }
        assert!(matches!(source.read(0).await, Err(EngineError::Broken(_))));
    }

    #[test]
    fn the_log_has_the_whole_output_if_the_tool_ended_and_all_of_it_was_text() {
        let call = ToolCall { tool_use_id: "c", stream: ToolStream::Stdout, offset: 0 };
        let began = || Event::ToolBegan {
            tool_use_id: "c".into(),
            execution_id: "e".into(),
            read_only: false,
            place: outlast_core::Place::Sandbox,
            idempotent: false,
        };
        let wrote = |text: &str, bytes| Event::ToolOutput {
            tool_use_id: "c".into(),
            stream: ToolStream::Stdout,
            text: text.into(),
            offset: None,
            bytes,
        };
        let ended = |outcome| Event::ToolEnd {
            message_id: "m".into(),
            tool_use_id: "c".into(),
            result: serde_json::Value::Null,
            is_error: false,
            exit_code: None,
            outcome,
        };
        let is_whole = |events: Vec<Event>| {
            let mut found = None;
            events.into_iter().for_each(|event| Logging::add(&mut found, event, &call));
            let logged = found.map(Logging::finish).unwrap();
            (logged.is_whole, String::from_utf8(logged.output.to_vec()).unwrap())
        };
        let hello = || wrote("hello", None);
        assert_eq!(is_whole(vec![began(), hello(), ended(None)]), (true, "hello".to_owned()));
        assert!(!is_whole(vec![began(), hello()]).0, "it was cancelled, or runs");
        assert!(!is_whole(vec![began(), hello(), ended(Some(Outcome::Unknown))]).0);
        assert!(!is_whole(vec![began(), wrote("\u{fffd}", Some(1)), ended(None)]).0, "bytes were replaced");
        let long = "x".repeat(usize::try_from(STREAMED_BYTES_MAX).unwrap());
        assert!(!is_whole(vec![began(), wrote(&long, None), ended(None)]).0, "more may not be in the log");
        let again = vec![began(), hello(), began(), wrote("again", None), ended(None)];
        assert_eq!(is_whole(again), (true, "again".to_owned()), "only the last run counts");
    }
}
