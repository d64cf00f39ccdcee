//! The processes that an execution has started, and how to end all of them.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use super::MARK;

/// How long the kernel may take to end a tree of processes.
const KILL_MAX: Duration = Duration::from_secs(10);

/// Ends every descendant of this process, which must be their subreaper: whatever loses its parent becomes its child.
pub(super) fn kill_descendants() -> io::Result<()> {
    let began = Instant::now();
    loop {
        // Stopped first, all of them: what is stopped starts nothing new while we look for the rest.
        let mut stopped = Vec::new();
        loop {
            let found = descendants()?;
            let new: Vec<i32> = found.iter().copied().filter(|pid| !stopped.contains(pid)).collect();
            if new.is_empty() || began.elapsed() > KILL_MAX {
                break;
            }
            new.iter().for_each(|pid| signal(*pid, Signal::STOP));
            stopped.extend(new);
        }
        stopped.iter().for_each(|pid| signal(*pid, Signal::KILL));
        match reap() {
            Reaped::All => return Ok(()),
            Reaped::SomeLive if began.elapsed() > KILL_MAX => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "its processes do not end"));
            }
            Reaped::SomeLive => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

enum Reaped {
    All,
    SomeLive,
}

fn reap() -> Reaped {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return Reaped::SomeLive,
            Err(_) => return Reaped::All, // there are no children
        }
    }
}

/// Ends the processes that an execution left when its supervisor was killed, found by a variable that they inherit.
pub(super) fn kill_marked(execution: &str) -> io::Result<()> {
    let mark = format!("{MARK}={execution}");
    for pid in pids()? {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
            signal(pid, Signal::KILL);
        }
    }
    Ok(())
}

fn descendants() -> io::Result<Vec<i32>> {
    let parents: Vec<(i32, i32)> = pids()?.into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let mut found = vec![own];
    let mut next = 0;
    while next < found.len() {
        let above = found[next];
        found.extend(parents.iter().filter(|(_, parent)| *parent == above).map(|(pid, _)| *pid));
        next += 1;
    }
    Ok(found.split_off(1))
}

fn pids() -> io::Result<Vec<i32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        pids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(pids)
}

/// Of a process that is alive. The name of its program stands in brackets and may contain anything.
fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z").then_some(parent)
}

/// A process that has ended meanwhile is what we want.
fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid)
        && let Err(error) = kill_process(pid, signal)
        && error != rustix::io::Errno::SRCH
    {
        tracing::debug!(?pid, %error, "cannot signal a process");
    }
}
