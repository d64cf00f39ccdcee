//! Starts an execution at most once. A server may die at any line of this file.
//!
//! Whoever holds the locks of an execution's folder may start it, if nothing says that it was started before. The
//! descriptors with the locks go on to bwrap. So the locks are held without a gap from the decision to start until
//! the last process of the execution is gone, whatever happens to the server.

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt, FdMapping};
use outlast_core::SandboxId;
use outlast_store::fault;
use tokio::process::{Child, Command};

use super::super::{Execution, Output, SandboxError};
use super::Inner;
use super::folder::{Folder, Records, private_file, small_text};
use super::state::{Request, Status, boot, ending};
use super::walls::{self, Walls};

/// The places where a test may kill the process that starts an execution, in order.
pub const FAULT_POINTS: &[&str] = &[
    "sandbox.folder",
    "sandbox.locked",
    "sandbox.drafted",
    "sandbox.requested",
    "sandbox.marked",
    "sandbox.spawned",
    "sandbox.started",
];

/// How long to wait for another process that is starting the same execution. After that it counts as started; if that is
/// wrong, `wait` says so.
const RIVAL_MAX: Duration = Duration::from_secs(1);
const RIVAL_POLL: Duration = Duration::from_millis(5);

/// Closes the descriptors that the server itself inherited, joins control groups, then executes its remaining arguments. The
/// process does this itself so that it never runs outside the groups. It needs bash, because other shells cannot name
/// descriptors above 9.
const LAUNCHER: &str = r#"
for path in /proc/self/fd/*; do
    number=${path##*/}
    if ((number > last)); then exec {number}>&-; fi
done
while [ "$1" != -- ]; do echo 0 > "$1/cgroup.procs" || exit 71; shift; done
shift
exec "$@""#;

/// A program that is being started, or none if it was started before.
pub(super) fn launch(
    inner: &Inner,
    id: &SandboxId,
    execution: &Execution,
) -> Result<Option<Child>, SandboxError> {
    check(execution)?;
    let folder = inner.place.sandbox(id)?;
    let records = folder.execution(&execution.id)?;
    let failed = |error| match folder.exists() {
        true => SandboxError::Io { what: format!("cannot start {}", execution.id), error },
        false => SandboxError::Gone(id.clone()),
    };
    // A pause that nobody waits for any more may still be going on.
    let _alone = folder.lock().map_err(failed)?;
    if !folder.exists() {
        return Err(SandboxError::Gone(id.clone()));
    }
    records.create().map_err(failed)?;
    fault::point("sandbox.folder");
    let Some(locks) = Locks::take(&records).map_err(failed)? else {
        // It runs, or would if the sandbox were awake.
        return if folder.paused().exists() { Err(SandboxError::Paused(id.clone())) } else { Ok(None) };
    };
    fault::point("sandbox.locked");
    if locks.started_before(&records).map_err(failed)? {
        return Ok(None);
    }
    let cgroups = inner.cgroups.create(id.as_str(), &inner.settings).map_err(failed)?;
    write_request(&records, execution, &cgroups).map_err(failed)?;
    fault::point("sandbox.requested");
    // First set the marker, then look. Pausing and killing a sandbox does it in the opposite order, so one side sees the
    // other.
    inner.place.mark(id, &execution.id).map_err(failed)?;
    fault::point("sandbox.marked");
    if !folder.exists() || folder.paused().exists() {
        inner.place.unmark(id, &execution.id).map_err(failed)?;
        return Err(match folder.exists() {
            true => SandboxError::Paused(id.clone()),
            false => SandboxError::Gone(id.clone()),
        });
    }
    let child =
        spawn(inner, &Launch { folder: &folder, records: &records, execution, cgroups: &cgroups }, locks)
            .map_err(failed)?;
    fault::point("sandbox.spawned");
    Ok(Some(child))
}

