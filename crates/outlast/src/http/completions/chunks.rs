//! Encodes events as OpenAI's chunks.

use outlast_core::{Event, GenerationDocument, GenerationId, GenerationStatus, Part};
use serde::Serialize;
use serde_json::{Value, json};

use super::super::error::Problem;
use super::is_settled;

/// Turns one generation into chunks: first the content of its document, then one event after another.
pub(super) struct Chunks {
    job: GenerationId,
    id: String,
    created: i64,
    model: String,
    include_usage: bool,
    usage: Usage,
    tools: usize,
    /// Whether anything was sent that could be retracted.
    said: bool,
    over: bool,
    out: Vec<u8>,
}

#[derive(Clone, Copy, Default, Serialize)]
pub(super) struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

impl Usage {
    pub(super) fn of(document: &GenerationDocument) -> Usage {
        let mut usage = Usage::default();
        usage.add(document.input_tokens, document.output_tokens);
        usage
    }

    fn add(&mut self, input: u64, output: u64) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(input);
        self.completion_tokens = self.completion_tokens.saturating_add(output);
        self.total_tokens = self.prompt_tokens.saturating_add(self.completion_tokens);
    }
}

/// One chunk. Without `include_usage` there is no `usage`; with it, `usage` is null in all but the last chunk.
#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: &'a [Value],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

pub(super) fn completion_id(document: &GenerationDocument) -> String {
    format!("chatcmpl-{}", document.id)
}

/// In seconds, as in OpenAI's API.
pub(super) fn created(document: &GenerationDocument) -> i64 {
    document.created_at.0.div_euclid(1000)
}

impl Chunks {
    /// Starts with the role and with everything the generation has said and not retracted so far. So a
    /// repeated request gets the whole answer, whatever happened to the first one.
    pub(super) fn new(document: &GenerationDocument, include_usage: bool) -> Chunks {
        let mut chunks = Chunks {
            job: document.id.clone(),
            id: completion_id(document),
            created: created(document),
            model: document.brief.model.clone(),
            include_usage,
            usage: Usage::of(document),
            tools: 0,
            said: false,
            over: false,
            out: Vec::new(),
        };
        chunks.delta(&json!({"role": "assistant", "content": ""}), None);
        for part in document.parts() {
            chunks.part(part);
        }
        if is_settled(document.status) {
            chunks.settle(document);
        }
        chunks
    }

    /// Ends the stream because the generation has ended or waits for a person.
    pub(super) fn settle(&mut self, document: &GenerationDocument) {
        match document.status {
            GenerationStatus::Completed => self.finish(document.end_reason.as_deref().unwrap_or_default()),
            _ => self.fail(&Problem::without_answer(document)),
        }
    }

    pub(super) fn over(&self) -> bool {
        self.over
    }

    /// The chunks that have not been sent yet.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Encodes the next event. If a generation ends without an answer, its document says how.
    pub(super) fn event(&mut self, event: &Event) -> Next {
        if self.over {
            return Next::GoOn;
        }
        match event {
            Event::ChatDelta { text, .. } => self.part(&Part::Text { text: text.clone() }),
            Event::ThinkingDelta { text, .. } => self.part(&Part::Thinking { text: text.clone() }),
            Event::ToolStart { tool_use_id, tool_name, tool_input, .. } => {
                let (id, name, input) = (tool_use_id.clone(), tool_name.clone(), tool_input.clone());
                self.part(&Part::ToolUse { id, name, input });
            }
            Event::Usage { input_tokens, output_tokens } => {
                self.usage.add(*input_tokens, *output_tokens);
            }
            Event::AttemptRetracted { .. } if self.said => self.fail(&Problem::retracted(&self.job)),
            Event::ChatDone { finish_reason } => self.finish(finish_reason),
            Event::ChatInterrupted { .. } => return Next::Settled,
            end if end.is_end() => return Next::Settled,
            // OpenAI's chunks cannot express any other event.
            _ => {}
        }
        Next::GoOn
    }

    /// Ends the stream with an error, which the client's library raises.
    pub(super) fn fail(&mut self, problem: &Problem) {
        write(&mut self.out, &json!({"error": problem.error_object()}));
        self.over = true;
    }

    fn part(&mut self, part: &Part) {
        let delta = match part {
            Part::Text { text } => json!({"content": text}),
            Part::Thinking { text } => json!({"reasoning_content": text}),
            Part::ToolUse { id, name, input } => {
                let mut call = tool_call(id, name, input);
                call["index"] = json!(self.tools);
                self.tools += 1;
                json!({"tool_calls": [call]})
            }
            Part::ToolResult { .. } | Part::Image { .. } => return,
        };
        self.said = true;
        self.delta(&delta, None);
    }

    fn finish(&mut self, reason: &str) {
        self.delta(&json!({}), Some(finish_reason(reason)));
        if self.include_usage {
            self.chunk(&[], Some(Some(self.usage)));
        }
        self.out.extend_from_slice(b"data: [DONE]\n\n");
        self.over = true;
    }

    fn delta(&mut self, delta: &Value, finish_reason: Option<&str>) {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason});
        self.chunk(&[choice], self.include_usage.then_some(None));
    }

    fn chunk(&mut self, choices: &[Value], usage: Option<Option<Usage>>) {
        let chunk = Chunk {
            id: &self.id,
            object: "chat.completion.chunk",
            created: self.created,
            model: &self.model,
            choices,
            usage,
        };
        write(&mut self.out, &chunk);
    }
}

fn write(out: &mut Vec<u8>, data: &impl Serialize) {
    out.extend_from_slice(b"data: ");
    serde_json::to_writer(&mut *out, data).expect("a chunk has string keys and a Vec never fails");
    out.extend_from_slice(b"\n\n");
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Next {
    GoOn,
    /// The generation has ended, or waits for a person, without an answer. Read its document.
    Settled,
}

/// A tool call in OpenAI's form.
pub(super) fn tool_call(id: &str, name: &str, input: &Value) -> Value {
    let arguments = match input {
        Value::String(text) => text.clone(),
        input => input.to_string(),
    };
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

/// Maps every vendor's reason to one of OpenAI's. An unknown one is `stop`.
pub(super) fn finish_reason(reason: &str) -> &'static str {
    match reason {
        "length" | "max_tokens" | "model_context_window_exceeded" => "length",
        "tool_calls" | "tool_use" | "function_call" => "tool_calls",
        "content_filter" | "refusal" => "content_filter",
        _ => "stop",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b3_every_vendors_finish_reason_maps_to_one_of_openais() {
        for (reason, expected) in [
            ("stop", "stop"),
            ("end_turn", "stop"),
            ("stop_sequence", "stop"),
            ("something new", "stop"),
            ("length", "length"),
            ("max_tokens", "length"),
            ("tool_calls", "tool_calls"),
            ("tool_use", "tool_calls"),
            ("content_filter", "content_filter"),
            ("refusal", "content_filter"),
        ] {
            assert_eq!(finish_reason(reason), expected, "{reason}");
        }
    }

    #[test]
    fn b3_arguments_that_are_not_an_object_are_passed_on_unchanged() {
        assert_eq!(tool_call("c", "t", &json!("{\"a\":"))["function"]["arguments"], "{\"a\":");
        assert_eq!(tool_call("c", "t", &json!({"a": 1}))["function"]["arguments"], "{\"a\":1}");
    }
}
