//! The body of a chat completion, and the start that it asks for.

use axum::http::HeaderMap;
use outlast_core::{Brief, ConversationId, MessageId, Prompt, RequestId, ToolSpec, WhenBusy};
use outlast_engine::{StartRequest, accept_options};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use self::messages::MessageBody;
use super::super::body::{RequestName, request_id};
use super::super::error::Problem;
use super::super::free::Metadata;
use super::super::generations::WhenBusyName;

mod messages;

/// The maximum length of an id that a client chooses.
const ID_BYTES_MAX: usize = 200;

/// OpenAI's fields that Outlast uses, Outlast's own fields, and the options for the upstream.
#[derive(Deserialize, ToSchema)]
#[schema(as = ChatCompletion)]
pub(crate) struct CompletionBody {
    model: Option<String>,
    messages: Option<Vec<MessageBody>>,
    tools: Option<Vec<ToolBody>>,
    n: Option<u64>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    background: Option<bool>,
    #[serde(rename = "threadId")]
    thread_id: Option<String>,
    #[serde(rename = "messageId")]
    message_id: Option<String>,
    #[serde(rename = "requestId")]
    request_id: Option<RequestName>,
    #[serde(rename = "whenBusy")]
    when_busy: Option<WhenBusyName>,
    metadata: Option<Metadata>,
    /// For the upstream, if they are on the list of supported options.
    #[serde(flatten)]
    options: Map<String, Value>,
}

#[derive(Deserialize, ToSchema)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = CompletionTool)]
enum ToolBody {
    Function { function: ToolSpec },
}

/// How the client wants to receive its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Delivery {
    /// As a job.
    Background,
    /// In chunks, as it is produced.
    Stream { include_usage: bool },
    /// As one object, when it is complete.
    Whole,
}

impl CompletionBody {
    pub(crate) fn delivery(&self) -> Delivery {
        let include_usage = self.stream_options.as_ref().and_then(|options| options.include_usage);
        match (self.background, self.stream) {
            (Some(true), _) => Delivery::Background,
            (_, Some(true)) => Delivery::Stream { include_usage: include_usage.unwrap_or_default() },
            _ => Delivery::Whole,
        }
    }

    pub(crate) fn into_request(self, headers: &HeaderMap) -> Result<StartRequest, Problem> {
        let model = self.model.ok_or_else(|| missing("model"))?;
        if self.n.is_some_and(|n| n != 1) {
            return Err(Problem::wrong("n", "only one answer at a time is supported: omit it, or pass 1"));
        }
        if self.background == Some(true) {
            // The client of a job must be able to find it again.
            self.thread_id.as_ref().ok_or_else(|| missing("threadId"))?;
            self.message_id.as_ref().ok_or_else(|| missing("messageId"))?;
        }
        let thread = self.thread_id.map(|id| checked("threadId", id)).transpose()?;
        let answer = self.message_id.map(|id| checked("messageId", id)).transpose()?;
        let named = request_id(headers, self.request_id);
        let messages = messages::to_context(self.messages.ok_or_else(|| missing("messages"))?)?;
        let last = messages.last().cloned().ok_or_else(|| Problem::wrong("messages", "must not be empty"))?;
        let options = accept_options(self.options)
            .map_err(|refused| Problem::invalid(&refused.name, refused.reason))?;
        let tools = self.tools.unwrap_or_default().into_iter();
        let tools = tools.map(|ToolBody::Function { function }| function).collect();
        Ok(StartRequest {
            conversation: thread.map(ConversationId::from),
            create: true,
            role: last.role,
            // The id of the answer is also the idempotency key: a request that repeats it means the same answer.
            request: answer.as_deref().map(RequestId::from).or(named),
            brief: Brief {
                model,
                prompt: Some(Prompt { messages, tools, options }),
                answer_id: answer.map(MessageId::from),
                metadata: self.metadata.map(Value::from),
                ..Brief::default()
            },
            when_busy: self.when_busy.map_or(WhenBusy::Reject, WhenBusy::from),
            ..StartRequest::new(last.parts)
        })
    }
}

fn missing(field: &str) -> Problem {
    Problem::wrong(field, "is missing")
}

