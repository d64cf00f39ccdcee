//! Settings from a file, the environment and flags, in this order: the later wins.
//!
//! An unknown key or a value that cannot be honoured stops the start and is named.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use outlast_core::{Durability, Recovery, Retention, Rules};
use outlast_engine::{Secret, Settings};
use serde::Deserialize;
use toml::Value;

/// The variables that belong to us begin with this; `__` separates the levels.
const ENVIRONMENT: &str = "OUTLAST_";

/// Everything an operator may set.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) server: Server,
    pub(crate) store: Store,
    durability: DurabilityConfig,
    recovery: RecoveryConfig,
    pub(crate) models: BTreeMap<String, ModelConfig>,
    retry: RetryConfig,
    timeouts: Timeouts,
    retention: RetentionConfig,
    pub(crate) limits: Limits,
    history: History,
    sandbox: Option<Value>,
    tools: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Server {
    pub(crate) listen: SocketAddr,
    pub(crate) data: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Store {
    pub(crate) url: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DurabilityConfig {
    mode: DurabilityMode,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DurabilityMode {
    #[default]
    Commit,
    Debounce,
    Boundary,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RecoveryConfig {
    mode: RecoveryMode,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RecoveryMode {
    #[default]
    Safe,
    Auto,
    Ask,
}

/// One model; which fields it needs depends on its kind.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum ModelConfig {
    /// Needs nothing.
    Demo {
        #[serde(default, deserialize_with = "optional_duration")]
        pace: Option<Duration>,
    },
    /// Any OpenAI-compatible address.
    Openai(Upstream),
    /// Anthropic's own API.
    Anthropic(Upstream),
}

/// A model behind an address.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upstream {
    /// Everything before the path of a call; a public one of its kind if none is given.
    pub(crate) base_url: Option<Secret>,
    /// The upstream's name for the model.
    pub(crate) model: String,
    /// The variable that holds the key.
    pub(crate) api_key_env: Option<String>,
    /// The file that holds the key.
    pub(crate) api_key_file: Option<PathBuf>,
    /// Sent with every call.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Secret>,
    /// How many tokens an answer may have, unless the client wishes for fewer.
    pub(crate) max_tokens: Option<u64>,
    /// No byte for this long ends an attempt; `timeouts.upstream_idle` if none is given.
    #[serde(default, deserialize_with = "optional_duration")]
    pub(crate) idle_timeout: Option<Duration>,
    /// What becomes of the words of an attempt that broke.
    #[serde(default)]
    pub(crate) continuation: Continuation,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Continuation {
    /// They are withdrawn and the answer begins anew.
    #[default]
    Restart,
    /// They stay and the model goes on from the last one.
    Prefill,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RetryConfig {
    max: u32,
    #[serde(deserialize_with = "duration")]
    backoff: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Timeouts {
    #[serde(deserialize_with = "duration")]
    unwatched: Duration,
    #[serde(deserialize_with = "duration")]
    upstream_idle: Duration,
    #[serde(deserialize_with = "duration")]
    producer_silence: Duration,
    approval_pause: Option<Value>,
    sandbox_kill: Option<Value>,
    sandbox_idle_pause: Option<Value>,
    checkpoint_age: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RetentionConfig {
    #[serde(deserialize_with = "duration")]
    completed: Duration,
    #[serde(deserialize_with = "duration")]
    error: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    pub(crate) live_generations_per_user: usize,
    pub(crate) live_generations: usize,
    pub(crate) subscribers_per_generation: usize,
    pub(crate) answer_bytes: usize,
    pub(crate) body_bytes: usize,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct History {
    messages: usize,
}

impl Default for Server {
    fn default() -> Server {
        Server { listen: SocketAddr::from(([127, 0, 0, 1], 8787)), data: PathBuf::from("outlast-data") }
    }
}

impl Default for Store {
    fn default() -> Store {
        Store { url: "sqlite:".to_owned() }
    }
}

impl Default for RetryConfig {
    fn default() -> RetryConfig {
        let rules = Rules::default();
        RetryConfig { max: rules.retries, backoff: rules.backoff }
    }
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            unwatched: Rules::default().unwatched,
            upstream_idle: Settings::default().upstream_idle,
            producer_silence: Rules::default().producer_silence,
            approval_pause: None,
            sandbox_kill: None,
            sandbox_idle_pause: None,
            checkpoint_age: None,
        }
    }
}

impl Default for RetentionConfig {
    fn default() -> RetentionConfig {
        let kept = Settings::default().retention;
        RetentionConfig { completed: kept.completed, error: kept.error }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            live_generations_per_user: Settings::default().live_generations_per_user,
            live_generations: Settings::default().live_generations,
            subscribers_per_generation: Settings::default().followers_per_conversation,
            answer_bytes: Rules::default().answer_bytes,
            body_bytes: 1024 * 1024,
        }
    }
}

impl Default for History {
    fn default() -> History {
        History { messages: Settings::default().history_messages }
    }
}

impl Config {
    /// Reads the file, if one is named, and lays the environment over it. No value is in any error: it may
    /// be a key that somebody put into the wrong place.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> anyhow::Result<Config> {
        let mut tree = toml::Table::new();
        if let Some(file) = file {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read the settings in {}", file.display()))?;
            let wrong =
                |error: toml::de::Error| format!("{} is not TOML: {}", file.display(), told(&error, &text));
            tree = text.parse().map_err(|error| anyhow!(wrong(error)))?;
        }
        for (name, value) in environment {
            let Some(name) = name.to_str() else { continue }; // no setting of ours
            if let Some(path) = name.strip_prefix(ENVIRONMENT).filter(|path| path.contains("__")) {
                let keys: Vec<String> = path.split("__").map(str::to_lowercase).collect();
                let value = value.to_str().with_context(|| format!("{name} is not text"))?;
                set(&mut tree, &keys, value).with_context(|| format!("{name} cannot be used"))?;
            }
        }
        let wrong = |error: toml::de::Error| anyhow!("the settings cannot be used: {}", told(&error, ""));
        Value::Table(tree).try_into().map_err(wrong)
    }

    /// What the engine needs of this.
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
                producer_silence: self.timeouts.producer_silence,
            },
            durability: match self.durability.mode {
                DurabilityMode::Commit => Durability::Commit,
                DurabilityMode::Debounce => Durability::Debounce(Duration::from_secs(2)),
                DurabilityMode::Boundary => Durability::Boundary,
            },
            history_messages: self.history.messages,
            upstream_idle: self.timeouts.upstream_idle,
            retention: Retention { completed: self.retention.completed, error: self.retention.error },
            followers_per_conversation: self.limits.subscribers_per_generation,
            live_generations_per_user: self.limits.live_generations_per_user,
            live_generations: self.limits.live_generations,
        }
    }

    /// The models that go on from the last word of an attempt that broke.
    fn prefilled(&self) -> BTreeSet<String> {
        let prefills = |model: &ModelConfig| match model {
            ModelConfig::Demo { .. } => false,
            ModelConfig::Openai(upstream) | ModelConfig::Anthropic(upstream) => {
                upstream.continuation == Continuation::Prefill
            }
        };
        let names = self.models.iter().filter(|(_, model)| prefills(model));
        names.map(|(name, _)| name.clone()).collect()
    }

    /// Settings of the contract that have nothing to act on: this version runs no tools. They are named
    /// at the start, so that nobody believes they do something.
    pub(crate) fn without_effect(&self) -> Vec<&'static str> {
        let given = [
            ("sandbox", self.sandbox.is_some()),
            ("tools", self.tools.is_some()),
            ("timeouts.approval_pause", self.timeouts.approval_pause.is_some()),
            ("timeouts.sandbox_kill", self.timeouts.sandbox_kill.is_some()),
            ("timeouts.sandbox_idle_pause", self.timeouts.sandbox_idle_pause.is_some()),
            ("timeouts.checkpoint_age", self.timeouts.checkpoint_age.is_some()),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }
}

/// What is wrong with the settings, and where: without the line that the parser would show, and without a
/// text that stands where something else should.
fn told(error: &toml::de::Error, text: &str) -> String {
    let message = error.to_string().trim().replace('\n', " ");
    let message = if text.is_empty() { message.as_str() } else { error.message() };
    let message = match (message.split_once("string \""), message.rsplit_once("\", expected")) {
        (Some((before, _)), Some((_, after))) => format!("{before}text, expected{after}"),
        _ => message.to_owned(),
    };
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return message };
    let column = before.chars().rev().take_while(|letter| *letter != '\n').count() + 1;
    format!("line {}, column {column}: {message}", before.matches('\n').count() + 1)
}

