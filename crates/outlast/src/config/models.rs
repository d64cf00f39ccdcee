//! `[models.<name>]`: one model. Which fields it needs depends on its kind.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use outlast_engine::Secret;
use serde::Deserialize;

use super::duration;

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum ModelConfig {
    Demo {
        #[serde(default, deserialize_with = "duration::deserialize_some")]
        pace: Option<Duration>,
    },
    /// Any OpenAI-compatible API.
    Openai(Upstream),
    Anthropic(Upstream),
}

impl ModelConfig {
    /// The upstream of the model; `None` if it is built in.
    pub(crate) fn upstream(&self) -> Option<&Upstream> {
        match self {
            ModelConfig::Demo { .. } => None,
            ModelConfig::Openai(upstream) | ModelConfig::Anthropic(upstream) => Some(upstream),
        }
    }
}

/// A model behind an API.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upstream {
    /// Everything before the path of a call. Each kind has a default.
    pub(crate) base_url: Option<Secret>,
    /// The upstream's name for the model.
    pub(crate) model: String,
    /// The environment variable that holds the key.
    pub(crate) api_key_env: Option<String>,
    /// The file that holds the key.
    pub(crate) api_key_file: Option<PathBuf>,
    /// Sent with every call.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Secret>,
    /// The maximum number of tokens in an answer. A client can ask for fewer.
    pub(crate) max_tokens: Option<u64>,
    /// How many bytes of messages the model is given. Beyond that, the oldest results of tools are left out.
    pub(crate) context_bytes: Option<usize>,
    /// An attempt fails if nothing arrives for this long. The default is `timeouts.upstream_idle`.
    #[serde(default, deserialize_with = "duration::deserialize_some")]
    pub(crate) idle_timeout: Option<Duration>,
    #[serde(default)]
    pub(crate) continuation: Continuation,
}

/// What happens to the text of a failed attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Continuation {
    /// It is withdrawn and the answer starts over.
    #[default]
    Restart,
    /// It is kept, and the model continues from the last word.
    Prefill,
}
