//! Generations: start, look, cancel, resume, dismiss, retry.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use outlast_core::{
    Brief, ConversationId, GenerationId, GenerationStatus, Part, Producer, RetryMode, WhenBusy,
};
use outlast_engine::{Paging, StartRequest, Started};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::App;
use super::body::{Id, Json, Params, request_id};
use super::error::Problem;
use super::streamed::StreamedJson;

/// Entries of a list if nothing is said, and at most.
const PAGE_USUAL: usize = 50;
const PAGE_MOST: usize = 200;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StartBody {
    conversation_id: Option<ConversationId>,
    content: Content,
    model: Option<String>,
    request_id: Option<String>,
    #[serde(default)]
    when_busy: WhenBusyName,
    tools: Option<Vec<Value>>,
    system: Option<String>,
    metadata: Option<serde_json::Map<String, Value>>,
    producer: Option<Producer>,
}

/// What the user says: text, or parts of text.
#[derive(Debug, PartialEq)]
pub(crate) struct Content(Vec<Part>);

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Content, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Parts(Vec<Part>),
        }
        let wrong =
            || serde::de::Error::custom("must be a string or a list of parts {\"type\":\"text\",\"text\":…}");
        // A field that is missing and text that is broken say so themselves.
        let value = Value::deserialize(deserializer)?;
        let parts = match Form::deserialize(value).map_err(|_| wrong())? {
            Form::Text(text) => vec![Part::Text { text }],
            Form::Parts(parts) => parts,
        };
        if parts.iter().any(|part| !matches!(part, Part::Text { .. })) {
            return Err(wrong());
        }
        if outlast_core::plain_text(&parts).trim().is_empty() {
            return Err(serde::de::Error::custom("must not be empty"));
        }
        Ok(Content(parts))
    }
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
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
        if self.tools.is_some_and(|tools| !tools.is_empty()) {
            return Err(Problem::invalid("tools", "this version of Outlast runs no tools"));
        }
        Ok(StartRequest {
            conversation: self.conversation_id,
            request: request_id(headers, self.request_id)?,
            when_busy: self.when_busy.into(),
            brief: Brief {
                model: self.model.unwrap_or_else(|| Brief::DEFAULT_MODEL.to_owned()),
                system: self.system,
                metadata: self.metadata.map(Value::Object),
                producer: self.producer,
                ..Brief::default()
            },
            ..StartRequest::new(self.content.0)
        })
    }

    pub(crate) fn in_conversation(mut self, id: ConversationId, request: Option<String>) -> StartBody {
        self.conversation_id = Some(id);
        self.request_id = request.or(self.request_id);
        self
    }
}

pub(crate) fn started_json(started: &Started) -> Value {
    json!({
        "generationId": started.generation,
        "conversationId": started.conversation,
        "messageId": started.message,
        "status": started.status,
    })
}

pub(crate) async fn start(
    State(app): State<App>,
    headers: HeaderMap,
    Json(body): Json<StartBody>,
) -> Result<Response, Problem> {
    let started = app.engine().start(&app.user(), body.into_request(&headers)?).await?;
    Ok((StatusCode::ACCEPTED, axum::Json(started_json(&started))).into_response())
}

pub(crate) async fn read(State(app): State<App>, Id(id): Id<GenerationId>) -> Result<Response, Problem> {
    Ok(StreamedJson(app.engine().generation(&app.user(), &id).await?).into_response())
}

pub(crate) async fn list(State(app): State<App>, params: Params) -> Result<Response, Problem> {
    let status = match params.text("status") {
        Some(text) => Some(
            serde_json::from_value::<GenerationStatus>(Value::String(text.to_owned()))
                .map_err(|error| Problem::invalid("status", error))?,
        ),
        None => None,
    };
    let conversation = params.text("conversationId").map(ConversationId::from);
    let page = app.engine().generations(&app.user(), conversation, status, paging(&params)?).await?;
    Ok(StreamedJson(json!({"data": page.data, "nextCursor": page.next_cursor})).into_response())
}

pub(crate) fn paging(params: &Params) -> Result<Paging, Problem> {
    let cursor = params.text("cursor").map(str::to_owned);
    Ok(Paging { cursor, limit: params.limit(PAGE_USUAL, PAGE_MOST)? })
}

/// What needs no name, because doing it twice is harmless, may have one all the same.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct OnlyName {
    request_id: Option<String>,
}

impl OnlyName {
    pub(crate) fn check(self, headers: &HeaderMap) -> Result<(), Problem> {
        request_id(headers, self.request_id).map(|_| ())
    }
}

pub(crate) async fn cancel(
    State(app): State<App>,
    Id(id): Id<GenerationId>,
    headers: HeaderMap,
    Json(body): Json<OnlyName>,
) -> Result<Response, Problem> {
    body.check(&headers)?;
    let cancelled = app.engine().cancel(&app.user(), &id).await?;
    let body = json!({"success": cancelled.success, "status": cancelled.status});
    Ok(axum::Json(body).into_response())
}

pub(crate) async fn resume(
    State(app): State<App>,
    Id(id): Id<GenerationId>,
    headers: HeaderMap,
    Json(body): Json<OnlyName>,
) -> Result<Response, Problem> {
    body.check(&headers)?;
    let status = app.engine().resume(&app.user(), &id).await?;
    Ok((StatusCode::ACCEPTED, axum::Json(json!({"success": true, "status": status}))).into_response())
}

pub(crate) async fn dismiss(
    State(app): State<App>,
    Id(id): Id<GenerationId>,
    headers: HeaderMap,
    Json(body): Json<OnlyName>,
) -> Result<Response, Problem> {
    body.check(&headers)?;
    let status = app.engine().dismiss(&app.user(), &id).await?;
    Ok(axum::Json(json!({"success": true, "status": status})).into_response())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RetryBody {
    #[serde(default = "RetryBody::usual")]
    mode: RetryMode,
    request_id: Option<String>,
}

impl RetryBody {
    fn usual() -> RetryMode {
        RetryMode::Retry
    }
}

pub(crate) async fn retry(
    State(app): State<App>,
    Id(id): Id<GenerationId>,
    headers: HeaderMap,
    Json(body): Json<RetryBody>,
) -> Result<Response, Problem> {
    let request = request_id(&headers, body.request_id)?;
    let started = app.engine().retry(&app.user(), &id, body.mode, request).await?;
    Ok((StatusCode::ACCEPTED, axum::Json(started_json(&started))).into_response())
}
