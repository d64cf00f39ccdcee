//! The candidates: how to start each of them, start a generation, and reconnect.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;
use tempfile::TempDir;

use super::database::Database;
use super::process::{Process, SERVER_CORE, Start};
use super::usage;
use super::wire::Connection;

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Candidate {
    /// The bare relay of this package.
    Floor,
    /// Outlast on SQLite, every event durable before it is shown.
    Outlast,
    /// The same on PostgreSQL, which shares the server's core.
    OutlastPostgres,
    /// `ai` + `resumable-stream` on Node, with Redis.
    Node,
}

impl Candidate {
    pub(crate) const ALL: [Self; 4] = [Self::Floor, Self::Outlast, Self::OutlastPostgres, Self::Node];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Outlast => "outlast",
            Self::OutlastPostgres => "outlast-postgres",
            Self::Node => "node",
        }
    }

    /// Whether a reader can reconnect to a stream.
    pub(crate) fn resumes(self) -> bool {
        self != Self::Floor
    }
}

/// Where the programs are.
pub(crate) struct Programs {
    pub(crate) bench: PathBuf,
    pub(crate) outlast: PathBuf,
    pub(crate) node_folder: PathBuf,
    /// Data folders are created here: on the disk of the repository, not in a tmpfs.
    pub(crate) data: PathBuf,
}

/// A running candidate, with the database that it needs.
pub(crate) struct Server {
    pub(crate) candidate: Candidate,
    process: Process,
    /// A second instance on the same database.
    beside: Option<Process>,
    database: Database,
    folder: TempDir,
}

impl Server {
    /// Starts a candidate with an empty store.
    pub(crate) async fn start(
        candidate: Candidate,
        programs: &Programs,
        upstream: SocketAddr,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("data-").tempdir_in(&programs.data)?;
        let database = Database::of(candidate, folder.path()).await?;
        let launch = Launch { candidate, name: candidate.name(), programs, upstream, folder: folder.path() };
        let process = launch.start(&database).await?;
        Ok(Self { candidate, process, beside: None, database, folder })
    }

    /// Adds a second instance on the same database and core.
    pub(crate) async fn join(&mut self, programs: &Programs, upstream: SocketAddr) -> anyhow::Result<Client> {
        let candidate = self.candidate;
        let launch = Launch { candidate, name: "beside", programs, upstream, folder: self.folder.path() };
        let beside = launch.start(&self.database).await?;
        let client = Client { candidate, address: beside.address() };
        self.beside = Some(beside);
        Ok(client)
    }

    /// Kills the server with SIGKILL and starts it again on its data. A database keeps running, as on a machine of its own.
    pub(crate) async fn crash_and_restart(
        self,
        programs: &Programs,
        upstream: SocketAddr,
    ) -> anyhow::Result<Self> {
        let Self { candidate, process, beside, database, folder } = self;
        process.kill().await?;
        let launch = Launch { candidate, name: candidate.name(), programs, upstream, folder: folder.path() };
        let process = launch.start(&database).await?;
        Ok(Self { candidate, process, beside, database, folder })
    }

    /// Ends it and removes its data.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.process.kill().await?;
        if let Some(beside) = self.beside {
            beside.kill().await?;
        }
        self.database.stop().await?;
        self.folder.close()?;
        Ok(())
    }

    /// CPU seconds so far: of the server alone, and together with its database.
    pub(crate) fn cpu_seconds(&self) -> (f64, f64) {
        let alone: f64 = self.instances().map(|process| usage::cpu_seconds(process.pid())).sum();
        (alone, alone + self.database.pid().map_or(0.0, usage::cpu_seconds))
    }

    /// Memory in kilobytes, with its database.
    pub(crate) fn memory_kb(&self) -> f64 {
        let alone: f64 = self.instances().map(|process| usage::memory_kb(process.pid())).sum();
        alone + self.database.pid().map_or(0.0, usage::memory_kb)
    }

    fn instances(&self) -> impl Iterator<Item = &Process> {
        [&self.process].into_iter().chain(&self.beside)
    }

    pub(crate) fn client(&self) -> Client {
        Client { candidate: self.candidate, address: self.process.address() }
    }
}

/// One process of a candidate.
struct Launch<'a> {
    candidate: Candidate,
    /// The name of its log.
    name: &'a str,
    programs: &'a Programs,
    upstream: SocketAddr,
    folder: &'a Path,
}

