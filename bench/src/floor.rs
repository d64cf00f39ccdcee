//! The floor: a bare relay in Rust, which Outlast is compared with.
//!
//! This is what you would write if nothing had to survive: `POST /stream` calls the upstream, decodes each
//! event, encodes one event of Outlast's shape for each token and sends it at once in the response. It keeps
//! no log, a reader cannot reconnect, and a reader that leaves ends the generation. Every token is one event,
//! at any load.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::Write;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::{Json, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use bytes::{Buf, Bytes, BytesMut};
use futures_util::Stream;
use serde::{Deserialize, Serialize};

/// Relays until the process is killed. Prints its address first.
pub(crate) async fn serve(listen: SocketAddr, upstream: String) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("floor listening on http://{}", listener.local_addr()?);
    let client = reqwest::Client::builder().tcp_nodelay(true).build()?;
    let relay = Arc::new(Relay { client, url: format!("{upstream}/v1/chat/completions") });
    let routes = axum::Router::new().route("/stream", post(stream)).with_state(relay);
    let listener = listener.tap_io(|io| {
        // Without it latency grows, which the measurement would show.
        if let Err(error) = io.set_nodelay(true) {
            eprintln!("nodelay was refused: {error}");
        }
    });
    axum::serve(listener, routes).await?;
    Ok(())
}

struct Relay {
    client: reqwest::Client,
    url: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ask {
    content: String,
    request_id: String,
}

async fn stream(State(relay): State<Arc<Relay>>, Json(ask): Json<Ask>) -> Response {
    let body = serde_json::json!({
        "model": "bench",
        "stream": true,
        "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": ask.content}],
    });
    let answer = match relay.client.post(&relay.url).json(&body).send().await {
        Ok(answer) if answer.status().is_success() => answer,
        Ok(answer) => return (StatusCode::BAD_GATEWAY, answer.status().to_string()).into_response(),
        Err(error) => return (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    };
    let events = Events {
        upstream: Box::pin(answer.bytes_stream()),
        buffer: BytesMut::new(),
        ready: VecDeque::new(),
        names: Names { generation: format!("gen_{}", ask.request_id), request: ask.request_id },
        seq: 0,
        ended: false,
    };
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(events)).into_response()
}

type Upstream = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>;

/// Upstream bytes in, one event per token out.
struct Events {
    upstream: Upstream,
    buffer: BytesMut,
    /// Events of one read from the upstream. Limited by the size of that read, and sent before the next one.
    ready: VecDeque<Bytes>,
    names: Names,
    seq: u64,
    ended: bool,
}

impl Stream for Events {
    type Item = Result<Bytes, reqwest::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match ready!(self.upstream.as_mut().poll_next(context)) {
                Some(Ok(bytes)) => self.decode(&bytes),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.ended = true,
            }
        }
    }
}

impl Events {
    fn decode(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        while let Some(end) = memchr::memmem::find(&self.buffer, b"\n\n") {
            let event = self.buffer.split_to(end);
            self.buffer.advance(2);
            let Some(data) = event.strip_prefix(b"data: ") else { continue };
            if data == b"[DONE]" {
                self.seq += 1;
                self.ready.push_back(self.names.encode(self.seq, "chat.done", Payload::Done {}));
                continue;
            }
            // A broken event is skipped; the check of the text will notice.
            let Ok(chunk) = serde_json::from_slice::<Chunk<'_>>(data) else { continue };
            let text = chunk.choices.first().and_then(|choice| choice.delta.content.as_deref());
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                self.seq += 1;
                let payload = Payload::Delta { message_id: &self.names.generation, text };
                self.ready.push_back(self.names.encode(self.seq, "chat.delta", payload));
            }
        }
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Delta<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
}

struct Names {
    generation: String,
    request: String,
}

impl Names {
    fn encode(&self, seq: u64, kind: &str, payload: Payload<'_>) -> Bytes {
        let event = Event {
            seq,
            ts: format!("{:.3}", jiff::Timestamp::now()),
            r#type: kind,
            generation_id: &self.generation,
            request_id: &self.request,
            payload,
        };
        let mut out = Vec::with_capacity(320);
        write!(out, "id: {seq}\nevent: {kind}\ndata: ").expect("writing to memory does not fail");
        serde_json::to_writer(&mut out, &event).expect("strings and numbers are always JSON");
        out.extend_from_slice(b"\n\n");
        Bytes::from(out)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    seq: u64,
    ts: String,
    r#type: &'a str,
    generation_id: &'a str,
    request_id: &'a str,
    payload: Payload<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Payload<'a> {
    #[serde(rename_all = "camelCase")]
    Delta {
        message_id: &'a str,
        text: &'a str,
    },
    Done {},
}
