//! Turns every refusal and failure into a response. All status codes are in this file and the folder beside it.

mod access;
mod files;
mod store;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use outlast_core::{GenerationDocument, GenerationId, GenerationStatus, Refusal};
use outlast_engine::EngineError;
use serde::Serialize;
use serde_json::Value;

use self::store::{broken, unavailable};
use super::per_user::CONNECTIONS_PER_USER;
use super::problem::{About, Code, CompletionProblemDocument, ErrorObject, ProblemCode, ProblemDocument};

/// How long a client should wait when a limit was reached. Most bursts are over by then.
const RETRY_AFTER_SECONDS: u64 = 2;

/// How much of a request a refusal may repeat: one line.
const ECHO_CHARS_MAX: usize = 200;

#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: Code,
    detail: String,
    about: Box<About>,
    /// When to try again, if it is known better than [`RETRY_AFTER_SECONDS`].
    retry_after: Option<u64>,
}

impl Problem {
    fn new(status: StatusCode, code: ProblemCode, detail: impl AsRef<str>) -> Problem {
        let detail = one_line(detail.as_ref());
        Problem { status, code: Code::Known(code), detail, about: Box::default(), retry_after: None }
    }

    pub(crate) fn bad_json(detail: impl AsRef<str>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, ProblemCode::InvalidJson, detail)
    }

    /// Somebody else has claimed the generation, or nobody gave this lease.
    pub(crate) fn wrong_lease() -> Problem {
        let detail = "the lease does not match this generation and epoch; claim it again";
        Problem::new(StatusCode::CONFLICT, ProblemCode::StaleProducer, detail)
    }

    pub(crate) fn invalid(field: &str, detail: impl std::fmt::Display) -> Problem {
        let field = one_line(field);
        let detail = if field.is_empty() { detail.to_string() } else { format!("{field}: {detail}") };
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, ProblemCode::InvalidRequest, detail)
            .with(|about| about.field = Some(field))
    }

    pub(crate) fn not_found() -> Problem {
        Problem::new(StatusCode::NOT_FOUND, ProblemCode::NotFound, "not found")
    }

    pub(crate) fn wrong_method() -> Problem {
        let detail = "this path does not support the method; see /openapi.json";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, ProblemCode::MethodNotAllowed, detail)
    }

    pub(crate) fn too_large(limit: usize) -> Problem {
        let detail = format!("the body is larger than {limit} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, ProblemCode::TooLarge, detail)
    }

    pub(crate) fn foreign_origin(detail: impl AsRef<str>) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, ProblemCode::ForeignOrigin, detail)
    }

    pub(crate) fn bad_header(detail: impl AsRef<str>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, ProblemCode::InvalidRequest, detail)
    }

    pub(crate) fn too_many_connections() -> Problem {
        let detail = "the server has reached limits.connections; try again later";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, ProblemCode::LimitReached, detail)
            .of_limit("limits.connections")
    }

    fn of_limit(self, limit: &'static str) -> Problem {
        self.with(|about| about.limit = Some(limit))
    }

    pub(crate) fn link_expired() -> Problem {
        let detail = "this link has expired; open the conversation to decide";
        Problem::new(StatusCode::CONFLICT, ProblemCode::LinkExpired, detail)
    }

    pub(crate) fn broken_off(detail: impl AsRef<str>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, ProblemCode::InvalidRequest, detail)
    }

    pub(crate) fn draining() -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, ProblemCode::Draining, "the server is shutting down")
    }

    /// A field of a chat completion is wrong. OpenAI's API uses 400 where the native one uses 422.
    pub(crate) fn wrong(field: &str, detail: impl std::fmt::Display) -> Problem {
        Problem::invalid(field, detail).into_wrong()
    }

    pub(crate) fn into_wrong(mut self) -> Problem {
        if self.status == StatusCode::UNPROCESSABLE_ENTITY {
            self.status = StatusCode::BAD_REQUEST;
        }
        self
    }

    /// The text sent so far is withdrawn, which OpenAI's chunks cannot express.
    pub(crate) fn retracted(job: &GenerationId) -> Problem {
        let detail = "what was sent so far has been withdrawn and the answer is being restarted";
        Problem::new(StatusCode::CONFLICT, ProblemCode::AttemptRetracted, detail).left_alone(job)
    }

    /// The stream ends here, but the generation continues.
    pub(crate) fn left_alone(self, job: &GenerationId) -> Problem {
        let detail = format!("{}; the generation continues: read /v1/jobs/{job}/events", self.detail);
        Problem { detail, ..self }.with(|about| about.job_id = Some(job.to_string()))
    }

    /// Why a generation that has ended, or waits for a person, has no answer.
    pub(crate) fn without_answer(document: &GenerationDocument) -> Problem {
        let reason = document.end_reason.clone().unwrap_or_default();
        let problem = match document.status {
            GenerationStatus::Error => failed(reason, document.error_message.as_deref().unwrap_or_default()),
            GenerationStatus::Cancelled => {
                let detail = format!("the generation was cancelled: {reason}");
                Problem::new(StatusCode::CONFLICT, ProblemCode::Cancelled, detail)
                    .with(|about| about.reason = Some(reason))
            }
            _ => {
                let detail = format!(
                    "the generation was interrupted and waits for POST /v1/generations/{}/resume",
                    document.id
                );
                Problem::new(StatusCode::CONFLICT, ProblemCode::Interrupted, detail)
            }
        };
        problem.with(|about| about.job_id = Some(document.id.to_string()))
    }

    /// The error object that clients of OpenAI's API look for, in a response and in a stream.
    pub(crate) fn error_object(&self) -> ErrorObject {
        let code = match serde_json::to_value(&self.code) {
            Ok(Value::String(code)) => code,
            _ => String::new(),
        };
        let kind = match self.status {
            StatusCode::CONFLICT => code.clone(),
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error".to_owned(),
            status if status.is_server_error() => "server_error".to_owned(),
            _ => "invalid_request_error".to_owned(),
        };
        let param = self.about.field.clone().filter(|field| !field.is_empty());
        ErrorObject { message: self.detail.clone(), kind, code, param, job_id: self.about.job_id.clone() }
    }

    fn with(mut self, set: impl FnOnce(&mut About)) -> Problem {
        set(&mut self.about);
        self
    }

    pub(crate) fn document(&self) -> ProblemDocument {
        ProblemDocument {
            kind: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Problem"),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            code: self.code.clone(),
            about: (*self.about).clone(),
        }
    }

    /// The document as JSON, for a WebSocket.
    pub(crate) fn to_json(&self) -> Value {
        serde_json::to_value(self.document()).expect("a problem document has string keys")
    }
}

