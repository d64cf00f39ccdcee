//! Jobs: generations under the names that background clients know them by. A job's id is its generation's.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use outlast_core::{
    ConversationId, GenerationDocument, GenerationId, GenerationStatus, MessageId, Timestamp, UserId,
    plain_text,
};
use serde::Serialize;
use serde_json::json;

use super::App;
use super::body::{Id, Json};
use super::error::Problem;
use super::generations::OnlyName;
use super::streamed::StreamedJson;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Job {
    id: GenerationId,
    user_id: UserId,
    thread_id: ConversationId,
    message_id: Option<MessageId>,
    status: &'static str,
    content: String,
    chunks_received: u64,
    started_at: Timestamp,
    completed_at: Option<Timestamp>,
    error: Option<String>,
}

impl Job {
    fn new(user: UserId, document: GenerationDocument) -> Job {
        Job {
            status: job_status(document.status),
            content: plain_text(document.parts()),
            id: document.id,
            user_id: user,
            thread_id: document.conversation_id,
            message_id: document.brief.answer_id,
            chunks_received: document.chunks_received,
            started_at: document.started_at.unwrap_or(document.created_at),
            completed_at: document.completed_at,
            error: document.error_message,
        }
    }
}

/// The status of a generation as jobs name it.
pub(crate) fn job_status(status: GenerationStatus) -> &'static str {
    match status {
        GenerationStatus::Queued
        | GenerationStatus::Running
        | GenerationStatus::AwaitingApproval
        | GenerationStatus::Paused => "streaming",
        GenerationStatus::Interrupted => "interrupted",
        GenerationStatus::Completed => "complete",
        GenerationStatus::Cancelled => "aborted",
        GenerationStatus::Error => "error",
    }
}

pub(crate) async fn read(State(app): State<App>, Id(id): Id<GenerationId>) -> Result<Response, Problem> {
    let user = app.user();
    let document = app.engine().generation(&user, &id).await?;
    Ok(StreamedJson(Job::new(user, document)).into_response())
}

pub(crate) async fn abort(
    State(app): State<App>,
    Id(id): Id<GenerationId>,
    headers: HeaderMap,
    Json(body): Json<OnlyName>,
) -> Result<Response, Problem> {
    body.check(&headers)?;
    let cancelled = app.engine().cancel(&app.user(), &id).await?;
    Ok(axum::Json(json!({"aborted": cancelled.success})).into_response())
}
