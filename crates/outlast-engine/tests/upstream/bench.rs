//! An engine with a memory store and a model of either kind, and checks of the resulting log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Entry, Event, MessageId, Part, Rules, Seq, UserId, plain_text};
use outlast_engine::{
    AnthropicModel, Clock, Engine, Ids, Model, Models, OpenAiModel, Parts, Secret, Settings, StartRequest,
    Started, UpstreamSettings,
};
use outlast_store::MemoryStore;

use crate::server::{Script, Upstream};

/// The idle timeout of an impatient bench.
pub(crate) const IDLE: Duration = Duration::from_millis(600);
/// The idle timeout of the others: longer than a busy machine ever takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which vendor's API the upstream implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    OpenAi,
    Anthropic,
}

pub(crate) const KINDS: [Kind; 2] = [Kind::OpenAi, Kind::Anthropic];

pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) upstream: Upstream,
}

/// How a generation ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) entries: Vec<Entry>,
    pub(crate) end_reason: String,
    pub(crate) error: String,
    /// The final text.
    pub(crate) text: String,
    pub(crate) tools: Vec<String>,
    /// Input and output tokens of all attempts together.
    pub(crate) tokens: (u64, u64),
    pub(crate) calls: usize,
    pub(crate) retracted: usize,
}

impl Bench {
    pub(crate) async fn new(kind: Kind) -> Bench {
        Bench::with(kind, Settings { upstream_idle: PATIENCE, ..Settings::default() }, BTreeMap::new()).await
    }

    /// Its model has a short idle timeout, whatever the common setting is.
    pub(crate) async fn impatient(kind: Kind) -> Bench {
        let settings = Settings { upstream_idle: Duration::from_secs(3600), ..Settings::default() };
        let idle = BTreeMap::from([("default".to_owned(), IDLE)]);
        Bench::made(kind, settings, BTreeMap::new(), idle).await
    }

    pub(crate) async fn with(kind: Kind, settings: Settings, headers: BTreeMap<String, Secret>) -> Bench {
        Bench::made(kind, settings, headers, BTreeMap::new()).await
    }

    /// With these settings, retries happen without delay.
    async fn made(
        kind: Kind,
        settings: Settings,
        headers: BTreeMap<String, Secret>,
        idle: BTreeMap<String, Duration>,
    ) -> Bench {
        let upstream = Upstream::start().await;
        let of_model = UpstreamSettings {
            base_url: Secret::new(upstream.base_url.as_str()),
            model: "m".into(),
            api_key: Some(Secret::new(crate::keys::KEY)),
            headers,
            max_tokens: None,
        };
        let model: Arc<dyn Model> = match kind {
            Kind::OpenAi => Arc::new(OpenAiModel::new(of_model).unwrap()),
            Kind::Anthropic => Arc::new(AnthropicModel::new(of_model).unwrap()),
        };
        let rules = Rules { backoff: Duration::from_millis(1), ..settings.rules };
        let models = Models::new(BTreeMap::from([("default".to_owned(), model)]));
        let engine = Engine::new(Parts {
            store: Arc::new(MemoryStore::new()),
            models: models.with_idle(idle),
            settings: Settings { rules, ..settings },
            clock: Clock::System,
            ids: Ids::Random,
        });
        Bench { engine, upstream }
    }

    pub(crate) async fn start(&self, scripts: Vec<Script>) -> Started {
        self.upstream.play(scripts);
        let request = StartRequest::new(vec![Part::Text { text: "hello".into() }]);
        self.engine.start(&user(), request).await.unwrap()
    }

    /// Runs a generation to its end and checks what must hold for every one.
    pub(crate) async fn run(&self, scripts: Vec<Script>) -> Outcome {
        let started = self.start(scripts).await;
        self.outcome(&started).await
    }

    /// The current text.
    pub(crate) async fn said(&self, started: &Started) -> String {
        let document = self.engine.generation(&user(), &started.generation).await.unwrap();
        plain_text(document.parts())
    }

    pub(crate) async fn outcome(&self, started: &Started) -> Outcome {
        let mut follower = self.engine.follow_generation(&user(), &started.generation, None).await.unwrap();
        let mut entries = Vec::new();
        while let Some(batch) = follower.next().await.unwrap() {
            entries.extend(batch.records().iter().map(|record| outlast_core::decode(&record.bytes).unwrap()));
        }
        let document = self.engine.generation(&user(), &started.generation).await.unwrap();
        let outcome = Outcome {
            end_reason: document.end_reason.clone().unwrap_or_default(),
            error: document.error_message.clone().unwrap_or_default(),
            text: plain_text(document.parts()),
            tools: tools(document.parts()),
            tokens: (document.input_tokens, document.output_tokens),
            calls: self.upstream.requests().len(),
            retracted: entries
                .iter()
                .filter(|entry| matches!(entry.event, Event::AttemptRetracted { .. }))
                .count(),
            entries,
        };
        outcome.check();
        outcome
    }
}

impl Outcome {
    /// No gaps, one end and it is last, at most 1 + 2 calls and each recorded, and nothing that was shown is lost:
    /// the text that a reader assembles from the log equals the stored text.
    fn check(&self) {
        let seqs: Vec<Seq> = self.entries.iter().map(|entry| entry.seq).collect();
        assert!(seqs.windows(2).all(|pair| pair[1] == pair[0].next()), "{seqs:?}");
        let ends = self.entries.iter().filter(|entry| entry.event.is_end()).count();
        assert!(ends == 1 && self.entries.last().unwrap().event.is_end(), "{:#?}", self.entries);
        let started = |entry: &&Entry| matches!(entry.event, Event::ChatStarted { .. });
        let attempts = self.entries.iter().filter(started).count();
        assert!(attempts == self.calls && self.calls <= 3, "{attempts} attempts, {} calls", self.calls);
        assert_eq!(self.shown(), (self.text.clone(), self.tools.clone()));
    }

    /// What a reader of the log has assembled at the end.
    fn shown(&self) -> (String, Vec<String>) {
        let mut shown: Vec<(MessageId, Part)> = Vec::new();
        for entry in &self.entries {
            match &entry.event {
                Event::ChatDelta { message_id, text, .. } => {
                    shown.push((message_id.clone(), Part::Text { text: text.clone() }));
                }
                Event::ToolStart { message_id, tool_use_id, tool_name, tool_input } => {
                    let (id, name, input) = (tool_use_id.clone(), tool_name.clone(), tool_input.clone());
                    shown.push((message_id.clone(), Part::ToolUse { id, name, input }));
                }
                Event::AttemptRetracted { message_ids, .. } => {
                    shown.retain(|(message, _)| !message_ids.contains(message));
                }
                _ => {}
            }
        }
        let parts: Vec<Part> = shown.into_iter().map(|(_, part)| part).collect();
        (plain_text(&parts), tools(&parts))
    }

    /// How it ended, in short.
    pub(crate) fn told(&self) -> (&str, &str, usize) {
        (self.end_reason.as_str(), self.text.as_str(), self.calls)
    }
}

pub(crate) fn user() -> UserId {
    "ann".into()
}

fn tools(parts: &[Part]) -> Vec<String> {
    let tool = |part: &Part| match part {
        Part::ToolUse { id, name, input } => Some(format!("{id} {name} {input}")),
        _ => None,
    };
    parts.iter().filter_map(tool).collect()
}
