//! Signals the processes of an execution, and never another process that got the same pid later.

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
        // Nothing can start a process meanwhile, because parents are woken after their children.
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
            // A process that is gone no longer has children.
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

/// Kills the processes around an execution: the outer bwrap process that waits for it, or the launcher and bwrap if it
/// never got as far as telling its pid. Unless they are frozen or stuck, they end by themselves. Servers may have the same
/// files open, so the process name is checked too.
pub(super) fn kill_monitor(records: &Records) -> io::Result<()> {
    let files: Vec<fs::Metadata> =
        [records.status(), records.alive()].iter().filter_map(|path| fs::metadata(path).ok()).collect();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let named = |pid| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| matches!(name.as_str(), "bwrap\n" | "bash\n"))
        };
        let Some(raw) = Pid::from_raw(pid).filter(|_| named(pid)) else { continue };
        // Open the handle first, so that the process we inspect is the one we signal.
        let Ok(handle) = pidfd_open(raw, PidfdFlags::NONBLOCK) else { continue };
        if named(pid) && files.iter().any(|file| holds(pid, file)) {
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
    // The program's name, in parentheses, may contain anything.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't' | 'Z' | 'X') | None)
}

fn gone_is_ok(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
