//! Enforces what the kernel does not: deadlines, the size of output, and the disk of a sandbox.
//!
//! One task for each sandbox in which something runs. It is started by whoever starts something, and when the server
//! starts. Nothing is lost with it: deadlines are in the folders.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use outlast_core::SandboxId;

use super::super::{Limit, Outcome};
use super::folder::Folder;
use super::state::{Request, State, inspect, written};
use super::{Inner, end, kill};

/// How late a deadline or the limit on output may be noticed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// After an error, which is logged: a disk that fails does so for a while.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Measuring the disk walks all files. It takes at most one part in ten of the time.
const MEASURE_EVERY: Duration = Duration::from_millis(500);
const MEASURE_SHARE: u32 = 10;

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
    loop {
        tokio::select! {
            () = inner.stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let measure = Instant::now() >= measure_at;
        let (looker, name) = (inner.clone(), id.clone());
        let began = Instant::now();
        let looked = tokio::task::spawn_blocking(move || look(&looker, &name, measure)).await;
        if measure {
            measure_at = Instant::now() + MEASURE_EVERY.max(began.elapsed() * MEASURE_SHARE);
        }
        match looked.map_err(io::Error::from).flatten() {
            Ok(More::Running) => {}
            Ok(More::Nothing) => {
                let mut watched = watched(&inner);
                // Whoever starts something marks it first and then asks for a watch: one of us sees the other.
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

fn look(inner: &Inner, id: &SandboxId, measure: bool) -> io::Result<More> {
    let folder = inner.place.sandbox(id).map_err(io::Error::other)?;
    if paused(inner, id) || !folder.exists() {
        return Ok(More::Nothing);
    }
    let over = measure && size(&folder) > inner.settings.disk_bytes;
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

/// What the files of a sandbox take on the disk. Files that come and go while we walk are missed.
fn size(folder: &Folder) -> u64 {
    let files = walkdir::WalkDir::new(&folder.path).same_file_system(true);
    let sizes = files.into_iter().filter_map(|entry| fs::symlink_metadata(entry.ok()?.path()).ok());
    sizes.map(|metadata| metadata.blocks() * 512).sum()
}

fn paused(inner: &Inner, id: &SandboxId) -> bool {
    inner.place.sandbox(id).is_ok_and(|folder| folder.paused().exists())
}

fn watched(inner: &Inner) -> MutexGuard<'_, HashSet<SandboxId>> {
    inner.watched.lock().unwrap_or_else(PoisonError::into_inner)
}