/// The generation failed. If the upstream refused the request, sending it again would fail again.
fn failed(code: String, message: &str) -> Problem {
    let status = match code.as_str() {
        "upstream_refused" | "upstream_invalid_request" | "context_too_long" => StatusCode::BAD_REQUEST,
        _ => StatusCode::BAD_GATEWAY,
    };
    Problem {
        status,
        code: Code::OfGeneration(code),
        detail: message.to_owned(),
        about: Box::default(),
        retry_after: None,
    }
}

/// Text that may contain what a client sent, as one short line without control characters.
fn one_line(text: &str) -> String {
    let mut line: String = text.chars().take(ECHO_CHARS_MAX).flat_map(escape).collect();
    if text.chars().nth(ECHO_CHARS_MAX).is_some() {
        line.push('…');
    }
    line
}

fn escape(letter: char) -> impl Iterator<Item = char> {
    let escaped = letter.is_control().then(|| letter.escape_default());
    let plain = escaped.is_none().then_some(letter);
    escaped.into_iter().flatten().chain(plain)
}

/// A problem for clients of OpenAI's API: the same document, and the `error` that their libraries show.
#[derive(Debug)]
pub(crate) struct CompletionProblem {
    problem: Problem,
    /// Whether sending the request again may help and starts nothing twice.
    worth_repeating: bool,
}

impl CompletionProblem {
    /// The generation has started, or may have. Without a request id a retry would start another.
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
        let document =
            CompletionProblemDocument { problem: problem.document(), error: problem.error_object() };
        let mut response = problem.respond(&document);
        if !worth_repeating {
            // OpenAI's libraries retry conflicts and failures, and would start more generations.
            response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = self.document();
        self.respond(&document)
    }
}

impl Problem {
    fn is_lack_of_room(&self) -> bool {
        matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
    }

