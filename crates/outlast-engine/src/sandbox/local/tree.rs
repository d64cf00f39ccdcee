//! Signals to the processes of an execution, and never to another process that got the same pid later.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::folder::Records;

/// How long to look for processes that fork while they are being stopped.
const FREEZE_MAX: Duration = Duration::from_secs(5);

/// The first process of an execution's pid namespace. If it ends, the kernel ends all others in there.
pub(super) struct Init {
    pid: i32,
    handle: OwnedFd,
}

impl Init {
    /// Absent if the process has ended, even if another one has its pid now: only the right one has `alive` open.
    pub(super) fn find(records: &Records, pid: i32) -> io::Result<Option<Init>> {
        let Some(raw) = Pid::from_raw(pid) else { return Ok(None) };
        let handle = match pidfd_open(raw, PidfdFlags::NONBLOCK) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(holds(pid, &fs::metadata(records.alive())?).then_some(Init { pid, handle }))
    }

    pub(super) fn kill(&self) -> io::Result<()> {
        gone_is_ok(pidfd_send_signal(&self.handle, Signal::KILL))
    }

    /// Stops every process of the tree, until none is left that could start another one.
    pub(super) fn freeze(&self) -> io::Result<()> {
        let deadline = Instant::now() + FREEZE_MAX;
        let mut stopped = BTreeSet::new();
        loop {
            let found = self.processes();
            let new: Vec<i32> = found.difference(&stopped).copied().collect();
            if new.is_empty() && found.iter().all(|pid| is_stopped(*pid)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "its processes do not stop"));
            }
            for pid in &new {
                signal(*pid, Signal::STOP)?;
            }
            stopped.extend(new);
        }
    }

    pub(super) fn thaw(&self) -> io::Result<()> {
        // Nothing starts a process meanwhile: whoever is woken here has all its ancestors woken later.
        for pid in self.processes().into_iter().rev() {
            signal(pid, Signal::CONT)?;
        }
        Ok(())
    }

    /// Processes without a parent in the namespace become children of its first process, so this finds all of them.
    fn processes(&self) -> BTreeSet<i32> {
        let mut found = BTreeSet::from([self.pid]);
        let mut open = vec![self.pid];
        while let Some(pid) = open.pop() {
            // A process that is gone has no children any more.
            let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            for thread in threads.flatten() {
                let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
                let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
                open.extend(children.filter(|child| found.insert(*child)));
            }
        }
        found
    }
}

/// Kills the bwrap outside that waits for an execution. It ends by itself after the last process inside, unless it is
/// frozen. Servers may have the same file open; only a bwrap has this name as well.
pub(super) fn kill_monitor(records: &Records) -> io::Result<()> {
    let status = fs::metadata(records.status())?;
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let named = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "bwrap\n");
        let Some(raw) = Pid::from_raw(pid).filter(|_| named(pid)) else { continue };
        // The handle first: what we look at afterwards is then what we signal.
        let Ok(handle) = pidfd_open(raw, PidfdFlags::NONBLOCK) else { continue };
        if named(pid) && holds(pid, &status) {
            gone_is_ok(pidfd_send_signal(&handle, Signal::KILL))?;
        }
    }
    Ok(())
}

fn holds(pid: i32, file: &fs::Metadata) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let same = |other: fs::Metadata| (other.dev(), other.ino()) == (file.dev(), file.ino());
    open.flatten().any(|entry| fs::metadata(entry.path()).is_ok_and(same))
}

fn signal(pid: i32, signal: Signal) -> io::Result<()> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(()) };
    gone_is_ok(rustix::process::kill_process(pid, signal))
}

fn is_stopped(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // The name of the program, in parentheses, may hold anything.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't' | 'Z' | 'X') | None)
}

fn gone_is_ok(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
