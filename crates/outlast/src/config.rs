//! The settings. `load` reads them. Each section has its own type, and its `Default` is the one place where
//! defaults are written.

mod documented;
mod duration;
mod e2b;
mod http_tools;
mod jwt;
mod load;
mod mcp;
mod models;
mod origins;
mod sections;
mod show;
mod size;
mod tools;
mod traces;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outlast_core::{Durability, Recovery, Retention, Rules};
use outlast_engine::sandbox::E2bSettings;
use outlast_engine::tools::Toolbox;
use outlast_engine::{NotificationSettings, Settings};
use outlast_store::Durable;
use serde::Deserialize;

pub(crate) use documented::default_file;
pub(crate) use duration::parse as parse_duration;
pub(crate) use load::Sources;
pub(crate) use models::{Continuation, ModelConfig, Upstream};
pub(crate) use sections::{Log, LogFormat};
pub(crate) use tools::SandboxKind;

use e2b::E2bSection;
use http_tools::HttpToolSection;
use jwt::JwtSection;
use mcp::McpSection;
use origins::Origins;
use sections::{
    AuditSection, Checkpoints, DurabilityMode, DurabilitySection, History, Instances, Limits, RecoveryMode,
    RecoverySection, RetentionSection, Retry, Server, Store, Timeouts, TlsSection, Webhooks,
};
use tools::{Agent, Sandbox, ToolSection};
use traces::TracesSection;

/// How often text is saved in `debounce` mode.
const DEBOUNCE: Duration = Duration::from_secs(2);

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) server: Server,
    pub(crate) tls: TlsSection,
    pub(crate) store: Store,
    instances: Instances,
    durability: DurabilitySection,
    recovery: RecoverySection,
    #[cfg_attr(test, serde(skip_serializing))]
    pub(crate) models: BTreeMap<String, ModelConfig>,
    pub(crate) jwt: Option<JwtSection>,
    retry: Retry,
    timeouts: Timeouts,
    retention: RetentionSection,
    pub(crate) webhooks: Webhooks,
    pub(crate) limits: Limits,
    history: History,
    pub(crate) sandbox: Sandbox,
    e2b: E2bSection,
    agent: Agent,
    tools: BTreeMap<String, ToolSection>,
    #[cfg_attr(test, serde(skip_serializing))]
    pub(crate) http_tools: BTreeMap<String, HttpToolSection>,
    #[cfg_attr(test, serde(skip_serializing))]
    pub(crate) mcp: BTreeMap<String, McpSection>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) audit: AuditSection,
    pub(crate) log: Log,
    pub(crate) traces: TracesSection,
    /// What was given, as it was written.
    #[serde(skip)]
    given: Given,
    #[serde(skip)]
    origins: Origins,
}

/// Settings as they were written. They may hold secrets, so they are not printed.
#[derive(Default)]
struct Given(toml::Table);

impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[given]")
    }
}

impl Config {
    /// What can be wrong although every value can be read. Nothing is started, and nothing outside is asked.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.engine().map_err(anyhow::Error::msg)?;
        crate::models::open(&self.models)?;
        crate::toolbox::open(self)?;
        self.e2b()?;
        self.tls.files()?;
        crate::logging::filter(&self.log)?;
        self.traces.collector()?;
        Ok(())
    }

    /// Absent if tools do not run at E2B.
    pub(crate) fn e2b(&self) -> anyhow::Result<Option<E2bSettings>> {
        match self.sandbox.kind {
            SandboxKind::E2b => self.e2b.settings(&self.sandbox, self.timeouts.sandbox_idle_pause).map(Some),
            SandboxKind::Local | SandboxKind::None => Ok(None),
        }
    }

    pub(crate) fn engine(&self) -> Result<Settings, String> {
        if self.instances.renew.is_zero() || self.instances.renew > self.instances.lease / 2 {
            return Err(
                "instances.renew must be more than zero and at most half of instances.lease".to_owned()
            );
        }
        Ok(Settings {
            toolbox: Toolbox::default(),
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
                tools: tools::rules(&self.tools, &self.http_tools, &self.mcp)?,
                max_rounds: self.agent.max_rounds,
                max_depth: self.agent.max_depth,
                max_children: self.agent.max_children,
                max_tokens: self.agent.max_tokens,
                max_time: self.agent.max_time,
                approval_pause: self.timeouts.approval_pause,
                workspace_bytes: self.sandbox.settings().disk_bytes,
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
            tool_timeout_max: self.sandbox.tool_timeout_max,
            retention: Retention { completed: self.retention.completed, error: self.retention.error },
            notifications: NotificationSettings {
                kept: self.retention.notifications,
                per_user: self.limits.notifications_per_user.get(),
                webhooks_per_user: self.limits.webhooks_per_user,
                push_per_user: self.limits.push_per_user,
                attempts: self.webhooks.attempts,
                backoff: self.webhooks.backoff,
                public_url: self.server.public_url.clone().unwrap_or_default(),
                contact: self.webhooks.contact.clone(),
            },
            followers_per_conversation: self.limits.followers_per_conversation,
            live_generations_per_user: self.limits.live_generations_per_user,
            live_generations: self.limits.live_generations,
            lease: self.instances.lease,
            renew: self.instances.renew,
        })
    }

    /// What the store must promise. Only `commit` says that nothing anybody saw can be lost.
    pub(crate) fn durable(&self) -> Durable {
        match self.durability.mode {
            DurabilityMode::Commit => Durable::AtOnce,
            DurabilityMode::Debounce | DurabilityMode::Boundary => Durable::WithinSeconds,
        }
    }

    /// The address of a model, if the settings give one.
    pub(crate) fn model_address(&self, name: &str) -> Option<&str> {
        self.given.0.get("models")?.get(name)?.get("base_url")?.as_str()
    }

    /// The models that continue a failed attempt from its last word.
    fn prefilled(&self) -> BTreeSet<String> {
        let prefills = |upstream: &Upstream| upstream.continuation == Continuation::Prefill;
        let names = self.models.iter().filter(|(_, model)| model.upstream().is_some_and(prefills));
        names.map(|(name, _)| name.clone()).collect()
    }
}
