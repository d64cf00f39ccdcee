//! Jobs: generations as clients of background completions see them. A job has its generation's id.

use axum::http::HeaderMap;
use axum::response::Response;
use outlast_core::{
    GenerationDocument, GenerationId, GenerationStatus, MessageId, Timestamp, UserId, plain_text,
};
use outlast_engine::thread_name;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::body::{Id, Json, NoFields};
use super::caller::{Caller, Read, Write};
use super::error::Problem;
use super::events::{self, EventPage, EventsQuery, FrameSchema};
use super::query::Query;
use super::streamed::StreamedJson;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(read)).routes(routes!(follow)).routes(routes!(abort))
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Job {
    id: GenerationId,
    user_id: UserId,
    /// The name that the client gave its conversation.
    thread_id: String,
    #[schema(required)]
    message_id: Option<MessageId>,
    status: JobStatus,
    content: String,
    chunks_received: u64,
    started_at: Timestamp,
    #[schema(required)]
    completed_at: Option<Timestamp>,
    #[schema(required)]
    error: Option<String>,
}

impl Job {
    fn new(user: UserId, document: GenerationDocument) -> Job {
        let thread_id = thread_name(&user, &document.conversation_id).to_owned();
        Job {
            status: document.status.into(),
            content: plain_text(document.parts()),
            id: document.id,
            user_id: user,
            thread_id,
            message_id: document.brief.answer_id,
            chunks_received: document.chunks_received,
            started_at: document.started_at.unwrap_or(document.created_at),
            completed_at: document.completed_at,
            error: document.error_message,
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum JobStatus {
    Streaming,
    Interrupted,
    Complete,
    Aborted,
    Error,
}

impl From<GenerationStatus> for JobStatus {
    fn from(status: GenerationStatus) -> JobStatus {
        match status {
            GenerationStatus::Interrupted => JobStatus::Interrupted,
            GenerationStatus::Completed => JobStatus::Complete,
            GenerationStatus::Cancelled => JobStatus::Aborted,
            live if live.is_live() => JobStatus::Streaming,
            // Any other ended job must not look as if it were still running.
            _ => JobStatus::Error,
        }
    }
}

/// Read a job
#[utoipa::path(get, path = "/v1/jobs/{id}", operation_id = "getJob", tag = "Jobs",
    security(("key" = ["read"])),
    responses((status = 200, body = Job, description = "The job.")))]
async fn read(caller: Caller<Read>, Id(id): Id<GenerationId>) -> Result<StreamedJson<Job>, Problem> {
    let user = caller.user();
    let document = caller.engine().generation(user, &id).await?;
    Ok(StreamedJson(Job::new(user.clone(), document)))
}

/// Follow a job
///
/// The same events as those of its generation.
#[utoipa::path(get, path = "/v1/jobs/{id}/events", operation_id = "followJob", tag = "Jobs",
    params(EventsQuery),
    security(("key" = ["read"])),
    responses(
        (status = 200, content((FrameSchema = "text/event-stream"), (EventPage = "application/json")),
            description = "The events, as a stream of frames or as one page."),
        (status = 409, description = "`cursor_ahead`."),
        (status = 429, description = "`limit_reached`: too many followers."),
    ))]
async fn follow(
    caller: Caller<Read>,
    id: Id<GenerationId>,
    headers: HeaderMap,
    query: Query<EventsQuery>,
) -> Result<Response, Problem> {
    events::of_generation(caller, id, headers, query).await
}

#[derive(Serialize, ToSchema)]
struct Aborted {
    /// False if the job had already ended.
    aborted: bool,
}

/// Abort a job
#[utoipa::path(post, path = "/v1/jobs/{id}/abort", operation_id = "abortJob", tag = "Jobs",
    security(("key" = ["write"])),
    responses((status = 200, body = Aborted, description = "Whether this request ended the job.")))]
async fn abort(
    caller: Caller<Write>,
    Id(id): Id<GenerationId>,
    Json(_body): Json<NoFields>,
) -> Result<axum::Json<Aborted>, Problem> {
    let cancelled = caller.engine().cancel(caller.user(), &id).await?;
    Ok(axum::Json(Aborted { aborted: cancelled.success }))
}
