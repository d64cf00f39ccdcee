//! Which tool calls run, which a person is asked about, and which are refused. Data on the server, pure rules.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Always, Decision};

/// Glob patterns over string arguments, by the argument's name: `*` stands for any text, `?` for one character. A call
/// matches if all of them do.
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

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Run,
    Ask,
    /// The model is told why.
    Refuse(&'static str),
}

impl ToolRule {
    /// The operator's rules come first; what a person decided once and for all answers only what the operator leaves to
    /// people. Of several such decisions the newest that matches counts.
    pub(crate) fn verdict(&self, name: &str, input: &Value, always: &[Always]) -> Verdict {
        let matching = self.rules.iter().find(|rule| self.matches(&rule.patterns, rule.policy, input));
        match matching.map_or(self.policy, |rule| rule.policy) {
            Policy::Allow => return Verdict::Run,
            Policy::Deny => return Verdict::Refuse("denied by policy"),
            Policy::Ask => {}
        }
        let decided = always.iter().rev().find(|always| always.tool == name && self.covers(always, input));
        match decided.map(|always| always.decision) {
            Some(Decision::Approve) => Verdict::Run,
            Some(Decision::Deny) => Verdict::Refuse("denied by a person for all such calls"),
            None => Verdict::Ask,
        }
    }

    /// Whether a decision for all calls, or for those that match its pattern, is about this one.
    pub(crate) fn covers(&self, always: &Always, input: &Value) -> bool {
        let policy = match always.decision {
            Decision::Approve => Policy::Allow,
            Decision::Deny => Policy::Deny,
        };
        always.pattern.as_ref().is_none_or(|pattern| self.matches(pattern, policy, input))
    }

    /// `git *` also matches `git status; rm -rf ~`. So a command that a shell would take apart matches a pattern that
    /// allows it only if the pattern spells the operators out.
    fn matches(&self, patterns: &Patterns, policy: Policy, input: &Value) -> bool {
        patterns.iter().all(|(argument, pattern)| {
            let Some(text) = input.get(argument).and_then(Value::as_str) else { return false };
            let is_shell = self.shell_argument.as_ref() == Some(argument);
            let hides = policy == Policy::Allow && is_shell && has_operators(text, pattern);
            glob(pattern, text) && !hides
        })
    }
}

/// Characters with which a shell joins, nests, redirects or substitutes commands.
const OPERATORS: [char; 11] = [';', '&', '|', '`', '$', '(', ')', '<', '>', '\n', '\r'];

/// Whether the command has operators that the pattern does not have as often.
fn has_operators(command: &str, pattern: &str) -> bool {
    let count = |text: &str, operator| text.chars().filter(|letter| *letter == operator).count();
    OPERATORS.into_iter().any(|operator| count(command, operator) > count(pattern, operator))
}

/// Whether the whole text matches. Goes back only to the last `*`, so its time is bounded by the product of the lengths.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star = None; // where the last `*` is, and how much of the text it takes so far
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(letter) if *letter == '?' || *letter == text[t] => (p, t) = (p + 1, t + 1),
            _ => {
                let Some((place, taken)) = star else { return false };
                star = Some((place, taken + 1));
                (p, t) = (place + 1, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|letter| *letter == '*')
}

#[cfg(test)]
mod tests;
