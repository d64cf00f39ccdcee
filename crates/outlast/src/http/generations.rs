//! Generations: start, read, list, cancel, resume, dismiss, retry.

use axum::http::{HeaderMap, StatusCode};
use outlast_core::{
    Brief, ConversationId, GenerationDocument, GenerationId, GenerationStatus, MessageId, Part, Producer,
    RetryMode, WhenBusy,
};
use outlast_engine::{Cancelled, StartRequest, Started};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::body::{Id, Json, NoFields, RequestName, request_id};
use super::caller::{Caller, Read, Write};
use super::error::Problem;
use super::free::{Key, Metadata, Short, Word};
use super::query::{PageQuery, Query};
use super::streamed::StreamedJson;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(start, list))
        .routes(routes!(read))
        .routes(routes!(cancel))
        .routes(routes!(resume))
        .routes(routes!(dismiss))
        .routes(routes!(retry))
}

/// A message to be answered.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = StartGeneration)]
pub(crate) struct StartBody {
    /// Without it, a new conversation is created.
    #[schema(min_length = 1)]
    conversation_id: Option<ConversationId>,
    /// Your own key for the conversation, instead of its id. The conversation is created if it does not exist.
    key: Option<Key>,
    #[schema(value_type = ContentForm)]
    content: Content,
    /// One of `GET /v1/models`.
    #[schema(value_type = Option<String>, max_length = 200)]
    model: Option<Word>,
    /// Idempotency key: repeating the request starts nothing new.
    request_id: Option<RequestName>,
    #[serde(default)]
    when_busy: WhenBusyName,
    /// The tools that the model may use, out of `GET /v1/tools`. Default: all of them.
    #[schema(max_items = 100)]
    tools: Option<Vec<String>>,
    /// `false` for an answer without tools.
    sandbox: Option<bool>,
    /// Instructions for the model.
    system: Option<String>,
    metadata: Option<Metadata>,
    /// `external`: a worker will produce the answer.
    producer: Option<Producer>,
}

/// The user's message. It must not be blank.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = Content)]
pub(crate) enum ContentForm {
    Text(NotBlank),
    Parts(Vec<TextPart>),
}

#[derive(Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(pattern = r"\S")]
pub(crate) struct NotBlank(String);

#[derive(Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum TextPart {
    Text { text: String },
}

#[derive(Debug, PartialEq)]
pub(crate) struct Content(Vec<Part>);

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Content, D::Error> {
        let wrong = "must be a string or a list of parts {\"type\":\"text\",\"text\":…}";
        // Read as a value first, so that a missing field and broken JSON are reported as such.
        let value = Value::deserialize(deserializer)?;
        let form = ContentForm::deserialize(value).map_err(|_| serde::de::Error::custom(wrong))?;
        let parts = match form {
            ContentForm::Text(NotBlank(text)) => vec![Part::Text { text }],
            ContentForm::Parts(parts) => {
                parts.into_iter().map(|TextPart::Text { text }| Part::Text { text }).collect()
            }
        };
        if outlast_core::plain_text(&parts).trim().is_empty() {
            return Err(serde::de::Error::custom("must not be blank"));
        }
        Ok(Content(parts))
    }
}

/// What to do if a generation is running: refuse the message, answer it afterwards, or cancel and answer this.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = WhenBusy)]
pub(crate) enum WhenBusyName {
    #[default]
    Reject,
    Queue,
    Interrupt,
}

impl From<WhenBusyName> for WhenBusy {
    fn from(name: WhenBusyName) -> WhenBusy {
        match name {
            WhenBusyName::Reject => WhenBusy::Reject,
            WhenBusyName::Queue => WhenBusy::Queue,
            WhenBusyName::Interrupt => WhenBusy::Interrupt,
        }
    }
}

