//! Returns a generation as one completion when it has ended.

use axum::response::{IntoResponse, Response};
use outlast_core::{GenerationDocument, GenerationId, GenerationStatus, Head, Part, plain_text};
use outlast_engine::{Frame, StreamEnd};
use serde_json::{Value, json};

use super::super::caller::{Caller, Write};
use super::super::error::Problem;
use super::super::streamed::StreamedJson;
use crate::auth::AuthError;

use super::chunks::{Usage, completion_id, created, finish_reason, tool_call};
use super::is_settled;

pub(super) async fn answer(caller: &Caller<Write>, id: &GenerationId) -> Result<Response, Problem> {
    let document = settled(caller, id).await?;
    match document.status {
        GenerationStatus::Completed => Ok(StreamedJson(completion(&document)).into_response()),
        _ => Err(Problem::without_answer(&document)),
    }
}

/// Waits until the generation has ended, or waits for a person.
async fn settled(caller: &Caller<Write>, id: &GenerationId) -> Result<GenerationDocument, Problem> {
    let (user, principal) = (caller.user(), caller.principal());
    loop {
        let document = caller.engine().generation(user, id).await?;
        if is_settled(document.status) {
            return Ok(document);
        }
        let mut events = caller.engine().stream_generation(user, id, Some(document.last_seq)).await?;
        loop {
            let next = tokio::select! {
                biased;
                () = principal.ended() => return Err(Problem::from(AuthError::Invalid).left_alone(id)),
                next = events.next() => next,
            };
            match next {
                Ok(Frame::Events(batch)) if batch.heads().iter().any(settles) => break,
                Ok(Frame::Events(_) | Frame::KeepAlive) => {}
                Ok(Frame::Snapshot(_)) | Err(StreamEnd::Complete) => break,
                Err(StreamEnd::Stopping) => return Err(Problem::draining().left_alone(id)),
                Err(StreamEnd::Failed(error)) => return Err(error.into()),
            }
        }
    }
}

fn settles(head: &Head) -> bool {
    head.is_end() || head.kind == "chat.interrupted"
}

fn completion(document: &GenerationDocument) -> Value {
    let parts = document.parts();
    let text = plain_text(parts);
    let calls: Vec<Value> = parts.iter().filter_map(call).collect();
    let thinking: String = parts.iter().filter_map(thinking).collect();
    let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { text.into() };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !thinking.is_empty() {
        message["reasoning_content"] = thinking.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    let reason = finish_reason(document.end_reason.as_deref().unwrap_or_default());
    json!({
        "id": completion_id(document),
        "object": "chat.completion",
        "created": created(document),
        "model": document.brief.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": reason}],
        "usage": Usage::of(document),
    })
}

fn call(part: &Part) -> Option<Value> {
    match part {
        Part::ToolUse { id, name, input } => Some(tool_call(id, name, input)),
        Part::Text { .. } | Part::Thinking { .. } | Part::Image { .. } | Part::ToolResult { .. } => None,
    }
}

fn thinking(part: &Part) -> Option<&str> {
    match part {
        Part::Thinking { text } => Some(text),
        Part::Text { .. } | Part::Image { .. } | Part::ToolUse { .. } | Part::ToolResult { .. } => None,
    }
}
