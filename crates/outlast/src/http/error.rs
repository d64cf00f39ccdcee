//! Problem documents (RFC 9457): every refusal and failure as a client sees it. Status codes live here
//! and nowhere else.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use outlast_core::Refusal;
use outlast_engine::{CommandError, FollowError};
use outlast_store::StoreError;
use serde_json::{Map, Value, json};

/// Seconds to wait before trying again what was refused for lack of room.
const RETRY_AFTER_SECONDS: u32 = 2;

/// An answer that says what is wrong and what to do.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
    more: Map<String, Value>,
}

impl Problem {
    fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Problem {
        Problem { status, code, detail: detail.into(), more: Map::new() }
    }

    pub(crate) fn bad_json(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_json", detail)
    }

    pub(crate) fn invalid(field: &str, detail: impl std::fmt::Display) -> Problem {
        let detail = if field.is_empty() { detail.to_string() } else { format!("{field}: {detail}") };
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_request", detail).with("field", field)
    }

    pub(crate) fn not_found() -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not_found", "there is no such thing")
    }

    pub(crate) fn wrong_method() -> Problem {
        let detail = "this path does not take that method; see /openapi.json";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
    }

    pub(crate) fn too_large(limit: usize) -> Problem {
        let detail = format!("the body may have {limit} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
    }

    pub(crate) fn foreign_origin() -> Problem {
        let detail = "this server has no keys and answers only its own pages and local programs";
        Problem::new(StatusCode::FORBIDDEN, "foreign_origin", detail)
    }

    pub(crate) fn broken_off(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_request", detail)
    }

    pub(crate) fn draining() -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "draining", "the server is stopping")
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Problem {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    /// As JSON: the body of an answer, and what a WebSocket carries.
    pub(crate) fn to_json(&self) -> Value {
        let title = self.status.canonical_reason().unwrap_or("Problem");
        let mut body = json!({
            "type": "about:blank",
            "title": title,
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.code,
        });
        if let Some(fields) = body.as_object_mut() {
            fields.extend(self.more.clone());
        }
        body
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.to_json().to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        }
        if self.status == StatusCode::PAYLOAD_TOO_LARGE {
            // The rest of the body is not read, so nothing can follow it on this connection. A client that
            // is not told would send its next request there and see it die.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let detail = refusal.to_string();
        let conflict = |code| Problem::new(StatusCode::CONFLICT, code, detail.clone());
        match &refusal {
            Refusal::Repeated(_) => conflict("repeated"),
            Refusal::IdempotencyConflict { generation } => {
                conflict("idempotency_conflict").with("generationId", generation.as_str())
            }
            Refusal::Busy { current } => conflict("conversation_busy").with("generationId", current.as_str()),
            Refusal::QueueFull => Problem::new(StatusCode::TOO_MANY_REQUESTS, "limit_reached", detail),
            Refusal::AlreadyEnded { status } => conflict("already_ended").with("statusWas", status.as_str()),
            Refusal::EndedLongAgo => conflict("already_ended"),
            Refusal::NotInterrupted { status } => {
                conflict("not_interrupted").with("statusIs", status.as_str())
            }
            Refusal::NotRetryable => conflict("not_retryable"),
            Refusal::NotExternal => conflict("not_external"),
            Refusal::NotAsked { .. } => Problem::new(StatusCode::NOT_FOUND, "not_found", detail),
            Refusal::AlreadyDecided(decided) => conflict("already_decided")
                .with("decision", decided.decision.as_str())
                .with("by", &*decided.by),
            Refusal::NotCalled { .. } => Problem::invalid("events", detail),
            Refusal::External => conflict("external_producer"),
            Refusal::StaleProducer { current, status, .. } => {
                conflict("stale_producer").with("epoch", *current).with("statusIs", status.as_str())
            }
            Refusal::SeqConflict { last, .. } => conflict("seq_conflict").with("lastSeq", last.0),
        }
    }
}

impl From<CommandError> for Problem {
    fn from(error: CommandError) -> Problem {
        let detail = error.to_string();
        match error {
            CommandError::Refused(refusal) => refusal.into(),
            CommandError::NotFound => Problem::not_found(),
            CommandError::UnknownModel { .. } => Problem::invalid("model", detail),
            CommandError::CursorAhead { tail } => {
                Problem::new(StatusCode::CONFLICT, "cursor_ahead", detail).with("lastSeq", tail.0)
            }
            CommandError::BadCursor(_) => Problem::invalid("cursor", detail),
            CommandError::TooManyLive { .. } | CommandError::TooManyReaders { .. } => {
                Problem::new(StatusCode::TOO_MANY_REQUESTS, "limit_reached", detail)
            }
            CommandError::ServerIsFull { .. } => {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "limit_reached", detail)
            }
            CommandError::MessageExists { id } => {
                Problem::new(StatusCode::CONFLICT, "message_exists", detail).with("messageId", id.as_str())
            }
            CommandError::Unavailable(_) | CommandError::Lost(_) => {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", detail)
            }
            CommandError::Broken(_) => broken(&detail),
        }
    }
}

impl From<FollowError> for Problem {
    fn from(error: FollowError) -> Problem {
        let detail = error.to_string();
        match error {
            FollowError::Ahead { tail } => {
                Problem::new(StatusCode::CONFLICT, "cursor_ahead", detail).with("lastSeq", tail.0)
            }
            FollowError::Trimmed { .. } => Problem::new(StatusCode::GONE, "trimmed", detail),
            FollowError::Store(error) => error.into(),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        let detail = error.to_string();
        match error {
            StoreError::Unavailable(_) => {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", detail)
            }
            StoreError::Broken(_) => broken(&detail),
        }
    }
}

/// A failure of ours. The log has the details; a client can do nothing with them.
fn broken(detail: &str) -> Problem {
    tracing::error!(detail, "what is stored cannot be understood");
    let told = "the server cannot read what it stored; its log says why";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "store_broken", told)
}