impl StartBody {
    pub(crate) fn into_request(self, headers: &HeaderMap) -> Result<StartRequest, Problem> {
        if self.key.is_some() && self.conversation_id.is_some() {
            return Err(Problem::invalid("key", "must not be combined with conversationId"));
        }
        let tools = match self.sandbox {
            Some(false) if self.tools.as_ref().is_some_and(|tools| !tools.is_empty()) => {
                return Err(Problem::invalid("tools", "must be empty if `sandbox` is false"));
            }
            Some(false) => Some(Vec::new()),
            Some(true) | None => self.tools,
        };
        Ok(StartRequest {
            conversation: self.conversation_id,
            key: self.key.map(|Key(key)| key),
            request: request_id(headers, self.request_id),
            when_busy: self.when_busy.into(),
            tools,
            brief: Brief {
                model: self.model.map_or_else(|| Brief::DEFAULT_MODEL.to_owned(), |Short(model)| model),
                system: self.system,
                metadata: self.metadata.map(Value::from),
                producer: self.producer,
                ..Brief::default()
            },
            ..StartRequest::new(self.content.0)
        })
    }

    /// With this request id, unless it has one.
    pub(crate) fn named(mut self, request: Option<RequestName>) -> StartBody {
        self.request_id = self.request_id.or(request);
        self
    }

    pub(crate) fn in_conversation(mut self, id: ConversationId, request: Option<RequestName>) -> StartBody {
        self.conversation_id = Some(id);
        self.request_id = request.or(self.request_id);
        self
    }
}

/// The generation that this request, or the same request earlier, started.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StartedGeneration {
    generation_id: GenerationId,
    conversation_id: ConversationId,
    /// The user's message.
    message_id: MessageId,
    status: GenerationStatus,
}

impl From<Started> for StartedGeneration {
    fn from(started: Started) -> StartedGeneration {
        StartedGeneration {
            generation_id: started.generation,
            conversation_id: started.conversation,
            message_id: started.message,
            status: started.status,
        }
    }
}

/// What a command did. `success` is false if the generation had already ended.
#[derive(Serialize, ToSchema)]
pub(crate) struct Outcome {
    pub(crate) success: bool,
    pub(crate) status: GenerationStatus,
}

impl From<Cancelled> for Outcome {
    fn from(cancelled: Cancelled) -> Outcome {
        Outcome { success: cancelled.success, status: cancelled.status }
    }
}

impl From<GenerationStatus> for Outcome {
    fn from(status: GenerationStatus) -> Outcome {
        Outcome { success: true, status }
    }
}

/// Newest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GenerationPage {
    data: Vec<GenerationDocument>,
    /// Absent from the last page.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Start a generation
///
/// The user's message is durable before the response is sent. The generation continues even if the client
/// disconnects. With a request id the call can be repeated safely, even when it creates a conversation.
#[utoipa::path(post, path = "/v1/generations", operation_id = "startGeneration", tag = "Generations",
    security(("key" = ["write"])),
    responses(
        (status = 202, body = StartedGeneration, description = "Started, now or by an earlier request with the same id."),
        (status = 404, description = "`not_found`: the conversation does not exist."),
        (status = 409, description = "`conversation_busy` or `idempotency_conflict`."),
        (status = 429, description = "`limit_reached`."),
    ))]
async fn start(
    caller: Caller<Write>,
    headers: HeaderMap,
    Json(body): Json<StartBody>,
) -> Result<(StatusCode, axum::Json<StartedGeneration>), Problem> {
    let request = caller.admit(body.into_request(&headers)?).await?;
    let started = caller.engine().start(caller.user(), request).await?;
    Ok((StatusCode::ACCEPTED, axum::Json(started.into())))
}

/// Read a generation
///
/// The whole state in one response, for polling.
#[utoipa::path(get, path = "/v1/generations/{id}", operation_id = "getGeneration", tag = "Generations",
    security(("key" = ["read"])),
    responses((status = 200, body = GenerationDocument, description = "The generation.")))]
async fn read(
    caller: Caller<Read>,
    Id(id): Id<GenerationId>,
) -> Result<StreamedJson<GenerationDocument>, Problem> {
    Ok(StreamedJson(caller.engine().generation(caller.user(), &id).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only generations with this status.
    status: Option<GenerationStatus>,
    /// Only generations of this conversation.
    #[param(value_type = Option<String>)]
    conversation_id: Option<ConversationId>,
}

/// List generations
///
/// Newest first.
#[utoipa::path(get, path = "/v1/generations", operation_id = "listGenerations", tag = "Generations",
    params(ListQuery, PageQuery),
    security(("key" = ["read"])),
    responses((status = 200, body = GenerationPage, description = "One page.")))]
