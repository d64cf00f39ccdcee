//! The arguments of the tools, read before a call is recorded as valid and again inside the sandbox.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bash {
    pub(super) command: Option<String>,
    /// Seconds.
    pub(super) timeout: Option<NonZeroU64>,
    #[serde(default)]
    pub(super) background: bool,
    pub(super) stop: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadFile {
    pub(super) path: String,
    /// The first line, from 1.
    pub(super) offset: Option<NonZeroU64>,
    pub(super) limit: Option<NonZeroU64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteFile {
    pub(super) path: String,
    pub(super) content: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EditFile {
    pub(super) path: String,
    pub(super) old: String,
    pub(super) new: String,
    #[serde(default)]
    pub(super) all: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListFiles {
    pub(super) path: Option<String>,
    pub(super) depth: Option<NonZeroU64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchFiles {
    pub(super) pattern: String,
    pub(super) path: Option<String>,
    pub(super) glob: Option<String>,
}