/// Checks that an id can be used in a path, in a header and in the log.
fn checked(field: &str, id: String) -> Result<String, Problem> {
    let forbidden = |letter: char| letter.is_control() || letter == '/';
    if id.is_empty() || id.len() > ID_BYTES_MAX || id.contains(forbidden) || id == "." || id == ".." {
        let detail = format!("must have 1 to {ID_BYTES_MAX} bytes and no control characters or slashes");
        return Err(Problem::wrong(field, detail));
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use outlast_core::{Part, Role};
    use serde_json::json;

    use super::super::super::body::parse;
    use super::*;

    fn request(body: Value) -> Result<StartRequest, Problem> {
        let body: CompletionBody = parse(body.to_string().as_bytes()).map_err(Problem::into_wrong)?;
        body.into_request(&HeaderMap::new())
    }

    #[test]
    fn b3_messages_tools_and_options_become_a_prompt() {
        let request = request(json!({
            "model": "default",
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [
                    {"type": "text", "text": "Look:"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
                ]},
                {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{\"a\":1}"}},
                ]},
                {"role": "tool", "tool_call_id": "call_1", "content": "done"},
            ],
            "tools": [{"type": "function", "function": {"name": "read", "strict": true,
                "parameters": {"type": "object"}}}],
            "temperature": 0.5,
            "stream": true,
            "metadata": {"tab": 1},
        }))
        .unwrap();
        assert_eq!((request.role, request.create), (Role::Tool, true));
        let result = Part::tool_result("call_1".into(), json!("done"), false);
        assert_eq!(request.parts, [result]);
        assert_eq!(request.brief.metadata, Some(json!({"tab": 1})));
        let prompt = request.brief.prompt.unwrap();
        assert_eq!(json!(prompt.options), json!({"temperature": 0.5}));
        assert_eq!((prompt.tools[0].name.as_str(), prompt.tools[0].strict), ("read", Some(true)));
        let roles: Vec<Role> = prompt.messages.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::System, Role::User, Role::Assistant, Role::Tool]);
        assert_eq!(prompt.messages[1].parts.len(), 2);
        let call = Part::ToolUse { id: "call_1".into(), name: "read".into(), input: json!({"a": 1}) };
        assert_eq!(prompt.messages[2].parts, [call]);
    }

    #[test]
    fn b3_a_missing_or_wrong_field_is_named() {
        let said = json!([{"role": "user", "content": "hi"}]);
        let long = "x".repeat(201);
        for (body, field) in [
            (json!({"messages": said}), "model"),
            (json!({"model": 1, "messages": said}), "model"),
            (json!({"model": "m"}), "messages"),
            (json!({"model": "m", "messages": []}), "messages"),
            (json!({"model": "m", "messages": "hi"}), "messages"),
            (json!({"model": "m", "messages": [{"role": "king", "content": "hi"}]}), "messages[0].role"),
            (json!({"model": "m", "messages": [{"role": "user"}]}), "messages[0].content"),
            (json!({"model": "m", "messages": [{"role": "user", "content": 1}]}), "messages[0].content"),
            (
                json!({"model": "m", "messages": [{"role": "tool", "content": "x"}]}),
                "messages[0].tool_call_id",
            ),
            (json!({"model": "m", "messages": [{"role": "assistant"}]}), "messages[0].content"),
            (json!({"model": "m", "messages": said, "n": 2}), "n"),
            (json!({"model": "m", "messages": said, "tools": [{"type": "search"}]}), "tools[0].type"),
            (json!({"model": "m", "messages": said, "whenBusy": "wait"}), "whenBusy"),
            (json!({"model": "m", "messages": said, "background": "yes"}), "background"),
            (json!({"model": "m", "messages": said, "background": true, "messageId": "a"}), "threadId"),
            (json!({"model": "m", "messages": said, "background": true, "threadId": "t"}), "messageId"),
            (json!({"model": "m", "messages": said, "threadId": ""}), "threadId"),
            (json!({"model": "m", "messages": said, "threadId": "a/b"}), "threadId"),
            (json!({"model": "m", "messages": said, "threadId": ".."}), "threadId"),
            (json!({"model": "m", "messages": said, "messageId": "a\u{7f}"}), "messageId"),
            (json!({"model": "m", "messages": said, "messageId": long}), "messageId"),
        ] {
            let problem = request(body.clone()).expect_err(&body.to_string()).to_json();
            assert_eq!((&problem["status"], &problem["field"]), (&json!(400), &json!(field)), "{body}");
        }
    }

    #[test]
    fn an_option_that_is_not_passed_on_is_refused_by_name() {
        let said = json!([{"role": "user", "content": "hi"}]);
        for (name, value) in [
            ("provider", json!({"order": ["x"]})),
            ("service_tier", json!("priority")),
            ("functions", json!([])),
            ("logprobs", json!(true)),
            ("max_tokens", json!(1e9)),
            ("max_completion_tokens", json!("many")),
        ] {
            let problem =
                request(json!({"model": "m", "messages": said, name: value})).unwrap_err().to_json();
            assert_eq!((&problem["status"], &problem["field"]), (&json!(422), &json!(name)), "{problem}");
        }
        let usual =
            json!({"model": "m", "messages": said, "n": 1, "store": false, "seed": null, "top_p": 0.9});
        assert_eq!(json!(request(usual).unwrap().brief.prompt.unwrap().options), json!({"top_p": 0.9}));
    }

    #[test]
    fn i20_arguments_that_are_nested_too_deep_are_kept_as_text() {
        let arguments = format!("{}1{}", r#"{"a":"#.repeat(100), "}".repeat(100));
        let call = json!({"id": "a", "type": "function", "function": {"name": "t", "arguments": arguments}});
        let said = json!([{"role": "assistant", "tool_calls": [call]}, {"role": "user", "content": "hi"}]);
        let prompt = request(json!({"model": "m", "messages": said})).unwrap().brief.prompt.unwrap();
        let kept = Part::ToolUse { id: "a".into(), name: "t".into(), input: json!(arguments) };
        assert!(prompt.messages[0].parts == [kept]);
    }

    #[test]
    fn b3_the_id_of_the_answer_is_the_idempotency_key() {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}],
            "messageId": "ä 1", "requestId": "r"});
        let request = request(body).unwrap();
        assert_eq!(request.request, Some("ä 1".into()));
        assert_eq!(request.brief.answer_id, Some("ä 1".into()));
        assert_eq!(request.conversation, None);
    }
}
