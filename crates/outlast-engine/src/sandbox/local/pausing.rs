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

/// How the names of sandboxes begin that are only tried out, and how long that takes at most.
pub(super) const PROBE: &str = "probe-";
const PROBE_MAX: Duration = Duration::from_secs(60);
/// How often to look again for executions that are just starting.
const ROUNDS_MAX: usize = 1_000;

pub(super) fn pause(inner: &Inner, folder: &Folder, id: &SandboxId) -> io::Result<()> {
    // First the mark: from now on nothing starts. What has just started is frozen below.
    File::create(folder.paused())?.sync_all()?;
    each_running(inner, folder, id, Init::freeze, |group| cgroups::freeze(group, true))
}

pub(super) fn resume(inner: &Inner, folder: &Folder, id: &SandboxId) -> io::Result<()> {
    each_running(inner, folder, id, Init::thaw, |group| cgroups::freeze(group, false))?;
    gone_is_ok(fs::remove_file(folder.paused()))
}

pub(super) fn kill(inner: &Inner, folder: &Folder, id: &SandboxId) -> io::Result<()> {
    // From here on it is gone for everybody, also if we die and somebody has to finish this.
    let killed = inner.place.killed().join(id.as_str());
    gone_is_ok(fs::rename(&folder.path, &killed))?;
    let folder = Folder { path: killed };
    let mut groups: BTreeSet<PathBuf> = inner.cgroups.groups(id.as_str()).into_iter().collect();
    for execution in inner.place.marked_in(id)? {
        let records = folder.execution(&execution).map_err(io::Error::other)?;
        if records.known() {
            end(&records, Outcome::Stopped)?;
        }
        inner.place.unmark(id, &execution)?;
    }
    // A server with other settings, or in another group itself, may have made others.
    let all = folder.executions()?;
    groups.extend(state::cgroups(all.iter())?);
    for group in groups {
        cgroups::remove(&group)?;
    }
    remove(&folder.path)
}

/// Removes what a server left behind that died while it killed a sandbox, or tried one out.
pub(super) fn finish(inner: &Inner) -> io::Result<()> {
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
    for name in unfinished {
        let id = SandboxId::from(name.to_string_lossy());
        let folder = inner.place.sandbox(&id).map_err(io::Error::other)?;
        kill(inner, &folder, &id)?;
    }
    Ok(())
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

/// Removes a folder that a program filled as it liked: nested deeper than a path can be long, or with permissions that
/// keep its owner out. `rm` and `chmod` walk such trees with neither many descriptors nor a deep stack, and follow
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
