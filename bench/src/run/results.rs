//! One row per workload and candidate.

use serde::Serialize;

use super::candidate::Candidate;
use super::watch::{End, Watch};

/// What was measured. What a workload does not measure, or a candidate cannot do, is `None`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) workload: String,
    pub(crate) candidate: &'static str,
    pub(crate) streams: u64,
    /// CPU seconds per million tokens delivered, of the server side.
    pub(crate) cpu_per_million: Option<f64>,
    /// The same without Redis or PostgreSQL; only where there is one.
    pub(crate) cpu_per_million_without_database: Option<f64>,
    pub(crate) tokens_per_second: Option<f64>,
    pub(crate) kilobytes_per_stream: Option<f64>,
    /// Everything that the server side holds under this load.
    pub(crate) megabytes: Option<f64>,
    pub(crate) latency_p50_ms: Option<f64>,
    pub(crate) latency_p99_ms: Option<f64>,
    pub(crate) reconnect_p50_ms: Option<f64>,
    pub(crate) reconnect_p99_ms: Option<f64>,
    /// Share of the time that each core was busy.
    pub(crate) server_core_busy: Option<f64>,
    pub(crate) load_core_busy: Option<f64>,
    /// How the load core was shared.
    pub(crate) upstream_share: Option<f64>,
    pub(crate) generator_share: Option<f64>,
    pub(crate) check: Check,
    pub(crate) note: String,
}

impl Row {
    pub(crate) fn new(workload: &str, candidate: Candidate, streams: u64) -> Self {
        Self { workload: workload.to_owned(), candidate: candidate.name(), streams, ..Self::default() }
    }

    pub(crate) fn add_note(&mut self, note: &str) {
        if !self.note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(note);
    }
}

/// What happened to the tokens.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Check {
    pub(crate) expected: u64,
    pub(crate) delivered: u64,
    /// Gaps and repeats in what was delivered: never acceptable.
    pub(crate) missed: u64,
    pub(crate) doubled: u64,
    /// Streams that ended with a complete answer.
    pub(crate) complete: u64,
    /// Streams that failed, broke, or had not ended by the deadline.
    pub(crate) failed: u64,
    /// The first error.
    pub(crate) error: Option<String>,
}

impl Check {
    /// Counts one stream of `tokens` tokens.
    pub(crate) fn stream(&mut self, tokens: u64, watch: &Watch, error: Option<String>) {
        self.expected += watch.wanted(tokens);
        self.delivered += watch.received;
        self.missed += watch.missed;
        self.doubled += watch.doubled;
        if watch.complete(tokens) {
            self.complete += 1;
            return;
        }
        self.failed += 1;
        if watch.end == Some(End::Done) {
            // It claims to be complete and is not: text was lost.
            self.missed += tokens.saturating_sub(watch.received);
        }
        let error =
            error.unwrap_or_else(|| format!("ended as {:?} with {} tokens", watch.end, watch.received));
        self.error.get_or_insert(error);
    }

    /// Counts the streams of another check, too.
    pub(crate) fn add(&mut self, other: Check) {
        self.expected += other.expected;
        self.delivered += other.delivered;
        self.missed += other.missed;
        self.doubled += other.doubled;
        self.complete += other.complete;
        self.failed += other.failed;
        self.error = self.error.take().or(other.error);
    }

    /// Every stream complete, nothing missed, nothing doubled.
    pub(crate) fn perfect(&self) -> bool {
        self.missed + self.doubled + self.failed == 0
    }
}
