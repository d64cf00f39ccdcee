//! Problem documents (RFC 9457): every refusal and failure as a client sees it. Status codes live here
//! and nowhere else.

use std::borrow::Cow;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use outlast_core::{GenerationDocument, GenerationId, GenerationStatus, Refusal};
use outlast_engine::{CommandError, FollowError};
use outlast_store::StoreError;
use serde_json::{Map, Value, json};

/// Seconds to wait before trying again what was refused for lack of room.
const RETRY_AFTER_SECONDS: u32 = 2;

/// An answer that says what is wrong and what to do.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: Cow<'static, str>,
    detail: String,
    more: Map<String, Value>,
}

impl Problem {
    fn new(status: StatusCode, code: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Problem {
        Problem { status, code: code.into(), detail: detail.into(), more: Map::new() }
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

    pub(crate) fn foreign_origin(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "foreign_origin", detail)
    }

    pub(crate) fn bad_header(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_request", detail)
    }

    pub(crate) fn too_many_connections() -> Problem {
        let detail = "the server has as many connections as limits.connections allows; try again later";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "limit_reached", detail)
    }

    pub(crate) fn broken_off(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_request", detail)
    }

    pub(crate) fn draining() -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "draining", "the server is stopping")
    }

    /// The body of a chat completion is wrong. OpenAI's protocol says 400 where the native one says 422.
    pub(crate) fn wrong(field: &str, detail: impl std::fmt::Display) -> Problem {
        Problem::invalid(field, detail).into_wrong()
    }

    /// The same for a body that could not be read.
    pub(crate) fn into_wrong(mut self) -> Problem {
        if self.status == StatusCode::UNPROCESSABLE_ENTITY {
            self.status = StatusCode::BAD_REQUEST;
        }
        self
    }

    /// What was sent of an answer is withdrawn, which a stream of OpenAI's chunks cannot say.
    pub(crate) fn retracted(job: &GenerationId) -> Problem {
        let detail = format!(
            "what was sent so far is withdrawn and the answer begins anew; it goes on without you: \
             read /v1/jobs/{job}/events"
        );
        Problem::new(StatusCode::CONFLICT, "attempt_retracted", detail).with("jobId", job.as_str())
    }

    /// A stream cannot go on here, but the generation does.
    pub(crate) fn left_alone(self, job: &GenerationId) -> Problem {
        let detail = format!("{}; the answer goes on without you: read /v1/jobs/{job}/events", self.detail);
        Problem { detail, ..self }.with("jobId", job.as_str())
    }

    /// Why a generation that is over, or waits for a person, has no answer to give.
    pub(crate) fn without_answer(document: &GenerationDocument) -> Problem {
        let reason = document.end_reason.clone().unwrap_or_default();
        let problem = match document.status {
            GenerationStatus::Error => {
                let status = match reason.as_str() {
                    // What was asked for is wrong; asking again would be as well.
                    "upstream_refused" | "upstream_invalid_request" | "context_too_long" => {
                        StatusCode::BAD_REQUEST
                    }
                    _ => StatusCode::BAD_GATEWAY,
                };
                Problem::new(status, reason, document.error_message.clone().unwrap_or_default())
            }
            GenerationStatus::Cancelled => {
                let detail = format!("the generation was cancelled: {reason}");
                Problem::new(StatusCode::CONFLICT, "cancelled", detail).with("reason", reason)
            }
            _ => {
                let detail = format!(
                    "the generation was interrupted and waits for POST /v1/generations/{}/resume",
                    document.id
                );
                Problem::new(StatusCode::CONFLICT, "interrupted", detail)
            }
        };
        problem.with("jobId", document.id.as_str())
    }

    /// As clients of OpenAI's protocol look for it, in an answer and in a stream.
    pub(crate) fn error_object(&self) -> Value {
        let kind = match self.status {
            StatusCode::CONFLICT => &self.code,
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        let param = self.more.get("field").filter(|field| *field != "");
        let mut error = json!({"message": self.detail, "type": kind, "code": self.code, "param": param});
        if let Some(job) = self.more.get("jobId") {
            error["jobId"] = job.clone();
        }
        error
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

/// A problem for clients of OpenAI's protocol: the same document, and the `error` that their libraries show.
#[derive(Debug)]
pub(crate) struct CompletionProblem {
    problem: Problem,
    /// Whether sending the request again may help and begins nothing twice.
    worth_repeating: bool,
}

impl CompletionProblem {
    /// The generation has begun, or may have. Without a name a repeat would begin another.
    pub(crate) fn after_begin(problem: impl Into<Problem>, named: bool) -> CompletionProblem {
        let CompletionProblem { problem, worth_repeating } = problem.into().into();
        CompletionProblem { problem, worth_repeating: worth_repeating && named }
    }
}

impl<T: Into<Problem>> From<T> for CompletionProblem {
    fn from(problem: T) -> CompletionProblem {
        let problem = problem.into();
        CompletionProblem { worth_repeating: problem.is_lack_of_room(), problem }
    }
}

impl IntoResponse for CompletionProblem {
    fn into_response(self) -> Response {
        let CompletionProblem { problem, worth_repeating } = self;
        let mut body = problem.to_json();
        body["error"] = problem.error_object();
        let mut response = problem.respond(&body);
        if !worth_repeating {
            // Their libraries would send conflicts and failures again, and so begin more generations.
            response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = self.to_json();
        self.respond(&body)
    }
}

impl Problem {
    fn is_lack_of_room(&self) -> bool {
        matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
    }

    fn respond(self, body: &Value) -> Response {
        let mut response = (self.status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.is_lack_of_room() {
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
            Refusal::NotRetryable | Refusal::PromptGone => conflict("not_retryable"),
            Refusal::AlreadyExists => conflict("already_exists"),
            Refusal::MessageExists { id } => conflict("message_exists").with("messageId", id.as_str()),
            Refusal::ApprovalChanged { tool_use_id } => {
                conflict("approval_changed").with("toolUseId", tool_use_id.as_str())
            }
            Refusal::NotExternal => conflict("not_external"),
            Refusal::NotAsked { .. } => Problem::new(StatusCode::NOT_FOUND, "not_found", detail),
            Refusal::AlreadyDecided(decided) => conflict("already_decided")
                .with("decision", decided.decision.as_str())
                .with("by", &*decided.by),
            Refusal::NotCalled { .. } | Refusal::ToolTooLong { .. } => Problem::invalid("events", detail),
            Refusal::AskedOtherwise { tool_use_id } => {
                conflict("already_asked").with("toolUseId", tool_use_id.as_str())
            }
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
            CommandError::MadeOtherwise { conversation } => {
                Problem::new(StatusCode::CONFLICT, "idempotency_conflict", detail)
                    .with("conversationId", conversation.as_str())
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
