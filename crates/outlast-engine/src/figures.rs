//! What operators want to know about a running server, as counters, gauges and histograms.
//!
//! Most are counted where events are recorded, so each is counted once and only if it is durable. A label has a fixed
//! set of values; ids and names of users are never labels. Counting takes no lock and no memory for pieces of text,
//! which are most events.

use std::time::Instant;

use outlast_core::{CallEnd, Conversation, Decision, Entry, Event, Outcome, Report};
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, exponential_buckets,
};

/// From a tenth of a millisecond to about three seconds.
const BUCKETS: (f64, f64, usize) = (0.000_1, 2.0, 16);

/// How a generation can end.
const ENDS: [&str; 3] = ["completed", "error", "cancelled"];

/// Counted since the server started.
pub struct Figures {
    registry: Registry,
    append_seconds: Histogram,
    appends_waiting: IntGauge,
    pub(crate) followers: IntGauge,
    pub(crate) live: IntGauge,
    pub(crate) owners: IntGauge,
    generations_started: IntCounter,
    generations_ended: IntCounterVec,
    attempts: IntCounterVec,
    tools: IntCounterVec,
    approvals_requested: IntCounter,
    approvals_decided: IntCounterVec,
    interruptions: IntCounter,
    resumes: IntCounterVec,
    resumed_ended: IntCounterVec,
    pub(crate) takeovers: IntCounter,
    tokens: IntCounterVec,
}

/// Interruptions and resumes, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumes {
    pub interruptions: u64,
    /// Answers that a person or the server took up again.
    pub resumes: u64,
    /// Those of them that were completed.
    pub completed: u64,
    /// Those of them that failed.
    pub failed: u64,
}

impl Default for Figures {
    fn default() -> Figures {
        let registry = Registry::new();
        let of = Kept(&registry);
        Figures {
            append_seconds: of.histogram("append_seconds", "Time from handing events to the store until they are durable."),
            appends_waiting: of.gauge("appends_waiting", "Appends that the store has not confirmed yet."),
            followers: of.gauge("followers", "Streams of events that clients follow."),
            live: of.gauge("generations_live", "Generations that this server runs or has queued."),
            owners: of.gauge("owners", "Conversations that have a task in this server."),
            generations_started: of.counter("generations_started_total", "Generations that were accepted."),
            generations_ended: of.counters(
                named("generations_ended_total", "Generations that ended."),
                ("outcome", &ENDS),
            ),
            attempts: of.counters(
                named("attempts_total", "Calls to models that ended, by how."),
                ("outcome", &["answered", "lost"]),
            ),
            tools: of.counters(
                named("tools_total", "Tool calls that ended, by how."),
                ("outcome", &["ok", "error", "unknown", "denied"]),
            ),
            approvals_requested: of.counter("approvals_requested_total", "Tool calls that a person was asked about."),
            approvals_decided: of.counters(
                named("approvals_decided_total", "Tool calls that a person decided about."),
                ("decision", &["approve", "deny"]),
            ),
            interruptions: of.counter("interruptions_total", "Generations that stopped in the middle and wait for a person."),
            resumes: of.counters(
                named("resumes_total", "Generations that continued after an interruption or a restart, by whom."),
                ("by", &["person", "server"]),
            ),
            resumed_ended: of.counters(
                named("resumed_ended_total", "Resumed generations that ended, by how."),
                ("outcome", &ENDS),
            ),
            takeovers: of.counter(
                "takeovers_total",
                "Conversations taken over in the middle of their work: after a crash, or from another instance.",
            ),
            tokens: of.counters(
                named("tokens_total", "Tokens that models reported."),
                ("direction", &["input", "output"]),
            ),
            registry,
        }
    }
}

/// Registers what it makes. A name is registered once, in the list above.
struct Kept<'a>(&'a Registry);

impl Kept<'_> {
    fn keep<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let made = made.expect("names and labels are valid");
        self.0.register(Box::new(made.clone())).expect("each name is used once");
        made
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.keep(IntGauge::with_opts(named(name, help)))
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.keep(IntCounter::with_opts(named(name, help)))
    }

    /// A counter for each value of a label. Those that are listed are shown from the start.
    fn counters(&self, options: Opts, (label, values): (&str, &[&str])) -> IntCounterVec {
        let counters = self.keep(IntCounterVec::new(options, &[label]));
        for value in values {
            counters.with_label_values(&[*value]);
        }
        counters
    }

    fn histogram(&self, name: &str, help: &str) -> Histogram {
        let (start, factor, count) = BUCKETS;
        let buckets = exponential_buckets(start, factor, count).expect("the buckets grow");
        let options = HistogramOpts::new(format!("outlast_{name}"), help).buckets(buckets);
        self.keep(Histogram::with_opts(options))
    }
}

