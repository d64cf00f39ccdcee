//! The server as a process: started with its own data folder, killed, restarted at the same address.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::process::Command;

use crate::api::Api;
use crate::binaries;
use crate::canary::{self, VARIABLE};
use crate::process::Process;
use crate::tools;
use crate::upstream::Upstream;
use crate::wait::bounded;

/// Ports below the ephemeral range. A killed server must get its port again: from that range, a reader that tries to
/// reconnect meanwhile could take the port for its own end, or even connect to itself.
const PORTS: std::ops::Range<u16> = 15_000..32_000;
/// How many ports are tried before giving up.
const PORT_TRIES: usize = 20;
/// The server promises to stop within its drain time of 5 s.
const STOP_WITHIN: Duration = Duration::from_secs(15);

/// The exit code of a server that did not start.
const NOT_STARTED: i32 = 2;

/// How to start a server.
#[derive(Clone, Debug, Default)]
pub struct Options {
    toml: String,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    data: Option<PathBuf>,
    program: Option<PathBuf>,
}

impl Options {
    /// The model `default` is this upstream. Retries are quick, and limits per user are high, because one test
    /// acts as many users.
    pub fn with(upstream: &Upstream) -> Options {
        let address = upstream.address();
        let toml = format!(
            "[models.default]\nkind = \"openai\"\nbase_url = \"http://{address}/v1\"\nmodel = \"scripted\"\n\
             api_key_env = \"{VARIABLE}\"\n[retry]\nbackoff = \"40ms\"\n[limits]\nlive_generations_per_user = 10000\n"
        );
        Options { toml, ..Options::default() }
    }

