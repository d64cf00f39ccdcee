//! Enforces what the kernel does not: deadlines, the size of output, and the disk of a sandbox.
//!
//! Each sandbox in which something runs has one task. It is started together with an execution, and when the server starts.
//! Deadlines are stored in the folders, so nothing is lost if the task dies.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use outlast_core::SandboxId;

use super::super::{Limit, Outcome};
use super::folder::{Folder, gone_is_ok};
use super::state::{Request, State, inspect, written};
use super::{Inner, end, kill};

/// How late a deadline or the limit on output may be noticed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The wait after an error, which is logged. A failing disk usually keeps failing for a while.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Measuring disk usage walks all files, so it may take at most a tenth of the time.
const MEASURE_EVERY: Duration = Duration::from_millis(500);
const MEASURE_SHARE: u32 = 10;
/// The outputs of ended executions may take as much as this many of the longest. The oldest are removed first.
const OUTPUTS_KEPT: u64 = 16;

/// Watches a sandbox until nothing runs in it.
pub(super) fn ensure(inner: &Arc<Inner>, id: &SandboxId) {
    if watched(inner).insert(id.clone()) {
        let (inner, id) = (inner.clone(), id.clone());
        let tasks = inner.tasks.clone();
        tasks.spawn(async move { watch(inner, id).await });
    }
}

async fn watch(inner: Arc<Inner>, id: SandboxId) {
    let mut measure_at = Instant::now();
    let mut used = None;
    loop {
        tokio::select! {
            () = inner.stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let measure = Instant::now() >= measure_at;
        let (looker, name, before) = (inner.clone(), id.clone(), used);
        let began = Instant::now();
        let looked = tokio::task::spawn_blocking(move || {
            let now = if measure { Some(measured(&looker, &name)?) } else { None };
            Ok((look(&looker, &name, is_over(&looker, before, now))?, now))
        });
        let looked = looked.await;
        if measure {
            measure_at = Instant::now() + MEASURE_EVERY.max(began.elapsed() * MEASURE_SHARE);
        }
        let looked = looked.map_err(io::Error::from).flatten();
        match looked.map(|(more, now)| (more, used = now.or(used)).0) {
            Ok(More::Running) => {}
            Ok(More::Nothing) => {
                let mut watched = watched(&inner);
                // A start sets its mark first and then asks for a watch, so one side always sees the other.
                if inner.place.marked_in(&id).is_ok_and(|marked| marked.is_empty()) || paused(&inner, &id) {
                    watched.remove(&id);
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(sandbox = %id, %error, "cannot enforce the limits of a sandbox");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}

enum More {
    Running,
    Nothing,
}

/// Whether a sandbox uses too much of the disk and does not get smaller. A program that removes files must be able to.
fn is_over(inner: &Inner, before: Option<u64>, now: Option<u64>) -> bool {
    let limit = inner.settings.disk_bytes;
    now.zip(before).is_some_and(|(now, before)| now > limit && now >= before)
}

fn look(inner: &Inner, id: &SandboxId, over: bool) -> io::Result<More> {
    let folder = inner.place.sandbox(id).map_err(io::Error::other)?;
    if paused(inner, id) || !folder.exists() {
        return Ok(More::Nothing);
    }
    let mut more = More::Nothing;
    for execution in inner.place.marked_in(id)? {
        let records = folder.execution(&execution).map_err(io::Error::other)?;
        let reason = match inspect(&records)? {
            State::NotStarted | State::Over(_) => {
                inner.place.unmark(id, &execution)?;
                continue;
            }
            State::Leaving { init } => {
                kill(&records, init)?;
                None
            }
            State::Running { .. } => {
                let written = written(&records)?;
                let deadline = Request::read(&records)?.and_then(|request| request.deadline);
                if over {
                    Some(Outcome::OverLimit(Limit::Disk))
                } else if written.stdout + written.stderr > inner.settings.output_bytes {
                    Some(Outcome::OverLimit(Limit::Output))
                } else if deadline.is_some_and(|deadline| deadline <= Timestamp::now()) {
                    Some(Outcome::TimedOut)
                } else {
                    None
                }
            }
        };
        match reason {
            Some(reason) => end(&records, reason)?,
            None => more = More::Running,
        }
    }
    Ok(more)
}

/// What the files that programs can write take on the disk. Files that come and go while we walk are missed, and files that
/// were removed but are still open.
fn measured(inner: &Inner, id: &SandboxId) -> io::Result<u64> {
    let folder = inner.place.sandbox(id).map_err(io::Error::other)?;
    keep_outputs(inner, &folder, id)?;
    let writable = [folder.workspace(), folder.home(), folder.tmp()];
    let files = writable.iter().flat_map(|path| walkdir::WalkDir::new(path).same_file_system(true));
    let sizes = files.filter_map(|entry| fs::symlink_metadata(entry.ok()?.path()).ok());
    Ok(sizes.map(|metadata| metadata.blocks() * 512).sum())
}

/// Removes the oldest outputs if there are too many. Programs cannot remove them, so they are not counted as theirs.
fn keep_outputs(inner: &Inner, folder: &Folder, id: &SandboxId) -> io::Result<()> {
    let running = inner.place.marked_in(id)?;
    let mut outputs = Vec::new();
    for entry in walkdir::WalkDir::new(folder.output()).min_depth(2).max_depth(2).into_iter().flatten() {
        let execution = entry.path().parent().and_then(Path::file_name).unwrap_or_default();
        let Ok(metadata) = entry.metadata() else { continue };
        if running.iter().all(|one| *execution != *one.as_str()) {
            outputs.push((metadata.mtime(), metadata.blocks() * 512, entry.into_path()));
        }
    }
    outputs.sort_unstable_by(|a, b| b.cmp(a)); // the newest first
    let mut kept = 0;
    for (_, bytes, path) in outputs {
        kept += bytes;
        if kept > inner.settings.output_bytes.saturating_mul(OUTPUTS_KEPT) {
            gone_is_ok(fs::remove_file(path))?;
        }
    }
    Ok(())
}

fn paused(inner: &Inner, id: &SandboxId) -> bool {
    inner.place.sandbox(id).is_ok_and(|folder| folder.paused().exists())
}

fn watched(inner: &Inner) -> MutexGuard<'_, HashSet<SandboxId>> {
    inner.watched.lock().unwrap_or_else(PoisonError::into_inner)
}
