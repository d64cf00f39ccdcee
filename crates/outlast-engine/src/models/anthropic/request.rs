//! Converts a context to Anthropic's messages: alternating turns made of blocks.

use outlast_core::{Context, Failure, Part, Role, ToolSpec};
use serde_json::{Map, Value, json};

use super::super::client::{UpstreamSettings, invalid};
use super::super::openai::answer;
use super::options;

/// The API requires a limit. This one is sent if neither the operator nor the client sets one.
const MAX_TOKENS: u64 = 8192;
/// Added before a shortened history that would start with the assistant, which the API refuses.
const EARLIER: &str = "(earlier messages are left out)";

pub(super) fn body(settings: &UpstreamSettings, context: &Context) -> Result<Value, Failure> {
    let mut body = options::translate(&context.options)?;
    let wished = body.get("max_tokens").and_then(Value::as_u64);
    body.insert("max_tokens".to_owned(), settings.tokens(wished).unwrap_or(MAX_TOKENS).into());
    body.insert("model".to_owned(), settings.model.as_str().into());
    body.insert("messages".to_owned(), turns(context)?.into());
    body.insert("stream".to_owned(), true.into());
    if let Some(system) = system(context) {
        body.insert("system".to_owned(), system.into());
    }
    if !context.tools.is_empty() {
        body.insert("tools".to_owned(), context.tools.iter().map(tool).collect());
    }
    Ok(Value::Object(body))
}

/// All system messages become one text, wherever they are.
fn system(context: &Context) -> Option<String> {
    let told = context.messages.iter().filter(|message| message.role == Role::System);
    let all = context.system.iter().cloned().chain(told.map(outlast_core::ContextMessage::text));
    let all: Vec<String> = all.filter(|text| !text.trim().is_empty()).collect();
    (!all.is_empty()).then(|| all.join("\n\n"))
}

fn tool(tool: &ToolSpec) -> Value {
    let schema = tool.parameters.clone().unwrap_or_else(|| json!({"type": "object", "properties": {}}));
    let mut told = json!({"name": tool.name, "input_schema": schema});
    if let Some(description) = &tool.description {
        told["description"] = description.as_str().into();
    }
    // `false` is the default, and older models do not accept the field.
    if tool.strict == Some(true) {
        told["strict"] = true.into();
    }
    told
}

fn turns(context: &Context) -> Result<Vec<Value>, Failure> {
    let mut turns: Vec<Turn> = Vec::new();
    for message in context.messages.iter().filter(|message| message.role != Role::System) {
        for part in &message.parts {
            let speaker = match (part, message.role) {
                (Part::ToolUse { .. }, _) => "assistant",
                (Part::ToolResult { .. }, _) => "user",
                (_, Role::Assistant) => "assistant",
                (_, Role::User | Role::Tool | Role::System) => "user",
            };
            if let Some(block) = block(part)? {
                put(&mut turns, speaker, block);
            }
        }
    }
    if turns.first().is_some_and(|turn| turn.speaker == "assistant") {
        turns.insert(0, Turn { speaker: "user", blocks: vec![json!({"type": "text", "text": EARLIER})] });
    }
    if let Some(last) = turns.last_mut().filter(|turn| turn.speaker == "assistant") {
        last.trim_end();
    }
    Ok(turns.into_iter().map(|turn| json!({"role": turn.speaker, "content": turn.blocks})).collect())
}

struct Turn {
    speaker: &'static str,
    blocks: Vec<Value>,
}

impl Turn {
    /// Trims the partial answer that the model continues, because the API refuses trailing white space.
    fn trim_end(&mut self) {
        let Some(text) = self.blocks.last_mut().and_then(|block| block.get_mut("text")) else { return };
        let trimmed = text.as_str().unwrap_or_default().trim_end().to_owned();
        *text = trimmed.into();
    }
}

/// Adds to the last turn if it has this role. Tool results must come first in their turn.
fn put(turns: &mut Vec<Turn>, speaker: &'static str, block: Value) {
    match turns.last_mut().filter(|turn| turn.speaker == speaker) {
        Some(turn) if block["type"] == "tool_result" => {
            let place = turn.blocks.iter().take_while(|block| block["type"] == "tool_result").count();
            turn.blocks.insert(place, block);
        }
        Some(turn) => turn.blocks.push(block),
        None => turns.push(Turn { speaker, blocks: vec![block] }),
    }
}

fn block(part: &Part) -> Result<Option<Value>, Failure> {
    Ok(match part {
        // The API refuses blank text.
        Part::Text { text } if text.trim().is_empty() => None,
        Part::Text { text } => Some(json!({"type": "text", "text": text})),
        // The API takes thinking back only with its own signature, and demands it before the results of tools.
        Part::Thinking { signature: None, .. } => None,
        Part::Thinking { text, signature: Some(signature) } => {
            Some(match signature.strip_prefix(super::REDACTED) {
                Some(data) => json!({"type": "redacted_thinking", "data": data}),
                None => json!({"type": "thinking", "thinking": text, "signature": signature}),
            })
        }
        Part::Image { url } => Some(json!({"type": "image", "source": source(url)?})),
        Part::ToolUse { id, name, input } => {
            Some(json!({"type": "tool_use", "id": id, "name": name, "input": object(input)}))
        }
        Part::ToolResult { tool_use_id, content, is_error, .. } => {
            let mut block =
                json!({"type": "tool_result", "tool_use_id": tool_use_id, "content": answer(content)});
            if *is_error {
                block["is_error"] = true.into();
            }
            Some(block)
        }
    })
}

