//! The spans of a generation: its rounds, attempts, tools and waits, computed from its events. They hold ids, counts and
//! names from the settings, and nothing that anyone wrote.

use std::collections::BTreeMap;

use outlast_core::{Entry, Event, GenerationId, Outcome, Timestamp};
use sha2::{Digest, Sha256};

use crate::auth::hex;

/// The lengths that OpenTelemetry prescribes, in bytes.
const TRACE_ID: usize = 16;
const SPAN_ID: usize = 8;

pub(super) struct Trace {
    pub(super) id: String,
    pub(super) spans: Vec<Span>,
}

#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) id: String,
    pub(super) parent: Option<String>,
    pub(super) name: String,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    pub(super) failed: bool,
    pub(super) attributes: Vec<(&'static str, Attribute)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Attribute {
    Text(String),
    Number(u64),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Attribute {
        Attribute::Text(text.to_owned())
    }
}

impl From<u64> for Attribute {
    fn from(number: u64) -> Attribute {
        Attribute::Number(number)
    }
}

impl Trace {
    /// `None` if the events do not begin with the beginning, because retention has removed it.
    pub(super) fn of(generation: &GenerationId, entries: &[Entry]) -> Option<Trace> {
        let first = entries.iter().find(|entry| matches!(entry.event, Event::GenerationQueued { .. }))?;
        let mut tracing = Tracing::new(generation, first.ts);
        for entry in entries {
            tracing.take(entry);
        }
        Some(Trace { id: derived(&[generation.as_str()], TRACE_ID), spans: tracing.finish() })
    }
}

/// Ids follow from what they name, so a trace that is sent twice is the same trace.
fn derived(parts: &[&str], bytes: usize) -> String {
    hex(&Sha256::digest(parts.join("\n")))[..2 * bytes].to_owned()
}

/// Spans under construction.
struct Tracing<'a> {
    generation: &'a GenerationId,
    root: Span,
    round: Option<Span>,
    attempt: Option<Span>,
    /// The names of the tools that were asked for, and those that run, by call.
    asked: BTreeMap<String, String>,
    tools: BTreeMap<String, Span>,
    waits: BTreeMap<String, Span>,
    finished: Vec<Span>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    rounds: u64,
    attempts: u64,
    tools: u64,
    input_tokens: u64,
    output_tokens: u64,
}

