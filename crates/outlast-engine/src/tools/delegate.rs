//! What a model is told about sub-agents.

use outlast_core::{DELEGATE, ToolSpec, UPDATE_PLAN};
use serde_json::{Value, json};

/// The tools that need nothing but the server itself.
pub(super) fn spec(name: &str) -> Option<ToolSpec> {
    let (description, parameters) = match name {
        DELEGATE => (
            "Give a task to a sub-agent and wait for its result. It has the same tools and a sandbox of its own, knows \
             nothing of this conversation, and cannot ask you back: put everything it needs into `task`. Calls in one \
             answer run side by side.",
            object(json!({"task": {"type": "string"}}), &["task"]),
        ),
        UPDATE_PLAN => (
            "Replace your working memory: the plan, the tasks that are still open, the files you work on, and errors \
             worth remembering.",
            object(json!({"plan": list(), "openTasks": list(), "files": list(), "errors": list()}), &[]),
        ),
        _ => return None,
    };
    let (name, description) = (name.to_owned(), Some(description.to_owned()));
    Some(ToolSpec { name, description, parameters: Some(parameters), strict: None })
}

fn list() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
