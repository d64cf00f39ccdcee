//! Sends a call to a tool elsewhere and reports its response. Whether the request may be repeated is recorded with
//! the call.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Effect, ExecutionId, GenerationId, Output, Ran, Report, RunEnd, ToolStream};
use serde_json::Value;
use tokio::sync::mpsc;

use super::Actor;
use super::works::Teller;
use crate::tools::{Answer, Asked, ToolElsewhere};

/// How often a call is sent, if it may be sent again, ...
const TRIES: u32 = 3;
/// ... and how long the other side is left alone after the first try. It doubles with each one.
const TRY_WAIT: Duration = Duration::from_millis(500);
/// Lines about the progress of a call that may wait for the owner.
const PROGRESS_LINES: usize = 16;
/// The longest line about the progress of a call.
const PROGRESS_BYTES_MAX: usize = 4 * 1024;

/// A call on its way to a tool elsewhere, made from what was recorded: a restarted server makes the same.
struct Asking {
    tool: Option<Arc<dyn ToolElsewhere>>,
    name: String,
    input: Value,
    generation: GenerationId,
    execution: ExecutionId,
    /// Whether it may be asked again under the same execution id.
    repeatable: bool,
    /// Whether this owner asked before and nobody waited for the answer.
    is_repeated: bool,
    /// How much of its progress the log has, in bytes.
    recorded: u64,
}

impl Actor {
    pub(super) fn ask_tool(&mut self, generation: &GenerationId, execution: &ExecutionId, effect: Effect) {
        let Some(run) = self.state.as_ref().and_then(|state| state.generation(generation)) else { return };
        let Some(begun) = run.execution(execution) else { return };
        let Some((name, input)) = run.call(&begun.tool_use_id) else { return };
        let asking = Asking {
            tool: self.shared.settings.toolbox.elsewhere(name),
            name: name.to_owned(),
            input: input.clone(),
            generation: generation.clone(),
            execution: execution.clone(),
            repeatable: begun.repeatable,
            is_repeated: !self.tried.insert(execution.clone()),
            recorded: begun.offsets.stdout,
        };
        let shared = self.shared.clone();
        self.works.start(&shared, effect, |teller| asking.carry_out(teller));
    }
}

impl Asking {
    async fn carry_out(self, teller: Teller) {
        let end = match self.tool.clone() {
            None => failed(format!("unknown tool {:?}", self.name)),
            Some(_) if self.is_repeated && !self.repeatable => RunEnd::Lost,
            Some(tool) => self.follow(&*tool, &teller).await,
        };
        let ran = self.report(Vec::new(), Some(end));
        teller.finish(ran).await;
    }

    /// Asks, and reports what the tool says about its progress meanwhile.
    async fn follow(&self, tool: &dyn ToolElsewhere, teller: &Teller) -> RunEnd {
        let (progress, mut lines) = mpsc::channel(PROGRESS_LINES);
        let mut recorded = self.recorded;
        let asking = self.ask(tool, &progress);
        tokio::pin!(asking);
        loop {
            let line = tokio::select! {
                end = &mut asking => return end,
                Some(line) = lines.recv() => line,
            };
            let text = format!("{}\n", cut(&line));
            let bytes = text.len() as u64;
            let output = Output { stream: ToolStream::Stdout, offset: recorded, bytes, text };
            recorded += bytes;
            teller.tell(self.report(vec![output], None)).await;
        }
    }

    fn report(&self, output: Vec<Output>, end: Option<RunEnd>) -> Report {
        let (generation, execution) = (self.generation.clone(), self.execution.clone());
        Report::Ran(Ran { generation, execution, output, end })
    }

    async fn ask(&self, tool: &dyn ToolElsewhere, progress: &mpsc::Sender<String>) -> RunEnd {
        let mut wait = TRY_WAIT;
        for again in (0..TRIES).rev() {
            let (execution, input) = (&self.execution, &self.input);
            match tool.ask(Asked { execution, input, progress }).await {
                Answer::Said { result, is_error } => {
                    return RunEnd::Ended { result, is_error, exit_code: None };
                }
                Answer::Unanswered(why) if !self.repeatable => {
                    tracing::warn!(tool = self.name, why, "a tool did not respond; its outcome is unknown");
                    return RunEnd::Lost;
                }
                Answer::NotAsked(why) | Answer::Unanswered(why) if again == 0 => {
                    return failed(format!("the tool did not respond: {why}"));
                }
                Answer::NotAsked(_) | Answer::Unanswered(_) => tokio::time::sleep(wait).await,
            }
            wait *= 2;
        }
        failed("the tool did not respond".to_owned())
    }
}

fn failed(text: String) -> RunEnd {
    RunEnd::Ended { result: Value::String(text), is_error: true, exit_code: None }
}

/// One line that fits into an event.
fn cut(line: &str) -> String {
    let fits = (0..=PROGRESS_BYTES_MAX.min(line.len())).rev().find(|end| line.is_char_boundary(*end));
    line[..fits.unwrap_or(0)].replace(['\n', '\r'], " ")
}
