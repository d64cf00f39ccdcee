//! The settings. `load` reads them. Each section has its own type, and its `Default` is the one place where
//! defaults are written.

mod duration;
mod jwt;
mod load;
mod models;
mod sections;
mod size;
mod tools;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outlast_core::{Durability, Recovery, Retention, Rules};
use outlast_engine::Settings;
use serde::Deserialize;

pub(crate) use duration::parse as parse_duration;
pub(crate) use load::Sources;
pub(crate) use models::{Continuation, ModelConfig, Upstream};
pub(crate) use tools::SandboxKind;

use jwt::JwtSection;
use sections::{
    Checkpoints, DurabilityMode, DurabilitySection, History, Limits, RecoveryMode, RecoverySection,
    RetentionSection, Retry, Server, Store, Timeouts,
};
use tools::{Agent, Sandbox, ToolSection};

/// In `debounce` mode text is saved this often.
const DEBOUNCE: Duration = Duration::from_secs(2);

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) server: Server,
    pub(crate) store: Store,
    durability: DurabilitySection,
    recovery: RecoverySection,
    #[cfg_attr(test, serde(skip_serializing))]
    pub(crate) models: BTreeMap<String, ModelConfig>,
    pub(crate) jwt: Option<JwtSection>,
    retry: Retry,
    timeouts: Timeouts,
    retention: RetentionSection,
    pub(crate) limits: Limits,
    history: History,
    pub(crate) sandbox: Sandbox,
    agent: Agent,
    tools: BTreeMap<String, ToolSection>,
    pub(crate) checkpoints: Checkpoints,
}

impl Config {
    pub(crate) fn engine(&self) -> Result<Settings, String> {
        Ok(Settings {
            rules: Rules {
                recovery: match self.recovery.mode {
                    RecoveryMode::Safe => Recovery::Safe,
                    RecoveryMode::Auto => Recovery::Auto,
                    RecoveryMode::Ask => Recovery::Ask,
                },
                retries: self.retry.max,
                backoff: self.retry.backoff,
                unwatched: self.timeouts.unwatched,
                answer_bytes: self.limits.answer_bytes,
                prefill: self.prefilled(),
                worker_silence: self.timeouts.worker_silence,
                tools: tools::rules(&self.tools)?,
                max_rounds: self.agent.max_rounds,
                max_tokens: self.agent.max_tokens,
                max_time: self.agent.max_time,
                approval_pause: self.timeouts.approval_pause,
                sandbox_idle_pause: self.timeouts.sandbox_idle_pause,
                sandbox_kill: self.timeouts.sandbox_kill,
                checkpoint_age: self.timeouts.checkpoint_age,
            },
            durability: match self.durability.mode {
                DurabilityMode::Commit => Durability::Commit,
                DurabilityMode::Debounce => Durability::Debounce(DEBOUNCE),
                DurabilityMode::Boundary => Durability::Boundary,
            },
            history_messages: self.history.messages,
            upstream_idle: self.timeouts.upstream_idle,
            retention: Retention { completed: self.retention.completed, error: self.retention.error },
            followers_per_conversation: self.limits.followers_per_conversation,
            live_generations_per_user: self.limits.live_generations_per_user,
            live_generations: self.limits.live_generations,
        })
    }

    /// The models that continue a failed attempt from its last word.
    fn prefilled(&self) -> BTreeSet<String> {
        let prefills = |upstream: &Upstream| upstream.continuation == Continuation::Prefill;
        let names = self.models.iter().filter(|(_, model)| model.upstream().is_some_and(prefills));
        names.map(|(name, _)| name.clone()).collect()
    }
}
