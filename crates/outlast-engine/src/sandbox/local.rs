//! Sandboxes on this machine, walled off by bubblewrap.
//!
//! A sandbox is a folder, not a process: each execution has its own bwrap process and pid namespace, and all of them share
//! the sandbox's files. To end an execution, one process is killed; the kernel then kills everything in its namespace,
//! including daemons and fork bombs. All state is in the folder, so a restarted server finds everything there.

mod cgroups;
mod folder;
mod launch;
mod pausing;
mod probe;
mod seccomp;
mod state;
mod tree;
mod walls;
mod watch;

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use outlast_core::{ExecutionId, SandboxId};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub use launch::FAULT_POINTS;
pub use walls::{EXECUTIONS_INSIDE, TOOL_INSIDE};

use crate::checkpoints::{LocalWorkspace, Workspace};

use super::{
    Execution, Offsets, Outcome, Presence, Progress, SandboxError, SandboxSettings, Sandboxes, Span, Started,
};
use cgroups::Cgroups;
use folder::{Place, Records};
use state::State;
use tree::Init;

/// The shortest and longest interval between checks on an execution that writes nothing. The intervals grow by an eighth,
/// so the end of a program is noticed late by at most an eighth of its running time or the longest interval.
const POLL_MIN: Duration = Duration::from_millis(1);
const POLL_MAX: Duration = Duration::from_millis(100);
/// The kernel needs milliseconds to end a process tree; on a machine that is busy with a fork bomb, much longer.
const STOP_MAX: Duration = Duration::from_secs(10);
/// How long bwrap may take to record the end of a program that we killed. In a frozen sandbox it never does.
const MONITOR_MAX: Duration = Duration::from_millis(200);
/// How often a removal that failed is tried again.
const FINISH_EVERY: Duration = Duration::from_secs(60);
/// The most that `read` returns, whatever was asked for.
const READ_MAX: usize = 1024 * 1024;

/// The provider `local`.
pub struct Local {
    inner: Arc<Inner>,
    /// Ends the tasks that enforce limits. Executions keep running, and the next server enforces their limits again.
    _stop: DropGuard,
}

struct Inner {
    place: Place,
    settings: SandboxSettings,
    bwrap: PathBuf,
    tool: PathBuf,
    seccomp: Vec<u8>,
    cgroups: Cgroups,
    as_root: bool,
    /// Sandboxes whose limits are being watched.
    watched: Mutex<HashSet<SandboxId>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Local {
    /// Opens the sandboxes in a folder. `tool` is the program that runs the file tools inside.
    ///
    /// Tests the walls with a program that does nothing. If that fails, the error tells what to do, and there are no
    /// sandboxes. Nothing ever runs outside of one.
    pub async fn open(root: &Path, settings: SandboxSettings, tool: PathBuf) -> Result<Local, SandboxError> {
        let place = Place::new(root.to_owned()).map_err(cannot("open the sandboxes"))?;
        walls::prepare(&place).map_err(cannot("prepare the sandboxes"))?;
        let stop = CancellationToken::new();
        let cgroups = Cgroups::find(&settings, &place.root);
        let inner = Arc::new(Inner {
            place,
            bwrap: probe::find_bwrap()?,
            seccomp: seccomp::filter().map_err(|error| SandboxError::Unavailable(error.to_string()))?,
            cgroups,
            as_root: rustix::process::geteuid().is_root(),
            settings,
            tool,
            watched: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: stop.clone(),
        });
        probe::check_limits(&inner)?;
        probe::try_out(&inner).await?;
        finish(inner.clone()).await?;
        for id in inner.place.marked().map_err(cannot("find running tools"))? {
            watch::ensure(&inner, &id);
        }
        Ok(Local { inner, _stop: stop.drop_guard() })
    }

    /// The folder that is `/workspace` inside. Programs can put any link there, so never resolve a path out of it.
    pub fn folder(&self, id: &SandboxId) -> Result<PathBuf, SandboxError> {
        Ok(self.inner.existing(id)?.workspace())
    }

    fn records(&self, id: &SandboxId, execution: &ExecutionId) -> Result<Records, SandboxError> {
        self.inner.existing(id)?.execution(execution)
    }
}

#[async_trait]
impl Sandboxes for Local {
    async fn create(&self, id: &SandboxId, label: &str) -> Result<(), SandboxError> {
        let (folder, label) = (self.inner.place.sandbox(id)?, label.to_owned());
        blocking("create a sandbox", move || folder.create(&label)).await
    }

