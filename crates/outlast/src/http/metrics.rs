//! Metrics for Prometheus and for the operator's page.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use outlast_engine::{Engine, Figures};
use prometheus::{Histogram, IntCounterVec, IntGauge, TextEncoder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::caller::{Admin, Caller};
use super::error::Problem;

/// What Prometheus expects.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(metrics))
}

/// The metrics of the server itself; the engine keeps its own.
pub(crate) struct ServerFigures {
    pub(super) wire_seconds: Histogram,
    approvals_waiting: IntGauge,
    pub(crate) connections: IntGauge,
    pub(crate) dropped_readers: IntCounterVec,
}

impl ServerFigures {
    pub(super) fn new(figures: &Figures) -> ServerFigures {
        ServerFigures {
            wire_seconds: figures.seconds(
                "wire_seconds",
                "Time from being durable until an event is handed to the connection of a follower.",
            ),
            approvals_waiting: figures.gauge(
                "approvals_waiting",
                "Generations that wait for a person to decide about a tool, in the whole store. At most 1000.",
            ),
            connections: figures.gauge("connections", "Open connections, WebSockets included."),
            dropped_readers: figures.counters(
                "dropped_readers_total",
                "Connections that were closed because their client read too slowly.",
                ("reason", &["stalled", "slow"]),
            ),
        }
    }
}

/// Metrics for Prometheus
///
/// In the text format of Prometheus, for a key with the scope `admin`. They contain no ids and no user names.
#[utoipa::path(get, path = "/metrics", operation_id = "getMetrics", tag = "Server",
    security(("key" = ["admin"])),
    responses((status = 200, body = String, content_type = "text/plain", description = "The metrics.")))]
async fn metrics(caller: Caller<Admin>) -> Result<Response, Problem> {
    let waiting = caller.engine().waiting_for_people().await?;
    caller.app().figures().approvals_waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text(caller.engine())).into_response())
}

fn text(engine: &Engine) -> String {
    let families = engine.figures().registry().gather();
    TextEncoder::new().encode_to_string(&families).unwrap_or_else(|error| {
        tracing::error!(%error, "cannot write the metrics");
        String::new()
    })
}
