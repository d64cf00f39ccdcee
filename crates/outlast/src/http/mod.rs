//! The HTTP API. Handlers only translate between HTTP and the engine.

mod admin;
mod app;
mod approvals;
mod around;
mod audited;
mod body;
mod caller;
mod completions;
mod conversations;
mod error;
mod events;
mod files;
mod free;
mod generations;
mod guard;
mod hosts;
mod inngest;
mod jobs;
mod metrics;
mod notifications;
mod openapi;
mod per_user;
mod problem;
mod query;
mod quotas;
mod rates;
mod session;
mod streamed;
mod tools;
mod webhooks;
mod websocket;
mod workers;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use outlast_core::Timestamp;
use outlast_engine::Engine;
use outlast_engine::outside::Outside;
use tokio_util::task::TaskTracker;
use utoipa_axum::router::OpenApiRouter;

pub(crate) use hosts::Hosts;
pub(crate) use metrics::ServerFigures;
pub(crate) use per_user::{ConnectionUser, PerUser};
pub(crate) use quotas::Quotas;
pub(crate) use rates::RateLimits;

use crate::audit::Audit;
use crate::auth::Auth;
use rates::Rates;

/// Shared by all handlers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

struct Inner {
    engine: Engine,
    auth: Auth,
    rates: Rates,
    quotas: Quotas,
    connections: TaskTracker,
    body_bytes: usize,
    hosts: Hosts,
    /// To check URLs that users name.
    outside: Outside,
    store: String,
    /// Whether a proxy may pass requests on although nobody has to log in.
    insecure: bool,
    draining: AtomicBool,
    figures: ServerFigures,
    audit: Audit,
    streams: PerUser,
    user_connections: PerUser,
    started_at: Timestamp,
}

/// What an [`App`] is made of.
pub(crate) struct AppParts {
    pub(crate) engine: Engine,
    pub(crate) auth: Auth,
    pub(crate) rates: RateLimits,
    pub(crate) quotas: Quotas,
    pub(crate) connections: TaskTracker,
    pub(crate) body_bytes: usize,
    pub(crate) hosts: Hosts,
    pub(crate) outside: Outside,
    /// The kind of store.
    pub(crate) store: String,
    pub(crate) insecure: bool,
    pub(crate) audit: Audit,
    pub(crate) streams: PerUser,
    pub(crate) user_connections: PerUser,
}

impl App {
    pub(crate) fn new(parts: AppParts) -> App {
        let AppParts {
            engine,
            auth,
            rates,
            quotas,
            connections,
            body_bytes,
            hosts,
            outside,
            store,
            insecure,
            audit,
            streams,
            user_connections,
        } = parts;
        let (draining, rates) = (AtomicBool::new(false), Rates::new(rates));
        let figures = ServerFigures::new(engine.figures());
        let started_at = auth.now();
        App(Arc::new(Inner {
            engine,
            auth,
            rates,
            quotas,
            connections,
            body_bytes,
            hosts,
            outside,
            store,
            insecure,
            draining,
            figures,
            audit,
            streams,
            user_connections,
            started_at,
        }))
    }

    pub(crate) fn figures(&self) -> &ServerFigures {
        &self.0.figures
    }

    pub(crate) fn audit(&self) -> &Audit {
        &self.0.audit
    }

    /// The kind of store.
    fn store(&self) -> &str {
        &self.0.store
    }

    fn started_at(&self) -> Timestamp {
        self.0.started_at
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
        // Inside of the routes, where the matched route is known.
        .route_layer(from_fn_with_state(app.clone(), audited::layer))
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
        .merge(inngest::router())
        .merge(events::router())
        .merge(approvals::router())
        .merge(workers::router())
        .merge(conversations::router())
        .merge(files::router())
        .merge(tools::router())
        .merge(websocket::router())
        .merge(completions::router())
        .merge(jobs::router())
        .merge(session::router())
        .merge(metrics::router())
        .merge(admin::router())
        .merge(notifications::router())
        .merge(webhooks::router())
}