impl<'a> Tracing<'a> {
    fn new(generation: &'a GenerationId, start: Timestamp) -> Tracing<'a> {
        let mut root = Span::open(generation, "generation", None, start);
        root.note("outlast.generation.id", generation.as_str());
        Tracing {
            generation,
            root,
            round: None,
            attempt: None,
            asked: BTreeMap::new(),
            tools: BTreeMap::new(),
            waits: BTreeMap::new(),
            finished: Vec::new(),
            counts: Counts::default(),
        }
    }

    fn take(&mut self, entry: &Entry) {
        let at = entry.ts;
        match &entry.event {
            Event::GenerationQueued { brief, .. } if !brief.is_for_worker() => {
                self.root.note("gen_ai.request.model", brief.model.as_str());
            }
            Event::ChatStarted { attempt, round, .. } => self.begin_attempt(*attempt, *round, at),
            Event::RoundEnded { .. } => self.end_attempt(at, false),
            Event::AttemptRetracted { .. } | Event::RetryScheduled { .. } | Event::ChatInterrupted { .. } => {
                self.end_attempt(at, true);
            }
            Event::ToolStart { tool_use_id, tool_name, .. } => {
                self.asked.insert(tool_use_id.clone(), tool_name.clone());
            }
            Event::ToolBegan { tool_use_id, execution_id, .. } => {
                let name = self.asked.get(tool_use_id).map_or("", String::as_str);
                let mut span = self.child(&format!("tool {name}"), execution_id.as_str(), at);
                span.note("outlast.execution.id", execution_id.as_str());
                span.note("gen_ai.tool.name", name);
                self.counts.tools += 1;
                self.tools.insert(tool_use_id.clone(), span);
            }
            Event::ToolEnd { tool_use_id, is_error, outcome, .. } => {
                if let Some(mut span) = self.tools.remove(tool_use_id) {
                    if *outcome == Some(Outcome::Unknown) {
                        span.note("error.type", "outcome_unknown");
                    }
                    self.finished.push(span.closed(at, *is_error));
                }
            }
            Event::ApprovalRequested { tool_use_id, .. } => {
                let span = self.child("approval", &format!("approval {}", entry.seq), at);
                self.waits.insert(tool_use_id.clone(), span);
            }
            Event::ApprovalResolved { tool_use_id, .. } => {
                self.finished.extend(self.waits.remove(tool_use_id).map(|span| span.closed(at, false)));
            }
            Event::Usage { input_tokens, output_tokens } => self.use_tokens(*input_tokens, *output_tokens),
            Event::ChatDone { .. } => self.end(at, "completed", None),
            Event::ChatError { code, .. } => self.end(at, "error", Some(code)),
            Event::ChatCancelled { .. } => self.end(at, "cancelled", None),
            _ => {} // what was said, and what happens to the sandbox
        }
    }

    fn begin_attempt(&mut self, attempt: u32, round: u32, at: Timestamp) {
        self.end_attempt(at, true); // it was lost with the server that made it
        let number = u64::from(round);
        if round > 0 && self.counts.rounds != number {
            self.end_round(at);
            let mut span = Span::open(self.generation, &format!("round {round}"), Some(&self.root.id), at);
            span.note("outlast.round", number);
            self.round = Some(span);
            self.counts.rounds = number;
        }
        let mut span = self.child("attempt", &format!("attempt {attempt} {round}"), at);
        span.note("outlast.attempt", u64::from(attempt));
        self.attempt = Some(span);
        self.counts.attempts += 1;
    }

    fn end_attempt(&mut self, at: Timestamp, failed: bool) {
        self.finished.extend(self.attempt.take().map(|span| span.closed(at, failed)));
    }

    fn end_round(&mut self, at: Timestamp) {
        self.finished.extend(self.round.take().map(|span| span.closed(at, false)));
    }

    fn use_tokens(&mut self, input: u64, output: u64) {
        self.counts.input_tokens = self.counts.input_tokens.saturating_add(input);
        self.counts.output_tokens = self.counts.output_tokens.saturating_add(output);
        if let Some(attempt) = &mut self.attempt {
            attempt.note("gen_ai.usage.input_tokens", input);
            attempt.note("gen_ai.usage.output_tokens", output);
        }
    }

    fn end(&mut self, at: Timestamp, status: &'static str, code: Option<&str>) {
        self.end_attempt(at, code.is_some());
        for span in std::mem::take(&mut self.tools).into_values() {
            self.finished.push(span.closed(at, true));
        }
        for span in std::mem::take(&mut self.waits).into_values() {
            self.finished.push(span.closed(at, false));
        }
        self.end_round(at);
        self.root.note("outlast.generation.status", status);
        if let Some(code) = code {
            self.root.note("error.type", code);
        }
        (self.root.end, self.root.failed) = (at, code.is_some());
    }

    fn finish(mut self) -> Vec<Span> {
        let Counts { rounds, attempts, tools, input_tokens, output_tokens } = self.counts;
        for (name, count) in [
            ("outlast.rounds", rounds),
            ("outlast.attempts", attempts),
            ("outlast.tools", tools),
            ("gen_ai.usage.input_tokens", input_tokens),
            ("gen_ai.usage.output_tokens", output_tokens),
        ] {
            self.root.note(name, count);
        }
        self.finished.insert(0, self.root);
        self.finished
    }

    /// A span inside of the current round, or of the generation if it has none. Its id follows from `unique`.
    fn child(&self, name: &str, unique: &str, at: Timestamp) -> Span {
        let parent = self.round.as_ref().unwrap_or(&self.root);
        let id = derived(&[self.generation.as_str(), unique], SPAN_ID);
        Span { id, name: name.to_owned(), ..Span::open(self.generation, "", Some(&parent.id), at) }
    }
}

impl Span {
    fn open(generation: &GenerationId, name: &str, parent: Option<&str>, start: Timestamp) -> Span {
        Span {
            id: derived(&[generation.as_str(), name], SPAN_ID),
            parent: parent.map(str::to_owned),
            name: name.to_owned(),
            start,
            end: start,
            failed: false,
            attributes: Vec::new(),
        }
    }

    fn note(&mut self, name: &'static str, value: impl Into<Attribute>) {
        self.attributes.push((name, value.into()));
    }

    fn closed(self, end: Timestamp, failed: bool) -> Span {
        Span { end, failed, ..self }
    }
}

#[cfg(test)]
mod tests;
