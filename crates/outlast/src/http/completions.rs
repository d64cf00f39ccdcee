//! OpenAI's chat completions over durable generations: every answer is a generation like any other, and a
//! client that goes away finds it again as a job.

mod body;
mod chunks;
mod stream;
mod whole;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use outlast_core::GenerationStatus;
use outlast_engine::{CommandError, Started};
use serde_json::json;

use super::App;
use super::body::Json;
use super::error::{CompletionProblem, Problem};
use super::jobs::job_status;
use body::{CompletionBody, Delivery};

pub(crate) async fn complete(
    State(app): State<App>,
    headers: HeaderMap,
    body: Result<Json<CompletionBody>, Problem>,
) -> Result<Response, CompletionProblem> {
    let Json(body) = body.map_err(Problem::into_wrong)?;
    let delivery = body.delivery();
    let request = body.into_request(&headers)?;
    let named = request.request.is_some();
    let started = app.engine().start(&app.user(), request).await.map_err(|error| match error {
        CommandError::Lost(_) => CompletionProblem::after_begin(error, named), // nobody knows
        error => error.into(),
    })?;
    let response = match delivery {
        Delivery::Background => Ok(accepted(&started)),
        Delivery::Stream { include_usage } => stream::follow(&app, &started.generation, include_usage).await,
        Delivery::Whole => whole::answer(&app, &started.generation).await,
    };
    let problem = |problem| CompletionProblem::after_begin(problem, named).into_response();
    Ok(with_names(response.unwrap_or_else(problem), &started)?)
}

fn accepted(started: &Started) -> Response {
    let body = json!({"jobId": started.generation, "status": job_status(started.status)});
    (StatusCode::ACCEPTED, axum::Json(body)).into_response()
}

/// Says where the answer is kept, so that a client that loses this one can read on there.
fn with_names(mut response: Response, started: &Started) -> Result<Response, CommandError> {
    let events = format!("/v1/jobs/{}/events", started.generation);
    let names = [
        ("outlast-generation-id", started.generation.as_str()),
        ("outlast-conversation-id", started.conversation.as_str()),
        ("outlast-job-events", events.as_str()),
    ];
    for (name, value) in names {
        // Bytes, not text: an id that the client chose may hold any letter.
        let value = HeaderValue::from_bytes(value.as_bytes());
        let value = value.map_err(|error| CommandError::Broken(format!("{name}: {error}")))?;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// Whether nothing more will come by itself: it is over, or waits for a person.
fn is_settled(status: GenerationStatus) -> bool {
    match status {
        GenerationStatus::Interrupted
        | GenerationStatus::Completed
        | GenerationStatus::Cancelled
        | GenerationStatus::Error => true,
        GenerationStatus::Queued
        | GenerationStatus::Running
        | GenerationStatus::AwaitingApproval
        | GenerationStatus::Paused => false,
    }
}
