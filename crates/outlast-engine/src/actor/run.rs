//! Runs a tool call in the sandbox, or attaches to it, and reports what it writes and how it ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use outlast_core::{ExecutionId, GenerationId, Offsets, Output, Ran, Report, RunEnd, SandboxId, ToolStream};
use serde_json::Value;
use tokio::time::Instant;

use super::Actor;
use super::outputs::Keeper;
use super::sandboxes::Workshop;
use super::works::Teller;
use crate::clock::Clock;
use crate::sandbox::{self, Outcome, SandboxError, Sandboxes, Span, Started};
use crate::tools::{self, Call, Timeouts, Tool, collect};

/// A report carries at most this much of each stream.
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// This much of the output is streamed. All of it stays in the sandbox, and the result says where. What the log does not
/// have is kept for the time after the sandbox.
pub(crate) const STREAMED_BYTES_MAX: u64 = 256 * 1024;
/// How long to leave a sandbox alone that had a passing fault, ...
const FAULT_WAIT: Duration = Duration::from_millis(200);
/// ... and for how long the call is tried before it ends with that fault.
const FAULT_TIME_MAX: Duration = Duration::from_secs(5);

/// A tool call on its way.
pub(super) struct Run {
    sandboxes: Arc<dyn Sandboxes>,
    pub(super) keeper: Keeper,
    sandbox: SandboxId,
    clock: Clock,
    timeouts: Timeouts,
    pub(super) generation: GenerationId,
    pub(super) execution: ExecutionId,
    work: Work,
    /// How much of the output the log has.
    recorded: Offsets,
    /// Whether nobody can have started it before.
    is_first_start: bool,
}

/// What a call comes down to.
enum Work {
    Run(tools::Run),
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
        let work = match Tool::named(name).map(|tool| tool.call(input)) {
            Some(Ok(Call::Run(program))) => Work::Run(program),
            Some(Ok(Call::Stop(other))) => Work::Stop(other),
            Some(Err(why)) => Work::Nothing { why },
            None => Work::Nothing { why: format!("unknown tool {name:?}") },
        };
        let began_here = begun.began_seq > self.owned_after;
        Some(Run {
            sandboxes: workshop.sandboxes,
            keeper: Keeper { checkpoints: workshop.checkpoints, conversation: self.id.clone() },
            sandbox,
            clock: self.shared.clock,
            timeouts: Timeouts {
                default: workshop.tool_timeout,
                longest: self.shared.settings.tool_timeout_max,
            },
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
        let mut give_up_at = None;
        loop {
            match self.follow(&teller).await {
                Ok(end) => return teller.finish(self.report(Vec::new(), Some(end))).await,
                Err(error) => {
                    // After any other error it may have started.
                    self.is_first_start &= matches!(error, SandboxError::Gone(_) | SandboxError::Paused(_));
                    let until = *give_up_at.get_or_insert_with(|| Instant::now() + FAULT_TIME_MAX);
                    if let Some(end) = self.give_up(&error, until).await {
                        return teller.finish(end).await;
                    }
                    tracing::warn!(sandbox = ?self.sandbox, %error, "cannot run a tool; will retry");
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
            Work::Run(program) => {
                let started = self.start(program).await?;
                if program.background {
                    return self.in_background(started).await;
                }
            }
        }
        self.is_first_start = false;
        let mut seen = sandbox::Offsets::default();
        loop {
            let progress = self.sandboxes.wait(&self.sandbox, &self.execution, self.beyond(seen)).await?;
            seen = progress.written;
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
                    self.keep_output(progress.written).await;
                    let (is_error, exit_code) = (result.is_error, result.exit_code);
                    return Ok(RunEnd::Ended { result: Value::String(result.text), is_error, exit_code });
                }
            }
        }
    }

    /// Another server may have paused the sandbox and died before anybody was told. The time that the program may take
    /// counts from here, however long ago the call began. A program that was started before keeps its deadline.
    async fn start(&self, program: &tools::Run) -> Result<Started, SandboxError> {
        let now = jiff::Timestamp::from_millisecond(self.clock.now().0).unwrap_or_default();
        let execution = program.execution(self.execution.clone(), now, self.timeouts);
        match self.sandboxes.start(&self.sandbox, &execution).await {
            Err(SandboxError::Paused(_)) => {
                self.sandboxes.resume(&self.sandbox).await?;
                self.sandboxes.start(&self.sandbox, &execution).await
            }
            started => started,
        }
    }

    /// A program in the background is left alone. One that an earlier server started may be lost by now.
    async fn in_background(&self, started: Started) -> Result<RunEnd, SandboxError> {
        let id = &self.execution;
        if started == Started::Before && self.ended().await? == Some(Outcome::Lost) {
            return Ok(RunEnd::Lost);
        }
        Ok(told(format!("runs in the background as execution {id}"), false))
    }

    /// How the program has ended; `None` if it runs, because then nothing is said for a long time.
    async fn ended(&self) -> Result<Option<Outcome>, SandboxError> {
        let nothing_but_the_end = sandbox::Offsets { stdout: u64::MAX, stderr: u64::MAX };
        let wait = self.sandboxes.wait(&self.sandbox, &self.execution, nothing_but_the_end);
        match tokio::time::timeout(FAULT_WAIT, wait).await {
            Ok(progress) => Ok(progress?.outcome),
            Err(_) => Ok(None),
        }
    }

    /// What to report instead of trying again.
    async fn give_up(&self, error: &SandboxError, until: Instant) -> Option<Report> {
        match error {
            SandboxError::Gone(_) => {
                let not_started = self.is_first_start.then(|| self.execution.clone()).into_iter().collect();
                Some(Report::SandboxGone { sandbox: self.sandbox.clone(), not_started })
            }
            SandboxError::Refused(why) | SandboxError::Unavailable(why) => {
                Some(self.report(Vec::new(), Some(told(why.clone(), true))))
            }
            SandboxError::Unknown(_) | SandboxError::Paused(_) | SandboxError::Io { .. } => {
                if Instant::now() < until {
                    return None;
                }
                let end = match self.never_began().await {
                    true => told(format!("not run: {}", with_causes(error)), true),
                    false => RunEnd::Lost,
                };
                Some(self.report(Vec::new(), Some(end)))
            }
        }
    }

    /// Whether the program certainly did not begin. From then on it never will.
    async fn never_began(&self) -> bool {
        let unknown = matches!(self.ended().await, Err(SandboxError::Unknown(_)));
        unknown && self.sandboxes.stop(&self.sandbox, &self.execution).await.is_ok()
    }

    /// How much output is nothing new: half a character that was seen waits for the rest, however long that takes.
    fn beyond(&self, seen: sandbox::Offsets) -> sandbox::Offsets {
        match self.may_stream() {
            true => sandbox::Offsets {
                stdout: self.recorded.stdout.max(seen.stdout),
                stderr: self.recorded.stderr.max(seen.stderr),
            },
            false => sandbox::Offsets { stdout: u64::MAX, stderr: u64::MAX },
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

    pub(super) async fn bytes(
        &self,
        stream: ToolStream,
        offset: u64,
        max: usize,
    ) -> Result<Bytes, SandboxError> {
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

/// An error with what caused it, for the model: it may have used up the processes that it is allowed to have.
fn with_causes(error: &SandboxError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
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
                std::str::from_utf8(&bytes[*place..])
                    .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
            });
            cut.unwrap_or(bytes.len())
        }
    }
}
