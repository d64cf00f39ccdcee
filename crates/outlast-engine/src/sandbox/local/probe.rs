//! Finds out whether this machine can isolate programs, and says what to do if not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use outlast_core::{ExecutionId, SandboxId};
use rustix::process::{Resource, getrlimit};

use super::super::{Execution, Outcome, SandboxError};
use super::cgroups::Controller;
use super::state::{State, inspect};
use super::{Inner, launch, pausing};

/// A program that does nothing takes milliseconds, or a second on a busy machine.
const TRY_MAX: Duration = Duration::from_secs(30);
/// Enough for a compiler or a test runner; the kernel's default for a login session is 1024.
const OPEN_FILES_MAX: u64 = 4096;
const PRLIMIT: &str = "/usr/bin/prlimit";

pub(super) fn find_bwrap() -> Result<PathBuf, SandboxError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("bwrap"))
        .find(|program| program.is_absolute() && program.is_file());
    let install =
        "tools need bubblewrap: install the package `bubblewrap` (it has the command bwrap) and restart";
    let bwrap = found.ok_or_else(|| SandboxError::Unavailable(install.to_owned()))?;
    for (program, package) in [(PRLIMIT, "util-linux"), ("/bin/bash", "bash")] {
        if !Path::new(program).is_file() {
            let install = format!("tools need {program}: install the package `{package}` and restart");
            return Err(SandboxError::Unavailable(install));
        }
    }
    Ok(bwrap)
}

/// Refuses limits that cannot be enforced on this machine.
pub(super) fn check_limits(inner: &Inner) -> Result<(), SandboxError> {
    if inner.settings.cpu.is_some() && !inner.cgroups.has(Controller::Cpu) {
        return Err(SandboxError::Unavailable(
            "sandbox.cpu needs a writable control group with the controller `cpu`: delegate one to the server, or remove the setting".to_owned(),
        ));
    }
    if inner.as_root && !inner.cgroups.has(Controller::Pids) {
        return Err(SandboxError::Unavailable(
            "the kernel does not limit the processes of root: run the server as another user, or give it a writable control group with the controller `pids`".to_owned(),
        ));
    }
    Ok(())
}

/// Runs `true` in a sandbox of its own, behind exactly the walls that tools get.
pub(super) async fn try_out(inner: &Inner) -> Result<(), SandboxError> {
    let id = SandboxId::from(format!("{}{}", pausing::PROBE, uuid::Uuid::now_v7()));
    let folder = inner.place.sandbox(&id)?;
    let execution = Execution {
        id: ExecutionId::from("probe"),
        program: vec!["/bin/true".to_owned()],
        stdin: Bytes::new(),
        env: BTreeMap::new(),
        deadline: None,
    };
    let failed = |error: String| {
        SandboxError::Unavailable(format!(
            "bubblewrap cannot isolate programs here ({error}): allow user namespaces (sysctl kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0; in a container, a seccomp profile that permits unshare) and restart"
        ))
    };
    folder.create("probe").map_err(|error| failed(error.to_string()))?;
    let tried = tokio::time::timeout(TRY_MAX, async {
        let records = folder.execution(&execution.id)?;
        if let Some(child) = launch::launch(inner, &id, &execution)? {
            launch::started(&records, &execution, child).await?;
        }
        loop {
            match inspect(&records).map_err(super::cannot("look at the probe"))? {
                State::Over(outcome) => return Ok((outcome, launch::complaint(&records))),
                State::NotStarted => return Err(SandboxError::Unknown(execution.id.clone())),
                State::Running { .. } | State::Leaving { .. } => {
                    tokio::time::sleep(Duration::from_millis(1)).await
                }
            }
        }
    });
    let tried: Result<Result<(Outcome, String), SandboxError>, _> = tried.await;
    pausing::kill(inner, &folder, &id).map_err(|error| failed(error.to_string()))?;
    match tried {
        Ok(Ok((Outcome::Exited { code: 0 }, _))) => Ok(()),
        Ok(Ok((_, complaint))) => Err(failed(complaint)),
        Ok(Err(error)) => Err(failed(chain(&error))),
        Err(_) => Err(failed("`true` did not end".to_owned())),
    }
}

fn chain(error: &SandboxError) -> String {
    match error {
        SandboxError::Io { what, error } => format!("{what}: {error}"),
        other => other.to_string(),
    }
}

impl Inner {
    /// The program that sets the limits of a process and then executes the rest of the command. It runs inside:
    /// a limit on processes that is set before the user namespace exists counts those of the host as well.
    pub(super) fn rlimits(&self) -> Vec<String> {
        // The server's own limit may be lower.
        let files = getrlimit(Resource::Nofile).maximum.unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
        let mut words = vec![
            PRLIMIT.to_owned(),
            "--core=0".to_owned(),
            format!("--nofile={files}"),
            format!("--fsize={}", self.settings.disk_bytes),
        ];
        if !self.cgroups.has(Controller::Pids) {
            words.push(format!("--nproc={}", self.settings.processes));
        }
        if !self.cgroups.has(Controller::Memory) {
            // Not the address space: runtimes such as V8 reserve far more of that than they use.
            words.push(format!("--data={}", self.settings.memory_bytes));
        }
        words
    }
}
