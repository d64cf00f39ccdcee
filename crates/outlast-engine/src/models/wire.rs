//! What all upstreams that stream over HTTP have in common: one request, its failures classified, its
//! events cut out of the bytes as they come. What the events mean is each vendor's dialect.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt};
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Request, Uri};
use outlast_core::{Failure, FailureClass, Piece, TextKind};
use serde_json::Value;

use super::exchange::{Broken, Connector, Exchange};
use super::sse::{Decoder, EVENT_BYTES_MAX};
use super::{Arrived, ModelStream};

/// How much of an upstream's error text is kept.
const ERROR_CHARS_MAX: usize = 500;
/// Text is handed on when it has this many bytes, even if more is waiting.
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// The same for chunks that hold nothing to hand on.
const CHUNKS_MAX: usize = 4096;
/// How much of an error's body is read to find that text.
const ERROR_BYTES_MAX: usize = 16 * 1024;

/// What a vendor's events mean.
pub(super) trait Dialect: Send + Unpin + 'static {
    /// One event arrived.
    fn event(&mut self, data: &[u8], out: &mut Out);

    /// The bytes are at their end. Unless the dialect says otherwise, an answer was cut short.
    fn end(&mut self, out: &mut Out) {
        out.fail(transient("upstream ended too early"));
    }
}

/// Where a vendor listens, and how to get there.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    connector: Connector,
    uri: Uri,
    host: HeaderValue,
}

impl Endpoint {
    pub(super) fn new(url: &str) -> Result<Endpoint, String> {
        let wrong = |what: &str| format!("base_url {url:?} {what}");
        let uri: Uri = url.parse().map_err(|error| wrong(&format!("is not an address: {error}")))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(wrong("must begin with http:// or https://"));
        }
        let host = uri.authority().map(|authority| HeaderValue::from_str(authority.as_str()));
        let host = host.and_then(Result::ok).ok_or_else(|| wrong("names no host"))?;
        Ok(Endpoint { connector: Connector::new()?, uri, host })
    }

    /// Sends a request when the stream is first polled, and reads its answer. An upstream that repeats the
    /// key in an error does not get it into the log.
    pub(super) fn stream(&self, body: &Value, key: Option<&str>, dialect: impl Dialect) -> ModelStream {
        let request = self.request(body, key);
        let (endpoint, key) = (self.clone(), key.map(str::to_owned));
        let opened = async move {
            match endpoint.open(request).await {
                Ok(bytes) => Reading::new(bytes, dialect).boxed(),
                Err(failure) => futures_util::stream::iter([Err(failure)]).boxed(),
            }
        };
        let arriving = futures_util::stream::once(opened).flatten();
        arriving.map(move |arrived| arrived.map_err(|failure| without(failure, key.as_deref()))).boxed()
    }

    fn request(&self, body: &Value, key: Option<&str>) -> Result<Request<Full<Bytes>>, Failure> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::post(path)
            .header(HOST, self.host.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream")
            .header(USER_AGENT, concat!("outlast/", env!("CARGO_PKG_VERSION")));
        if let Some(key) = key {
            request = request.header(AUTHORIZATION, format!("Bearer {key}"));
        }
        request.body(Full::from(body.to_string())).map_err(|_| {
            let message = "the key cannot be sent: it holds characters that no header may have".to_owned();
            Failure { class: FailureClass::Invalid, message, retry_after: None }
        })
    }

    async fn open(&self, request: Result<Request<Full<Bytes>>, Failure>) -> Result<Exchange, Failure> {
        let response = self.connector.send(self.uri.clone(), request?).await.map_err(broken)?;
        let status = response.status().as_u16();
        if status == 200 {
            return Ok(response.into_body());
        }
        let retry_after = retry_after(response.headers());
        let text = error_text(response.into_body()).await;
        let message = format!("upstream answered {status}: {text}");
        Err(Failure { class: classify(status, &text), message, retry_after })
    }
}

fn without(failure: Failure, key: Option<&str>) -> Failure {
    match key.filter(|key| !key.is_empty()) {
        Some(key) => Failure { message: failure.message.replace(key, "[key]"), ..failure },
        None => failure,
    }
}

