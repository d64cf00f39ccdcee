//! A process under test. It prints a line when it is ready, and is always stopped at the end.

use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::wait::bounded;

/// A debug build on a busy machine opens a large file in a few seconds at most.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// How often to check whether a process is ready.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

pub(crate) struct Process {
    child: Child,
    /// The file with its stdout, and how much earlier processes wrote there.
    output: PathBuf,
    before: usize,
    errors: PathBuf,
}

impl Process {
    /// Starts it. Its stdout and stderr are appended to two files of this name, `.out` and `.log`.
    pub(crate) fn spawn(mut command: Command, name: &Path) -> anyhow::Result<Process> {
        let (output, errors) = (name.with_extension("out"), name.with_extension("log"));
        let open = |path: &Path| OpenOptions::new().create(true).append(true).open(path);
        let stdout = open(&output)?;
        let before = usize::try_from(stdout.metadata()?.len())?;
        let child = command
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(open(&errors)?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.as_std().get_program()))?;
        Ok(Process { child, output, before, errors })
    }

    /// Waits for the line with its address. Fails if the process ends before.
    pub(crate) async fn ready(&mut self) -> anyhow::Result<SocketAddr> {
        let line = async {
            loop {
                let ended = self.child.try_wait()?.is_some();
                let said = std::fs::read(&self.output)?;
                let said = String::from_utf8_lossy(said.get(self.before..).unwrap_or_default());
                let mut lines = said.split_inclusive('\n').filter(|line| line.ends_with('\n'));
                if let Some((_, address)) = lines.find_map(|line| line.split_once("http://")) {
                    return Ok::<_, anyhow::Error>(address.trim().parse()?);
                }
                if ended {
                    bail!("it ended");
                }
                sleep(LOOK_AGAIN).await;
            }
        };
        bounded("getting ready", READY_WITHIN, line).await?
    }

    /// All of its stderr.
    pub(crate) fn said(&self) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(&self.errors)?).into_owned())
    }

    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().context("the process has ended")
    }

    /// `kill -9`. The process has ended when this returns.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    /// `kill -9` without waiting for the end.
    pub(crate) fn end(&mut self) {
        self.child.start_kill().ok(); // it may have ended before
    }

    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.pid()?)?;
        let pid = Pid::from_raw(pid).context("a pid is not zero")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        Ok(self.child.wait().await?)
    }

    pub(crate) fn is_running(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// The end of its stderr.
    pub(crate) fn last_errors(&self) -> String {
        let text = std::fs::read_to_string(&self.errors).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Its resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> anyhow::Result<u64> {
        self.memory("VmRSS:")
    }

    /// The resident memory without mapped files, which the system can reclaim at any time.
    pub(crate) fn own_bytes(&self) -> anyhow::Result<u64> {
        self.memory("RssAnon:")
    }

    /// Its peak resident memory since `forget_peak`.
    pub(crate) fn peak_bytes(&self) -> anyhow::Result<u64> {
        self.memory("VmHWM:")
    }

    pub(crate) fn forget_peak(&self) -> anyhow::Result<()> {
        Ok(std::fs::write(format!("/proc/{}/clear_refs", self.pid()?), "5")?)
    }

    fn memory(&self, field: &str) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib: u64 =
            line.context("a status names the memory")?.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib * 1024)
    }

    /// Bytes written to the disk, and bytes passed to `write` calls, sockets included. On an in-memory file
    /// system the first number is zero.
    pub(crate) fn written_bytes(&self) -> anyhow::Result<(u64, u64)> {
        let io = std::fs::read_to_string(format!("/proc/{}/io", self.pid()?))?;
        let field = |name: &str| {
            let line = io.lines().find_map(|line| line.strip_prefix(name));
            anyhow::Ok(line.with_context(|| format!("no {name} in {io}"))?.trim().parse()?)
        };
        Ok((field("write_bytes:")?, field("wchar:")?))
    }

    /// The processor time that it has used, its own and the kernel's for it.
    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()?))?;
        // The name in brackets may contain spaces; what follows does not.
        let (_, fields) = stat.rsplit_once(") ").context("a stat has a name")?;
        let mut ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u64>);
        let (own, kernel) = (ticks.next().context("utime")??, ticks.next().context("stime")??);
        Ok(Duration::from_millis((own + kernel) * 1_000 / rustix::param::clock_ticks_per_second()))
    }

    /// How many files and sockets it has open.
    pub(crate) fn open_files(&self) -> anyhow::Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.pid()?))?.count())
    }
}