    async fn labels(&self) -> Result<Vec<(SandboxId, String)>, SandboxError> {
        let place = self.inner.place.clone();
        blocking("list the sandboxes", move || place.labels()).await
    }

    fn workspace(&self, id: &SandboxId) -> Result<Arc<dyn Workspace>, SandboxError> {
        let folder = self.inner.existing(id)?;
        let opened = LocalWorkspace::open(&folder.workspace(), folder.index());
        Ok(Arc::new(opened.map_err(cannot("open the workspace"))?))
    }

    fn keeps_files_asleep(&self) -> bool {
        true
    }

    async fn look(&self, id: &SandboxId) -> Result<Presence, SandboxError> {
        let folder = self.inner.place.sandbox(id)?;
        blocking("look for a sandbox", move || {
            Ok(match (folder.exists(), folder.paused().exists()) {
                (false, _) => Presence::Gone,
                (true, true) => Presence::Paused,
                (true, false) => Presence::Running,
            })
        })
        .await
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let (inner, folder, id) = (self.inner.clone(), self.inner.existing(id)?, id.clone());
        blocking("pause a sandbox", move || pausing::pause(&inner, &folder, &id)).await
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let (inner, folder, name) = (self.inner.clone(), self.inner.existing(id)?, id.clone());
        blocking("resume a sandbox", move || pausing::resume(&inner, &folder, &name)).await?;
        watch::ensure(&self.inner, id);
        Ok(())
    }

    async fn kill(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let (inner, folder, id) = (self.inner.clone(), self.inner.place.sandbox(id)?, id.clone());
        blocking("kill a sandbox", move || pausing::kill(&inner, &folder, &id)).await
    }

    async fn start(&self, id: &SandboxId, execution: &Execution) -> Result<Started, SandboxError> {
        let (inner, name, wanted) = (self.inner.clone(), id.clone(), execution.clone());
        let launched = tokio::task::spawn_blocking(move || {
            let launched = launch::launch(&inner, &name, &wanted);
            watch::ensure(&inner, &name); // here, because nobody may be waiting for the start any more
            launched
        });
        let child = launched.await.map_err(|error| cannot("start a program")(error.into()))??;
        let Some(child) = child else { return Ok(Started::Before) };
        launch::started(&self.records(id, &execution.id)?, execution, child).await?;
        Ok(Started::Now)
    }

    async fn read(&self, id: &SandboxId, span: &Span) -> Result<Bytes, SandboxError> {
        let records = self.records(id, &span.execution)?;
        let (output, offset, max) = (span.output, span.offset, span.max.min(READ_MAX));
        let read = blocking("read output", move || match File::open(records.output(output)) {
            Ok(file) => read_at(&file, offset, max).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(records.known().then(Bytes::new)) // it has written nothing
            }
            Err(error) => Err(error),
        });
        read.await?.ok_or_else(|| SandboxError::Unknown(span.execution.clone()))
    }

