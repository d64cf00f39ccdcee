//! The native API over HTTP. Handlers translate; they never decide.

mod app;
mod approvals;
mod around;
mod body;
mod completions;
mod conversations;
mod error;
mod events;
mod generations;
mod guard;
mod hosts;
mod jobs;
mod producers;
mod streamed;
mod websocket;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use outlast_core::UserId;
use outlast_engine::Engine;
use tokio_util::task::TaskTracker;

pub(crate) use hosts::Hosts;

/// What every handler can reach. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

struct Inner {
    engine: Engine,
    connections: TaskTracker,
    body_bytes: usize,
    hosts: Hosts,
    draining: AtomicBool,
}

impl App {
    pub(crate) fn new(engine: Engine, connections: TaskTracker, body_bytes: usize, hosts: Hosts) -> App {
        App(Arc::new(Inner { engine, connections, body_bytes, hosts, draining: AtomicBool::new(false) }))
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// From now on `/readyz` says no.
    pub(crate) fn drain(&self) {
        self.0.draining.store(true, Ordering::SeqCst);
    }

    fn draining(&self) -> bool {
        self.0.draining.load(Ordering::SeqCst)
    }

    /// Who asks. Without keys there is one user, on this machine.
    fn user(&self) -> UserId {
        UserId::from("local")
    }
}

/// Every path and method that is served, as the OpenAPI document must list them.
#[cfg(test)]
pub(crate) const ROUTES: &[(&str, &str)] = &[
    ("get", "/healthz"),
    ("get", "/readyz"),
    ("get", "/openapi.json"),
    ("get", "/v1/capabilities"),
    ("get", "/v1/models"),
    ("post", "/v1/generations"),
    ("get", "/v1/generations"),
    ("get", "/v1/generations/{id}"),
    ("get", "/v1/generations/{id}/events"),
    ("post", "/v1/generations/{id}/events"),
    ("post", "/v1/generations/{id}/claim"),
    ("post", "/v1/generations/{id}/approvals/{toolUseId}"),
    ("post", "/v1/generations/{id}/heartbeat"),
    ("post", "/v1/generations/{id}/cancel"),
    ("post", "/v1/generations/{id}/resume"),
    ("post", "/v1/generations/{id}/dismiss"),
    ("post", "/v1/generations/{id}/retry"),
    ("post", "/v1/chat/completions"),
    ("get", "/v1/jobs/{id}"),
    ("get", "/v1/jobs/{id}/events"),
    ("post", "/v1/jobs/{id}/abort"),
    ("post", "/v1/conversations"),
    ("get", "/v1/conversations"),
    ("get", "/v1/conversations/{id}"),
    ("patch", "/v1/conversations/{id}"),
    ("delete", "/v1/conversations/{id}"),
    ("get", "/v1/conversations/{id}/messages"),
    ("get", "/v1/conversations/{id}/events"),
    ("get", "/v1/conversations/{id}/ws"),
];

pub(crate) fn router(app: App) -> Router {
    Router::new()
        .route("/healthz", get(around::alive))
        .route("/readyz", get(around::ready))
        .route("/openapi.json", get(around::openapi))
        .route("/v1/capabilities", get(around::capabilities))
        .route("/v1/models", get(around::models))
        .route("/v1/generations", post(generations::start).get(generations::list))
        .route("/v1/generations/{id}", get(generations::read))
        .route("/v1/generations/{id}/events", get(events::of_generation).post(producers::append))
        .route("/v1/generations/{id}/claim", post(producers::claim))
        .route("/v1/generations/{id}/approvals/{tool_use_id}", post(approvals::submit))
        .route("/v1/generations/{id}/heartbeat", post(producers::heartbeat))
        .route("/v1/generations/{id}/cancel", post(generations::cancel))
        .route("/v1/generations/{id}/resume", post(generations::resume))
        .route("/v1/generations/{id}/dismiss", post(generations::dismiss))
        .route("/v1/generations/{id}/retry", post(generations::retry))
        .route("/v1/chat/completions", post(completions::complete))
        .route("/v1/jobs/{id}", get(jobs::read))
        .route("/v1/jobs/{id}/events", get(events::of_generation))
        .route("/v1/jobs/{id}/abort", post(jobs::abort))
        .route("/v1/conversations", post(conversations::create).get(conversations::list))
        .route(
            "/v1/conversations/{id}",
            get(conversations::read).patch(conversations::update).delete(conversations::delete),
        )
        .route("/v1/conversations/{id}/messages", get(conversations::messages))
        .route("/v1/conversations/{id}/events", get(events::of_conversation))
        .route("/v1/conversations/{id}/ws", get(websocket::connect))
        .fallback(app::file)
        .method_not_allowed_fallback(around::wrong_method)
        .layer(from_fn_with_state(app.clone(), guard::same_origin))
        .layer(from_fn(guard::headers))
        .with_state(app)
}

/// What a connection beyond `limits.connections` gets. The process is alive all the same, and whoever restarts
/// it when it is not must hear that.
pub(crate) fn full() -> Router {
    Router::new()
        .route("/healthz", get(around::alive))
        .fallback(async || error::Problem::too_many_connections())
        .layer(from_fn(guard::headers))
}