    pub fn toml(mut self, toml: &str) -> Options {
        self.toml.push_str(toml);
        self.toml.push('\n');
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Options {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn arg(mut self, argument: &str) -> Options {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Uses this data folder instead of a temporary one.
    pub fn data(mut self, data: &Path) -> Options {
        self.data = Some(data.to_owned());
        self
    }

    /// Uses another server program than the one built next to this program.
    pub fn program(mut self, program: Option<PathBuf>) -> Options {
        self.program = program;
        self
    }
}

/// A server. When dropped, it is killed with the tools that it left running, its data is searched for the key, and then deleted.
pub struct Server {
    process: Process,
    address: SocketAddr,
    options: Options,
    folder: TempDir,
    api: Api,
}

impl Server {
    /// Starts one and waits until it is ready.
    pub async fn start(options: Options) -> anyhow::Result<Server> {
        Server::start_at_a_free_port(options, None).await
    }

    /// Starts one that dies at a fault point (`name:N`). It may die before it is ready, which is not an error.
    pub async fn start_with_fault(options: Options, fault: &str) -> anyhow::Result<Server> {
        Server::start_at_a_free_port(options, Some(fault)).await
    }

    async fn start_at_a_free_port(options: Options, fault: Option<&str>) -> anyhow::Result<Server> {
        let folder = TempDir::new()?;
        let mut last = None;
        for _ in 0..PORT_TRIES {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, fastrand::u16(PORTS)));
            let mut process = spawn(&options, folder.path(), address, fault)?;
            match process.ready().await {
                Ok(address) => {
                    let api = Api::new(address)?;
                    return Ok(Server { process, address, options, folder, api });
                }
                Err(error) => {
                    let said = process.last_errors();
                    let taken = said.contains("cannot listen");
                    if fault.is_some() && !taken {
                        let api = Api::new(address)?;
                        return Ok(Server { process, address, options, folder, api });
                    }
                    last = Some(error.context(said));
                    if !taken {
                        break;
                    }
                }
            }
        }
        Err(last.context("no port was tried")?.context("the server did not start"))
    }

    /// Starts a server that must refuse to start, and returns its error.
    pub async fn refused(options: Options) -> anyhow::Result<String> {
        let folder = TempDir::new()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut process = spawn(&options, folder.path(), address, None)?;
        if process.ready().await.is_ok() {
            bail!("the server started although it should have refused");
        }
        let status = bounded("ending after a refusal", STOP_WITHIN, process.ended()).await??;
        if status.code() != Some(NOT_STARTED) {
            bail!("the server did not start, and ended with {status}");
        }
        Ok(process.last_errors())
    }

    /// A client of it, which stays valid across restarts.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// A new key, from the command of the server under test.
    pub async fn key(&self, user: &str, scopes: &str) -> anyhow::Result<String> {
        let mut command = Command::new(program(&self.options)?);
        command.args(["keys", "create", "--user", user, "--scopes", scopes, "--data"]).arg(self.data());
        let output = command.output().await?;
        if !output.status.success() {
            bail!("no key: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Revokes a key.
    pub async fn revoke(&self, key: &str) -> anyhow::Result<()> {
        let id = key.split('_').nth(1).context("a key")?;
        let mut command = Command::new(program(&self.options)?);
        let output = command.args(["keys", "revoke", id, "--data"]).arg(self.data()).output().await?;
        if !output.status.success() {
            bail!("not revoked: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// All that it wrote to stderr.
    pub fn said(&self) -> anyhow::Result<String> {
        self.process.said()
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn data(&self) -> PathBuf {
        data(&self.options, self.folder.path())
    }

    /// `kill -9`. The process has ended when this returns.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill().await
    }

    /// Restarts it with the same data and the same port.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.restart_with_fault(None).await
    }

    /// Restarts it so that it dies at a fault point (`name:N`). It may die before it is ready, which is not an error.
    pub async fn restart_with_fault(&mut self, fault: Option<&str>) -> anyhow::Result<()> {
        self.process = spawn(&self.options, self.folder.path(), self.address, fault)?;
        match self.process.ready().await {
            Ok(_) => Ok(()),
            Err(_) if fault.is_some() => Ok(()),
            Err(error) => {
                Err(error.context(self.process.last_errors()).context("the server did not restart"))
            }
        }
    }

    /// `kill -9` and a restart.
    pub async fn crash(&mut self) -> anyhow::Result<()> {
        self.kill().await?;
        self.restart().await
    }

    pub fn terminate(&self) -> anyhow::Result<()> {
        self.process.signal(Signal::TERM)
    }

    /// `SIGSTOP`: nothing of the process runs until it is thawed.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.process.signal(Signal::STOP)
    }

    pub fn thaw(&self) -> anyhow::Result<()> {
        self.process.signal(Signal::CONT)
    }

    /// Sends SIGTERM and waits for a clean exit.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        self.terminate()?;
        let status = self.ended(STOP_WITHIN).await?;
        if !status.success() {
            bail!("the server was told to stop and ended with {status}: {}", self.last_errors());
        }
        Ok(())
    }

    /// Waits until the process ends by itself.
    pub async fn ended(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        bounded("the end of the server", within, self.process.ended()).await?
    }

    pub fn is_running(&mut self) -> anyhow::Result<bool> {
        self.process.is_running()
    }

    /// The end of its stderr.
    pub fn last_errors(&self) -> String {
        self.process.last_errors()
    }

    /// Its resident memory.
    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        self.process.resident_bytes()
    }

    /// Its resident memory without mapped files, which the system can reclaim at any time.
    pub fn own_bytes(&self) -> anyhow::Result<u64> {
        self.process.own_bytes()
    }

    /// Its peak resident memory since `forget_peak`.
    pub fn peak_bytes(&self) -> anyhow::Result<u64> {
        self.process.peak_bytes()
    }

    /// Measures the peak from now on.
    pub fn forget_peak(&self) -> anyhow::Result<()> {
        self.process.forget_peak()
    }

    /// Bytes written to the disk, and bytes passed to `write` calls.
    pub fn written_bytes(&self) -> anyhow::Result<(u64, u64)> {
        self.process.written_bytes()
    }

    /// The processor time that it has used.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        self.process.cpu_time()
    }

    /// How many files and sockets it has open.
    pub fn open_files(&self) -> anyhow::Result<usize> {
        self.process.open_files()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.end();
        tools::end_below(&self.data().join("sandboxes"));
        if !std::thread::panicking() {
            canary::must_not_be_in(&self.data());
            canary::must_not_be_in(self.folder.path());
        }
    }
}

fn program(options: &Options) -> anyhow::Result<PathBuf> {
    match &options.program {
        Some(program) => Ok(program.clone()),
        None => binaries::outlast(),
    }
}

fn data(options: &Options, folder: &Path) -> PathBuf {
    options.data.clone().unwrap_or_else(|| folder.join("data"))
}

fn spawn(
    options: &Options,
    folder: &Path,
    address: SocketAddr,
    fault: Option<&str>,
) -> anyhow::Result<Process> {
    let config = folder.join("outlast.toml");
    std::fs::write(&config, &options.toml)?;
    let mut command = Command::new(program(options)?);
    command.arg("serve").arg("--config").arg(&config).arg("--data").arg(data(options, folder));
    if !options.arguments.iter().any(|argument| argument == "--listen") {
        command.arg("--listen").arg(address.to_string());
    }
    command.args(&options.arguments).envs(options.environment.iter().map(|(name, value)| (name, value)));
    command.env(VARIABLE, canary::KEY);
    match fault {
        Some(fault) => command.env("OUTLAST_FAULT", fault),
        None => command.env_remove("OUTLAST_FAULT"),
    };
    Process::spawn(command, &folder.join("server"))
}
