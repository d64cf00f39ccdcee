//! Anthropic's own API: messages made of blocks, each with a start, deltas and a stop.

mod options;
mod request;

use std::borrow::Cow;

use outlast_core::{Context, Failure, TextKind};
use reqwest::header::HeaderName;
use serde::Deserialize;
use serde_json::Value;

use super::client::{Calls, Dialect, Endpoint, Out, Secret, UpstreamSettings, broke_off, invalid, transient};
use super::{Model, ModelStream};

/// The version of the API that this file implements.
const VERSION: &str = "2023-06-01";

/// A model behind Anthropic's API.
#[derive(Debug)]
pub struct AnthropicModel {
    settings: UpstreamSettings,
    endpoint: Endpoint,
}

impl AnthropicModel {
    /// Checks the settings; no connection is opened yet.
    pub fn new(settings: UpstreamSettings) -> Result<AnthropicModel, String> {
        // Some people include the version in the address and some do not.
        let path = if settings.base_url.expose().trim_end_matches('/').ends_with("/v1") {
            "/messages"
        } else {
            "/v1/messages"
        };
        let version = (HeaderName::from_static("anthropic-version"), VERSION.to_owned());
        let key = settings.api_key.as_ref().map(Secret::expose);
        let key = key.map(|key| (HeaderName::from_static("x-api-key"), key.to_owned()));
        let endpoint = Endpoint::new(path, &settings, key.into_iter().chain([version]).collect())?;
        Ok(AnthropicModel { settings, endpoint })
    }
}

impl Model for AnthropicModel {
    fn call(&self, context: Context) -> ModelStream {
        self.endpoint.stream(request::body(&self.settings, &context), Messages::default())
    }
}

/// The dialect: a message starts, its blocks follow one after the other, and it ends with the stop reason.
#[derive(Default)]
pub(super) struct Messages {
    calls: Calls,
    stop_reason: Option<String>,
    /// Input and output tokens, if they were sent.
    usage: Option<(u64, u64)>,
}

impl Dialect for Messages {
    fn event(&mut self, data: &str, out: &mut Out) {
        match serde_json::from_str(data) {
            Ok(event) => self.told(event, out),
            Err(_) => self.end(transient("upstream sent an invalid event"), out),
        }
    }

    fn document(&mut self, document: &[u8], out: &mut Out) {
        let document: Value = serde_json::from_slice(document).unwrap_or_default();
        out.fail(match document.get("error") {
            Some(error) => broke_off(error),
            None => invalid("upstream responded with a single document instead of a stream"),
        });
    }

    fn is_complete(&self) -> bool {
        self.stop_reason.is_some()
    }

    /// With a stop reason the answer is complete, however the body ends; without one it is incomplete. Token counts
    /// are reported in both cases.
    fn end(&mut self, cut: Failure, out: &mut Out) {
        let reason = self.stop_reason.take();
        if reason.is_some() {
            self.calls.complete_all(out);
        }
        if let Some((input, output)) = self.usage.take() {
            out.usage(input, output);
        }
        match reason {
            Some(reason) => out.finish(reason),
            None => out.fail(cut),
        }
    }
}

/// Begins the signature of thinking that the provider does not show. No other signature has a colon: they are base64.
const REDACTED: &str = "redacted:";

impl Messages {
    fn told(&mut self, event: Event<'_>, out: &mut Out) {
        match event.kind.0.as_ref() {
            "message_start" => {
                self.count(event.message.and_then(|message| message.usage).unwrap_or_default())
            }
            "content_block_start" => self.began(event.index, event.content_block.unwrap_or_default(), out),
            "content_block_delta" => self.said(event.index, event.delta.unwrap_or_default(), out),
            "content_block_stop" => self.calls.complete(event.index, out),
            "message_delta" => {
                self.count(event.usage.unwrap_or_default());
                let reason = event.delta.and_then(|delta| delta.stop_reason);
                self.stop_reason = reason.map(|reason| reason.0.into_owned()).or(self.stop_reason.take());
            }
            "message_stop" => self.end(transient("upstream response ended without a stop reason"), out),
            "error" => self.end(broke_off(&event.error.unwrap_or_default()), out),
            // A ping, or an event that this version does not know.
            _ => {}
        }
    }

    fn began(&mut self, index: Option<u64>, block: Block<'_>, out: &mut Out) {
        if let Some(text) = block.text {
            out.text(TextKind::Answer, &text.0);
        }
        if let Some(text) = block.thinking {
            out.text(TextKind::Thinking, &text.0);
        }
        let kind = block.kind.as_ref().map(|kind| &*kind.0);
        if let (Some("redacted_thinking"), Some(data)) = (kind, &block.data) {
            out.signature(format!("{REDACTED}{}", data.0));
        }
        // Tools that the provider runs itself have other block types and are ignored.
        if let (Some("tool_use"), Some(id), Some(name)) = (kind, block.id, block.name) {
            self.calls.begin(index, &id.0, &name.0, out);
            if let Some(Value::Object(input)) = block.input.filter(|input| *input != serde_json::json!({})) {
                self.calls.more(index, &Value::Object(input).to_string(), out);
            }
        }
    }

    fn said(&mut self, index: Option<u64>, delta: Delta<'_>, out: &mut Out) {
        if let Some(text) = delta.text {
            out.text(TextKind::Answer, &text.0);
        }
        if let Some(text) = delta.thinking {
            out.text(TextKind::Thinking, &text.0);
        }
        if let Some(signature) = delta.signature {
            out.signature(signature.0.into_owned());
        }
        if let Some(arguments) = delta.partial_json {
            self.calls.more(index, &arguments.0, out);
        }
    }

    /// The counts are running totals. Tokens read from a cache count as input too.
    fn count(&mut self, usage: Value) {
        let count = |name: &str| usage[name].as_u64();
        let (read, written) = (count("input_tokens"), count("output_tokens"));
        if read.is_none() && written.is_none() {
            return;
        }
        let (mut input, mut output) = self.usage.unwrap_or_default();
        if let Some(read) = read {
            let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"].map(count);
            let cached = cached.into_iter().flatten().fold(0, u64::saturating_add);
            input = input.max(read.saturating_add(cached));
        }
        output = written.unwrap_or(output);
        self.usage = Some((input, output));
    }
}

/// Every kind of event. Fields of other kinds are absent.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(default)]
    index: Option<u64>,
    #[serde(default)]
    message: Option<Message>,
    #[serde(borrow, default)]
    content_block: Option<Block<'a>>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(default)]
    usage: Option<Value>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    usage: Option<Value>,
}

#[derive(Default, Deserialize)]
struct Block<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Text<'a>>,
    /// Of thinking that the provider does not show.
    #[serde(borrow, default)]
    data: Option<Text<'a>>,
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(default)]
    input: Option<Value>,
}

#[derive(Default, Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Text<'a>>,
    #[serde(borrow, default)]
    signature: Option<Text<'a>>,
    #[serde(borrow, default)]
    partial_json: Option<Text<'a>>,
    #[serde(borrow, default)]
    stop_reason: Option<Text<'a>>,
}

/// A string that is borrowed from the event unless it contains escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
