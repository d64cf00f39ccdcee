//! Everything around the API: health, and the API's own description.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::App;
use super::error::Problem;

/// The API for machines. A test holds it to the routes.
pub(crate) const OPENAPI: &str = include_str!("../openapi.json");
pub(crate) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

pub(crate) async fn alive() -> Response {
    axum::Json(json!({"status": "ok"})).into_response()
}

/// Ready to take work: the store answers and the server is not stopping.
pub(crate) async fn ready(State(app): State<App>) -> Result<Response, Problem> {
    if app.draining() {
        return Err(Problem::draining());
    }
    app.engine().check().await?;
    Ok(axum::Json(json!({"status": "ready"})).into_response())
}

pub(crate) async fn capabilities(State(app): State<App>) -> Response {
    let body = json!({
        "name": "outlast",
        "version": env!("CARGO_PKG_VERSION"),
        "background": true,
        "backgroundJobs": true,
        "chatCompletions": true,
        "externalProducers": true,
        "transports": ["sse", "websocket", "polling"],
        "durability": app.engine().durability(),
        "models": app.engine().models(),
        "tools": [],
        "approvals": true,
        "sandbox": "none",
    });
    axum::Json(body).into_response()
}

pub(crate) async fn models(State(app): State<App>) -> Response {
    // OpenAI's libraries look for all four; when a model was made, the settings do not say.
    let entry = |id| json!({"id": id, "object": "model", "created": 0, "owned_by": "outlast"});
    let data: Vec<_> = app.engine().models().into_iter().map(entry).collect();
    axum::Json(json!({"object": "list", "data": data})).into_response()
}

pub(crate) async fn wrong_method() -> (StatusCode, Problem) {
    (StatusCode::METHOD_NOT_ALLOWED, Problem::wrong_method())
}
