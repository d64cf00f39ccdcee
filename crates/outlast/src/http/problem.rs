//! Problem documents (RFC 9457): their fields, and what each code means.

use outlast_core::GenerationStatus;
use serde::Serialize;
use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Type};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// What is wrong and what to do about it (RFC 9457).
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Problem)]
pub(crate) struct ProblemDocument {
    /// Always `about:blank`: `code` says what kind of problem it is.
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    /// The HTTP status in words.
    pub(crate) title: &'static str,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub(crate) status: u16,
    /// What is wrong, for people. The wording may change.
    pub(crate) detail: String,
    /// What is wrong, for programs. The meaning of a code never changes.
    pub(crate) code: Code,
    #[serde(flatten)]
    pub(crate) about: About,
}

/// What the problem is about; which of these are present depends on the code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct About {
    /// The field or parameter that is wrong; empty if it is the whole body.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) field: Option<String>,
    /// `limit_reached`: the setting that was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<String>)]
    pub(crate) limit: Option<&'static str>,
    /// The generation in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) generation_id: Option<String>,
    /// The conversation that the request id already created.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) conversation_id: Option<String>,
    /// The message that already has the chosen id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) message_id: Option<String>,
    /// The tool call in question.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) tool_use_id: Option<String>,
    /// The job of a chat completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) job_id: Option<String>,
    /// `cursor_ahead`: the end of the log. `seq_conflict`: the worker's last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) last_seq: Option<u64>,
    /// `already_ended`: how the generation ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) status_was: Option<GenerationStatus>,
    /// The generation's status now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) status_is: Option<GenerationStatus>,
    /// `stale_producer`: the current epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) epoch: Option<u32>,
    /// `already_decided`: the decision that counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) decision: Option<outlast_core::Decision>,
    /// `already_decided`: who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) by: Option<String>,
    /// `cancelled`: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) reason: Option<String>,
}

/// A problem of a chat completion: the problem document, and an error object for OpenAI's libraries.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CompletionProblem)]
pub(crate) struct CompletionProblemDocument {
    #[serde(flatten)]
    pub(crate) problem: ProblemDocument,
    pub(crate) error: ErrorObject,
}

/// The error object of OpenAI's API.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorObject {
    pub(crate) message: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) code: String,
    /// The field that is wrong.
    #[schema(required)]
    pub(crate) param: Option<String>,
    #[serde(rename = "jobId", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) job_id: Option<String>,
}

/// One of the codes below, or the code of a generation that failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Code {
    Known(ProblemCode),
    OfGeneration(String),
}

// Written by hand, because a derived schema would require that exactly one of the two matches.
impl PartialSchema for Code {
    fn schema() -> RefOr<Schema> {
        let known = Ref::from_schema_name(ProblemCode::name());
        let other = ObjectBuilder::new().schema_type(Type::String).build();
        AnyOfBuilder::new().item(known).item(other).into()
    }
}

impl ToSchema for Code {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((ProblemCode::name().into_owned(), ProblemCode::schema()));
    }
}

/// - `invalid_json` 400: the body is not JSON.
/// - `invalid_request` 422: a field or parameter is unknown, missing or wrong; `field` names it. Also 400: the
///   request was cut off, or does not ask for a WebSocket where one is needed.
/// - `unauthenticated` 401: the request has no credential, or one that is not valid.
/// - `forbidden` 403: the key does not have the scope that this needs.
/// - `foreign_origin` 403: the request comes from a web page of another origin.
/// - `not_found` 404: not found, or it belongs to another user.
/// - `method_not_allowed` 405: this path does not support the method.
/// - `conversation_busy` 409: a generation is running or waiting; `generationId` names it.
/// - `idempotency_conflict` 409: the request id was used before with a different body; `generationId` or
///   `conversationId` names what it created.
/// - `repeated` 409: the same request was accepted before.
/// - `already_ended` 409: the generation has ended.
/// - `not_interrupted` 409: a generation must be interrupted to be dismissed, and interrupted or paused to be resumed.
/// - `not_retryable` 409: only the last generation of a conversation can be retried, and only if it failed or
///   was cancelled.
/// - `cursor_ahead` 409: the position is past the end of the log; `lastSeq` is the end.
/// - `message_exists` 409: another message of the conversation has this `messageId`.
/// - `already_exists` 409: the conversation already exists.
/// - `tool_running` 409: files cannot be changed while a tool runs in the conversation.
/// - `no_sandbox` 409: this server has no sandboxes, so there is no place for files.
/// - `not_external` 409: only a generation started with `producer` can be claimed by a worker.
/// - `external_producer` 409: an interrupted generation of a worker continues when a worker claims it.
/// - `stale_producer` 409: another worker has claimed the generation, or it was interrupted; `epoch` is the
///   current one.
/// - `seq_conflict` 409: the batch does not start where the last one ended; `lastSeq` says where that is.
/// - `already_decided` 409: somebody has decided; `decision` and `by` say what and who.
/// - `approval_changed` 409: the question under `toolUseId` is not the one that `hash` names. Read it again.
/// - `link_used` 409: the link was already used to decide.
/// - `link_expired` 409: the link is too old. Decide in the conversation.
/// - `already_asked` 409: a person was already asked about `toolUseId`, with a different tool or arguments.
/// - `delegated` 409: the conversation belongs to a tool call of another one, and nobody can write to it or delete it.
/// - `cancelled` 409: the awaited answer was cancelled; `reason` says why.
/// - `interrupted` 409: the awaited answer waits for a person.
/// - `attempt_retracted`: only in a stream of completion chunks: what was sent has been withdrawn.
/// - `gone` 410: it is no longer kept.
/// - `too_large` 413: the body is larger than the limit, or there is no room for the file; `limit` names the setting.
/// - `limit_reached` 429: too many generations, followers or queued messages; 503 if the server is full. Retry
///   after `Retry-After` seconds.
/// - `store_broken` 500: stored data cannot be read. The server's log says why.
/// - `draining` 503: the server is shutting down.
/// - `issuer_unavailable` 503: the public keys of the tokens' issuer cannot be fetched.
/// - `store_unavailable` 503: the store cannot be reached. Retrying is safe if the request has a request id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProblemCode {
    InvalidJson,
    InvalidRequest,
    Unauthenticated,
    Forbidden,
    ForeignOrigin,
    NotFound,
    MethodNotAllowed,
    ConversationBusy,
    IdempotencyConflict,
    Repeated,
    AlreadyEnded,
    NotInterrupted,
    NotRetryable,
    CursorAhead,
    MessageExists,
    AlreadyExists,
    ToolRunning,
    NoSandbox,
    NotExternal,
    ExternalProducer,
    StaleProducer,
    SeqConflict,
    AlreadyDecided,
    ApprovalChanged,
    LinkUsed,
    LinkExpired,
    AlreadyAsked,
    Delegated,
    Cancelled,
    Interrupted,
    AttemptRetracted,
    Gone,
    TooLarge,
    LimitReached,
    StoreBroken,
    Draining,
    IssuerUnavailable,
    StoreUnavailable,
}
