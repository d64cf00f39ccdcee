//! Conversations: make, list, look, change, delete.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use outlast_core::{ConversationId, Seq};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::App;
use super::body::{Id, Json, Params, request_id};
use super::error::Problem;
use super::generations::paging;
use super::streamed::StreamedJson;

/// Messages in a view if nothing is said, and at most.
pub(crate) const MESSAGES_USUAL: usize = 200;
const MESSAGES_MOST: usize = 1_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ConversationBody {
    title: Option<String>,
    metadata: Option<Map<String, Value>>,
    request_id: Option<String>,
}

pub(crate) async fn create(
    State(app): State<App>,
    headers: HeaderMap,
    Json(body): Json<ConversationBody>,
) -> Result<Response, Problem> {
    let request = request_id(&headers, body.request_id)?;
    let metadata = body.metadata.map(Value::Object);
    let id = app.engine().create_conversation(&app.user(), body.title, metadata, request).await?;
    let view = app.engine().view(&app.user(), &id, 0).await?;
    Ok((StatusCode::CREATED, axum::Json(view.conversation)).into_response())
}

pub(crate) async fn list(State(app): State<App>, params: Params) -> Result<Response, Problem> {
    let page = app.engine().conversations(&app.user(), paging(&params)?).await?;
    Ok(StreamedJson(json!({"data": page.data, "nextCursor": page.next_cursor})).into_response())
}

pub(crate) async fn read(
    State(app): State<App>,
    Id(id): Id<ConversationId>,
    params: Params,
) -> Result<Response, Problem> {
    let limit = params.limit(MESSAGES_USUAL, MESSAGES_MOST)?;
    Ok(StreamedJson(app.engine().view(&app.user(), &id, limit).await?).into_response())
}

pub(crate) async fn messages(
    State(app): State<App>,
    Id(id): Id<ConversationId>,
    params: Params,
) -> Result<Response, Problem> {
    let limit = params.limit(MESSAGES_USUAL, MESSAGES_MOST)?;
    let before = params.number("before")?.map(Seq);
    let (data, has_more) = app.engine().messages(&app.user(), &id, before, limit).await?;
    Ok(StreamedJson(json!({"data": data, "hasMore": has_more})).into_response())
}

pub(crate) async fn update(
    State(app): State<App>,
    Id(id): Id<ConversationId>,
    Json(body): Json<ConversationBody>,
) -> Result<Response, Problem> {
    request_id(&HeaderMap::new(), body.request_id)?; // may be there; setting the same twice is harmless
    let metadata = body.metadata.map(Value::Object);
    app.engine().update_conversation(&app.user(), &id, body.title.map(Some), metadata).await?;
    let view = app.engine().view(&app.user(), &id, 0).await?;
    Ok(axum::Json(view.conversation).into_response())
}

pub(crate) async fn delete(
    State(app): State<App>,
    Id(id): Id<ConversationId>,
) -> Result<StatusCode, Problem> {
    app.engine().delete_conversation(&app.user(), &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
