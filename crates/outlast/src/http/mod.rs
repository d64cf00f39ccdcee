//! The HTTP API. Handlers only translate between HTTP and the engine.

mod app;
mod approvals;
mod around;
mod body;
mod caller;
mod completions;
mod conversations;
mod error;
mod events;
mod free;
mod generations;
mod guard;
mod hosts;
mod jobs;
mod openapi;
mod problem;
mod query;
mod session;
mod streamed;
mod websocket;
mod workers;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use outlast_engine::Engine;
use tokio_util::task::TaskTracker;
use utoipa_axum::router::OpenApiRouter;

pub(crate) use hosts::Hosts;

use crate::auth::Auth;

/// Shared by all handlers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

struct Inner {
    engine: Engine,
    auth: Auth,
    connections: TaskTracker,
    body_bytes: usize,
    hosts: Hosts,
    store: String,
    /// Whether a proxy may pass requests on although nobody has to log in.
    insecure: bool,
    draining: AtomicBool,
}

/// What an [`App`] is made of.
pub(crate) struct AppParts {
    pub(crate) engine: Engine,
    pub(crate) auth: Auth,
    pub(crate) connections: TaskTracker,
    pub(crate) body_bytes: usize,
    pub(crate) hosts: Hosts,
    /// The kind of store.
    pub(crate) store: String,
    pub(crate) insecure: bool,
}

impl App {
    pub(crate) fn new(parts: AppParts) -> App {
        let AppParts { engine, auth, connections, body_bytes, hosts, store, insecure } = parts;
        let draining = AtomicBool::new(false);
        App(Arc::new(Inner { engine, auth, connections, body_bytes, hosts, store, insecure, draining }))
    }

    pub(crate) fn auth(&self) -> &Auth {
        &self.0.auth
    }

    /// From now on `/readyz` returns 503.
    pub(crate) fn drain(&self) {
        self.0.draining.store(true, Ordering::SeqCst);
    }

    fn draining(&self) -> bool {
        self.0.draining.load(Ordering::SeqCst)
    }
}

pub(crate) fn router(app: App) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .fallback(app::file)
        .method_not_allowed_fallback(around::wrong_method)
        .layer(from_fn_with_state(app.clone(), guard::same_origin))
        .layer(from_fn(guard::headers))
        .with_state(app)
}

/// The responses on a connection beyond `limits.connections`. `/healthz` still works there, so that a supervisor
/// does not restart a busy server.
pub(crate) fn full() -> Router {
    Router::new()
        .route("/healthz", axum::routing::get(around::alive))
        .fallback(async || error::Problem::too_many_connections())
        .layer(from_fn(guard::headers))
}

/// Every route with its description, which are registered together in the handler's file.
fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::frame())
        .merge(around::router())
        .merge(generations::router())
        .merge(events::router())
        .merge(approvals::router())
        .merge(workers::router())
        .merge(conversations::router())
        .merge(websocket::router())
        .merge(completions::router())
        .merge(jobs::router())
        .merge(session::router())
}
