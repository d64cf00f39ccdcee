//! Sends a trace of every generation that has ended to an OpenTelemetry collector.
//!
//! A trace is computed from the log when its generation has ended, so it costs a running generation nothing, and one
//! that survived a crash has a complete trace. OTLP over HTTP in JSON is one POST of a small document; the SDK of
//! OpenTelemetry is made for spans that are open in memory, which these never are.

mod otlp;
mod spans;

use std::time::Duration;

use outlast_core::{Entry, Timestamp, decode};
use outlast_engine::{Ending, Engine, EngineError};
use prometheus::IntCounterVec;
use reqwest::Client;
use reqwest::header::HeaderMap;
use tokio::sync::mpsc::Receiver;

use spans::Trace;

/// How many traces are sent at once, ...
const BATCH: usize = 64;
/// ... and how long the first of them waits for others.
const GATHER: Duration = Duration::from_secs(1);
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a batch is tried, with a pause in between. Then it is dropped, because traces are not worth a queue.
const TRIES: u32 = 3;
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How many events are read at once.
const PAGE: usize = 1_000;
/// A log with more events than this has no trace: it would have to be held in memory.
const EVENTS_MAX: usize = 200_000;

/// Where traces go.
pub(crate) struct Collector {
    pub(crate) url: String,
    pub(crate) headers: HeaderMap,
}

pub(crate) struct Traces {
    engine: Engine,
    endings: Receiver<Ending>,
    collector: Collector,
    client: Client,
    /// Traces by `outcome`.
    counted: IntCounterVec,
}

impl Traces {
    /// Sends traces of what ends from now on. `None` if the engine has another listener.
    pub(crate) fn new(engine: &Engine, collector: Collector) -> anyhow::Result<Option<Traces>> {
        let Some(endings) = engine.endings() else { return Ok(None) };
        let client = Client::builder().timeout(SEND_TIMEOUT).build()?;
        let counted = engine.figures().counters(
            "traces_total",
            "Traces of generations, by what became of them.",
            ("outcome", &["sent", "dropped"]),
        );
        Ok(Some(Traces { engine: engine.clone(), endings, collector, client, counted }))
    }

    /// Runs until the engine has stopped and everything that ended before is sent or dropped.
    pub(crate) async fn run(mut self) {
        let stopping = self.engine.stopping();
        let mut batch = Vec::new();
        loop {
            let first = tokio::select! {
                biased;
                first = self.endings.recv() => first,
                () = stopping.cancelled() => None,
            };
            let Some(first) = first else { return };
            batch.push(first);
            let gather = tokio::time::sleep(GATHER);
            tokio::pin!(gather);
            while batch.len() < BATCH {
                tokio::select! {
                    biased;
                    Some(next) = self.endings.recv() => batch.push(next),
                    () = &mut gather => break,
                    () = stopping.cancelled() => break,
                }
            }
            self.send(std::mem::take(&mut batch)).await;
        }
    }

    async fn send(&self, endings: Vec<Ending>) {
        let mut traces = Vec::new();
        for ending in endings {
            match self.trace(&ending).await {
                Ok(trace) => traces.extend(trace),
                Err(error) => {
                    self.count("dropped", 1);
                    tracing::warn!(generation = %ending.generation, %error, "cannot read a log for its trace");
                }
            }
        }
        if traces.is_empty() {
            return;
        }
        let body = otlp::document(&traces, self.engine.instance()).to_string();
        match self.post(body).await {
            Ok(()) => self.count("sent", traces.len()),
            Err(error) => {
                self.count("dropped", traces.len());
                tracing::warn!(error, "the collector does not accept traces; dropped them");
            }
        }
    }

    /// The trace of a generation. `None` if it was deleted meanwhile or is too long.
    async fn trace(&self, ending: &Ending) -> Result<Option<Trace>, EngineError> {
        let (mut entries, mut after): (Vec<Entry>, _) = (Vec::new(), None);
        loop {
            let page = match self.engine.events(&ending.user, &ending.generation, after, PAGE).await {
                Err(EngineError::NotFound) => return Ok(None),
                page => page?,
            };
            let decoded = page.records.iter().filter_map(|record| decode(&record.bytes).ok());
            // Pieces of text say nothing about times that their segment does not say.
            entries.extend(decoded.filter(|entry| !entry.event.is_stream()));
            if page.ended || entries.len() > EVENTS_MAX {
                return Ok(page.ended.then(|| Trace::of(&ending.generation, &entries)).flatten());
            }
            after = Some(page.after);
        }
    }

    async fn post(&self, body: String) -> Result<(), &'static str> {
        for attempt in 1..=TRIES {
            let request = self.client.post(&self.collector.url).headers(self.collector.headers.clone());
            let request = request.header("content-type", "application/json").body(body.clone());
            let why = match request.send().await {
                Ok(response) if response.status().is_success() => return Ok(()),
                Ok(response) if response.status().is_client_error() && response.status() != 429 => {
                    return Err("it refused them");
                }
                Ok(_) => "it is not available",
                Err(_) => "it cannot be reached", // without the error, which may repeat the URL
            };
            if attempt == TRIES {
                return Err(why);
            }
            tokio::time::sleep(TRY_AGAIN * attempt).await;
        }
        Ok(())
    }

    fn count(&self, outcome: &str, traces: usize) {
        self.counted.with_label_values(&[outcome]).inc_by(traces as u64);
    }
}

fn nanoseconds(at: Timestamp) -> String {
    (i128::from(at.0) * 1_000_000).to_string()
}

#[cfg(test)]
mod tests;
