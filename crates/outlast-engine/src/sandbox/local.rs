//! Sandboxes on this machine, walled off by bubblewrap.
//!
//! A sandbox is a folder. There is no process that stands for it: each execution is a bwrap of its own, with its own
//! pid namespace, over the sandbox's files. So ending one execution is killing one process, and the kernel takes
//! daemons and fork bombs along. All state is in the folder: a server that starts finds what its predecessor left.

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

/// Shortest and longest pause between two looks at an execution that writes nothing. The pauses grow by an eighth: the
/// end of a program is noticed late by about an eighth of its running time, and by the longest pause at most.
const POLL_MIN: Duration = Duration::from_millis(1);
const POLL_MAX: Duration = Duration::from_millis(100);
/// The kernel needs milliseconds to end a process tree.
const STOP_MAX: Duration = Duration::from_secs(5);
/// How long bwrap may take to write down the end of a program that we killed. In a frozen sandbox it never does.
const MONITOR_MAX: Duration = Duration::from_millis(200);
/// One answer to `read`, whatever was asked for.
const READ_MAX: usize = 1024 * 1024;

/// The provider `local`.
pub struct Local {
    inner: Arc<Inner>,
    /// Ends the tasks that enforce limits. What runs goes on, and the next server enforces them again.
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
    /// Tries out the walls with a program that does nothing. If that fails, the error tells what to do, and there
    /// are no sandboxes: nothing ever runs outside of one.
    pub async fn open(root: &Path, settings: SandboxSettings, tool: PathBuf) -> Result<Local, SandboxError> {
        let place = Place::new(root.to_owned()).map_err(cannot("open the sandboxes"))?;
        walls::prepare(&place).map_err(cannot("prepare the sandboxes"))?;
        let stop = CancellationToken::new();
        let inner = Arc::new(Inner {
            place,
            bwrap: probe::find_bwrap()?,
            seccomp: seccomp::filter().map_err(|error| SandboxError::Unavailable(error.to_string()))?,
            cgroups: Cgroups::find(&settings),
            as_root: rustix::process::geteuid().is_root(),
            settings,
            tool,
            watched: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: stop.clone(),
        });
        probe::check_limits(&inner)?;
        probe::try_out(&inner).await?;
        let cleaner = inner.clone();
        blocking("remove killed sandboxes", move || pausing::finish(&cleaner)).await?;
        for id in inner.place.marked().map_err(cannot("find running tools"))? {
            watch::ensure(&inner, &id);
        }
        Ok(Local { inner, _stop: stop.drop_guard() })
    }

    /// The folder that is `/workspace` inside. It is full of links made by strangers: resolve nothing outside of it.
    pub fn folder(&self, id: &SandboxId) -> Result<PathBuf, SandboxError> {
        Ok(self.inner.existing(id)?.workspace())
    }

    fn records(&self, id: &SandboxId, execution: &ExecutionId) -> Result<Records, SandboxError> {
        self.inner.existing(id)?.execution(execution)
    }
}

#[async_trait]
impl Sandboxes for Local {
    async fn create(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let folder = self.inner.place.sandbox(id)?;
        blocking("create a sandbox", move || folder.create()).await
    }

    fn workspace(&self, id: &SandboxId) -> Result<Arc<dyn Workspace>, SandboxError> {
        let folder = self.inner.existing(id)?;
        let opened = LocalWorkspace::open(&folder.workspace(), folder.index());
        Ok(Arc::new(opened.map_err(cannot("open the workspace"))?))
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
        let launched = tokio::task::spawn_blocking(move || launch::launch(&inner, &name, &wanted));
        let child = launched.await.map_err(|error| cannot("start a program")(error.into()))??;
        watch::ensure(&self.inner, id);
        let Some(child) = child else { return Ok(Started::Before) };
        launch::started(&self.records(id, &execution.id)?, execution, child).await?;
        Ok(Started::Now)
    }

    async fn read(&self, id: &SandboxId, span: &Span) -> Result<Bytes, SandboxError> {
        let path = self.records(id, &span.execution)?.output(span.output);
        let (offset, max) = (span.offset, span.max.min(READ_MAX));
        blocking("read output", move || match File::open(path) {
            Ok(file) => read_at(&file, offset, max),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Bytes::new()),
            Err(error) => Err(error),
        })
        .await
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
                // What a command leaves behind ends with it.
                State::Leaving { init } => {
                    kill(&records, init).map_err(cannot("end what a tool left behind"))?;
                    pause = POLL_MIN;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 9 / 8).min(POLL_MAX);
        }
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

/// Ends an execution and returns when nothing of it is alive. It is safe to repeat, and while it is frozen.
fn end(records: &Records, reason: Outcome) -> io::Result<()> {
    state::end(records, reason)?;
    let began = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
        match state::inspect(records)? {
            State::NotStarted | State::Over(_) => return Ok(()),
            State::Running { init: Some(_) } if began.elapsed() > MONITOR_MAX => tree::kill_monitor(records)?,
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

/// Disks can be slow: no file is touched on the threads that serve everybody.
async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SandboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(error.into())).map_err(cannot(what))
}
