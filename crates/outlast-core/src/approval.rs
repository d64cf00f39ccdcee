//! A tool call that needs a person's decision, and the hash that binds the decision to it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use crate::{Decision, Patterns};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    pub tool_use_id: String,
    pub tool_name: String,
    /// Null once the question is decided: the input is in the log, and the state stays small.
    pub tool_input: Value,
    /// Identifies the tool, its arguments and the attempt. A decision that carries it applies to these and no
    /// others. Empty if the question was asked before there were hashes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// The attempt in which the question was asked. Not sent to clients.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(ignore)]
    pub attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
}

impl Approval {
    /// As clients see it.
    pub fn shown(&self) -> Approval {
        Approval { attempt: 0, ..self.clone() }
    }

    /// Whether asking this again would be the same question.
    pub(crate) fn asks(&self, tool_name: &str, tool_input: &Value) -> bool {
        let same_input = match &self.tool_input {
            Value::Null => self.hash == approval_hash(tool_name, tool_input, self.attempt),
            asked => asked == tool_input,
        };
        self.tool_name == tool_name && same_input
    }
}

fn is_zero(attempt: &u32) -> bool {
    *attempt == 0
}

/// What a person decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    pub decision: Decision,
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether it applies to every later call of this tool in this conversation.
    #[serde(default)]
    pub always: bool,
    /// The arguments that `always` is limited to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub pattern: Option<Patterns>,
}

/// The hash of a question. Object keys are sorted, so equal arguments have equal hashes however they were
/// written.
pub fn approval_hash(tool_name: &str, tool_input: &Value, attempt: u32) -> String {
    let canonical = serde_json::json!([attempt, tool_name, tool_input]).to_string();
    Sha256::digest(canonical.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn i8_a_hash_identifies_tool_arguments_and_attempt_whatever_the_order_of_keys() {
        let one: Value = serde_json::from_str(r#"{"a": 1, "b": {"c": 2, "d": 3}}"#).unwrap();
        let other: Value = serde_json::from_str(r#"{"b": {"d": 3, "c": 2}, "a": 1}"#).unwrap();
        assert_eq!(approval_hash("bash", &one, 1), approval_hash("bash", &other, 1));
        let hash = approval_hash("bash", &json!({"command": "ls"}), 1);
        assert_ne!(hash, approval_hash("bash", &json!({"command": "rm -rf ~"}), 1));
        assert_ne!(hash, approval_hash("sh", &json!({"command": "ls"}), 1));
        assert_ne!(hash, approval_hash("bash", &json!({"command": "ls"}), 2));
    }
}
