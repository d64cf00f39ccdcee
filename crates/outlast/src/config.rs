//! The settings. `load` reads them. Each section has its own type, and its `Default` is the one place where
//! defaults are written.

mod duration;
mod jwt;
mod load;
mod models;
mod sections;

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

use jwt::JwtSection;
use sections::{
    DurabilityMode, DurabilitySection, History, Limits, NotBuilt, RecoveryMode, RecoverySection,
    RetentionSection, Retry, Server, Store, Timeouts,
};

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
    sandbox: NotBuilt,
    tools: NotBuilt,
}

impl Config {
    pub(crate) fn engine(&self) -> Settings {
        Settings {
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
        }
    }

    /// The models that continue a failed attempt from its last word.
    fn prefilled(&self) -> BTreeSet<String> {
        let prefills = |upstream: &Upstream| upstream.continuation == Continuation::Prefill;
        let names = self.models.iter().filter(|(_, model)| model.upstream().is_some_and(prefills));
        names.map(|(name, _)| name.clone()).collect()
    }

    /// Settings that were given but have no effect, because this version runs no tools.
    pub(crate) fn without_effect(&self) -> Vec<&'static str> {
        let candidates = [
            ("sandbox", &self.sandbox),
            ("tools", &self.tools),
            ("timeouts.approval_pause", &self.timeouts.approval_pause),
            ("timeouts.sandbox_kill", &self.timeouts.sandbox_kill),
            ("timeouts.sandbox_idle_pause", &self.timeouts.sandbox_idle_pause),
            ("timeouts.checkpoint_age", &self.timeouts.checkpoint_age),
        ];
        candidates.into_iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name).collect()
    }
}
