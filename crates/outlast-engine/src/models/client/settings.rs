//! The settings of an upstream, the same for every vendor.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// Everything before the path of a call. Secret, because a mistyped one may contain a password.
    pub base_url: Secret,
    /// The upstream's name for the model.
    pub model: String,
    pub api_key: Option<Secret>,
    /// Sent with every call. They may contain keys too.
    pub headers: BTreeMap<String, Secret>,
    /// The maximum number of tokens in an answer. A client may ask for fewer.
    pub max_tokens: Option<u64>,
}

/// Text that only the upstream may see. It never appears in logs, errors or debug output.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}

impl UpstreamSettings {
    /// How many tokens to ask for: as many as the client wants, but no more than the operator allows.
    pub(in super::super) fn tokens(&self, wished: Option<u64>) -> Option<u64> {
        match (wished, self.max_tokens) {
            (Some(wished), Some(limit)) => Some(wished.min(limit)),
            (wished, limit) => wished.or(limit),
        }
    }

    /// Everything that must not appear in an error. A value like `Bearer abc` is hidden as a whole and without its
    /// first word. Words that are too short to be keys are not hidden, because that would only garble messages.
    pub(super) fn secrets(&self) -> Vec<Secret> {
        const SHORTEST: usize = 7; // `sk-1234` is a key; `none`, `EMPTY` and `ollama` are not
        let values = self.headers.values().map(Secret::expose);
        let values = values.flat_map(|value| [Some(value), value.split_once(' ').map(|(_, rest)| rest)]);
        let values = values.flatten().filter(|value| value.len() >= SHORTEST);
        let key = self.api_key.iter().map(Secret::expose).filter(|key| key.len() >= SHORTEST);
        let mut secrets: Vec<Secret> = key.chain(values).map(Secret::new).collect();
        // Longest first: if a part were hidden before the whole, the rest would remain.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        secrets
    }
}
