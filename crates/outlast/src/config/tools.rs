//! The sections about tools and where they run.

use std::collections::BTreeMap;
use std::time::Duration;

use outlast_core::{
    DELEGATE, PatternRule, Patterns, Place, Policy, Rules, SERVER_SEPARATOR, ToolRule, ToolRules,
    UPDATE_PLAN, check_patterns, rule_of_server,
};
use outlast_engine::Settings;
use outlast_engine::sandbox::{Network, SandboxSettings};
use outlast_engine::tools::{Tool, full_name, is_server_name};
use serde::Deserialize;

use super::http_tools::HttpToolSection;
use super::mcp::McpSection;
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
    #[serde(with = "duration")]
    pub(crate) tool_timeout_max: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub(crate) enum SandboxKind {
    Local,
    E2b,
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
            tool_timeout_max: Settings::default().tool_timeout_max,
        }
    }
}

impl Sandbox {
    /// An error if a limit is set that only sandboxes on this machine have.
    pub(super) fn only_for_local(&self) -> Result<(), String> {
        let (own, usual) = (self.settings(), SandboxSettings::default());
        let set = [
            ("network", own.network != usual.network),
            ("cpu", own.cpu != usual.cpu),
            ("memory", own.memory_bytes != usual.memory_bytes),
            ("processes", own.processes != usual.processes),
            ("disk", own.disk_bytes != usual.disk_bytes),
        ];
        match set.into_iter().find(|(_, is_set)| *is_set) {
            Some((name, _)) => {
                Err(format!("sandbox.{name} is for sandbox.kind = \"local\": E2B's template decides it"))
            }
            None => Ok(()),
        }
    }

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
    pub(super) max_depth: u32,
    pub(super) max_children: u32,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    pub(super) max_tokens: Option<u64>,
    #[serde(deserialize_with = "duration::deserialize_some")]
    #[cfg_attr(test, serde(skip_serializing))]
    pub(super) max_time: Option<Duration>,
}

impl Default for Agent {
    fn default() -> Agent {
        let rules = Rules::default();
        let (max_depth, max_children) = (rules.max_depth, rules.max_children);
        Agent {
            max_depth,
            max_children,
            max_rounds: rules.max_rounds,
            max_tokens: rules.max_tokens,
            max_time: rules.max_time,
        }
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

/// What the operator says about a tool that is not built in, beside its policy.
struct Declared {
    place: Place,
    read_only: bool,
    idempotent: bool,
}

/// The maximum length of a tool's name: upstreams refuse longer ones.
const NAME_BYTES_MAX: usize = 64;

/// The rules for every tool of the server. The error names the setting that is wrong.
pub(super) fn rules(
    sections: &BTreeMap<String, ToolSection>,
    http_tools: &BTreeMap<String, HttpToolSection>,
    servers: &BTreeMap<String, McpSection>,
) -> Result<ToolRules, String> {
    let inside = Tool::ALL.into_iter().map(|tool| (tool.name().to_owned(), built_in(tool, sections)));
    let mut rules: ToolRules = inside.collect();
    for (name, place) in [(DELEGATE, Place::Child), (UPDATE_PLAN, Place::Log)] {
        let declared = Declared { place, read_only: place == Place::Log, idempotent: false };
        rules.insert(name.to_owned(), rule(declared, Policy::Allow, sections.get(name)));
    }
    for (name, tool) in http_tools {
        may_be_named(name, &rules).map_err(|why| format!("http_tools.{name}: {why}"))?;
        let (read_only, idempotent) = (tool.read_only, tool.idempotent);
        let declared = Declared { place: Place::Elsewhere, read_only, idempotent };
        rules.insert(name.clone(), rule(declared, Policy::Ask, sections.get(name)));
    }
    for (name, server) in servers {
        may_be_server(name, &rules).map_err(|why| format!("mcp.{name}: {why}"))?;
        rules.extend(of_server(name, server, sections));
    }
    for (name, section) in sections {
        let mut checked = section.rules.iter().map(|rule| check_patterns(&rule.patterns));
        checked.try_for_each(|checked| checked).map_err(|why| format!("tools.{name}.rules: {why}"))?;
    }
    // The name of a server stands for all its tools.
    let is_known =
        |name: &str| servers.contains_key(name) || (rules.contains_key(name) && !name.ends_with('*'));
    match sections.keys().find(|name| !is_known(name)) {
        Some(unknown) => {
            let known = rules.into_keys().collect::<Vec<_>>().join(", ");
            Err(format!("tools.{unknown}: unknown tool; the tools are {known}"))
        }
        None => Ok(rules),
    }
}

fn may_be_named(name: &str, taken: &ToolRules) -> Result<(), &'static str> {
    let letters = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-');
    match (1..=NAME_BYTES_MAX).contains(&name.len()) && letters {
        false => Err("a tool's name must have 1 to 64 letters, digits, _ or -"),
        true if taken.contains_key(name) => Err("another tool already has this name"),
        true => Ok(()),
    }
}

fn may_be_server(name: &str, taken: &ToolRules) -> Result<(), &'static str> {
    let prefix = format!("{name}{SERVER_SEPARATOR}");
    match is_server_name(name) {
        false => Err(
            "a server's name must have 1 to 32 letters, digits, - or single _, which is not first or last",
        ),
        true if taken.keys().any(|tool| tool == name || tool.starts_with(&prefix)) => {
            Err("another tool already has this name")
        }
        true => Ok(()),
    }
}

/// A rule for all tools of a server, and one for each that the operator names. What the server says about its tools counts
/// for nothing.
fn of_server(
    server: &str,
    declared: &McpSection,
    sections: &BTreeMap<String, ToolSection>,
) -> BTreeMap<String, ToolRule> {
    let common = sections.get(server);
    let all = Declared { place: Place::Elsewhere, read_only: false, idempotent: false };
    let all = rule(all, Policy::Ask, common);
    let prefix = format!("{server}{SERVER_SEPARATOR}");
    let has = |list: &[String], tool: &str| list.iter().any(|name| full_name(server, name) == tool);
    let named = sections.keys().filter(|name| name.starts_with(&prefix)).cloned();
    let listed = declared.read_only.iter().chain(&declared.idempotent).map(|name| full_name(server, name));
    let mut rules: BTreeMap<String, ToolRule> = BTreeMap::new();
    for tool in named.chain(listed) {
        let (read_only, idempotent) = (has(&declared.read_only, &tool), has(&declared.idempotent, &tool));
        let own = Declared { place: Place::Elsewhere, read_only, idempotent };
        let mut own = rule(own, all.policy, sections.get(&tool));
        own.rules.extend(all.rules.iter().cloned());
        rules.insert(tool, own);
    }
    rules.insert(rule_of_server(server), all);
    rules
}

fn built_in(tool: Tool, sections: &BTreeMap<String, ToolSection>) -> ToolRule {
    let declared = Declared { place: Place::Sandbox, read_only: tool.read_only(), idempotent: false };
    ToolRule {
        shell_argument: (tool == Tool::Bash).then(|| "command".to_owned()),
        ..rule(declared, default_policy(tool), sections.get(tool.name()))
    }
}

fn rule(declared: Declared, default: Policy, section: Option<&ToolSection>) -> ToolRule {
    let given = section.map(|section| &section.rules).into_iter().flatten();
    let rules = given.map(|rule| PatternRule { patterns: rule.patterns.clone(), policy: rule.policy });
    let Declared { place, read_only, idempotent } = declared;
    ToolRule {
        place,
        read_only,
        idempotent,
        policy: section.and_then(|section| section.policy).unwrap_or(default),
        rules: rules.collect(),
        shell_argument: None,
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
