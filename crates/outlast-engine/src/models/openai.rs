//! OpenAI-compatible chat completions: OpenRouter, OpenAI, vLLM, Ollama, llama.cpp and many others.

mod request;

pub(super) use request::answer;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use outlast_core::{Context, Failure, TextKind};
use reqwest::header::AUTHORIZATION;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::{self, Calls, Dialect, Endpoint, Out, Secret, UpstreamSettings, broke_off, transient};
use super::options::LIMITS;
use super::{Model, ModelStream};

/// At these hosts, newer models refuse `max_tokens` and expect `max_completion_tokens`.
const OPENAI: &str = "api.openai.com";
const AZURE: &str = ".openai.azure.com";

/// A model behind an OpenAI-compatible address.
#[derive(Debug)]
pub struct OpenAiModel {
    settings: UpstreamSettings,
    endpoint: Endpoint,
}

impl OpenAiModel {
    /// Checks the settings; no connection is opened yet.
    pub fn new(settings: UpstreamSettings) -> Result<OpenAiModel, String> {
        let key = settings.api_key.as_ref().map(Secret::expose);
        let key = key.map(|key| (AUTHORIZATION, format!("Bearer {key}")));
        let endpoint = Endpoint::new("/chat/completions", &settings, key.into_iter().collect())?;
        Ok(OpenAiModel { settings, endpoint })
    }
}

impl Model for OpenAiModel {
    fn call(&self, context: Context) -> ModelStream {
        let host = self.endpoint.host();
        let [old, new] = LIMITS;
        let limit = if host == OPENAI || host.ends_with(AZURE) { new } else { old };
        let body = request::body(&self.settings, &context, limit);
        self.endpoint.stream(body, Completions::default())
    }
}

/// The dialect: chunks, then `[DONE]` or the end of the body. Usage may come after the finish reason.
#[derive(Default)]
pub(super) struct Completions {
    finish_reason: Option<String>,
    /// Some upstreams send running totals with every chunk. The last one counts.
    usage: Option<Value>,
    calls: Calls,
}

impl Dialect for Completions {
    fn event(&mut self, data: &str, out: &mut Out) {
        if data == "[DONE]" {
            return self.end(transient("upstream response ended without a finish reason"), out);
        }
        match serde_json::from_str(data) {
            Ok(chunk) => self.chunk(chunk, out),
            Err(_) => self.end(transient("upstream sent an event that is not a completion chunk"), out),
        }
    }

    fn document(&mut self, document: &[u8], out: &mut Out) {
        self.event(&String::from_utf8_lossy(document), out);
        self.end(transient("upstream response ended without a finish reason"), out);
    }

    fn is_complete(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// With a finish reason the answer is complete, however the body ends; without one it is incomplete.
    fn end(&mut self, cut: Failure, out: &mut Out) {
        let reason = self.finish_reason.take();
        if reason.is_some() {
            self.calls.complete_all(out);
        }
        if let Some(usage) = self.usage.take() {
            let count = |name: &str| usage[name].as_u64().unwrap_or_default();
            out.usage(count("prompt_tokens"), count("completion_tokens"));
        }
        match reason {
            Some(reason) => out.finish(reason),
            None => out.fail(cut),
        }
    }
}

impl Completions {
    fn chunk(&mut self, chunk: Chunk<'_>, out: &mut Out) {
        if let Some(error) = chunk.error {
            return self.end(broke_off(&error), out);
        }
        // Only the first choice is read, because the texts of several would be mixed up.
        let choices = chunk.choices.unwrap_or_default();
        for choice in choices.into_iter().filter(|choice| choice.index.unwrap_or_default() == 0) {
            self.said(choice.delta.or(choice.message).unwrap_or_default(), out);
            let reason = choice.finish_reason.map(|reason| reason.0.into_owned());
            let reason = reason.filter(|reason| !reason.is_empty());
            if reason.as_deref() == Some("error") {
                return self.end(broke_off(&Value::Null), out);
            }
            self.finish_reason = reason.or(self.finish_reason.take());
        }
        self.usage = chunk.usage.or(self.usage.take());
    }

    fn said(&mut self, delta: Delta<'_>, out: &mut Out) {
        if let Some(text) = delta.reasoning.or(delta.reasoning_content) {
            out.text(TextKind::Thinking, &text.0);
        }
        // A refusal is shown as text. The finish reason says why the model stopped.
        let content = delta.content.map(|content| content.0);
        for text in content.into_iter().chain(delta.refusal.map(|refusal| refusal.0)) {
            out.text(TextKind::Answer, &text);
        }
        for call in delta.tool_calls.unwrap_or_default() {
            let function = call.function.unwrap_or_default();
            let arguments = function.arguments.map(text_of).unwrap_or_default();
            let text = |text: &Option<Text<'_>>| text.as_ref().map(|text| text.0.to_string());
            let delta = client::Delta {
                index: call.index,
                id: &text(&call.id).unwrap_or_default(),
                name: &text(&function.name).unwrap_or_default(),
                arguments: &arguments,
            };
            self.calls.add(&delta, out);
        }
    }
}

/// Arguments are a string that contains JSON. Some upstreams send the JSON itself.
fn text_of(arguments: &RawValue) -> Cow<'_, str> {
    match serde_json::from_str::<Option<Text<'_>>>(arguments.get()) {
        Ok(text) => text.map(|text| text.0).unwrap_or_default(),
        Err(_) => Cow::Borrowed(arguments.get()),
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default)]
    usage: Option<Value>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    /// Replaces the delta in an answer that is one document.
    #[serde(borrow, default)]
    message: Option<Delta<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<Content<'a>>,
    #[serde(borrow, default)]
    refusal: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<ToolCall<'a>>>,
}

#[derive(Deserialize)]
struct ToolCall<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    function: Option<Function<'a>>,
}

#[derive(Default, Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

/// A string that is borrowed from the event unless it contains escapes. Inside an `Option`, serde would always
/// copy a plain `Cow`.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A string or, from a few upstreams, a list of parts. Parts without text are ignored.
struct Content<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Content<'a>, D::Error> {
        deserializer.deserialize_any(ContentVisitor(PhantomData)).map(Content)
    }
}

struct ContentVisitor<'a>(PhantomData<&'a str>);

impl<'de: 'a, 'a> Visitor<'de> for ContentVisitor<'a> {
    type Value = Cow<'a, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or a list of parts")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Cow<'a, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'a, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Cow<'a, str>, A::Error> {
        let mut said = String::new();
        while let Some(part) = parts.next_element::<Value>()? {
            said.push_str(part["text"].as_str().unwrap_or_default());
        }
        Ok(Cow::Owned(said))
    }
}
