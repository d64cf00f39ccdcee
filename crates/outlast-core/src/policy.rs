//! Which tool calls run, which need a person's approval, and which are refused. The policy is data on the server.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::patterns::{Patterns, matches};
use crate::{Always, Decision};

/// What the operator says about each tool, by name. What holds for all tools of a server that brings its own is under
/// [`rule_of_server`].
pub type ToolRules = BTreeMap<String, ToolRule>;

/// Between the name of a server and the name of one of its tools: `weather__forecast`.
pub const SERVER_SEPARATOR: &str = "__";

/// The key under which [`ToolRules`] has the rule for all tools of a server. No tool can have this name.
pub fn rule_of_server(server: &str) -> String {
    format!("{server}{SERVER_SEPARATOR}*")
}

/// The rule for a tool: its own, or that of the server which brings it. Such a rule exists before the server was ever
/// reached, so no list of tools that a server sends can loosen it.
pub fn rule_of<'a>(rules: &'a ToolRules, tool: &str) -> Option<&'a ToolRule> {
    let of_server = || rules.get(&rule_of_server(tool.split_once(SERVER_SEPARATOR)?.0));
    rules.get(tool).or_else(of_server)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRule {
    pub place: Place,
    /// Whether it changes nothing: such calls run side by side and may run again.
    pub read_only: bool,
    /// Whether asking twice with one execution id is the same as asking once. Counts for tools elsewhere.
    pub idempotent: bool,
    /// Applies to calls that match no rule.
    pub policy: Policy,
    /// The first match decides.
    pub rules: Vec<PatternRule>,
    /// The argument that a shell interprets, if there is one.
    pub shell_argument: Option<String>,
}

/// Where a tool runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// A program in the conversation's sandbox, which runs an execution at most once.
    #[default]
    Sandbox,
    /// A server that is not ours, which may or may not remember what it was asked.
    Elsewhere,
    /// A conversation of its own, which recovers by itself.
    Child,
    /// Nowhere: recording the call is all there is to do.
    Log,
}

impl Place {
    pub(crate) fn is_sandbox(&self) -> bool {
        *self == Place::Sandbox
    }
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

/// What to do with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Run,
    Ask,
    /// A person or a rule forbids it. The model is told why.
    Deny(&'static str),
    /// It cannot run. The model is told why.
    Refuse(&'static str),
}

impl ToolRule {
    /// The operator's rules come first. An "always" decision applies only where the operator's policy is to ask. If
    /// several match, the newest one counts.
    pub(crate) fn verdict(&self, name: &str, input: &Value, always: &[Always]) -> Verdict {
        let matching = self.rules.iter().find(|rule| self.matches(&rule.patterns, rule.policy, input));
        match matching.map_or(self.policy, |rule| rule.policy) {
            Policy::Allow => return Verdict::Run,
            Policy::Deny => return Verdict::Deny("denied by policy"),
            Policy::Ask => {}
        }
        let decided = always.iter().rev().find(|always| always.tool == name && self.covers(always, input));
        match decided.map(|always| always.decision) {
            Some(Decision::Approve) => Verdict::Run,
            Some(Decision::Deny) => Verdict::Deny("denied by a person for all such calls"),
            None => Verdict::Ask,
        }
    }

    /// Whether an "always" decision covers this call.
    pub(crate) fn covers(&self, always: &Always, input: &Value) -> bool {
        let policy = match always.decision {
            Decision::Approve => Policy::Allow,
            Decision::Deny => Policy::Deny,
        };
        always.pattern.as_ref().is_none_or(|pattern| self.matches(pattern, policy, input))
    }

    /// `git *` also matches `git status; rm -rf ~`, and `docs/*` matches `docs/../.git/config`. So a command that a shell
    /// would take apart, and a path that steps up, match a pattern that allows them only if the pattern has the same.
    fn matches(&self, patterns: &Patterns, policy: Policy, input: &Value) -> bool {
        patterns.iter().all(|(argument, pattern)| {
            let Some(text) = input.get(argument).and_then(Value::as_str) else { return false };
            let hides = match self.shell_argument.as_ref() == Some(argument) {
                true => has_operators,
                false => steps_up,
            };
            matches(pattern, text, |pattern| policy == Policy::Allow && hides(text, pattern))
        })
    }
}

/// Characters with which a shell joins, nests, redirects or substitutes commands.
const OPERATORS: [char; 11] = [';', '&', '|', '`', '$', '(', ')', '<', '>', '\n', '\r'];

/// Whether the command has more of some operator than the pattern has.
fn has_operators(command: &str, pattern: &str) -> bool {
    let count = |text: &str, operator| text.chars().filter(|letter| *letter == operator).count();
    OPERATORS.into_iter().any(|operator| count(command, operator) > count(pattern, operator))
}

/// Whether the path has more steps to a parent than the pattern has.
fn steps_up(path: &str, pattern: &str) -> bool {
    let count = |text: &str| text.split('/').filter(|step| *step == "..").count();
    count(path) > count(pattern)
}

#[cfg(test)]
mod tests;
