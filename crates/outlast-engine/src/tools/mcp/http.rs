//! The way to a server with a URL. It goes through `outside.rs` like every call to a place that somebody named, and no
//! response is larger than [`MESSAGE_BYTES_MAX`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream_02::{Sse, SseStream};

use super::MESSAGE_BYTES_MAX;
use crate::outside::{Outside, OutsideError};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const EVENT_STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";
/// Either is fine.
const ACCEPTED: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// Headers that belong to the protocol and cannot be set by an operator.
pub(super) const RESERVED: [HeaderName; 5] =
    [SESSION, LAST_EVENT, ACCEPT, CONTENT_TYPE, HeaderName::from_static("mcp-protocol-version")];

type HttpError = StreamableHttpError<OutsideError>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

#[derive(Clone)]
pub(super) struct Guarded {
    pub(super) outside: Outside,
    /// Sent with every request. They may contain keys.
    pub(super) headers: HeaderMap,
}

impl Guarded {
    fn request(
        &self,
        method: Method,
        url: &str,
        session: Option<Arc<str>>,
        more: HashMap<HeaderName, HeaderValue>,
    ) -> Result<RequestBuilder, HttpError> {
        let request = self.outside.request(method, url).map_err(StreamableHttpError::Client)?;
        let mut request = request.headers(self.headers.clone()).header(ACCEPT, ACCEPTED);
        if let Some(session) = session {
            request = request.header(SESSION, &*session);
        }
        for (name, value) in more {
            request = request.header(name, value);
        }
        Ok(request)
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, HttpError> {
        self.outside.stream(request).await.map_err(StreamableHttpError::Client)
    }
}

impl StreamableHttpClient for Guarded {
    type Error = OutsideError;

    async fn post_message(
        &self,
        url: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let in_session = session.is_some();
        let request = self.request(Method::POST, &url, session, headers)?.json(&message);
        let response = self.send(request).await?;
        let status = response.status();
        match status {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => return Ok(StreamableHttpPostResponse::Accepted),
            StatusCode::NOT_FOUND if in_session => return Err(StreamableHttpError::SessionExpired),
            _ => {}
        }
        let session = response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let waits_for_answer = matches!(message, ClientJsonRpcMessage::Request(_));
        match kind(&response) {
            EVENT_STREAM if status.is_success() => {
                Ok(StreamableHttpPostResponse::Sse(events(response), session))
            }
            // A status other than 2xx may come with an error in the words of the protocol.
            JSON => {
                let body = whole(response).await?;
                match serde_json::from_slice::<ServerJsonRpcMessage>(&body) {
                    Ok(answer) => Ok(StreamableHttpPostResponse::Json(answer, session)),
                    Err(_) if status.is_success() && !waits_for_answer => {
                        Ok(StreamableHttpPostResponse::Accepted)
                    }
                    Err(_) => Err(unexpected(status)),
                }
            }
            _ if status.is_success() && !waits_for_answer => Ok(StreamableHttpPostResponse::Accepted),
            _ => Err(unexpected(status)),
        }
    }

    async fn delete_session(
        &self,
        url: Arc<str>,
        session: Arc<str>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        let request = self.request(Method::DELETE, &url, Some(session), headers)?;
        let status = self.send(request).await?.status();
        match status.is_success() || status == StatusCode::METHOD_NOT_ALLOWED {
            true => Ok(()),
            false => Err(unexpected(status)),
        }
    }

    async fn get_stream(
        &self,
        url: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, HttpError> {
        let mut request = self.request(Method::GET, &url, session, headers)?;
        if let Some(last_event) = last_event {
            request = request.header(LAST_EVENT, last_event);
        }
        let response = self.send(request).await?;
        match (response.status(), kind(&response)) {
            (StatusCode::METHOD_NOT_ALLOWED, _) => Err(StreamableHttpError::ServerDoesNotSupportSse),
            (status, EVENT_STREAM) if status.is_success() => Ok(events(response)),
            (status, _) => Err(unexpected(status)),
        }
    }
}

/// Without a word of the response, which may be anything.
fn unexpected(status: StatusCode) -> HttpError {
    StreamableHttpError::UnexpectedServerResponse(Cow::Owned(format!("HTTP {}", status.as_u16())))
}

fn kind(response: &Response) -> &'static str {
    let given = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let given = given.split(';').next().unwrap_or_default().trim();
    let known = [EVENT_STREAM, JSON].into_iter().find(|known| given.eq_ignore_ascii_case(known));
    known.unwrap_or_default()
}

async fn whole(mut response: Response) -> Result<Vec<u8>, HttpError> {
    let broke = |_| StreamableHttpError::Client(OutsideError::Failed(BodyError::Broke.to_string()));
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(broke)? {
        if body.len() + piece.len() > MESSAGE_BYTES_MAX {
            return Err(StreamableHttpError::Client(OutsideError::Failed(BodyError::TooLarge.to_string())));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

fn events(response: Response) -> Events {
    let mut event = EventSize::default();
    let pieces = stream::unfold(Some(response), |response| async {
        let mut response = response?;
        match response.chunk().await {
            Ok(Some(piece)) => Some((Ok(piece), Some(response))),
            Ok(None) => None,
            Err(_) => Some((Err(BodyError::Broke), None)),
        }
    });
    let limited = pieces.map(move |piece: Result<Bytes, BodyError>| {
        let piece = piece?;
        event.count(&piece)?;
        Ok::<Bytes, BodyError>(piece)
    });
    SseStream::from_bytes_stream(limited).boxed()
}

#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error("the connection broke")]
    Broke,
    #[error("it sent a message of more than {MESSAGE_BYTES_MAX} bytes")]
    TooLarge,
}

/// How much of an event has arrived. The parser has no limit of its own.
#[derive(Default)]
struct EventSize {
    bytes: usize,
    line_bytes: usize,
    /// Whether the last byte was a carriage return, which a line feed may complete.
    after_return: bool,
}

impl EventSize {
    fn count(&mut self, piece: &[u8]) -> Result<(), BodyError> {
        for byte in piece {
            let ends_line = matches!(byte, b'\n' | b'\r');
            if *byte == b'\n' && self.after_return {
                self.after_return = false;
                continue;
            }
            self.after_return = *byte == b'\r';
            match (ends_line, self.line_bytes) {
                (true, 0) => self.bytes = 0,
                (true, _) => self.line_bytes = 0,
                (false, _) => {
                    self.line_bytes += 1;
                    self.bytes += 1;
                }
            }
        }
        if self.bytes > MESSAGE_BYTES_MAX { Err(BodyError::TooLarge) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_an_event_starts_over_with_each_event() {
        let mut size = EventSize::default();
        for _ in 0..100 {
            size.count(b"data: hello\r\n").unwrap();
            size.count(b"\r\n").unwrap();
        }
        assert_eq!(size.bytes, 0);
        let half = vec![b'x'; MESSAGE_BYTES_MAX / 2 + 1];
        size.count(&half).unwrap();
        size.count(b"\r\ndata: ").unwrap();
        assert!(size.count(&half).is_err(), "lines of one event count together");
    }
}