    async fn wait(
        &self,
        id: &SandboxId,
        execution: &ExecutionId,
        beyond: Offsets,
    ) -> Result<Progress, SandboxError> {
        let records = self.records(id, execution)?;
        let mut pause = POLL_MIN;
        loop {
            let looked = records.clone();
            let (state, written) = blocking("look at a tool", move || {
                let state = state::inspect(&looked)?; // first: after the end the sizes do not change
                Ok((state, state::written(&looked)?))
            })
            .await?;
            match state {
                State::NotStarted => return Err(SandboxError::Unknown(execution.clone())),
                State::Over(outcome) => return Ok(Progress { written, outcome: Some(outcome) }),
                State::Running { .. } => {
                    if written.stdout > beyond.stdout || written.stderr > beyond.stderr {
                        return Ok(Progress { written, outcome: None });
                    }
                }
                // Processes that a command leaves behind end with it.
                State::Leaving { init } => {
                    kill(&records, init).map_err(cannot("end what a tool left behind"))?;
                    pause = POLL_MIN;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 9 / 8).min(POLL_MAX);
        }
    }

    async fn running_here(&self) -> Result<Vec<(SandboxId, String)>, SandboxError> {
        let inner = self.inner.clone();
        blocking("find running tools", move || inner.place.labelled(inner.place.marked()?)).await
    }

    async fn stop(&self, id: &SandboxId, execution: &ExecutionId) -> Result<(), SandboxError> {
        let records = self.records(id, execution)?;
        let (inner, id, execution) = (self.inner.clone(), id.clone(), execution.clone());
        blocking("stop a tool", move || {
            records.create()?;
            end(&records, Outcome::Stopped)?;
            inner.place.unmark(&id, &execution)
        })
        .await
    }
}

impl Inner {
    fn existing(&self, id: &SandboxId) -> Result<folder::Folder, SandboxError> {
        let folder = self.place.sandbox(id)?;
        if folder.exists() { Ok(folder) } else { Err(SandboxError::Gone(id.clone())) }
    }
}

/// Removes sandboxes whose removal was not finished. What cannot be removed is tried again from time to time.
async fn finish(inner: Arc<Inner>) -> Result<(), SandboxError> {
    let cleaner = inner.clone();
    if blocking("remove killed sandboxes", move || pausing::finish(&cleaner)).await? == 0 {
        return Ok(());
    }
    let tasks = inner.tasks.clone();
    tasks.spawn(async move {
        loop {
            tokio::select! {
                () = inner.stop.cancelled() => return,
                () = tokio::time::sleep(FINISH_EVERY) => {}
            }
            let cleaner = inner.clone();
            if let Ok(0) = blocking("remove killed sandboxes", move || pausing::finish(&cleaner)).await {
                return;
            }
        }
    });
    Ok(())
}

/// Ends an execution and returns when nothing of it is alive. It is safe to repeat, and while it is frozen.
fn end(records: &Records, reason: Outcome) -> io::Result<()> {
    // A program that filled the disk must be ended although the reason cannot be written.
    let told = state::end(records, reason);
    let began = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
        match state::inspect(records)? {
            State::NotStarted => return told, // only the reason keeps it from starting later
            State::Over(_) => return Ok(()),
            State::Running { .. } if began.elapsed() > MONITOR_MAX => tree::kill_monitor(records)?,
            State::Running { init: Some(init) } | State::Leaving { init } => kill(records, init)?,
            State::Running { init: None } => {} // bwrap is starting: in a moment it tells whom to kill
        }
        if began.elapsed() > STOP_MAX {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "its processes do not end"));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

fn kill(records: &Records, init: i32) -> io::Result<()> {
    match Init::find(records, init)? {
        Some(init) => init.kill(),
        None => Ok(()),
    }
}

fn read_at(file: &File, offset: u64, max: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; max];
    let mut filled = 0;
    while filled < max {
        match file.read_at(&mut bytes[filled..], offset + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    bytes.truncate(filled);
    Ok(bytes.into())
}

fn cannot(what: &str) -> impl FnOnce(io::Error) -> SandboxError {
    move |error| SandboxError::Io { what: format!("cannot {what}"), error }
}

/// Disks can be slow, so files are never touched on the threads that serve requests.
async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SandboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(error.into())).map_err(cannot(what))
}
