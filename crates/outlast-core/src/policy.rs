//! Which tool calls run, which a person is asked about, and which are refused. Data on the server, pure rules.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Glob patterns over string arguments, by the argument's name: `*` stands for any text, `?` for one character. All of
/// them must match.
pub type Patterns = BTreeMap<String, String>;

/// What the operator says about each tool, by name.
pub type ToolRules = BTreeMap<String, ToolRule>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRule {
    /// Whether it changes nothing: such calls run side by side and may run again.
    pub read_only: bool,
    /// What holds for calls that no rule below matches.
    pub policy: Policy,
    /// The first that matches counts.
    pub rules: Vec<PatternRule>,
    /// The argument that a shell interprets, if there is one.
    pub shell_argument: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternRule {
    pub patterns: Patterns,
    pub policy: Policy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    Allow,
    /// A person decides.
    Ask,
    Deny,
}
