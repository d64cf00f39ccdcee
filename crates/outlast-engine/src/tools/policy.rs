//! Whether a call may run: allowed, asked about, or denied. Rules are the operator's, on the server.

use std::collections::BTreeMap;

use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;
use serde_json::Value;

use super::Tool;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    Allow,
    /// A person decides.
    Ask,
    Deny,
}

/// What the settings say about one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolPolicy {
    /// If no rule matches. Absent: read-only tools are allowed, others are asked about.
    pub policy: Option<Policy>,
    /// The first rule that matches decides.
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Patterns over arguments by name. All of them must match.
    #[serde(rename = "match")]
    pub arguments: BTreeMap<String, Pattern>,
    pub policy: Policy,
}

/// A glob over the whole value: `*` any characters, `?` one, `[ab]` one of these, `{a,b}` one of these.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern {
    text: String,
    matcher: GlobMatcher,
}

/// With any of these a shell command can run another command or write a file. A rule that allows a command does not
/// match one that has more of them than the pattern shows.
const SHELL_OPERATORS: &[&str] = &[";", "&", "|", "`", "$(", "${", "\n", "\r", "<", ">"];
/// A path with this leads out of the folder that a pattern shows.
const PARENT: &str = "..";

impl ToolPolicy {
    /// Decides about a call, from what was recorded of it.
    pub fn decide(&self, tool: Tool, input: &Value) -> Policy {
        let rule = self.rules.iter().find(|rule| rule.matches(tool, input));
        match (rule, self.policy) {
            (Some(rule), _) => rule.policy,
            (None, Some(policy)) => policy,
            (None, None) if tool.read_only() => Policy::Allow,
            (None, None) => Policy::Ask,
        }
    }
}

impl Rule {
    fn matches(&self, tool: Tool, input: &Value) -> bool {
        self.arguments.iter().all(|(name, pattern)| {
            let value = match input.get(name) {
                None | Some(Value::Null) => return false,
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            };
            let wider = match (self.policy, tool) {
                (Policy::Ask | Policy::Deny, _) => false,
                (Policy::Allow, Tool::Bash) => pattern.hides(&value, SHELL_OPERATORS),
                (Policy::Allow, _) => pattern.hides(&value, &[PARENT]),
            };
            !wider && pattern.matcher.is_match(&value)
        })
    }
}

impl Pattern {
    /// Whether the value has something with a meaning that the pattern does not show.
    fn hides(&self, value: &str, signs: &[&str]) -> bool {
        signs.iter().any(|sign| value.contains(sign) && !self.text.contains(sign))
    }
}

impl TryFrom<String> for Pattern {
    type Error = globset::Error;

    fn try_from(text: String) -> Result<Pattern, globset::Error> {
        let matcher = GlobBuilder::new(&text).literal_separator(false).build()?.compile_matcher();
        Ok(Pattern { text, matcher })
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(settings: Value) -> ToolPolicy {
        serde_json::from_value(settings).unwrap()
    }

    fn command(policy: &ToolPolicy, command: &str) -> Policy {
        policy.decide(Tool::Bash, &json!({"command": command}))
    }

    #[test]
    fn without_settings_tools_that_only_read_are_allowed_and_others_are_asked_about() {
        let policy = ToolPolicy::default();
        for tool in Tool::ALL {
            let expected = if tool.read_only() { Policy::Allow } else { Policy::Ask };
            assert_eq!(policy.decide(tool, &json!({"path": "a"})), expected);
        }
    }

    #[test]
    fn the_first_rule_that_matches_the_whole_value_decides() {
        let policy = policy(json!({
            "policy": "deny",
            "rules": [
                {"match": {"command": "git push*"}, "policy": "ask"},
                {"match": {"command": "git *"}, "policy": "allow"},
            ],
        }));
        assert_eq!(command(&policy, "git status"), Policy::Allow);
        assert_eq!(command(&policy, "git push origin"), Policy::Ask);
        assert_eq!(command(&policy, "sudo git status"), Policy::Deny);
        assert_eq!(policy.decide(Tool::Bash, &json!({"stop": "e1"})), Policy::Deny);
    }

    #[test]
    fn a_rule_allows_no_shell_operator_that_it_does_not_show() {
        let policy = policy(json!({
            "rules": [
                {"match": {"command": "npm test | tee *"}, "policy": "allow"},
                {"match": {"command": "git *"}, "policy": "allow"},
            ],
        }));
        for hidden in [
            "git status; rm -rf ~",
            "git status && rm -rf ~",
            "git status & rm x",
            "git log | sh",
            "git log `rm x`",
            "git log $(rm x)",
            "git log ${x@P}",
            "git log\nrm x",
            "git log > x",
            "git log < x",
        ] {
            assert_eq!(command(&policy, hidden), Policy::Ask, "{hidden}");
        }
        assert_eq!(command(&policy, "npm test | tee log"), Policy::Allow);
        assert_eq!(command(&policy, "npm test | tee log; rm x"), Policy::Ask);
    }

    #[test]
    fn rules_that_deny_see_operators_as_any_other_character() {
        let policy = policy(json!({"rules": [{"match": {"command": "*rm*"}, "policy": "deny"}]}));
        assert_eq!(command(&policy, "true; rm x"), Policy::Deny);
    }

    #[test]
    fn a_rule_over_paths_does_not_lead_out_of_the_folder_it_shows() {
        let policy = policy(json!({"rules": [{"match": {"path": "src/*"}, "policy": "allow"}]}));
        let path = |path: &str| policy.decide(Tool::WriteFile, &json!({"path": path, "content": ""}));
        assert_eq!(path("src/deep/a.rs"), Policy::Allow);
        assert_eq!(path("src/../Makefile"), Policy::Ask);
        assert_eq!(path("other/a.rs"), Policy::Ask);
    }
}
