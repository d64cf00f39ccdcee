//! A server that is a program on this machine and speaks by its standard input and output.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::process::Stdio;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::transport::async_rw::AsyncRwTransport;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::MESSAGE_BYTES_MAX;
use crate::models::Secret;

/// Variables of this server's environment that a program gets. All others may contain keys of models.
const PASSED_ON: [&str; 7] = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR"];
/// How long a program may take to end once its input is closed.
const END_WITHIN: Duration = Duration::from_secs(2);
/// The longest line of its standard error that is logged.
const LOGGED_BYTES_MAX: u64 = 1024;

/// How a program is started.
#[derive(Clone, Debug)]
pub struct McpProgram {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// In addition to a few variables of the server, such as `PATH`.
    pub env: BTreeMap<String, Secret>,
}

pub(super) type ProgramTransport = AsyncRwTransport<RoleClient, ChildStdout, ChildStdin>;

/// A program that runs. It is killed, with all its children, when this is dropped.
pub(super) struct Running {
    child: Child,
    group: Option<Pid>,
    stderr: Option<BufReader<ChildStderr>>,
}

/// Starts it in a process group of its own. The error is for a person, and names no secret.
pub(super) fn start(program: &McpProgram) -> Result<(ProgramTransport, Running), String> {
    let (name, arguments) = program.command.split_first().ok_or("the command is empty")?;
    let passed_on = PASSED_ON.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let given = program.env.iter().map(|(name, value)| (name.as_str(), value.expose().into()));
    let mut command = Command::new(name);
    command
        .args(arguments)
        .env_clear()
        .envs(passed_on.chain(given))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("cannot start {name:?}: {}", error.kind()))?;
    let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
        return Err("it has no input or output".to_owned());
    };
    let stderr = child.stderr.take().map(BufReader::new);
    let transport = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(MESSAGE_BYTES_MAX);
    Ok((transport, Running { child, group, stderr }))
}

impl Running {
    /// Logs what it writes to its standard error, for an operator who looks for the reason of a failure. Nobody else reads
    /// that, and a program that nobody reads would wait.
    pub(super) async fn log(&mut self, server: &str) -> Infallible {
        let mut line = Vec::new();
        while let Some(stderr) = &mut self.stderr {
            line.clear();
            // A line without end is logged in pieces.
            match stderr.take(LOGGED_BYTES_MAX).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => self.stderr = None,
                Ok(_) => {
                    let said = String::from_utf8_lossy(&line);
                    tracing::debug!(server, said = %said.trim_end(), "an MCP server wrote");
                }
            }
        }
        std::future::pending().await
    }

    /// Waits for its end, which a program that has no more input should bring about by itself.
    pub(super) async fn end(mut self) {
        if tokio::time::timeout(END_WITHIN, self.child.wait()).await.is_err() {
            self.kill();
            self.child.wait().await.ok(); // reaped
        }
        self.kill(); // whatever it has left behind
    }

    fn kill(&mut self) {
        if let Some(group) = self.group.take() {
            kill_process_group(group, Signal::KILL).ok(); // nothing of it is left
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
