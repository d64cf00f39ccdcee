//! The scripted upstream, as a separate process: it plays the script in the user's message and counts its calls.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use serde::Deserialize;
use tempfile::TempDir;
use tokio::process::Command;

use crate::binaries;
use crate::process::Process;
use crate::script::Script;

/// A running upstream. Killed when dropped.
pub struct Upstream {
    process: Process,
    address: SocketAddr,
    client: reqwest::Client,
    seeds: AtomicU64,
    _folder: TempDir,
}

/// What the upstream counted for one script.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Calls {
    /// Calls in total.
    pub calls: u64,
    /// Calls still running.
    pub live: u64,
    /// Calls whose caller disconnected before the end.
    pub closed_early: u64,
}

impl Upstream {
    pub async fn start() -> anyhow::Result<Upstream> {
        let folder = TempDir::new()?;
        let mut command = Command::new(binaries::bench()?);
        command.args(["upstream", "--listen", "127.0.0.1:0"]);
        let mut process = Process::spawn(command, &folder.path().join("upstream"))?;
        let address = process.ready().await.context("the upstream did not start")?;
        let client = reqwest::Client::builder().no_proxy().build()?;
        Ok(Upstream { process, address, client, seeds: AtomicU64::new(1), _folder: folder })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A unique script of this many tokens.
    pub fn script(&self, tokens: u64) -> Script {
        Script::new(self.seeds.fetch_add(1, Ordering::Relaxed), tokens)
    }

    /// The calls for a script.
    pub async fn calls(&self, script: &Script) -> anyhow::Result<Calls> {
        self.calls_of(script.seed()).await
    }

    /// The last request of an agent, as the upstream received it.
    pub async fn asked(&self, seed: u64) -> anyhow::Result<serde_json::Value> {
        let url = format!("http://{}/asked?seed={seed}", self.address);
        Ok(self.client.get(url).send().await?.json().await?)
    }

    /// The calls for a seed.
    pub async fn calls_of(&self, seed: u64) -> anyhow::Result<Calls> {
        let url = format!("http://{}/calls?seed={seed}", self.address);
        Ok(self.client.get(url).send().await?.json().await?)
    }

    pub fn pid(&self) -> anyhow::Result<u32> {
        self.process.pid()
    }
}