impl Launch<'_> {
    async fn start(&self, database: &Database) -> anyhow::Result<Process> {
        let Launch { candidate, name, programs, upstream, folder } = *self;
        let node = programs.node_folder.join("node_modules/.bin/node");
        let (program, arguments, environment): (&Path, Vec<String>, Vec<(&'static str, String)>) =
            match candidate {
                Candidate::Floor => {
                    let upstream = format!("http://{upstream}");
                    let arguments = ["floor", "--listen", "127.0.0.1:0", "--upstream", &upstream];
                    (&programs.bench, arguments.map(str::to_owned).to_vec(), Vec::new())
                }
                Candidate::Outlast | Candidate::OutlastPostgres => {
                    std::fs::write(folder.join("outlast.toml"), outlast_config(upstream, database))?;
                    let arguments = [
                        "serve",
                        "--config",
                        "outlast.toml",
                        "--listen",
                        "127.0.0.1:0",
                        "--data",
                        "outlast-data",
                    ];
                    let environment = vec![("BENCH_API_KEY", "none".to_owned())];
                    (&programs.outlast, arguments.map(str::to_owned).to_vec(), environment)
                }
                Candidate::Node => {
                    let redis = database.redis().context("the Node candidate needs its Redis")?;
                    let script = programs.node_folder.join("server.mjs").display().to_string();
                    let environment = vec![
                        ("NODE_ENV", "production".to_owned()),
                        ("REDIS_URL", format!("redis://{redis}")),
                        ("UPSTREAM_URL", format!("http://{upstream}")),
                    ];
                    (&node, vec![script], environment)
                }
            };
        let core = SERVER_CORE;
        Process::start(Start { name, core, program, arguments, environment, folder, address: None }).await
    }
}

/// The default settings, except that one user may have as many live generations as the benchmark needs.
fn outlast_config(upstream: SocketAddr, database: &Database) -> String {
    let store = match database.postgres() {
        Some(url) => format!("[store]\nurl = \"{url}\"\n"),
        None => String::new(),
    };
    format!(
        r#"{store}[durability]
mode = "commit"
[models.default]
kind = "openai"
base_url = "http://{upstream}/v1"
model = "bench"
api_key_env = "BENCH_API_KEY"
[limits]
live_generations_per_user = 100000
[sandbox]
kind = "none"
"#
    )
}

/// Talks to a candidate in its own protocol.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    candidate: Candidate,
    address: SocketAddr,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Started {
    generation_id: String,
}

impl Client {
    /// Starts a generation. Returns a connection on which its events follow, and the id for reconnecting. `name`
    /// must be unique within the run.
    pub(crate) async fn start(&self, name: &str, script: &str) -> io::Result<(Connection, String)> {
        let mut connection = Connection::open(self.address).await?;
        match self.candidate {
            Candidate::Floor => {
                let body = serde_json::json!({"content": script, "requestId": name});
                stream(&mut connection, &self.post("/stream", &body)).await?;
                Ok((connection, name.to_owned()))
            }
            Candidate::Node => {
                let message = serde_json::json!({"id": name, "role": "user",
                    "parts": [{"type": "text", "text": script}]});
                let body = serde_json::json!({"id": name, "message": message});
                stream(&mut connection, &self.post("/api/chat", &body)).await?;
                Ok((connection, name.to_owned()))
            }
            Candidate::Outlast | Candidate::OutlastPostgres => {
                let body = serde_json::json!({"content": script, "requestId": name});
                let status = connection.request(&self.post("/v1/generations", &body)).await?;
                let answer = connection.text().await?;
                if status != 202 {
                    return Err(io::Error::other(format!("status {status}: {answer}")));
                }
                let started: Started = serde_json::from_str(&answer).map_err(io::Error::other)?;
                let path = format!("/v1/generations/{}/events", started.generation_id);
                stream(&mut connection, &self.get(&path)).await?;
                Ok((connection, started.generation_id))
            }
        }
    }

    /// Reconnects to a generation, after position `after` if the candidate has positions.
    pub(crate) async fn resume(&self, id: &str, after: u64) -> io::Result<Connection> {
        let path = match self.candidate {
            Candidate::Floor => return Err(io::Error::other("the floor does not support reconnecting")),
            Candidate::Outlast | Candidate::OutlastPostgres => {
                format!("/v1/generations/{id}/events?after={after}")
            }
            Candidate::Node => format!("/api/chat/{id}/stream"),
        };
        let mut connection = Connection::open(self.address).await?;
        stream(&mut connection, &self.get(&path)).await?;
        Ok(connection)
    }

    /// Follows a generation from its beginning on a connection of which nothing but the head is read.
    pub(crate) async fn stall(&self, id: &str) -> io::Result<Connection> {
        let mut connection = Connection::open_small(self.address).await?;
        stream(&mut connection, &self.get(&format!("/v1/generations/{id}/events"))).await?;
        Ok(connection)
    }

    // The server refuses a request whose host is not its address.
    fn get(&self, path: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\n\r\n", self.address)
    }

    fn post(&self, path: &str, body: &serde_json::Value) -> String {
        let (host, body) = (self.address, body.to_string());
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
    }
}

/// Requests a stream. Any other response is an error.
async fn stream(connection: &mut Connection, request: &str) -> io::Result<()> {
    let status = connection.request(request).await?;
    if status == 200 {
        return Ok(());
    }
    let answer = connection.text().await?;
    Err(io::Error::other(format!("status {status} {}", answer.chars().take(200).collect::<String>())))
}
