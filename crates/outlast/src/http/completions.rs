//! OpenAI's chat completions on top of durable generations: every answer is a generation like any other, and a
//! client that was disconnected can find it as a job.

mod body;
mod chunks;
mod stream;
mod whole;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use outlast_core::{DEPTH_MAX, GenerationId, GenerationStatus, Part, depth};
use outlast_engine::{EngineError, StartRequest, Started};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::body::Json;
use super::caller::{Caller, Write};
use super::error::{CompletionProblem, Problem};
use super::free::too_deep;
use super::jobs::JobStatus;
use super::problem::CompletionProblemDocument;
use body::{CompletionBody, Delivery};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(complete))
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct StartedJob {
    job_id: GenerationId,
    status: JobStatus,
}

/// A frame of a stream of chunks, as SSE parsers return it.
#[derive(ToSchema)]
#[allow(dead_code)] // only its schema is used; `chunks` writes the bytes
struct ChunkFrame {
    /// A chunk of OpenAI's API, or `[DONE]`.
    data: String,
}

/// Create a chat completion
///
/// OpenAI's chat completions. The answer is durable and continues if the client disconnects. With
/// `background: true` the response is sent at once and names the job. Unsupported options are refused.
#[utoipa::path(post, path = "/v1/chat/completions", operation_id = "createChatCompletion", tag = "Jobs",
    security(("key" = ["write"])),
    responses(
        (status = 200, description = "The completion, or with `stream: true` its chunks, as OpenAI defines them.",
            content((Object = "application/json"), (ChunkFrame = "text/event-stream")),
            headers(
                ("outlast-generation-id" = String, description = "The generation, which is also the job."),
                ("outlast-conversation-id" = String, description = "The conversation."),
                ("outlast-job-events" = String, description = "Where the answer can be followed."),
            )),
        (status = 202, body = StartedJob, description = "With `background: true`: the job has started."),
        (status = 400, body = CompletionProblemDocument, content_type = "application/problem+json",
            description = "`invalid_json` or `invalid_request`, or the upstream refused the request."),
        (status = 404, body = CompletionProblemDocument, content_type = "application/problem+json",
            description = "`not_found`."),
        (status = 409, body = CompletionProblemDocument, content_type = "application/problem+json",
            description = "`conversation_busy`, `idempotency_conflict`, `message_exists`, `cancelled` or `interrupted`."),
        (status = 413, body = CompletionProblemDocument, content_type = "application/problem+json",
            description = "`too_large`."),
        (status = 429, body = CompletionProblemDocument, content_type = "application/problem+json",
            description = "`limit_reached`."),
        (status = 502, body = CompletionProblemDocument, content_type = "application/problem+json",
            description = "The generation failed; `code` is the code of its `chat.error`."),
        (status = 503, body = CompletionProblemDocument, content_type = "application/problem+json",
            description = "`limit_reached`, `draining` or `store_unavailable`."),
    ))]
async fn complete(
    caller: Result<Caller<Write>, Problem>,
    headers: HeaderMap,
    body: Result<Json<CompletionBody>, Problem>,
) -> Result<Response, CompletionProblem> {
    let caller = caller?;
    let Json(body) = body.map_err(Problem::into_wrong)?;
    let delivery = body.delivery();
    let mut request = body.into_request(&headers)?;
    check_depth(&request)?;
    request = caller.admit(request).await?;
    if let Some(thread) = &request.conversation {
        request.conversation = Some(caller.engine().thread(caller.user(), thread.as_str()).await?);
    }
    let named = request.request.is_some();
    let started = caller.engine().start(caller.user(), request).await.map_err(|error| match error {
        // It may have started.
        EngineError::Lost(_) => CompletionProblem::after_begin(error, named),
        error => error.into(),
    })?;
    let response = match delivery {
        Delivery::Background => Ok(accepted(&started)),
        Delivery::Stream { include_usage } => {
            stream::follow(&caller, &started.generation, include_usage).await
        }
        Delivery::Whole => whole::answer(&caller, &started.generation).await,
    };
    let problem = |problem| CompletionProblem::after_begin(problem, named).into_response();
    Ok(with_names(response.unwrap_or_else(problem), &started)?)
}

/// What is stored of the prompt must not be nested too deep to be read again.
fn check_depth(request: &StartRequest) -> Result<(), Problem> {
    let Some(prompt) = &request.brief.prompt else { return Ok(()) };
    let inputs = prompt.messages.iter().flat_map(|message| &message.parts).filter_map(|part| match part {
        Part::ToolUse { input, .. } => Some(("messages", input)),
        Part::Text { .. } | Part::Thinking { .. } | Part::Image { .. } | Part::ToolResult { .. } => None,
    });
    let schemas = prompt.tools.iter().filter_map(|tool| Some(("tools", tool.parameters.as_ref()?)));
    let options = prompt.options.iter().map(|(name, value)| (name.as_str(), value));
    let metadata = request.brief.metadata.iter().map(|metadata| ("metadata", metadata));
    match inputs.chain(schemas).chain(options).chain(metadata).find(|(_, value)| depth(value) > DEPTH_MAX) {
        Some((field, _)) => Err(Problem::wrong(field, too_deep())),
        None => Ok(()),
    }
}

fn accepted(started: &Started) -> Response {
    let body = StartedJob { job_id: started.generation.clone(), status: started.status.into() };
    (StatusCode::ACCEPTED, axum::Json(body)).into_response()
}

/// Says where the answer is kept, so that a client that loses the connection can continue there.
fn with_names(mut response: Response, started: &Started) -> Result<Response, EngineError> {
    let events = format!("/v1/jobs/{}/events", started.generation);
    let names = [
        ("outlast-generation-id", started.generation.as_str()),
        ("outlast-conversation-id", started.conversation.as_str()),
        ("outlast-job-events", events.as_str()),
    ];
    for (name, value) in names {
        // Bytes, not text: an id that the client chose may contain any character.
        let value = HeaderValue::from_bytes(value.as_bytes());
        let value = value.map_err(|error| EngineError::Broken(format!("{name}: {error}")))?;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// Whether nothing more happens without a person: the generation has ended or was interrupted.
fn is_settled(status: GenerationStatus) -> bool {
    status == GenerationStatus::Interrupted || !status.is_live()
}
