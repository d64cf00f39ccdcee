//! OpenAI-compatible chat completions: OpenRouter, OpenAI, vLLM, Ollama, llama.cpp and many others.

use std::borrow::Cow;

use outlast_core::{Context, Role, TextKind};
use serde::Deserialize;
use serde_json::{Value, json};

use super::wire::{Dialect, Endpoint, Out, broke_off, transient};
use super::{Model, ModelStream};

/// Where and as what to call.
#[derive(Clone)]
pub struct OpenAiSettings {
    /// Everything before `/chat/completions`.
    pub base_url: String,
    /// The upstream's name for the model.
    pub model: String,
    /// The key, if one is needed.
    pub api_key: Option<String>,
}

impl std::fmt::Debug for OpenAiSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key is for the upstream alone.
        f.debug_struct("OpenAiSettings")
            .field("base_url", &self.base_url)
            .field("model", &self.model)
            .finish()
    }
}

/// A model behind an OpenAI-compatible address.
#[derive(Debug)]
pub struct OpenAiModel {
    settings: OpenAiSettings,
    endpoint: Endpoint,
}

impl OpenAiModel {
    /// Checks the address; no connection is opened yet.
    pub fn new(settings: OpenAiSettings) -> Result<OpenAiModel, String> {
        let url = format!("{}/chat/completions", settings.base_url.trim_end_matches('/'));
        Ok(OpenAiModel { endpoint: Endpoint::new(&url)?, settings })
    }
}

impl Model for OpenAiModel {
    fn call(&self, context: Context) -> ModelStream {
        let body = body(&self.settings.model, &context);
        self.endpoint.stream(&body, self.settings.api_key.as_deref(), Completions::default())
    }
}

fn body(model: &str, context: &Context) -> Value {
    let system = context.system.iter().map(|text| json!({"role": "system", "content": text}));
    let messages = context.messages.iter().map(|message| {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::System | Role::Tool => "system",
        };
        json!({"role": role, "content": message.text()})
    });
    let messages: Vec<Value> = system.chain(messages).collect();
    json!({"model": model, "messages": messages, "stream": true, "stream_options": {"include_usage": true}})
}

/// The dialect: chunks, then `[DONE]` or the end of the bytes. Usage may come after the finish reason.
#[derive(Default)]
struct Completions {
    finish_reason: Option<String>,
    /// Some upstreams count up in every chunk: the last one is the sum.
    usage: Option<Usage>,
}

impl Dialect for Completions {
    fn event(&mut self, data: &[u8], out: &mut Out) {
        if data == b"[DONE]" {
            return self.end(out);
        }
        // Checked once as a whole: from bytes, the parser would check each string by itself.
        let chunk = std::str::from_utf8(data).ok().and_then(|text| serde_json::from_str(text).ok());
        match chunk {
            Some(chunk) => self.chunk(chunk, out),
            None => out.fail(transient("upstream sent what is not JSON")),
        }
    }

    /// Without a finish reason the answer was cut short, however clean the end.
    fn end(&mut self, out: &mut Out) {
        if let Some(usage) = self.usage.take() {
            out.usage(usage.prompt_tokens, usage.completion_tokens);
        }
        match self.finish_reason.take() {
            Some(reason) => out.finish(reason),
            None => out.fail(transient("upstream ended too early")),
        }
    }
}

impl Completions {
    fn chunk(&mut self, chunk: Chunk<'_>, out: &mut Out) {
        if let Some(error) = chunk.error {
            return out.fail(broke_off(&error));
        }
        for choice in chunk.choices.unwrap_or_default() {
            let delta = choice.delta.unwrap_or_default();
            if let Some(text) = delta.reasoning.or(delta.reasoning_content) {
                out.text(TextKind::Thinking, &text.0);
            }
            if let Some(text) = delta.content {
                out.text(TextKind::Answer, &text.0);
            }
            let reason = choice.finish_reason.map(|reason| reason.0.into_owned());
            let reason = reason.filter(|reason| !reason.is_empty());
            self.finish_reason = reason.or(self.finish_reason.take());
        }
        self.usage = chunk.usage.or(self.usage.take());
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Text<'a>>,
}

/// A string that is borrowed from the event unless it holds escapes; behind an `Option` serde would copy a
/// plain `Cow` every time.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}
