//! Several servers on one PostgreSQL, which is private to the test. They share a data folder, as on one machine.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use outlast_store::suite::postgres::Server as Postgres;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::api::Api;
use crate::server::{Options, Server};
use crate::wire::Wire;

/// A short lease, so that a test need not wait for long until a dead instance is replaced.
pub const SHORT_LEASE: &str = "[instances]\nlease = \"3s\"\nrenew = \"500ms\"";

pub struct Cluster {
    pub servers: Vec<Server>,
    /// One to the database for each server.
    wires: Vec<Wire>,
    /// It ends after the servers.
    database: Database,
}

/// A database server, and room for data folders.
pub struct Database {
    postgres: Arc<Mutex<Postgres>>,
    folder: TempDir,
    stores: AtomicUsize,
}

/// How PostgreSQL is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Sessions end, and everything is written.
    Fast,
    /// As by a crash: the next start recovers.
    Immediate,
}

impl Database {
    pub async fn start() -> anyhow::Result<Database> {
        let postgres = tokio::task::spawn_blocking(Postgres::start).await.context("PostgreSQL")?;
        let (folder, stores) = (TempDir::new()?, AtomicUsize::new(0));
        Ok(Database { postgres: Arc::new(Mutex::new(postgres)), folder, stores })
    }

    /// Options for servers that share a new, empty store and a data folder.
    pub async fn shared(&self, options: Options) -> anyhow::Result<Options> {
        Ok(self.in_new_folder(options).arg("--store").arg(&self.url().await?))
    }

    /// Stops it, and starts it again after a while.
    pub async fn restart(&self, shutdown: Shutdown, away: Duration) -> anyhow::Result<()> {
        self.stop(shutdown).await?;
        sleep(away).await; // so that servers notice
        self.resume().await
    }

    pub async fn stop(&self, shutdown: Shutdown) -> anyhow::Result<()> {
        self.with(move |postgres| postgres.stop(shutdown == Shutdown::Immediate)).await
    }

    /// Starts it again with what it has stored.
    pub async fn resume(&self) -> anyhow::Result<()> {
        self.with(Postgres::resume).await
    }

    fn in_new_folder(&self, options: Options) -> Options {
        let name = self.stores.fetch_add(1, Ordering::Relaxed).to_string();
        options.data(&self.folder.path().join(name))
    }

    /// The URL of a new, empty store.
    async fn url(&self) -> anyhow::Result<String> {
        self.with(|postgres| postgres.url()).await
    }

    /// Starting, stopping and asking PostgreSQL means waiting for other processes.
    async fn with<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Postgres) -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let postgres = self.postgres.clone();
        let acting = move || act(&mut postgres.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(acting).await.context("PostgreSQL")
    }
}

impl Cluster {
    /// Starts this many servers.
    pub async fn start(options: Options, count: usize) -> anyhow::Result<Cluster> {
        let database = Database::start().await?;
        let (options, url) = (database.in_new_folder(options), database.url().await?);
        let address = address_in(&url)?;
        let (mut servers, mut wires) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let wire = Wire::to(address).await?;
            let url = url.replace(&address.to_string(), &wire.address().to_string());
            servers.push(Server::start(options.clone().arg("--store").arg(&url)).await?);
            wires.push(wire);
        }
        Ok(Cluster { servers, wires, database })
    }

    pub fn api(&self, server: usize) -> &Api {
        self.servers[server].api()
    }

    pub fn apis(&self) -> Vec<Api> {
        self.servers.iter().map(|server| server.api().clone()).collect()
    }

    /// A client that uses all servers in turn, as behind a proxy.
    pub fn in_turn(&self) -> anyhow::Result<Api> {
        let addresses: Vec<SocketAddr> = self.servers.iter().map(Server::address).collect();
        Api::in_turn(&addresses)
    }

    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Cuts a server off from the database for a while.
    pub async fn cut_off(&self, server: usize, time: Duration) {
        self.wires[server].cut();
        sleep(time).await;
        self.wires[server].mend();
    }
}

/// The address in the URL of a database on this machine.
fn address_in(url: &str) -> anyhow::Result<SocketAddr> {
    let (_, rest) = url.split_once('@').context("the URL names a user")?;
    let (address, _) = rest.split_once('/').context("the URL names a database")?;
    Ok(address.parse()?)
}
