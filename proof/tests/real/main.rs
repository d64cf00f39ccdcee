//! The promises, tried on the real process. Each test has its own server, upstream and data folder, and is
//! named after the promise (`promises.md`) or the row of the spec that it proves.

mod busy;
mod cancels;
mod costs;
mod crashes;
mod disk;
mod durability;
mod faults;
mod http2;
mod jobs;
mod keys;
mod leaks;
mod proxies;
mod readers;
mod refusals;
mod resources;
mod retention;
mod retries;
mod slow;
mod stalls;
mod starts;
mod stopping;
mod tls;
mod torture;
mod websocket;
mod workers;

use outlast_proof::server::{Options, Server};
use outlast_proof::upstream::Upstream;
use outlast_proof::wait::LONG;
use serde_json::json;
use tokio::time::Instant;

/// A server with the default settings, and its upstream.
async fn both() -> anyhow::Result<(Server, Upstream)> {
    both_with("").await
}

/// A server with these settings more, and its upstream.
async fn both_with(toml: &str) -> anyhow::Result<(Server, Upstream)> {
    let upstream = Upstream::start().await?;
    let server = Server::start(Options::with(&upstream).toml(toml)).await?;
    Ok((server, upstream))
}

/// An empty conversation that has a title: none is added by itself after the first answer, so its log is
/// complete with the end of a generation.
async fn titled(server: &Server) -> anyhow::Result<String> {
    server.api().post("/v1/conversations", &json!({"title": "Tea"})).await?.expect(201)?.text("id")
}

/// When a reader gives up.
fn soon() -> Instant {
    Instant::now() + LONG
}