/// Puts a value of the environment into its place. It is read as TOML if it can be, else it is text.
fn set(tree: &mut toml::Table, keys: &[String], value: &str) -> anyhow::Result<()> {
    let Some((last, levels)) = keys.split_last() else { bail!("no key") };
    let mut table = tree;
    for level in levels {
        let entry = table.entry(level.clone()).or_insert_with(|| Value::Table(toml::Table::new()));
        table = entry.as_table_mut().with_context(|| format!("{level} is not a section"))?;
    }
    let parsed = format!("value = {value}").parse::<toml::Table>().ok();
    let scalar = parsed.and_then(|mut table| table.remove("value"));
    let scalar = scalar.filter(|value| value.is_integer() || value.is_bool() || value.is_float());
    table.insert(last.clone(), scalar.unwrap_or_else(|| Value::String(value.to_owned())));
    Ok(())
}

fn duration<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_duration(&text).map_err(serde::de::Error::custom)
}

fn optional_duration<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

/// `500ms`, `300s`, `5m`, `24h`, `7d`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration like 500ms, 300s, 5m, 24h or 7d");
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(wrong)?;
    let count: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit_ms: u64 = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    count.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    fn load(pairs: &[(&str, &str)]) -> anyhow::Result<Config> {
        Config::load(None, environment(pairs).into_iter())
    }

    #[test]
    fn b7_the_environment_reaches_every_level() {
        let config = load(&[
            ("OUTLAST_STORE__URL", "memory:"),
            ("OUTLAST_MODELS__DEFAULT__KIND", "openai"),
            ("OUTLAST_MODELS__DEFAULT__BASE_URL", "http://127.0.0.1:1/v1"),
            ("OUTLAST_MODELS__DEFAULT__MODEL", "m"),
            ("OUTLAST_TIMEOUTS__UNWATCHED", "90s"),
            ("OUTLAST_LIMITS__LIVE_GENERATIONS_PER_USER", "3"),
            ("OUTLAST_FAULT", "not a setting"),
        ])
        .unwrap();
        assert_eq!(config.store.url, "memory:");
        assert_eq!(config.engine().rules.unwatched, Duration::from_secs(90));
        assert_eq!(config.limits.live_generations_per_user, 3);
        assert!(matches!(&config.models["default"], ModelConfig::Openai(upstream) if upstream.model == "m"));
    }

    #[test]
    fn a_key_that_nobody_knows_stops_the_start_and_is_named() {
        let error = format!("{:#}", load(&[("OUTLAST_STORE__URI", "memory:")]).unwrap_err());
        assert!(error.contains("uri"), "{error}");
    }

    #[test]
    fn a_duration_without_a_unit_is_refused() {
        let error = format!("{:#}", load(&[("OUTLAST_TIMEOUTS__UNWATCHED", "90")]).unwrap_err());
        assert!(error.contains("unwatched") || error.contains("string"), "{error}");
        assert_eq!(parse_duration("24h").unwrap(), Duration::from_secs(86_400));
        assert!(parse_duration("h").is_err() && parse_duration("5 m").is_err());
    }

    fn refused(text: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        format!("{:#}", Config::load(Some(file.path()), std::iter::empty()).unwrap_err())
    }

    #[test]
    fn i14_settings_that_cannot_be_read_are_told_by_their_place_alone() {
        let error = refused("[server]\napi_key = sk-canary\n");
        assert!(error.contains("line 2, column 11") && !error.contains("canary"), "{error}");
        let error =
            refused("[models.default]\nkind = \"openai\"\nmodel = \"m\"\nheaders = \"sk-\\\"canary\"");
        assert!(error.contains("models.default") && !error.contains("canary"), "{error}");
        let error = format!("{:#}", load(&[("OUTLAST_MODELS__DEFAULT", "sk-canary")]).unwrap_err());
        assert!(error.contains("models.default") && !error.contains("canary"), "{error}");
        let error = format!("{:#}", load(&[("OUTLAST_LIMITS__BODY_BYTES", "sk-canary")]).unwrap_err());
        assert!(error.contains("body_bytes") && !error.contains("canary"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn i14_what_is_not_text_is_told_by_its_name_alone() {
        use std::os::unix::ffi::OsStringExt;

        let canary = || OsString::from_vec(b"sk-canary\xff".to_vec());
        let error = Config::load(None, [("OUTLAST_STORE__URL".into(), canary())].into_iter()).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("OUTLAST_STORE__URL") && !error.contains("canary"), "{error}");
        let foreign = [("SOMEBODYS_KEY".into(), canary()), (canary(), "1".into())];
        Config::load(None, foreign.into_iter()).unwrap();
    }
}
