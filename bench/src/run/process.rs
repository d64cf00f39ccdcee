//! The processes of a run: pinned to a core, and killed when the run ends.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// The core of the server under test, and of its database if it has one.
pub(crate) const SERVER_CORE: usize = 0;
/// The core of the upstream and the load generator.
pub(crate) const LOAD_CORE: usize = 1;

/// Node with a cold cache needs a second or two.
const START_WITHIN: Duration = Duration::from_secs(30);

/// A running process that says where it listens. Killed when dropped.
pub(crate) struct Process {
    child: Child,
    pid: u32,
    address: SocketAddr,
}

/// What to start.
pub(crate) struct Start<'a> {
    pub(crate) name: &'a str,
    pub(crate) core: usize,
    pub(crate) program: &'a Path,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Where it runs and logs.
    pub(crate) folder: &'a Path,
    /// Its address, if it does not print one.
    pub(crate) address: Option<SocketAddr>,
}

impl Process {
    /// Starts it on its core and waits until it accepts connections.
    pub(crate) async fn start(start: Start<'_>) -> anyhow::Result<Self> {
        let log_path = start.folder.join(format!("{}.log", start.name));
        let log = fs::File::create(&log_path)?;
        let child = Command::new("taskset")
            .arg("-c")
            .arg(start.core.to_string())
            .arg(start.program)
            .args(&start.arguments)
            .envs(start.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(start.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("taskset (util-linux) is needed to pin processes to cores")?;
        let pid = child.id().context("the process ended at once")?;
        let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut process = Self { child, pid, address: start.address.unwrap_or(unknown) };
        match process.ready(&log_path, start.address.is_some()).await {
            Ok(()) => Ok(process),
            Err(error) => {
                let log = fs::read_to_string(&log_path).unwrap_or_default();
                bail!("{} did not start: {error}\n{}", start.name, tail(&log))
            }
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub(crate) async fn kill(mut self) -> io::Result<()> {
        self.child.kill().await
    }

    async fn ready(&mut self, log: &Path, address_known: bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_WITHIN;
        let mut printed = address_known;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended with {status}");
            }
            if !printed && let Some(address) = printed_address(&fs::read_to_string(log)?) {
                self.address = address;
                printed = true;
            }
            if printed && tokio::net::TcpStream::connect(self.address).await.is_ok() {
                return Ok(());
            }
            sleep(Duration::from_millis(20)).await;
        }
        bail!("it did not accept connections within {} s", START_WITHIN.as_secs())
    }
}

/// The first loopback address with a port in what a server printed. Only whole lines count: the port
/// may not be complete yet.
fn printed_address(log: &str) -> Option<SocketAddr> {
    let whole = &log[..log.rfind('\n')?];
    for (at, host) in whole.match_indices("127.0.0.1:") {
        let digits = &whole[at + host.len()..];
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        match digits[..end].parse() {
            Ok(0) | Err(_) => {}
            Ok(port) => return Some(SocketAddr::from(([127, 0, 0, 1], port))),
        }
    }
    None
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// A port that is free now, for programs that cannot choose one.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_only_from_a_whole_line() {
        assert_eq!(printed_address("ready on http://127.0.0.1:43"), None);
        let log = "asked for 127.0.0.1:0\nready on http://127.0.0.1:4321/\n";
        assert_eq!(printed_address(log), Some(SocketAddr::from(([127, 0, 0, 1], 4321))));
    }
}
