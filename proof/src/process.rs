//! A process under proof: says when it is ready, is ended on purpose only, and is never left behind.

use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::wait::bounded;

/// A debug build on a busy machine opens a large file in a few seconds at most.
const READY_WITHIN: Duration = Duration::from_secs(30);

pub(crate) struct Process {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    errors: PathBuf,
}

impl Process {
    /// Starts it. What it says on stderr is added to the file `errors`.
    pub(crate) fn spawn(mut command: Command, errors: &Path) -> anyhow::Result<Process> {
        let log = OpenOptions::new().create(true).append(true).open(errors)?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.as_std().get_program()))?;
        let stdout = child.stdout.take().context("stdout was asked for")?;
        Ok(Process { child, stdout: BufReader::new(stdout).lines(), errors: errors.to_owned() })
    }

    /// Waits for the line that names its address; an error if it ends before.
    pub(crate) async fn ready(&mut self) -> anyhow::Result<SocketAddr> {
        let line = async {
            loop {
                let line = self.stdout.next_line().await?.ok_or_else(|| anyhow!("it ended"))?;
                if let Some((_, address)) = line.split_once("http://") {
                    return Ok::<_, anyhow::Error>(address.trim().parse()?);
                }
            }
        };
        bounded("getting ready", READY_WITHIN, line).await?
    }

    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().context("the process has ended")
    }

    /// kill -9, and gone when this returns.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.pid()?)?;
        let pid = Pid::from_raw(pid).context("a pid is not zero")?;
        Ok(kill_process(pid, Signal::TERM)?)
    }

    /// Waits for it to end by itself.
    pub(crate) async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        Ok(self.child.wait().await?)
    }

    pub(crate) fn is_running(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// The end of what it said on stderr.
    pub(crate) fn last_errors(&self) -> String {
        let text = std::fs::read_to_string(&self.errors).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Its resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        for line in status.lines() {
            if let Some(rest) = line.strip_prefix("VmRSS:") {
                let kib: u64 = rest.trim().trim_end_matches("kB").trim().parse()?;
                return Ok(kib * 1024);
            }
        }
        bail!("no VmRSS in the status of a process")
    }

    /// How many files and sockets it has open.
    pub(crate) fn open_files(&self) -> anyhow::Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.pid()?))?.count())
    }
}
