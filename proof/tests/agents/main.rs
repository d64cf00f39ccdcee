//! Runs with tools on the real process, with real sandboxes. Each test has its own server, upstream and data folder.

mod approvals;
mod cancels;
mod deaths;
mod deletes;
mod hostile;
mod instances;
mod parked;
mod recovery;
mod runs;

use anyhow::Context;
use outlast_proof::agent::allowed;
use outlast_proof::api::{Api, Started};
use outlast_proof::server::Server;
use outlast_proof::stored::Stored;
use outlast_proof::upstream::Upstream;

/// A server whose tools run without asking, and its upstream.
async fn both() -> anyhow::Result<(Server, Upstream)> {
    both_with("").await
}

async fn both_with(toml: &str) -> anyhow::Result<(Server, Upstream)> {
    let upstream = Upstream::start().await?;
    let server = Server::start(allowed(&upstream).toml(toml)).await?;
    Ok((server, upstream))
}

/// The sandbox of a conversation, from its log: a sandbox that lives only for a moment may be gone already.
async fn sandbox_of(api: &Api, started: &Started) -> anyhow::Result<String> {
    let stored = Stored::read(api, &started.conversation).await?;
    let changed = stored.log.iter().rfind(|frame| frame.kind == "sandbox.changed");
    let event = changed.context("the conversation has a sandbox")?.event()?;
    Ok(event["payload"]["sandboxId"].as_str().context("a sandbox has an id")?.to_owned())
}