/// Returns when bwrap is running, or with its error message.
pub(super) async fn started(
    records: &Records,
    execution: &Execution,
    mut child: Child,
) -> Result<(), SandboxError> {
    let failed = |error| SandboxError::Io { what: format!("cannot start {}", execution.id), error };
    let mut gone = false;
    loop {
        if Status::read(records).map_err(failed)?.child_pid.is_some() {
            fault::point("sandbox.started");
            return Ok(()); // dropped, `child` is reaped by the runtime
        }
        if gone {
            return Err(failed(io::Error::other(complaint(records))));
        }
        tokio::select! {
            result = child.wait() => {
                result.map_err(failed)?;
                gone = true;
            }
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
}

/// What bwrap wrote to stderr, if it could not even start the program.
pub(super) fn complaint(records: &Records) -> String {
    match small_text(&records.output(Output::Stderr)) {
        Ok(text) => text.unwrap_or_default().trim().to_owned(),
        Err(error) => error.to_string(),
    }
}

fn check(execution: &Execution) -> Result<(), SandboxError> {
    let words = execution.program.iter().chain(execution.env.keys()).chain(execution.env.values());
    if execution.program.is_empty() || words.clone().any(|word| word.contains('\0')) {
        return Err(SandboxError::Refused(
            "a program needs a name, and no argument may contain NUL".to_owned(),
        ));
    }
    Ok(())
}

struct Locks {
    status: File,
    alive: File,
}

impl Locks {
    /// `None` if the execution was started before, or is being started elsewhere.
    fn take(records: &Records) -> io::Result<Option<Locks>> {
        let deadline = Instant::now() + RIVAL_MAX;
        let status = private_file(&records.status())?;
        while !try_lock(&status)? {
            // Another process is starting it, or only inspecting it, which does not take long.
            if Status::read(records)?.child_pid.is_some() || Instant::now() > deadline {
                return Ok(None);
            }
            std::thread::sleep(RIVAL_POLL);
        }
        let alive = private_file(&records.alive())?;
        while !try_lock(&alive)? {
            if Status::read(records)?.child_pid.is_some() || Instant::now() > deadline {
                return Ok(None);
            }
            std::thread::sleep(RIVAL_POLL);
        }
        Ok(Some(Locks { status, alive }))
    }

    /// We hold the locks, so nothing else writes these files now.
    fn started_before(&self, records: &Records) -> io::Result<bool> {
        if self.status.metadata()?.len() > 0 || ending(records)?.is_some() {
            return Ok(true);
        }
        // A request of this boot with nothing in `status`: the server died before bwrap did anything. After a crash of
        // the machine the same files can also mean that `status` did not reach the disk.
        Ok(match Request::read(records)? {
            Some(request) => request.boot != boot()?,
            None => false,
        })
    }
}

fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn write_request(records: &Records, execution: &Execution, cgroups: &[PathBuf]) -> io::Result<()> {
    let mut stdin = File::create(records.stdin())?;
    stdin.write_all(&execution.stdin)?;
    let request = Request { boot: boot()?, deadline: execution.deadline, cgroups: cgroups.to_vec() };
    let draft = records.request().with_extension("draft");
    let mut file = File::create(&draft)?;
    file.write_all(&serde_json::to_vec(&request)?)?;
    file.sync_all()?;
    fault::point("sandbox.drafted");
    fs::rename(&draft, records.request())?;
    File::open(records.folder())?.sync_all()?;
    let executions = records.folder().parent().expect("an execution's folder lies in the sandbox's");
    File::open(executions)?.sync_all()
}

struct Launch<'a> {
    folder: &'a Folder,
    records: &'a Records,
    execution: &'a Execution,
    cgroups: &'a [PathBuf],
}

fn spawn(inner: &Inner, launch: &Launch<'_>, locks: Locks) -> io::Result<Child> {
    let walls = Walls {
        place: &inner.place,
        folder: launch.folder,
        settings: &inner.settings,
        tool: &inner.tool,
        as_root: inner.as_root,
        env: &launch.execution.env,
    };
    let mappings = [
        (in_memory("seccomp", &inner.seccomp)?, walls::SECCOMP_FD),
        (in_memory("arguments", &walls.arguments()?)?, walls::ARGUMENTS_FD),
        (locks.status.into(), walls::STATUS_FD),
        (locks.alive.into(), walls::ALIVE_FD),
    ]
    .map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd });
    let mut command = Command::new("/bin/bash");
    command.args(["--norc", "--noprofile", "-c"]);
    command.arg(format!("last={}{LAUNCHER}", walls::LAST_FD)).arg("outlast").args(launch.cgroups).arg("--");
    command.arg(&inner.bwrap).args(["--args", &walls::ARGUMENTS_FD.to_string(), "--"]);
    command.args(inner.rlimits()).args(&launch.execution.program);
    // The first process inside is bwrap: its environment can be read there as well.
    command.env_clear().current_dir("/");
    command.stdin(File::open(launch.records.stdin())?);
    command.stdout(empty(&launch.records.output(Output::Stdout))?);
    command.stderr(empty(&launch.records.output(Output::Stderr))?);
    command.fd_mappings(mappings.into()).map_err(io::Error::other)?;
    command.spawn()
}

/// A file for output. An earlier try to start may have left an error of bwrap there, but nothing from the program.
fn empty(path: &Path) -> io::Result<Stdio> {
    let file = private_file(path)?;
    file.set_len(0)?;
    Ok(file.into())
}

/// A file without a name that holds these bytes.
fn in_memory(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file.into())
}
