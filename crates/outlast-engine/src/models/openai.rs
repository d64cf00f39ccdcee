//! OpenAI-compatible chat completions: OpenRouter, OpenAI, vLLM, Ollama, llama.cpp and many others.
//!
//! A thin client on purpose: one request, no retries of its own, every failure classified.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt, unfold};
use outlast_core::{Context, Failure, FailureClass, Piece, Role, TextKind};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde::Deserialize;
use serde_json::{Value, json};

use super::sse::{Decoder, EVENT_BYTES_MAX};
use super::{Arrived, Model, ModelStream};

/// How much of an upstream's error text is kept.
const ERROR_CHARS_MAX: usize = 500;
/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

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
    client: reqwest::Client,
}

impl OpenAiModel {
    /// Makes the client; no connection is opened yet.
    pub fn new(settings: OpenAiSettings) -> Result<OpenAiModel, String> {
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .http1_only()
            .no_proxy()
            .build()
            .map_err(|error| format!("cannot make an HTTP client: {error}"))?;
        Ok(OpenAiModel { settings, client })
    }

    fn request(&self, context: &Context) -> reqwest::RequestBuilder {
        let url = format!("{}/chat/completions", self.settings.base_url.trim_end_matches('/'));
        let request = self.client.post(url).json(&body(&self.settings.model, context));
        match &self.settings.api_key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }
}

impl Model for OpenAiModel {
    fn call(&self, context: Context) -> ModelStream {
        let request = self.request(&context);
        let opened = async move {
            match open(request).await {
                Ok(bytes) => unfold(Reading::new(bytes), Reading::next).boxed(),
                Err(failure) => futures_util::stream::iter([Err(failure)]).boxed(),
            }
        };
        futures_util::stream::once(opened).flatten().boxed()
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
        json!({"role": role, "content": message.content})
    });
    let messages: Vec<Value> = system.chain(messages).collect();
    json!({"model": model, "messages": messages, "stream": true, "stream_options": {"include_usage": true}})
}

async fn open(
    request: reqwest::RequestBuilder,
) -> Result<BoxStream<'static, reqwest::Result<Bytes>>, Failure> {
    let response = request.send().await.map_err(|error| broken(&error))?;
    let status = response.status().as_u16();
    if status == 200 {
        return Ok(response.bytes_stream().boxed());
    }
    let retry_after = retry_after(response.headers());
    let text = error_text(response).await;
    Err(Failure {
        class: classify(status, &text),
        message: format!("upstream answered {status}: {text}"),
        retry_after,
    })
}

/// What an error's status and text say about trying again.
fn classify(status: u16, text: &str) -> FailureClass {
    match status {
        429 => FailureClass::RateLimited,
        408 | 500.. => FailureClass::Transient,
        _ if text.contains("content_policy") || text.contains("content_filter") => FailureClass::Refused,
        _ => FailureClass::Invalid,
    }
}

/// Seconds or a date; anything else is as good as nothing.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Duration::try_from(date.duration_since(jiff::Timestamp::now())).ok()
}

/// The message in an error body, cut to a sensible length and read no further than needed.
async fn error_text(response: reqwest::Response) -> String {
    let mut body = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(Ok(bytes)) = stream.next().await {
        body.extend_from_slice(&bytes);
        if body.len() > 16 * ERROR_CHARS_MAX {
            break;
        }
    }
    let text = String::from_utf8_lossy(&body);
    let parsed: Option<Value> = serde_json::from_str(&text).ok();
    let message = parsed.as_ref().and_then(|value| value["error"]["message"].as_str()).unwrap_or(&text);
    message.chars().take(ERROR_CHARS_MAX).collect()
}

fn broken(error: &reqwest::Error) -> Failure {
    // The address may carry what should not be shown; the kind of failure is enough.
    let what = if error.is_connect() {
        "cannot connect to the upstream"
    } else {
        "the connection to the upstream broke"
    };
    transient(what.to_owned())
}

