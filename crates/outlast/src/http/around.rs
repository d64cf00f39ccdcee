//! Health checks, capabilities, the list of models, and the OpenAPI document.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::caller::{Anyone, Caller};
use super::error::Problem;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(alive))
        .routes(routes!(ready))
        .routes(routes!(openapi))
        .routes(routes!(capabilities))
        .routes(routes!(models))
}

#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok` or `ready`.
    status: &'static str,
}

/// The process is alive
#[utoipa::path(get, path = "/healthz", operation_id = "isAlive", tag = "Server",
    responses((status = 200, body = Health, description = "Alive.")))]
pub(super) async fn alive() -> axum::Json<Health> {
    axum::Json(Health { status: "ok" })
}

/// The server accepts work
///
/// The store can be reached and the server is not shutting down.
#[utoipa::path(get, path = "/readyz", operation_id = "isReady", tag = "Server",
    responses((status = 200, body = Health, description = "Ready.")))]
async fn ready(State(app): State<App>) -> Result<axum::Json<Health>, Problem> {
    if app.draining() {
        return Err(Problem::draining());
    }
    app.0.engine.check().await?;
    Ok(axum::Json(Health { status: "ready" }))
}

/// This document
#[utoipa::path(get, path = "/openapi.json", operation_id = "getOpenApi", tag = "Server",
    security(("key" = [])),
    responses((status = 200, body = Object, description = "An OpenAPI 3.1 document.")))]
async fn openapi(_caller: Caller<Anyone>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], super::openapi::DOCUMENT.as_str()).into_response()
}

/// What this server offers. A field that a client does not know may be ignored; one that is missing means "no".
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Capabilities {
    #[schema(value_type = String)]
    name: &'static str,
    #[schema(value_type = String)]
    version: &'static str,
    /// The user that this request was made as.
    user: String,
    /// What the credential of this request allows: `read`, `write`, `approve`, `produce`, `admin`.
    #[schema(value_type = Vec<String>)]
    scopes: Vec<&'static str>,
    /// Generations continue without their clients.
    background: bool,
    /// `GET /v1/jobs/{id}` and `background: true` in chat completions.
    background_jobs: bool,
    /// `POST /v1/chat/completions`.
    chat_completions: bool,
    /// Workers may claim generations and append to them.
    external_producers: bool,
    /// The protocols that clients can speak.
    #[schema(value_type = Vec<String>)]
    protocols: &'static [&'static str],
    /// How events can be followed.
    #[schema(value_type = Vec<String>)]
    transports: &'static [&'static str],
    /// When events are saved: `commit`, `debounce` or `boundary`.
    #[schema(value_type = Durability)]
    durability: &'static str,
    /// The kind of store, as in the setting `store.url`.
    store: String,
    /// The names of the models; every start may choose one.
    models: Vec<String>,
    /// The names of the tools that the server offers.
    tools: Vec<String>,
    /// The names of MCP servers whose tools cannot be called now; `GET /v1/tools` says why.
    tool_servers_unavailable: Vec<String>,
    /// Tool calls can wait for a person's decision.
    approvals: bool,
    /// Where tools run.
    #[schema(value_type = String)]
    sandbox: &'static str,
    /// Why there is no sandbox, and so none of the tools that run in one. Absent if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    tools_problem: Option<String>,
    /// The server notifies users who are not watching.
    notifications: bool,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[allow(dead_code)] // only its schema is used; the engine returns the name
enum Durability {
    Commit,
    Debounce,
    Boundary,
}

/// What this server offers
#[utoipa::path(get, path = "/v1/capabilities", operation_id = "getCapabilities", tag = "Server",
    security(("key" = [])),
    responses((status = 200, body = Capabilities, description = "What clients can rely on.")))]
async fn capabilities(caller: Caller<Anyone>) -> axum::Json<Capabilities> {
    let servers = caller.engine().tool_servers().into_iter();
    let unavailable = servers.filter(|server| server.problem.is_some());
    axum::Json(Capabilities {
        name: "outlast",
        version: env!("CARGO_PKG_VERSION"),
        user: caller.user().as_str().to_owned(),
        scopes: caller.principal().scope_names(),
        background: true,
        background_jobs: true,
        chat_completions: true,
        external_producers: true,
        protocols: &["outlast", "openai-chat-completions"],
        transports: &["sse", "websocket", "polling"],
        durability: caller.engine().durability(),
        store: caller.app().0.store.clone(),
        models: caller.engine().models(),
        tools: caller.engine().tools(),
        tool_servers_unavailable: unavailable.map(|server| server.name).collect(),
        approvals: true,
        sandbox: if caller.engine().no_tools().is_none() { "local" } else { "none" },
        tools_problem: caller.engine().no_tools().map(str::to_owned),
        notifications: true,
    })
}

#[derive(Serialize, ToSchema)]
struct ModelList {
    #[schema(value_type = String)]
    object: &'static str,
    data: Vec<Model>,
}

/// As OpenAI's libraries expect it. `created` is not known.
#[derive(Serialize, ToSchema)]
struct Model {
    id: String,
    #[schema(value_type = String)]
    object: &'static str,
    created: u64,
    #[schema(value_type = String)]
    owned_by: &'static str,
}

/// List models
#[utoipa::path(get, path = "/v1/models", operation_id = "listModels", tag = "Server",
    security(("key" = [])),
    responses((status = 200, body = ModelList, description = "The models in the settings.")))]
async fn models(caller: Caller<Anyone>) -> axum::Json<ModelList> {
    let model = |id| Model { id, object: "model", created: 0, owned_by: "outlast" };
    let data = caller.engine().models().into_iter().map(model).collect();
    axum::Json(ModelList { object: "list", data })
}

pub(crate) async fn wrong_method() -> (StatusCode, Problem) {
    (StatusCode::METHOD_NOT_ALLOWED, Problem::wrong_method())
}