async fn list(
    caller: Caller<Read>,
    Query(query): Query<ListQuery>,
    Query(page): Query<PageQuery>,
) -> Result<StreamedJson<GenerationPage>, Problem> {
    let ListQuery { status, conversation_id } = query;
    let page = caller.engine().generations(caller.user(), conversation_id, status, page.paging()?).await?;
    Ok(StreamedJson(GenerationPage { data: page.data, next_cursor: page.next_cursor }))
}

/// Cancel a generation
///
/// The first cancel wins; a later one returns how the generation ended. Partial content is kept.
#[utoipa::path(post, path = "/v1/generations/{id}/cancel", operation_id = "cancelGeneration", tag = "Generations",
    security(("key" = ["write"])),
    responses((status = 200, body = Outcome, description = "How the generation ended.")))]
async fn cancel(
    caller: Caller<Write>,
    Id(id): Id<GenerationId>,
    Json(_body): Json<NoFields>,
) -> Result<axum::Json<Outcome>, Problem> {
    Ok(axum::Json(caller.engine().cancel(caller.user(), &id).await?.into()))
}

/// Resume an interrupted generation
#[utoipa::path(post, path = "/v1/generations/{id}/resume", operation_id = "resumeGeneration", tag = "Generations",
    security(("key" = ["write"])),
    responses(
        (status = 202, body = Outcome, description = "It continues."),
        (status = 409, description = "`not_interrupted`, `already_ended` or `external_producer`."),
        (status = 429, description = "`limit_reached`."),
    ))]
async fn resume(
    caller: Caller<Write>,
    Id(id): Id<GenerationId>,
    Json(_body): Json<NoFields>,
) -> Result<(StatusCode, axum::Json<Outcome>), Problem> {
    let status = caller.engine().resume(caller.user(), &id).await?;
    Ok((StatusCode::ACCEPTED, axum::Json(status.into())))
}

/// Dismiss an interrupted generation
///
/// Ends it as cancelled. Partial content is kept.
#[utoipa::path(post, path = "/v1/generations/{id}/dismiss", operation_id = "dismissGeneration", tag = "Generations",
    security(("key" = ["write"])),
    responses(
        (status = 200, body = Outcome, description = "It has ended."),
        (status = 409, description = "`not_interrupted` or `already_ended`."),
    ))]
async fn dismiss(
    caller: Caller<Write>,
    Id(id): Id<GenerationId>,
    Json(_body): Json<NoFields>,
) -> Result<axum::Json<Outcome>, Problem> {
    Ok(axum::Json(caller.engine().dismiss(caller.user(), &id).await?.into()))
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = RetryGeneration)]
pub(crate) struct RetryBody {
    /// `retry` withdraws the partial answer, `continue` keeps it.
    #[serde(default = "RetryBody::usual")]
    mode: RetryMode,
    request_id: Option<RequestName>,
}

impl RetryBody {
    fn usual() -> RetryMode {
        RetryMode::Retry
    }
}

/// Retry or continue a generation that failed or was cancelled
///
/// Starts a new generation for the same message.
#[utoipa::path(post, path = "/v1/generations/{id}/retry", operation_id = "retryGeneration", tag = "Generations",
    security(("key" = ["write"])),
    responses(
        (status = 202, body = StartedGeneration, description = "The new generation."),
        (status = 409, description = "`not_retryable`, `conversation_busy` or `idempotency_conflict`."),
        (status = 429, description = "`limit_reached`."),
    ))]
async fn retry(
    caller: Caller<Write>,
    Id(id): Id<GenerationId>,
    headers: HeaderMap,
    Json(body): Json<RetryBody>,
) -> Result<(StatusCode, axum::Json<StartedGeneration>), Problem> {
    let request = request_id(&headers, body.request_id);
    caller.count_start().await?;
    let key = caller.api_key_id();
    let started = caller.engine().retry(caller.user(), &id, body.mode, request, key).await?;
    Ok((StatusCode::ACCEPTED, axum::Json(started.into())))
}
