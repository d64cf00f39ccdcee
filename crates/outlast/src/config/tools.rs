//! The sections about tools and where they run.

use std::collections::BTreeMap;
use std::time::Duration;

use outlast_core::{PatternRule, Patterns, Policy, Rules, ToolRule, ToolRules};
use outlast_engine::sandbox::{Network, SandboxSettings};
use outlast_engine::tools::Tool;
use serde::Deserialize;

use super::{duration, size};

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Sandbox {
    pub(crate) kind: SandboxKind,
    network: NetworkChoice,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    cpu: Option<f64>,
    #[serde(with = "size")]
    memory: u64,
    processes: u64,
    #[serde(with = "size")]
    disk: u64,
    #[serde(with = "size")]
    output: u64,
    #[serde(with = "duration")]
    tool_timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub(crate) enum SandboxKind {
    Local,
    /// No tools.
    None,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
enum NetworkChoice {
    None,
    Host,
}

impl Default for Sandbox {
    fn default() -> Sandbox {
        let settings = SandboxSettings::default();
        Sandbox {
            kind: SandboxKind::Local,
            network: NetworkChoice::None,
            cpu: settings.cpu,
            memory: settings.memory_bytes,
            processes: settings.processes,
            disk: settings.disk_bytes,
            output: settings.output_bytes,
            tool_timeout: settings.tool_timeout,
        }
    }
}

impl Sandbox {
    pub(crate) fn settings(&self) -> SandboxSettings {
        SandboxSettings {
            network: match self.network {
                NetworkChoice::None => Network::None,
                NetworkChoice::Host => Network::Host,
            },
            cpu: self.cpu,
            memory_bytes: self.memory,
            processes: self.processes,
            disk_bytes: self.disk,
            output_bytes: self.output,
            tool_timeout: self.tool_timeout,
        }
    }
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(super) struct Agent {
    pub(super) max_rounds: u32,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    pub(super) max_tokens: Option<u64>,
    #[serde(deserialize_with = "duration::deserialize_some")]
    #[cfg_attr(test, serde(skip_serializing))]
    pub(super) max_time: Option<Duration>,
}

impl Default for Agent {
    fn default() -> Agent {
        let rules = Rules::default();
        Agent { max_rounds: rules.max_rounds, max_tokens: rules.max_tokens, max_time: rules.max_time }
    }
}

/// What an operator says about one tool.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ToolSection {
    policy: Option<Policy>,
    rules: Vec<RuleSection>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields)]
struct RuleSection {
    #[serde(rename = "match")]
    patterns: Patterns,
    policy: Policy,
}

/// The rules for every tool of the server, or the name of one that there is not.
pub(super) fn rules(sections: &BTreeMap<String, ToolSection>) -> Result<ToolRules, String> {
    if let Some(unknown) = sections.keys().find(|name| Tool::named(name).is_none()) {
        let known = Tool::ALL.map(Tool::name).join(", ");
        return Err(format!("tools.{unknown}: there is no such tool; there are {known}"));
    }
    Ok(Tool::ALL
        .into_iter()
        .map(|tool| (tool.name().to_owned(), rule(tool, sections.get(tool.name()))))
        .collect())
}

fn rule(tool: Tool, section: Option<&ToolSection>) -> ToolRule {
    let given = section.map(|section| &section.rules).into_iter().flatten();
    let rules = given.map(|rule| PatternRule { patterns: rule.patterns.clone(), policy: rule.policy });
    ToolRule {
        read_only: tool.read_only(),
        policy: section.and_then(|section| section.policy).unwrap_or(default_policy(tool)),
        rules: rules.collect(),
        shell_argument: (tool == Tool::Bash).then(|| "command".to_owned()),
    }
}

/// Files of the workspace can be compared and restored, so tools for files need no approval. A command can do
/// anything that the sandbox allows.
fn default_policy(tool: Tool) -> Policy {
    match tool {
        Tool::Bash => Policy::Ask,
        Tool::ReadFile | Tool::WriteFile | Tool::EditFile | Tool::ListFiles | Tool::SearchFiles => {
            Policy::Allow
        }
    }
}