/// What an error's status and text say about trying again.
fn classify(status: u16, text: &str) -> FailureClass {
    match status {
        429 => FailureClass::RateLimited,
        408 | 500.. => FailureClass::Transient,
        _ if refused(text) => FailureClass::Refused,
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
async fn error_text(mut answer: Exchange) -> String {
    let mut body = Vec::new();
    while let Some(Ok(bytes)) = answer.next().await {
        body.extend_from_slice(&bytes);
        if body.len() > ERROR_BYTES_MAX {
            break;
        }
    }
    let text = String::from_utf8_lossy(&body);
    let parsed: Option<Value> = serde_json::from_str(&text).ok();
    shorten(parsed.as_ref().and_then(|value| value["error"]["message"].as_str()).unwrap_or(&text))
}

fn shorten(text: &str) -> String {
    text.chars().take(ERROR_CHARS_MAX).collect()
}

fn broken(broken: Broken) -> Failure {
    transient(match broken {
        Broken::Connect => "cannot connect to the upstream",
        Broken::Connection => "the connection to the upstream broke",
    })
}

/// A failure that may pass.
pub(super) fn transient(message: &str) -> Failure {
    Failure { class: FailureClass::Transient, message: message.to_owned(), retry_after: None }
}

/// The upstream said in the middle of its answer that it cannot go on.
pub(super) fn broke_off(error: &Value) -> Failure {
    let message = error["message"].as_str().unwrap_or("no reason given");
    let failure = transient(&format!("upstream broke off: {}", shorten(message)));
    match refused(&error.to_string()) {
        true => Failure { class: FailureClass::Refused, ..failure },
        false => failure,
    }
}

/// Whether an error says that the provider will not answer this, whoever asks and how often.
fn refused(text: &str) -> bool {
    text.contains("content_policy") || text.contains("content_filter")
}

/// What a dialect made of the events so far.
#[derive(Default)]
pub(super) struct Out {
    ready: VecDeque<Result<Arrived, Failure>>,
    /// How much text is ready.
    bytes: usize,
    over: bool,
}

impl Out {
    /// Text of the same kind that arrived together becomes one piece.
    pub(super) fn text(&mut self, new_kind: TextKind, added: &str) {
        if added.is_empty() || self.over {
            return;
        }
        self.bytes += added.len();
        if let Some(Ok(Arrived::Piece(Piece::Text { kind, text, chunks }))) = self.ready.back_mut()
            && *kind == new_kind
        {
            text.push_str(added);
            *chunks += 1;
            return;
        }
        self.piece(Piece::Text { kind: new_kind, text: added.to_owned(), chunks: 1 });
    }

    pub(super) fn usage(&mut self, input_tokens: u64, output_tokens: u64) {
        self.piece(Piece::Usage { input_tokens, output_tokens });
    }

    /// The answer is complete.
    pub(super) fn finish(&mut self, reason: String) {
        if !self.over {
            self.ready.push_back(Ok(Arrived::Finished { reason }));
            self.over = true;
        }
    }

    /// The answer is broken.
    pub(super) fn fail(&mut self, failure: Failure) {
        if !self.over {
            self.ready.push_back(Err(failure));
            self.over = true;
        }
    }

    /// The next thing to hand on.
    fn next(&mut self) -> Option<Result<Arrived, Failure>> {
        let next = self.ready.pop_front();
        if let Some(Ok(Arrived::Piece(Piece::Text { text, .. }))) = &next {
            self.bytes -= text.len();
        }
        next
    }

    fn piece(&mut self, piece: Piece) {
        if !self.over {
            self.ready.push_back(Ok(Arrived::Piece(piece)));
        }
    }
}

/// An answer being read: bytes in, pieces out.
struct Reading<D> {
    bytes: Exchange,
    decoder: Decoder,
    dialect: D,
    out: Out,
}

impl<D: Dialect> Reading<D> {
    fn new(bytes: Exchange, dialect: D) -> Reading<D> {
        Reading { bytes, decoder: Decoder::default(), dialect, out: Out::default() }
    }

    fn read(&mut self, bytes: &[u8]) {
        let Reading { decoder, dialect, out, .. } = self;
        let pushed = decoder.push(bytes, |data| dialect.event(data, out));
        if pushed.is_err() {
            out.fail(transient(&format!("upstream sent an event of more than {EVENT_BYTES_MAX} bytes")));
        }
    }
}

impl<D: Dialect> Stream for Reading<D> {
    type Item = Result<Arrived, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Everything that has arrived is taken before anything is handed on: a token that waits in the
        // socket is text for the same piece, and costs a fraction of one that is handed on by itself.
        let mut any = false;
        for _ in 0..CHUNKS_MAX {
            if self.out.over || self.out.bytes >= PIECE_BYTES_MAX {
                break;
            }
            match Pin::new(&mut self.bytes).poll_next(cx) {
                Poll::Ready(Some(Ok(bytes))) => self.read(&bytes),
                Poll::Ready(Some(Err(error))) => self.out.fail(broken(error)),
                Poll::Ready(None) => {
                    let Reading { dialect, out, .. } = &mut *self;
                    dialect.end(out);
                }
                Poll::Pending => break,
            }
            any = true;
        }
        match self.out.next() {
            Some(arrived) => Poll::Ready(Some(arrived)),
            None if self.out.over => Poll::Ready(None),
            None if any => Poll::Ready(Some(Ok(Arrived::Sign))),
            None => Poll::Pending,
        }
    }
}