fn source(url: &str) -> Result<Value, Failure> {
    let Some(inline) = url.strip_prefix("data:") else { return Ok(json!({"type": "url", "url": url})) };
    let (kind, data) = inline
        .split_once(";base64,")
        .ok_or_else(|| invalid("an image is neither a URL nor a base64 data: URL"))?;
    Ok(json!({"type": "base64", "media_type": kind, "data": data}))
}

/// The API accepts only objects. Text that is not one is wrapped.
fn object(input: &Value) -> Value {
    let Value::String(raw) = input else { return input.clone() };
    match serde_json::from_str(raw) {
        Ok(Value::Object(object)) => Value::Object(object),
        _ => Value::Object(Map::from_iter([("arguments".to_owned(), raw.as_str().into())])),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use outlast_core::ContextMessage;

    use super::super::super::client::Secret;
    use super::*;

    fn settings(max_tokens: Option<u64>) -> UpstreamSettings {
        UpstreamSettings {
            base_url: Secret::new("http://a"),
            model: "claude".into(),
            api_key: None,
            headers: BTreeMap::new(),
            max_tokens,
        }
    }

    fn said(role: Role, parts: Value) -> ContextMessage {
        ContextMessage { role, parts: serde_json::from_value(parts).unwrap() }
    }

    fn text(role: Role, text: &str) -> ContextMessage {
        said(role, json!([{"type": "text", "text": text}]))
    }

    fn given(messages: Vec<ContextMessage>) -> Value {
        body(&settings(None), &Context { messages, ..Context::default() }).unwrap()["messages"].clone()
    }

    #[test]
    fn b2_system_messages_are_joined_and_a_limit_is_always_sent() {
        let context = Context {
            system: Some("be brief".into()),
            messages: vec![text(Role::System, "and kind"), text(Role::User, "hi")],
            tools: vec![ToolSpec {
                name: "now".into(),
                description: Some("the time".into()),
                parameters: None,
                strict: Some(true),
            }],
            ..Context::default()
        };
        assert_eq!(
            body(&settings(None), &context).unwrap(),
            json!({
                "model": "claude", "max_tokens": MAX_TOKENS, "stream": true, "system": "be brief\n\nand kind",
                "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
                "tools": [{"name": "now", "description": "the time", "strict": true,
                    "input_schema": {"type": "object", "properties": {}}}],
            })
        );
        assert_eq!(body(&settings(Some(9)), &context).unwrap()["max_tokens"], 9);
    }

    #[test]
    fn b2_turns_alternate_and_begin_with_the_user() {
        let turns = given(vec![
            text(Role::Assistant, "one"),
            text(Role::User, "two"),
            text(Role::User, "three"),
            text(Role::User, " "),
            text(Role::Assistant, "four "),
        ]);
        assert_eq!(
            turns,
            json!([
                {"role": "user", "content": [{"type": "text", "text": EARLIER}]},
                {"role": "assistant", "content": [{"type": "text", "text": "one"}]},
                {"role": "user", "content": [{"type": "text", "text": "two"}, {"type": "text", "text": "three"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "four"}]},
            ])
        );
    }

    #[test]
    fn b2_tool_calls_and_their_results_are_in_consecutive_turns() {
        let turns = given(vec![
            text(Role::User, "look"),
            said(
                Role::Assistant,
                json!([
                    {"type": "thinking", "text": "hm"},
                    {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}},
                    {"type": "tool_use", "id": "b", "name": "read", "input": "{\"path\":\"y\"}"},
                    {"type": "tool_use", "id": "c", "name": "read", "input": "broken {"},
                ]),
            ),
            text(Role::User, "and hurry"),
            said(
                Role::Tool,
                json!([{"type": "tool_result", "toolUseId": "a", "content": "A", "isError": false}]),
            ),
            said(
                Role::Tool,
                json!([{"type": "tool_result", "toolUseId": "b", "content": "B", "isError": true}]),
            ),
        ]);
        assert_eq!(
            turns[1]["content"],
            json!([
                {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}},
                {"type": "tool_use", "id": "b", "name": "read", "input": {"path": "y"}},
                {"type": "tool_use", "id": "c", "name": "read", "input": {"arguments": "broken {"}},
            ])
        );
        assert_eq!(
            turns[2]["content"],
            json!([
                {"type": "tool_result", "tool_use_id": "a", "content": "A"},
                {"type": "tool_result", "tool_use_id": "b", "content": "B", "is_error": true},
                {"type": "text", "text": "and hurry"},
            ])
        );
    }

    #[test]
    fn b2_thinking_goes_back_with_its_signature_before_the_calls_and_never_without() {
        let turns = given(vec![
            text(Role::User, "look"),
            said(
                Role::Assistant,
                json!([
                    {"type": "thinking", "text": "I must look.", "signature": "c2ln"},
                    {"type": "thinking", "text": "", "signature": "redacted:AAAA"},
                    {"type": "thinking", "text": "unsigned"},
                    {"type": "text", "text": "Looking."},
                    {"type": "tool_use", "id": "a", "name": "read", "input": {}},
                ]),
            ),
            said(
                Role::Tool,
                json!([{"type": "tool_result", "toolUseId": "a", "content": "A", "isError": false}]),
            ),
        ]);
        assert_eq!(
            turns[1]["content"],
            json!([
                {"type": "thinking", "thinking": "I must look.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "AAAA"},
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "a", "name": "read", "input": {}},
            ])
        );
    }

    #[test]
    fn b2_images_are_sent_inline_or_as_urls() {
        let source = |url: &str| source(url).map_err(|failure| failure.message);
        let inline = json!({"type": "base64", "media_type": "image/png", "data": "AA=="});
        assert_eq!(source("data:image/png;base64,AA=="), Ok(inline));
        assert_eq!(source("https://a/b.png"), Ok(json!({"type": "url", "url": "https://a/b.png"})));
        assert!(source("data:image/svg+xml,<svg/>").is_err());
    }
}
