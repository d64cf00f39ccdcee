//! The sections of the settings, in the order of `docs/settings.md`.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use outlast_core::Rules;
use outlast_engine::Settings;
use serde::Deserialize;

use super::duration;
use crate::http::{Hosts, RateLimits};

const A_MINUTE: NonZeroU32 = NonZeroU32::new(60).expect("not zero");
const A_HUNDRED_USERS: NonZeroU32 = NonZeroU32::new(6_000).expect("not zero");

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Server {
    pub(crate) listen: SocketAddr,
    pub(crate) data: PathBuf,
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
            allowed_hosts: Hosts::default(),
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
}

impl Default for RetentionSection {
    fn default() -> RetentionSection {
        let kept = Settings::default().retention;
        RetentionSection { completed: kept.completed, error: kept.error }
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
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            live_generations_per_user: Settings::default().live_generations_per_user,
            live_generations: Settings::default().live_generations,
            followers_per_conversation: Settings::default().followers_per_conversation,
            answer_bytes: Rules::default().answer_bytes,
            body_bytes: 1024 * 1024,
            connections: 10_000, // a stalled one costs up to half a megabyte
            starts_per_minute_per_user: A_MINUTE, // one a second is more than a person types
            starts_per_minute_per_key: A_MINUTE,
            starts_per_minute: A_HUNDRED_USERS,
            login_failures_per_minute: A_MINUTE, // of all clients together
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
