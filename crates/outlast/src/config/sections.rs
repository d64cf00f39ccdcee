//! The sections of the settings, in the order of `docs/settings.md`.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use outlast_core::Rules;
use outlast_engine::{NotificationSettings, Settings};
use serde::Deserialize;

use super::{duration, size};
use crate::http::{Hosts, Quotas, RateLimits};
use crate::server::TlsFiles;

const ONE_A_SECOND: NonZeroU32 = NonZeroU32::new(60).expect("not zero");
const A_FEW_SCREENS: NonZeroUsize = NonZeroUsize::new(200).expect("not zero");
const A_HUNDRED_A_SECOND: NonZeroU32 = NonZeroU32::new(6_000).expect("not zero");

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Server {
    pub(crate) listen: SocketAddr,
    pub(crate) data: PathBuf,
    #[serde(with = "duration")]
    pub(crate) drain: Duration,
    pub(crate) public_url: Option<String>,
    #[cfg_attr(test, serde(serialize_with = "no_entries"))]
    pub(crate) allowed_hosts: Hosts,
}

/// The default, as written in `docs/settings.md`.
#[cfg(test)]
fn no_entries<S: serde::Serializer>(_: &Hosts, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq([""; 0])
}

impl Default for Server {
    fn default() -> Server {
        Server {
            listen: SocketAddr::from(([127, 0, 0, 1], 8787)),
            data: PathBuf::from("outlast-data"),
            drain: Duration::from_secs(5), // streams end at once; a response takes longer only on a slow network
            public_url: None,
            allowed_hosts: Hosts::default(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TlsSection {
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    certificate: Option<PathBuf>,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    key: Option<PathBuf>,
}

impl TlsSection {
    pub(crate) fn files(&self) -> anyhow::Result<Option<TlsFiles>> {
        match (self.certificate.clone(), self.key.clone()) {
            (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key })),
            (None, None) => Ok(None),
            _ => anyhow::bail!("the settings tls.certificate and tls.key must be given together"),
        }
    }
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Store {
    pub(crate) url: String,
}

impl Default for Store {
    fn default() -> Store {
        Store { url: "sqlite:".to_owned() }
    }
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(super) struct Instances {
    #[serde(with = "duration")]
    pub(super) lease: Duration,
    #[serde(with = "duration")]
    pub(super) renew: Duration,
}

impl Default for Instances {
    fn default() -> Instances {
        let settings = Settings::default();
        Instances { lease: settings.lease, renew: settings.renew }
    }
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(super) struct DurabilitySection {
    pub(super) mode: DurabilityMode,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub(super) enum DurabilityMode {
    #[default]
    Commit,
    Debounce,
    Boundary,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RecoverySection {
    pub(super) mode: RecoveryMode,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub(super) enum RecoveryMode {
    #[default]
    Safe,
    Auto,
    Ask,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(super) struct Retry {
    pub(super) max: u32,
    #[serde(with = "duration")]
    pub(super) backoff: Duration,
}

impl Default for Retry {
    fn default() -> Retry {
        let rules = Rules::default();
        Retry { max: rules.retries, backoff: rules.backoff }
    }
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(super) struct Timeouts {
    #[serde(with = "duration")]
    pub(super) unwatched: Duration,
    #[serde(with = "duration")]
    pub(super) upstream_idle: Duration,
    #[serde(with = "duration")]
    pub(super) worker_silence: Duration,
    #[serde(with = "duration")]
    pub(super) approval_pause: Duration,
    #[serde(with = "duration")]
    pub(super) sandbox_kill: Duration,
    #[serde(with = "duration")]
    pub(super) sandbox_idle_pause: Duration,
    #[serde(with = "duration")]
    pub(super) checkpoint_age: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            unwatched: Rules::default().unwatched,
            upstream_idle: Settings::default().upstream_idle,
            worker_silence: Rules::default().worker_silence,
            approval_pause: Rules::default().approval_pause,
            sandbox_kill: Rules::default().sandbox_kill,
            sandbox_idle_pause: Rules::default().sandbox_idle_pause,
            checkpoint_age: Rules::default().checkpoint_age,
        }
    }
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RetentionSection {
    #[serde(with = "duration")]
    pub(super) completed: Duration,
    #[serde(with = "duration")]
    pub(super) error: Duration,
    #[serde(with = "duration")]
    pub(super) notifications: Duration,
}

impl Default for RetentionSection {
    fn default() -> RetentionSection {
        let settings = Settings::default();
        let (kept, notifications) = (settings.retention, settings.notifications.kept);
        RetentionSection { completed: kept.completed, error: kept.error, notifications }
    }
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Webhooks {
    pub(crate) allow_private: bool,
    pub(super) attempts: u32,
    #[serde(with = "duration")]
    pub(super) backoff: Duration,
    pub(super) contact: String,
}

impl Default for Webhooks {
    fn default() -> Webhooks {
        let NotificationSettings { attempts, backoff, contact, .. } = NotificationSettings::default();
        Webhooks { allow_private: false, attempts, backoff, contact }
    }
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    pub(crate) live_generations_per_user: usize,
    pub(crate) live_generations: usize,
    pub(crate) followers_per_conversation: usize,
    pub(crate) answer_bytes: usize,
    pub(crate) body_bytes: usize,
    pub(crate) connections: usize,
    pub(crate) connections_per_user: usize,
    pub(crate) streams_per_user: usize,
    #[serde(with = "size")]
    pub(crate) disk_per_user: u64,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    pub(crate) tokens_per_day_per_user: Option<NonZeroU64>,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    pub(crate) tokens_per_day_per_key: Option<NonZeroU64>,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    pub(crate) tokens_per_day: Option<NonZeroU64>,
    pub(crate) notifications_per_user: NonZeroUsize,
    pub(crate) webhooks_per_user: usize,
    pub(crate) push_per_user: usize,
    pub(crate) starts_per_minute_per_user: NonZeroU32,
    pub(crate) starts_per_minute_per_key: NonZeroU32,
    pub(crate) starts_per_minute: NonZeroU32,
    pub(crate) login_failures_per_minute: NonZeroU32,
}

impl Limits {
    pub(crate) fn rates(&self) -> RateLimits {
        RateLimits {
            starts_per_user: self.starts_per_minute_per_user,
            starts_per_key: self.starts_per_minute_per_key,
            starts: self.starts_per_minute,
            login_failures: self.login_failures_per_minute,
        }
    }

    pub(crate) fn quotas(&self) -> Quotas {
        Quotas {
            tokens_per_user: self.tokens_per_day_per_user,
            tokens_per_key: self.tokens_per_day_per_key,
            tokens: self.tokens_per_day,
            disk_per_user: self.disk_per_user,
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            live_generations_per_user: Settings::default().live_generations_per_user,
            live_generations: Settings::default().live_generations,
            followers_per_conversation: Settings::default().followers_per_conversation,
            answer_bytes: Rules::default().answer_bytes,
            body_bytes: 1024 * 1024,
            notifications_per_user: A_FEW_SCREENS,
            webhooks_per_user: Settings::default().notifications.webhooks_per_user,
            push_per_user: Settings::default().notifications.push_per_user,
            connections: 10_000,           // a stalled one costs up to half a megabyte
            connections_per_user: 2_000,   // all of a user's streams, and as many requests beside them
            streams_per_user: 1_000,       // a tenth of all connections
            disk_per_user: 10 << 30,       // a hundred users fit on one large disk
            tokens_per_day_per_user: None, // only the operator knows what tokens cost
            tokens_per_day_per_key: None,
            tokens_per_day: None,
            starts_per_minute_per_user: ONE_A_SECOND, // one a second is more than a person types
            starts_per_minute_per_key: ONE_A_SECOND,
            starts_per_minute: A_HUNDRED_A_SECOND,
            login_failures_per_minute: ONE_A_SECOND, // of all clients together
        }
    }
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(super) struct History {
    pub(super) messages: usize,
}

impl Default for History {
    fn default() -> History {
        History { messages: Settings::default().history_messages }
    }
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Checkpoints {
    pub(crate) url: String,
}

impl Default for Checkpoints {
    fn default() -> Checkpoints {
        Checkpoints { url: "file:".to_owned() }
    }
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AuditSection {
    pub(crate) file: PathBuf,
}

impl Default for AuditSection {
    fn default() -> AuditSection {
        AuditSection { file: PathBuf::from("audit.jsonl") }
    }
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Log {
    pub(crate) format: LogFormat,
    pub(crate) filter: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// One line for people.
    Human,
    /// One JSON object a line, for programs.
    Json,
}

impl Default for Log {
    fn default() -> Log {
        Log { format: LogFormat::Human, filter: "info".to_owned() }
    }
}
