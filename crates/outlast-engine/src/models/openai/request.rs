//! Converts a context to a chat completions request.

use outlast_core::{Context, ContextMessage, Failure, Part, Role};
use serde_json::{Map, Value, json};

use super::super::client::{UpstreamSettings, invalid};
use super::super::options::{LIMITS, accept_options};

/// `limit` is the upstream's name for the limit on tokens.
pub(super) fn body(settings: &UpstreamSettings, context: &Context, limit: &str) -> Result<Value, Failure> {
    let mut body = accept_options(context.options.clone())
        .map_err(|refused| invalid(&format!("the option {refused}")))?;
    limit_tokens(&mut body, settings.max_tokens, limit);
    body.insert("model".to_owned(), settings.model.as_str().into());
    body.insert("messages".to_owned(), messages(context).into());
    body.insert("stream".to_owned(), true.into());
    body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    if !context.tools.is_empty() {
        body.insert("tools".to_owned(), tools(context));
    }
    Ok(Value::Object(body))
}

/// Leaves one limit, the smallest of the client's two and the operator's. It gets the upstream's name, because an
/// upstream may ignore the other one. If the operator sets no limit, the client may choose the name.
fn limit_tokens(body: &mut Map<String, Value>, cap: Option<u64>, name: &str) {
    let [old, new] = LIMITS.map(|name| body.remove(name).as_ref().and_then(Value::as_u64));
    let chosen = if cap.is_none() && old.is_none() && new.is_some() { LIMITS[1] } else { name };
    if let Some(tokens) = [old, new, cap].into_iter().flatten().min() {
        body.insert(chosen.to_owned(), tokens.into());
    }
}

fn tools(context: &Context) -> Value {
    let tool = |tool: &outlast_core::ToolSpec| {
        let mut function = json!({"name": tool.name});
        if let Some(description) = &tool.description {
            function["description"] = description.as_str().into();
        }
        if let Some(parameters) = &tool.parameters {
            function["parameters"] = parameters.clone();
        }
        if let Some(strict) = tool.strict {
            function["strict"] = strict.into();
        }
        json!({"type": "function", "function": function})
    };
    context.tools.iter().map(tool).collect()
}

fn messages(context: &Context) -> Vec<Value> {
    let mut list = Vec::new();
    list.extend(context.system.iter().map(|text| json!({"role": "system", "content": text})));
    for message in &context.messages {
        add(&mut list, message);
    }
    list
}

/// One message of ours may become several, because a tool result is a separate message and tool calls belong to
/// the assistant.
fn add(list: &mut Vec<Value>, message: &ContextMessage) {
    let begin = list.len();
    let speaker = match message.role {
        Role::Assistant => "assistant",
        Role::System => "system",
        Role::User | Role::Tool => "user",
    };
    for part in &message.parts {
        match part {
            Part::Text { text } => {
                content(list, begin, speaker, json!({"type": "text", "text": text}));
            }
            Part::Image { url } => {
                let image = json!({"type": "image_url", "image_url": {"url": url}});
                content(list, begin, speaker, image);
            }
            // Thinking is left out because none of these upstreams accepts it.
            Part::Thinking { .. } => {}
            Part::ToolUse { id, name, input } => {
                let function = json!({"name": name, "arguments": arguments(input)});
                asked(list, json!({"id": id, "type": "function", "function": function}));
            }
            Part::ToolResult { tool_use_id, content, is_error, .. } => {
                let said = if *is_error { format!("Error: {}", answer(content)) } else { answer(content) };
                list.push(json!({"role": "tool", "tool_call_id": tool_use_id, "content": said}));
            }
        }
    }
    for message in &mut list[begin..] {
        flatten(message);
    }
}

/// Adds to the last message if it has this role and was started here. Content is a list until it is flattened.
fn content(list: &mut Vec<Value>, begin: usize, speaker: &str, part: Value) {
    let last = list[begin..].last_mut().filter(|last| last["role"] == speaker);
    match last.and_then(|last| last["content"].as_array_mut()) {
        Some(parts) => parts.push(part),
        None => list.push(json!({"role": speaker, "content": [part]})),
    }
}

