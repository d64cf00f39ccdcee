//! The settings of an upstream, the same for every vendor.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

/// A model behind an address.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// Everything before the path of a call. Secret, because a mistyped one may hold a password.
    pub base_url: Secret,
    /// The upstream's name for the model.
    pub model: String,
    /// The key, if one is needed.
    pub api_key: Option<Secret>,
    /// Sent with every call. They may hold keys too.
    pub headers: BTreeMap<String, Secret>,
    /// How many tokens an answer may have, unless the client asks for fewer.
    pub max_tokens: Option<u64>,
}

/// Text that only the upstream may see. It is never printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps the text.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    pub(in super::super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}

impl UpstreamSettings {
    /// How many tokens to ask for: what the client asked for, but no more than the operator allows.
    pub(in super::super) fn tokens(&self, wished: Option<u64>) -> Option<u64> {
        match (wished, self.max_tokens) {
            (Some(wished), Some(limit)) => Some(wished.min(limit)),
            (wished, limit) => wished.or(limit),
        }
    }

    /// Everything that must not appear in an error. A value like `Bearer abc` is hidden as a whole and without its
    /// first word. A word that is too short to be a key would only garble messages.
    pub(super) fn secrets(&self) -> Vec<Secret> {
        const SHORTEST: usize = 7; // `sk-1234` is a key; `none`, `EMPTY` and `ollama` are not
        let values = self.headers.values().map(Secret::expose);
        let values = values.flat_map(|value| [Some(value), value.split_once(' ').map(|(_, rest)| rest)]);
        let values = values.flatten().filter(|value| value.len() >= SHORTEST);
        let key = self.api_key.iter().map(Secret::expose).filter(|key| key.len() >= SHORTEST);
        let mut secrets: Vec<Secret> = key.chain(values).map(Secret::new).collect();
        // Longest first: if a part were hidden before the whole, the rest would stay.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        secrets
    }
}