    fn respond(self, document: &impl Serialize) -> Response {
        let mut response = (self.status, axum::Json(document)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.is_lack_of_room() {
            headers.insert(
                header::RETRY_AFTER,
                HeaderValue::from(self.retry_after.unwrap_or(RETRY_AFTER_SECONDS)),
            );
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.about.limit == Some(CONNECTIONS_PER_USER) {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if self.status == StatusCode::PAYLOAD_TOO_LARGE {
            // The rest of the body is not read, so this connection cannot be reused. Without this header a client
            // would send its next request on it and lose the request.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let detail = refusal.to_string();
        let conflict = |code| Problem::new(StatusCode::CONFLICT, code, &detail);
        match refusal {
            Refusal::Repeated(_) => conflict(ProblemCode::Repeated),
            Refusal::IdempotencyConflict { generation } => conflict(ProblemCode::IdempotencyConflict)
                .with(|about| about.generation_id = Some(generation.to_string())),
            Refusal::Busy { current } => conflict(ProblemCode::ConversationBusy)
                .with(|about| about.generation_id = Some(current.to_string())),
            Refusal::QueueFull => {
                Problem::new(StatusCode::TOO_MANY_REQUESTS, ProblemCode::LimitReached, detail)
            }
            Refusal::AlreadyEnded { status } => {
                conflict(ProblemCode::AlreadyEnded).with(|about| about.status_was = Some(status))
            }
            Refusal::EndedLongAgo => conflict(ProblemCode::AlreadyEnded),
            Refusal::NotInterrupted { status } => {
                conflict(ProblemCode::NotInterrupted).with(|about| about.status_is = Some(status))
            }
            Refusal::NotRetryable | Refusal::PromptGone => conflict(ProblemCode::NotRetryable),
            Refusal::AlreadyExists => conflict(ProblemCode::AlreadyExists),
            Refusal::ToolRunning => conflict(ProblemCode::ToolRunning),
            Refusal::WorkspaceFull { .. } => Problem::no_room(&detail),
            Refusal::FilesNotSaved => unavailable(&detail),
            Refusal::MessageExists { id } => {
                conflict(ProblemCode::MessageExists).with(|about| about.message_id = Some(id.to_string()))
            }
            Refusal::ApprovalChanged { tool_use_id } => {
                conflict(ProblemCode::ApprovalChanged).with(|about| about.tool_use_id = Some(tool_use_id))
            }
            // The engine answers the last two itself: they are about what parent and child tell each other.
            Refusal::BelongsToParent { .. } | Refusal::AskedByChild(_) | Refusal::NotDelegated => {
                conflict(ProblemCode::Delegated)
            }
            Refusal::NotForWorkers => conflict(ProblemCode::NotExternal),
            Refusal::NotAsked { .. } => Problem::new(StatusCode::NOT_FOUND, ProblemCode::NotFound, detail),
            Refusal::AlreadyDecided(decided) => conflict(ProblemCode::AlreadyDecided).with(|about| {
                about.decision = Some(decided.decision);
                about.by = Some(decided.by);
            }),
            Refusal::NotCalled { .. } | Refusal::ToolTooLong { .. } => Problem::invalid("events", detail),
            Refusal::AskedOtherwise { tool_use_id } => {
                conflict(ProblemCode::AlreadyAsked).with(|about| about.tool_use_id = Some(tool_use_id))
            }
            Refusal::MadeByWorker => conflict(ProblemCode::ExternalProducer),
            Refusal::StaleEpoch { current, status, .. } => {
                conflict(ProblemCode::StaleProducer).with(|about| {
                    about.epoch = Some(current);
                    about.status_is = Some(status);
                })
            }
            Refusal::SeqConflict { last, .. } => {
                conflict(ProblemCode::SeqConflict).with(|about| about.last_seq = Some(last.0))
            }
        }
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Problem {
        let detail = error.to_string();
        let conflict = |code| Problem::new(StatusCode::CONFLICT, code, &detail);
        match error {
            EngineError::Refused(refusal) => refusal.into(),
            EngineError::NotFound => Problem::not_found(),
            EngineError::Gone(_) => Problem::new(StatusCode::GONE, ProblemCode::Gone, detail),
            EngineError::UnknownModel { .. } => Problem::invalid("model", detail),
            EngineError::UnknownTool { .. } => Problem::invalid("tools", detail),
            EngineError::CursorAhead { tail } => {
                conflict(ProblemCode::CursorAhead).with(|about| about.last_seq = Some(tail.0))
            }
            EngineError::BadCursor(_) => Problem::invalid("cursor", detail),
            EngineError::BadPath(_) => Problem::invalid("path", detail),
            EngineError::NoSandbox(_) => conflict(ProblemCode::NoSandbox),
            EngineError::TooManyLive { .. } => Problem::limited("limits.live_generations_per_user", detail),
            EngineError::TooManyReaders { .. } => {
                Problem::limited("limits.followers_per_conversation", detail)
            }
            EngineError::ServerIsFull { .. } => {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, ProblemCode::LimitReached, detail)
                    .of_limit("limits.live_generations")
            }
            EngineError::TooManyBrowsers { .. } => Problem::limited("limits.push_per_user", detail),
            EngineError::TooManyWebhooks { .. } => Problem::limited("limits.webhooks_per_user", detail),
            EngineError::LinkUsed => conflict(ProblemCode::LinkUsed),
            EngineError::MadeOtherwise { conversation } => conflict(ProblemCode::IdempotencyConflict)
                .with(|about| about.conversation_id = Some(conversation.to_string())),
            EngineError::Unavailable(_) | EngineError::Lost(_) => unavailable(&detail),
            EngineError::Broken(_) => broken(&detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_repeats_at_most_one_short_line_of_what_was_sent() {
        let sent = format!("evil\n\u{1b}[31m{}", "x".repeat(10_000));
        let problem = Problem::invalid(&sent, format!("unknown field `{sent}`")).to_json();
        for text in [&problem["detail"], &problem["field"]] {
            let text = text.as_str().unwrap();
            assert!(text.len() < 300 && !text.contains(char::is_control), "{text}");
        }
    }
}