fn named(name: &str, help: &str) -> Opts {
    Opts::new(format!("outlast_{name}"), help)
}

impl Figures {
    /// Where other parts of the server register their figures, and from where all are read.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// A histogram of seconds, like the ones of the engine.
    pub fn seconds(&self, name: &str, help: &str) -> Histogram {
        Kept(&self.registry).histogram(name, help)
    }

    pub fn gauge(&self, name: &str, help: &str) -> IntGauge {
        Kept(&self.registry).gauge(name, help)
    }

    /// A counter for each value of a label, which must be a few fixed words.
    pub fn counters(&self, name: &str, help: &str, label: (&str, &[&str])) -> IntCounterVec {
        Kept(&self.registry).counters(named(name, help), label)
    }

    /// How many streams are followed now.
    pub fn followed(&self) -> i64 {
        self.followers.get()
    }

    pub fn resumes(&self) -> Resumes {
        let of = |counters: &IntCounterVec, label| counters.with_label_values(&[label]).get();
        Resumes {
            interruptions: self.interruptions.get(),
            resumes: of(&self.resumes, "person") + of(&self.resumes, "server"),
            completed: of(&self.resumed_ended, "completed"),
            failed: of(&self.resumed_ended, "error"),
        }
    }

    /// Measures an append from now until this is dropped.
    pub(crate) fn append(&self) -> Appending<'_> {
        self.appends_waiting.inc();
        Appending { figures: self, since: Instant::now() }
    }

    /// How a call to a model ended.
    pub(crate) fn call_ended(&self, end: &CallEnd) {
        let outcome = match end {
            CallEnd::Failed { failure, .. } => failure.class.code(),
            CallEnd::Finished { .. } => "answered",
        };
        self.attempts.with_label_values(&[outcome]).inc();
    }

    /// A call that ended with its owner.
    pub(crate) fn reported(&self, report: &Report) {
        if let Report::CallLost { .. } = report {
            self.attempts.with_label_values(&["lost"]).inc();
        }
    }

    /// Counts what was recorded. `before` and `after` are the state around it.
    pub(crate) fn recorded(&self, entries: &[Entry], before: &Conversation, after: &Conversation) {
        for entry in entries {
            self.count(&entry.event, after);
        }
        let lost =
            |state: &Conversation| state.current.as_ref().map(|run| (run.id.clone(), run.counters.resumed));
        if let (Some((before, from)), Some((after, to))) = (lost(before), lost(after))
            && before == after
            && to > from
        {
            let by_person = entries.iter().any(|entry| matches!(entry.event, Event::ChatResumed { .. }));
            self.resumes.with_label_values(&[if by_person { "person" } else { "server" }]).inc();
        }
    }

    fn count(&self, event: &Event, after: &Conversation) {
        match event {
            Event::GenerationQueued { .. } => self.generations_started.inc(),
            Event::ChatInterrupted { .. } => self.interruptions.inc(),
            Event::ApprovalRequested { .. } => self.approvals_requested.inc(),
            Event::ApprovalResolved { decision, .. } => {
                let decision = match decision {
                    Decision::Approve => "approve",
                    Decision::Deny => "deny",
                };
                self.approvals_decided.with_label_values(&[decision]).inc();
            }
            Event::ToolEnd { is_error, outcome, .. } => {
                let outcome = match (outcome, is_error) {
                    (Some(Outcome::Unknown), _) => "unknown",
                    (Some(Outcome::Denied), _) => "denied",
                    (None, true) => "error",
                    (None, false) => "ok",
                };
                self.tools.with_label_values(&[outcome]).inc();
            }
            Event::Usage { input_tokens, output_tokens } => {
                self.tokens.with_label_values(&["input"]).inc_by(*input_tokens);
                self.tokens.with_label_values(&["output"]).inc_by(*output_tokens);
            }
            Event::ChatDone { .. } => self.ended("completed", after),
            Event::ChatError { .. } => self.ended("error", after),
            Event::ChatCancelled { .. } => self.ended("cancelled", after),
            _ => {} // everything else says nothing that an operator asks for
        }
    }

    fn ended(&self, outcome: &str, after: &Conversation) {
        self.generations_ended.with_label_values(&[outcome]).inc();
        if after.current.as_ref().is_some_and(|run| run.counters.resumed > 0) {
            self.resumed_ended.with_label_values(&[outcome]).inc();
        }
    }
}

/// An append that the store has not confirmed yet.
pub(crate) struct Appending<'a> {
    figures: &'a Figures,
    since: Instant,
}

impl Drop for Appending<'_> {
    fn drop(&mut self) {
        self.figures.appends_waiting.dec();
        self.figures.append_seconds.observe(self.since.elapsed().as_secs_f64());
    }
}
