//! Runs a tool call in the sandbox, or attaches to it, and reports what it writes and how it ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use outlast_core::{ExecutionId, GenerationId, Offsets, Output, Ran, Report, RunEnd, SandboxId, ToolStream};
use serde_json::Value;

use super::Actor;
use super::sandboxes::Workshop;
use super::works::Teller;
use crate::sandbox::{self, Execution, Outcome, SandboxError, Sandboxes, Span};
use crate::tools::{Call, Tool, collect};

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
    sandboxes: Arc<dyn Sandboxes>,
    sandbox: SandboxId,
    generation: GenerationId,
    execution: ExecutionId,
    work: Work,
    /// How much of the output the log has.
    recorded: Offsets,
    /// Whether nobody can have started it before.
    is_first_start: bool,
}

/// What a call comes down to.
enum Work {
    Run {
        program: Execution,
        background: bool,
    },
    /// End a program that runs in the background.
    Stop(ExecutionId),
    /// The arguments make no sense. The model is told.
    Nothing {
        why: String,
    },
}

impl Actor {
    /// A call that should be running, made from what was recorded: a restarted server makes the same.
    pub(super) fn prepare(
        &mut self,
        workshop: Workshop,
        sandbox: SandboxId,
        generation: &GenerationId,
        execution: &ExecutionId,
    ) -> Option<Run> {
        let run = self.state.as_ref()?.generation(generation)?;
        let begun = run.execution(execution)?;
        let (name, input) = run.call(&begun.tool_use_id)?;
        let began_at = jiff::Timestamp::from_millisecond(begun.began_at.0).unwrap_or_default();
        let work = match Tool::named(name).map(|tool| tool.call(input)) {
            Some(Ok(Call::Run(run))) => Work::Run {
                program: run.execution(execution.clone(), began_at, workshop.tool_timeout),
                background: run.background,
            },
            Some(Ok(Call::Stop(other))) => Work::Stop(other),
            Some(Err(why)) => Work::Nothing { why },
            None => Work::Nothing { why: format!("there is no tool {name:?}") },
        };
        let began_here = begun.began_seq > self.owned_after;
        Some(Run {
            sandboxes: workshop.sandboxes,
            sandbox,
            generation: generation.clone(),
            execution: execution.clone(),
            work,
            recorded: begun.offsets,
            is_first_start: began_here && self.tried.insert(execution.clone()),
        })
    }
}

impl Run {
    /// Reports output until the end.
    pub(super) async fn carry_out(mut self, teller: Teller) {
        let mut faults = 0;
        loop {
            match self.follow(&teller).await {
                Ok(end) => return teller.finish(self.report(Vec::new(), Some(end))).await,
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

    async fn follow(&mut self, teller: &Teller) -> Result<RunEnd, SandboxError> {
        match &self.work {
            Work::Nothing { why } => return Ok(told(why.clone(), true)),
            Work::Stop(other) => {
                self.sandboxes.stop(&self.sandbox, other).await?;
                return Ok(told(format!("execution {other} was ended"), false));
            }
            Work::Run { program, background } => {
                self.start(program).await?;
                if *background {
                    let id = &self.execution;
                    return Ok(told(format!("runs in the background as execution {id}"), false));
                }
            }
        }
        self.is_first_start = false;
        loop {
            let beyond = match self.may_stream() {
                true => sandbox::Offsets { stdout: self.recorded.stdout, stderr: self.recorded.stderr },
                false => sandbox::Offsets { stdout: u64::MAX, stderr: u64::MAX },
            };
            let progress = self.sandboxes.wait(&self.sandbox, &self.execution, beyond).await?;
            loop {
                let output = self.read(progress.outcome.is_some()).await?;
                if output.is_empty() {
                    break;
                }
                teller.tell(self.report(output, None)).await;
            }
            match progress.outcome {
                None => {}
                Some(Outcome::Lost) => return Ok(RunEnd::Lost),
                Some(outcome) => {
                    let ended = (outcome, progress.written);
                    let result = collect(&*self.sandboxes, &self.sandbox, &self.execution, ended).await?;
                    let (is_error, exit_code) = (result.is_error, result.exit_code);
                    return Ok(RunEnd::Ended { result: Value::String(result.text), is_error, exit_code });
                }
            }
        }
    }

    /// Another server may have paused the sandbox and died before anybody was told.
    async fn start(&self, program: &Execution) -> Result<(), SandboxError> {
        match self.sandboxes.start(&self.sandbox, program).await {
            Err(SandboxError::Paused(_)) => {
                self.sandboxes.resume(&self.sandbox).await?;
                self.sandboxes.start(&self.sandbox, program).await.map(|_| ())
            }
            started => started.map(|_| ()),
        }
    }

    /// What to report instead of trying again.
    fn give_up(&self, error: &SandboxError, faults: u32) -> Option<Report> {
        match error {
            SandboxError::Gone(_) => {
                let not_started = self.is_first_start.then(|| self.execution.clone()).into_iter().collect();
                Some(Report::SandboxGone { sandbox: self.sandbox.clone(), not_started })
            }
            SandboxError::Refused(why) | SandboxError::Unavailable(why) => {
                Some(self.report(Vec::new(), Some(told(why.clone(), true))))
            }
            SandboxError::Unknown(_) | SandboxError::Paused(_) | SandboxError::Io { .. } => {
                (faults >= FAULTS_MAX).then(|| self.report(Vec::new(), Some(RunEnd::Lost)))
            }
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
        let execution = self.execution.clone();
        self.sandboxes.read(&self.sandbox, &Span { execution, output, offset, max }).await
    }

    fn report(&self, output: Vec<Output>, end: Option<RunEnd>) -> Report {
        let (generation, execution) = (self.generation.clone(), self.execution.clone());
        Report::Ran(Ran { generation, execution, output, end })
    }
}

fn told(text: String, is_error: bool) -> RunEnd {
    RunEnd::Ended { result: Value::String(text), is_error, exit_code: None }
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
                std::str::from_utf8(&bytes[*place..])
                    .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
            });
            cut.unwrap_or(bytes.len())
        }
    }
}
