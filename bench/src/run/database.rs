//! The database of a candidate, on the core of its server.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use outlast_store::suite::postgres;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::candidate::Candidate;
use super::process::{Process, SERVER_CORE, Start, free_port};
use super::usage::family;

pub(crate) enum Database {
    None,
    Redis(Process),
    Postgres { server: postgres::Server, url: String },
}

impl Database {
    pub(super) async fn of(candidate: Candidate, folder: &Path) -> anyhow::Result<Database> {
        match candidate {
            Candidate::Node => Ok(Database::Redis(start_redis(folder).await?)),
            Candidate::OutlastPostgres => start_postgres(),
            Candidate::Floor | Candidate::Outlast => Ok(Database::None),
        }
    }

    pub(super) fn pid(&self) -> Option<u32> {
        match self {
            Database::None => None,
            Database::Redis(process) => Some(process.pid()),
            Database::Postgres { server, .. } => Some(server.pid()),
        }
    }

    pub(super) fn redis(&self) -> Option<SocketAddr> {
        match self {
            Database::Redis(process) => Some(process.address()),
            Database::None | Database::Postgres { .. } => None,
        }
    }

    /// The URL of the store.
    pub(super) fn postgres(&self) -> Option<&str> {
        match self {
            Database::Postgres { url, .. } => Some(url),
            Database::None | Database::Redis(_) => None,
        }
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        match self {
            Database::Redis(process) => process.kill().await?,
            // PostgreSQL ends when it is dropped.
            Database::None | Database::Postgres { .. } => {}
        }
        Ok(())
    }
}

async fn start_redis(folder: &Path) -> anyhow::Result<Process> {
    let port = free_port()?;
    let arguments = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
    Process::start(Start {
        name: "redis",
        core: SERVER_CORE,
        program: Path::new("redis-server"),
        arguments: arguments.map(str::to_owned).to_vec(),
        environment: Vec::new(),
        folder,
        address: Some(SocketAddr::from(([127, 0, 0, 1], port))),
    })
    .await
    .context("bench/setup.sh installs redis-server")
}

/// PostgreSQL with its own defaults. Its data is in the folder for temporary files: its user cannot reach the
/// benchmark's own.
fn start_postgres() -> anyhow::Result<Database> {
    let server = postgres::Server::with(&["shared_buffers=128MB"], &[]);
    let mut cores = CpuSet::new();
    cores.set(SERVER_CORE);
    // What it starts later inherits the core.
    for pid in family(server.pid()) {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("PostgreSQL has a process id")?;
        sched_setaffinity(Some(pid), &cores).context("PostgreSQL was not pinned to its core")?;
    }
    let url = server.url();
    Ok(Database::Postgres { server, url })
}