fn transient(message: String) -> Failure {
    Failure { class: FailureClass::Transient, message, retry_after: None }
}

/// An answer being read: bytes in, pieces out.
struct Reading {
    bytes: BoxStream<'static, reqwest::Result<Bytes>>,
    decoder: Decoder,
    ready: VecDeque<Result<Arrived, Failure>>,
    finish_reason: Option<String>,
    over: bool,
}

impl Reading {
    fn new(bytes: BoxStream<'static, reqwest::Result<Bytes>>) -> Reading {
        Reading {
            bytes,
            decoder: Decoder::default(),
            ready: VecDeque::new(),
            finish_reason: None,
            over: false,
        }
    }

    async fn next(mut self) -> Option<(Result<Arrived, Failure>, Reading)> {
        loop {
            if let Some(arrived) = self.ready.pop_front() {
                return Some((arrived, self));
            }
            if self.over {
                return None;
            }
            match self.bytes.next().await {
                Some(Ok(bytes)) => self.take(&bytes),
                Some(Err(error)) => self.fail(broken(&error)),
                None => self.finish(),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let mut decoder = std::mem::take(&mut self.decoder);
        let pushed = decoder.push(bytes, |data| self.take_event(data));
        self.decoder = decoder;
        if pushed.is_err() {
            self.fail(transient(format!("upstream sent an event of more than {EVENT_BYTES_MAX} bytes")));
        }
        if self.ready.is_empty() {
            self.ready.push_back(Ok(Arrived::Sign));
        }
    }

    fn take_event(&mut self, data: &[u8]) {
        if self.over {
            return;
        }
        if data == b"[DONE]" {
            return self.finish();
        }
        match serde_json::from_slice::<Chunk<'_>>(data) {
            Ok(chunk) => self.take_chunk(chunk),
            Err(_) => self.fail(transient("upstream sent what is not JSON".to_owned())),
        }
    }

    fn take_chunk(&mut self, chunk: Chunk<'_>) {
        if let Some(error) = chunk.error {
            let message = error["message"].as_str().unwrap_or("no reason given");
            let message: String = message.chars().take(ERROR_CHARS_MAX).collect();
            return self.fail(transient(format!("upstream broke off: {message}")));
        }
        for choice in chunk.choices {
            if let Some(text) = choice.delta.reasoning.or(choice.delta.reasoning_content) {
                self.add_text(TextKind::Thinking, &text);
            }
            if let Some(text) = choice.delta.content {
                self.add_text(TextKind::Answer, &text);
            }
            self.finish_reason = choice.finish_reason.map(Cow::into_owned).or(self.finish_reason.take());
        }
        if let Some(usage) = chunk.usage {
            let piece =
                Piece::Usage { input_tokens: usage.prompt_tokens, output_tokens: usage.completion_tokens };
            self.ready.push_back(Ok(Arrived::Piece(piece)));
        }
    }

    /// Text of the same kind that arrived together becomes one piece.
    fn add_text(&mut self, new_kind: TextKind, added: &str) {
        if added.is_empty() {
            return;
        }
        if let Some(Ok(Arrived::Piece(Piece::Text { kind, text, chunks }))) = self.ready.back_mut()
            && *kind == new_kind
        {
            text.push_str(added);
            *chunks += 1;
            return;
        }
        let piece = Piece::Text { kind: new_kind, text: added.to_owned(), chunks: 1 };
        self.ready.push_back(Ok(Arrived::Piece(piece)));
    }

    /// The stream is over. Without a finish reason the answer was cut short, however clean the end.
    fn finish(&mut self) {
        match self.finish_reason.take() {
            Some(reason) => self.ready.push_back(Ok(Arrived::Finished { reason })),
            None => return self.fail(transient("upstream ended too early".to_owned())),
        }
        self.over = true;
    }

    fn fail(&mut self, failure: Failure) {
        if !self.over {
            self.ready.push_back(Err(failure));
            self.over = true;
        }
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'a>>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    delta: Delta<'a>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    reasoning: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}