/// Tool calls go into one assistant message, after its text.
fn asked(list: &mut Vec<Value>, call: Value) {
    match list.last_mut().filter(|last| last["role"] == "assistant") {
        Some(last) => match last["tool_calls"].as_array_mut() {
            Some(calls) => calls.push(call),
            None => last["tool_calls"] = json!([call]),
        },
        None => list.push(json!({"role": "assistant", "content": [], "tool_calls": [call]})),
    }
}

/// Content that is only text is sent as a string, which every upstream understands.
fn flatten(message: &mut Value) {
    let Some(parts) = message["content"].as_array() else { return };
    if parts.is_empty() {
        message["content"] = Value::Null;
    } else if parts.iter().all(|part| part["type"] == "text") {
        let text: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        message["content"] = text.into();
    }
}

/// Arguments are JSON in a string. If the model sent something else, its literal text was kept.
fn arguments(input: &Value) -> String {
    match input {
        Value::String(raw) => raw.clone(),
        object => object.to_string(),
    }
}

/// A tool result as text.
pub(in super::super) fn answer(content: &Value) -> String {
    let words = |part: &Value| part["text"].as_str().filter(|_| part["type"] == "text").map(str::to_owned);
    let of_parts = |parts: &Vec<Value>| parts.iter().map(words).collect::<Option<String>>();
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => of_parts(parts).unwrap_or_else(|| content.to_string()),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use outlast_core::ToolSpec;

    use super::super::super::client::Secret;
    use super::*;

    fn settings(max_tokens: Option<u64>) -> UpstreamSettings {
        UpstreamSettings {
            base_url: Secret::new("http://a"),
            model: "vendor/name".into(),
            api_key: None,
            headers: BTreeMap::new(),
            max_tokens,
        }
    }

    fn said(role: Role, parts: Value) -> ContextMessage {
        ContextMessage { role, parts: serde_json::from_value(parts).unwrap() }
    }

    fn given(messages: Vec<ContextMessage>) -> Value {
        let context = Context { messages, ..Context::default() };
        body(&settings(None), &context, "max_tokens").unwrap()["messages"].clone()
    }

    fn wishing(max_tokens: Option<u64>, options: Value) -> Result<Value, Failure> {
        let options = options.as_object().unwrap().clone();
        body(&settings(max_tokens), &Context { options, ..Context::default() }, "max_tokens")
    }

    #[test]
    fn b2_text_is_sent_as_a_string_and_instructions_come_first() {
        let context = Context {
            system: Some("be brief".into()),
            messages: vec![
                said(Role::User, json!([{"type": "text", "text": "hi"}])),
                said(
                    Role::Assistant,
                    json!([{"type": "thinking", "text": "hm"}, {"type": "text", "text": "yes"}]),
                ),
                said(Role::System, json!([{"type": "text", "text": "now rhyme"}])),
            ],
            ..Context::default()
        };
        assert_eq!(
            body(&settings(None), &context, "max_tokens").unwrap(),
            json!({
                "model": "vendor/name", "stream": true, "stream_options": {"include_usage": true},
                "messages": [
                    {"role": "system", "content": "be brief"},
                    {"role": "user", "content": "hi"},
                    {"role": "assistant", "content": "yes"},
                    {"role": "system", "content": "now rhyme"},
                ],
            })
        );
    }

    #[test]
    fn b2_images_keep_their_place_between_text() {
        let parts = json!([{"type": "text", "text": "what is"}, {"type": "image", "url": "data:image/png;base64,AA=="}]);
        assert_eq!(
            given(vec![said(Role::User, parts)]),
            json!([{"role": "user", "content": [
                {"type": "text", "text": "what is"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
            ]}])
        );
    }

    #[test]
    fn b2_tool_calls_share_a_message_and_each_result_has_its_own() {
        let messages = vec![
            said(
                Role::Assistant,
                json!([
                    {"type": "text", "text": "let me look"},
                    {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}},
                    {"type": "tool_use", "id": "b", "name": "read", "input": "not { json"},
                ]),
            ),
            said(
                Role::Tool,
                json!([{"type": "tool_result", "toolUseId": "a", "content": "one", "isError": false}]),
            ),
            said(
                Role::Tool,
                json!([{"type": "tool_result", "toolUseId": "b", "content": {"no": 1}, "isError": true}]),
            ),
            said(Role::User, json!([{"type": "text", "text": "and?"}])),
        ];
        assert_eq!(
            given(messages),
            json!([
                {"role": "assistant", "content": "let me look", "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"x\"}"}},
                    {"id": "b", "type": "function", "function": {"name": "read", "arguments": "not { json"}},
                ]},
                {"role": "tool", "tool_call_id": "a", "content": "one"},
                {"role": "tool", "tool_call_id": "b", "content": "Error: {\"no\":1}"},
                {"role": "user", "content": "and?"},
            ])
        );
    }

    #[test]
    fn b2_a_call_and_its_result_in_one_message_become_two() {
        let tool = |id: &str| {
            said(
                Role::Tool,
                json!([
                    {"type": "tool_use", "id": id, "name": "read", "input": {}},
                    {"type": "tool_result", "toolUseId": id, "isError": false,
                     "content": [{"type": "text", "text": "o"}, {"type": "text", "text": "k"}]},
                ]),
            )
        };
        let call = |id: &str| {
            let function = json!({"name": "read", "arguments": "{}"});
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": function}]})
        };
        let answer = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "ok"});
        assert_eq!(
            given(vec![tool("a"), tool("b")]),
            json!([call("a"), answer("a"), call("b"), answer("b")])
        );
    }

    #[test]
    fn b2_options_are_passed_on_but_cannot_replace_our_fields() {
        let options =
            json!({"temperature": 0.5, "stop": ["x"], "response_format": {"type": "json_object"}, "n": 1});
        assert_eq!(
            wishing(None, options).unwrap(),
            json!({
                "model": "vendor/name", "messages": [], "stream": true, "stream_options": {"include_usage": true},
                "temperature": 0.5, "stop": ["x"], "response_format": {"type": "json_object"},
            })
        );
        for (name, value) in [("n", json!(2)), ("model", json!("other")), ("stream", json!(false))] {
            let message = wishing(None, json!({name: value})).unwrap_err().message;
            assert_eq!(message, format!("the option {name} is not supported"));
        }
    }

    #[test]
    fn b2_the_smallest_limit_counts_under_either_name() {
        let limits = |cap, options| {
            let body = wishing(cap, options).unwrap();
            LIMITS.map(|name| body[name].as_u64())
        };
        assert_eq!(limits(None, json!({})), [None, None]);
        assert_eq!(limits(Some(9), json!({})), [Some(9), None]);
        assert_eq!(limits(Some(9), json!({"max_tokens": 5})), [Some(5), None]);
        assert_eq!(limits(Some(9), json!({"max_tokens": 50})), [Some(9), None]);
        assert_eq!(limits(Some(9), json!({"max_completion_tokens": 50})), [Some(9), None]);
        assert_eq!(limits(Some(9), json!({"max_completion_tokens": 5, "max_tokens": 50})), [Some(5), None]);
        assert_eq!(limits(Some(9), json!({"max_completion_tokens": 50, "max_tokens": 5})), [Some(5), None]);
        assert_eq!(
            limits(Some(9), json!({"max_completion_tokens": 50, "max_tokens": null})),
            [Some(9), None]
        );
        assert_eq!(limits(None, json!({"max_completion_tokens": 50})), [None, Some(50)]);
        assert_eq!(limits(None, json!({"max_completion_tokens": 50, "max_tokens": 60})), [Some(50), None]);
        assert!(wishing(Some(9), json!({"max_tokens": 1e9})).unwrap_err().message.contains("max_tokens"));
    }

    #[test]
    fn b2_tools_are_sent_with_their_schema() {
        let parameters = Some(json!({"type": "object"}));
        let tools = vec![
            ToolSpec {
                name: "read".into(),
                description: Some("reads".into()),
                parameters,
                strict: Some(true),
            },
            ToolSpec { name: "now".into(), description: None, parameters: None, strict: None },
        ];
        let context = Context { tools, ..Context::default() };
        assert_eq!(
            body(&settings(None), &context, "max_tokens").unwrap()["tools"],
            json!([
                {"type": "function", "function":
                    {"name": "read", "description": "reads", "parameters": {"type": "object"},
                        "strict": true}},
                {"type": "function", "function": {"name": "now"}},
            ])
        );
    }
}
