//! Tests of the promises on the real process. Each test has its own server, upstream and data folder, and its name
//! starts with the codes of the requirements that it proves (see CONTRIBUTING.md).

mod busy;
mod cancels;
mod costs;
mod crashes;
mod database;
mod disk;
mod durability;
mod faults;
mod http2;
mod instances;
mod jobs;
mod keys;
mod leaks;
mod migrations;
mod proxies;
mod readers;
mod redis;
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
mod users;
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

/// A server with these additional settings, and its upstream.
async fn both_with(toml: &str) -> anyhow::Result<(Server, Upstream)> {
    let upstream = Upstream::start().await?;
    let server = Server::start(Options::with(&upstream).toml(toml)).await?;
    Ok((server, upstream))
}

/// An empty conversation that already has a title.
async fn titled(server: &Server) -> anyhow::Result<String> {
    server.api().post("/v1/conversations", &json!({"title": "Tea"})).await?.expect(201)?.text("id")
}

/// The deadline of a reader.
fn soon() -> Instant {
    Instant::now() + LONG
}
