//! A person's decision about a tool that waits for it.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use outlast_core::{Decided, Decision, GenerationId};
use outlast_engine::ToolDecision;
use serde::Deserialize;
use serde_json::json;

use super::App;
use super::body::{Json, TwoIds, request_id};
use super::error::Problem;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DecisionBody {
    decision: Decision,
    reason: Option<String>,
    #[serde(default)]
    always: bool,
    hash: Option<String>,
    request_id: Option<String>,
}

pub(crate) async fn submit(
    State(app): State<App>,
    TwoIds(id, tool_use_id): TwoIds<GenerationId, String>,
    headers: HeaderMap,
    Json(body): Json<DecisionBody>,
) -> Result<Response, Problem> {
    let DecisionBody { decision, reason, always, hash, request_id: name } = body;
    request_id(&headers, name)?;
    let user = app.user();
    let decided = Decided { decision, by: user.as_str().to_owned(), reason, always };
    let status = app.engine().decide(&user, &id, ToolDecision { tool_use_id, hash, decided }).await?;
    Ok(axum::Json(json!({"success": true, "status": status})).into_response())
}
