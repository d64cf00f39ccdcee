//! Freezes, thaws and removes whole sandboxes.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use outlast_core::SandboxId;

use super::super::Outcome;
use super::folder::{Folder, Records, gone_is_ok};
use super::state::{self, State, inspect};
use super::tree::Init;
use super::{Inner, cgroups, end};

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
    let mut groups: Vec<PathBuf> = inner.cgroups.groups(id.as_str());
    for execution in inner.place.marked_in(id)? {
        let records = folder.execution(&execution).map_err(io::Error::other)?;
        if records.known() {
            groups.extend(state::cgroups(std::iter::once(&records))?);
            end(&records, Outcome::Stopped)?;
        }
        inner.place.unmark(id, &execution)?;
    }
    for group in groups {
        cgroups::remove(&group)?;
    }
    remove(&folder.path)
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
        std::thread::sleep(std::time::Duration::from_millis(1));
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

/// Removes a folder, also if a program took the permission to look into parts of it away.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            for entry in walkdir::WalkDir::new(path).into_iter().filter_map(Result::ok) {
                if entry.file_type().is_dir() {
                    fs::set_permissions(entry.path(), Permissions::from_mode(0o700))?;
                }
            }
            gone_is_ok(fs::remove_dir_all(path))
        }
        result => gone_is_ok(result),
    }
}
