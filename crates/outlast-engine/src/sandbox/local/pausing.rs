//! Freezes, thaws and removes whole sandboxes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use outlast_core::SandboxId;

use super::super::Outcome;
use super::folder::{Folder, Records, gone_is_ok};
use super::state::{self, State, inspect};
use super::tree::Init;
use super::{Inner, cgroups, end};

/// The prefix of sandboxes that are only used for testing the walls, and how long such a test takes at most.
pub(super) const PROBE: &str = "probe-";
const PROBE_MAX: Duration = Duration::from_secs(60);
/// How often to look again for executions that are just starting.
const ROUNDS_MAX: usize = 1_000;

pub(super) fn pause(inner: &Inner, folder: &Folder, id: &SandboxId) -> io::Result<()> {
    let _alone = folder.lock()?;
    // First set the mark, so that nothing starts from now on. What has just started is frozen below.
    File::create(folder.paused())?.sync_all()?;
    each_running(inner, folder, id, Init::freeze, |group| cgroups::freeze(group, true))
}

pub(super) fn resume(inner: &Inner, folder: &Folder, id: &SandboxId) -> io::Result<()> {
    let _alone = folder.lock()?;
    // All groups, even if nothing runs in them any more: whatever starts next will join them.
    for group in groups(inner, folder, id)?.iter().filter(|group| cgroups::can_freeze(group)) {
        cgroups::freeze(group, false)?;
    }
    each_running(inner, folder, id, Init::thaw, |_| Ok(()))?;
    gone_is_ok(fs::remove_file(folder.paused()))
}

/// The control groups of a sandbox. A server with other settings, or in another group, may have created some elsewhere.
fn groups(inner: &Inner, folder: &Folder, id: &SandboxId) -> io::Result<BTreeSet<PathBuf>> {
    let mut groups: BTreeSet<PathBuf> = inner.cgroups.groups(id.as_str()).into_iter().collect();
    groups.extend(state::cgroups(folder.executions()?.iter())?);
    Ok(groups)
}

pub(super) fn kill(inner: &Inner, folder: &Folder, id: &SandboxId) -> io::Result<()> {
    // From here on the sandbox is gone, even if this process dies and another one has to finish the removal.
    let _alone = folder.lock()?;
    let killed = inner.place.killed().join(id.as_str());
    gone_is_ok(fs::rename(&folder.path, &killed))?;
    let folder = Folder { path: killed };
    let groups = groups(inner, &folder, id)?;
    for group in &groups {
        cgroups::kill(group)?;
    }
    // Each execution's own locks tell whether it is alive. Its marker may be missing: whoever looked at the folder while it
    // was being renamed found nothing there, and may have removed the marker of a tool that still runs.
    for records in &folder.executions()? {
        match inspect(records)? {
            State::NotStarted | State::Over(_) => {}
            // Gone: another kill of the same sandbox was faster.
            State::Running { .. } | State::Leaving { .. } => gone_is_ok(end(records, Outcome::Stopped))?,
        }
    }
    for execution in inner.place.marked_in(id)? {
        inner.place.unmark(id, &execution)?;
    }
    for group in groups {
        cgroups::remove(&group)?;
    }
    remove(&folder.path)
}

/// Removes what was left behind when a server died, or failed, while it killed or tested a sandbox. One that cannot be
/// removed is logged and left for the next time, so that it is in nobody's way. Returns how many were left.
pub(super) fn finish(inner: &Inner) -> io::Result<usize> {
    let mut unfinished = Vec::new();
    for entry in fs::read_dir(inner.place.killed())? {
        unfinished.push(entry?.file_name());
    }
    for entry in fs::read_dir(&inner.place.root)? {
        let entry = entry?;
        let probe = entry.file_name().to_string_lossy().starts_with(PROBE);
        // A younger one may be in use by another server.
        let old = entry.metadata()?.modified()?.elapsed().is_ok_and(|age| age > PROBE_MAX);
        if probe && old {
            unfinished.push(entry.file_name());
        }
    }
    let mut left = 0;
    for name in unfinished {
        let id = SandboxId::from(name.to_string_lossy());
        let removed = match inner.place.sandbox(&id) {
            // The id was used again, and what runs now must not be disturbed.
            Ok(folder) if folder.exists() && !id.as_str().starts_with(PROBE) => continue,
            Ok(folder) => kill(inner, &folder, &id),
            Err(error) => Err(io::Error::other(error)),
        };
        if let Err(error) = removed {
            tracing::warn!(sandbox = ?id, %error, "cannot remove a sandbox that was killed; will retry");
            left += 1;
        }
    }
    Ok(left)
}

/// Does something to everything that runs in a sandbox: to its control group if that can freeze, else to its
/// processes.
fn each_running(
    inner: &Inner,
    folder: &Folder,
    id: &SandboxId,
    to_processes: impl Fn(&Init) -> io::Result<()>,
    to_group: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<()> {
    for _ in 0..ROUNDS_MAX {
        let mut starting = false;
        for execution in inner.place.marked_in(id)? {
            let records = folder.execution(&execution).map_err(io::Error::other)?;
            match freezer(&records)? {
                Some(group) => to_group(&group)?,
                None => match running(&records)? {
                    Running::Starting => starting = true,
                    Running::Started(init) => to_processes(&init)?,
                    Running::Ended => {}
                },
            }
        }
        if !starting {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "an execution does not start"))
}

enum Running {
    Starting,
    Started(Init),
    Ended,
}

fn running(records: &Records) -> io::Result<Running> {
    match inspect(records)? {
        State::NotStarted | State::Over(_) => Ok(Running::Ended),
        State::Running { init: None } => Ok(Running::Starting),
        State::Running { init: Some(init) } | State::Leaving { init } => {
            Ok(Init::find(records, init)?.map_or(Running::Ended, Running::Started))
        }
    }
}

/// The control group of an execution that can freeze, wherever the server that started it had its groups.
fn freezer(records: &Records) -> io::Result<Option<PathBuf>> {
    let groups = state::cgroups(std::iter::once(records))?;
    Ok(groups.into_iter().find(|group| cgroups::can_freeze(group)))
}

/// Removes a folder that a hostile program filled: nested deeper than a path can be long, or with permissions that keep its
/// owner out. `rm` and `chmod` walk such trees with neither many descriptors nor a deep stack, and follow
/// no links.
fn remove(path: &Path) -> io::Result<()> {
    if run("rm", ["-rf", "--"], path).is_ok() {
        return Ok(());
    }
    run("chmod", ["-R", "u+rwX"], path)?;
    run("rm", ["-rf", "--"], path)
}

fn run(program: &str, options: [&str; 2], path: &Path) -> io::Result<()> {
    let done = Command::new(program).args(options).arg(path).output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&done.stderr).lines().next().unwrap_or_default().to_owned()))
}
