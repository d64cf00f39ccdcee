//! Sandboxes without processes, for tests and simulations. An execution follows a script on tokio's clock, and
//! everything outlives the engine that started it, as a real sandbox outlives its server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use outlast_core::{ExecutionId, SandboxId};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::checkpoints::{LocalWorkspace, Workspace};

use super::{
    Execution, Offsets, Outcome, Output, Presence, Progress, SandboxError, Sandboxes, Span, Started,
};

/// What an execution does: each step, and how long after the previous one.
pub type Acts = Vec<(Duration, Act)>;

#[derive(Clone, Debug)]
pub enum Act {
    Write(Output, Bytes),
    End(Outcome),
}

/// Decides what an execution does.
pub type Script = Box<dyn Fn(&Execution) -> Acts + Send + Sync>;

pub struct MemorySandboxes {
    script: Script,
    /// The workspaces are real folders in here.
    folder: PathBuf,
    sandboxes: Mutex<BTreeMap<SandboxId, Sandbox>>,
    changed: Notify,
}

#[derive(Default)]
struct Sandbox {
    label: String,
    paused_at: Option<Instant>,
    runs: BTreeMap<ExecutionId, Run>,
}

struct Run {
    acts: Acts,
    started: Instant,
    /// Time that the sandbox spent paused since.
    slept: Duration,
    stopped_at: Option<Duration>,
}

impl MemorySandboxes {
    pub fn new(script: Script, folder: PathBuf) -> Arc<MemorySandboxes> {
        Arc::new(MemorySandboxes { script, folder, sandboxes: Mutex::default(), changed: Notify::new() })
    }

    /// The ids of all sandboxes that are there.
    pub fn ids(&self) -> Vec<SandboxId> {
        self.lock().keys().cloned().collect()
    }

    /// Removes a sandbox as if its machine were gone.
    pub fn lose(&self, id: &SandboxId) {
        self.lock().remove(id);
        self.changed.notify_waiters();
    }

    /// How many executions were started in all the sandboxes that are there.
    pub fn runs(&self) -> usize {
        self.lock().values().map(|sandbox| sandbox.runs.len()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SandboxId, Sandbox>> {
        self.sandboxes.lock().expect("nobody panics while holding this")
    }

    fn with<T>(
        &self,
        id: &SandboxId,
        act: impl FnOnce(&mut Sandbox) -> Result<T, SandboxError>,
    ) -> Result<T, SandboxError> {
        let mut sandboxes = self.lock();
        let done = act(sandboxes.get_mut(id).ok_or_else(|| SandboxError::Gone(id.clone()))?);
        drop(sandboxes);
        self.changed.notify_waiters();
        done
    }
}

impl Run {
    /// How long it has run, without the time it slept.
    fn age(&self, sandbox_paused_at: Option<Instant>) -> Duration {
        let until = sandbox_paused_at.unwrap_or_else(Instant::now);
        let age = until.saturating_duration_since(self.started).saturating_sub(self.slept);
        self.stopped_at.map_or(age, |stopped| age.min(stopped))
    }

    /// What it wrote to one output by that age, and how it ended if it did.
    fn written(&self, output: Output, age: Duration) -> Bytes {
        let mut written = BytesMut::new();
        for act in self.acts_by(age) {
            if let Act::Write(to, bytes) = act
                && *to == output
            {
                written.extend_from_slice(bytes);
            }
        }
        written.freeze()
    }

    fn acts_by(&self, age: Duration) -> impl Iterator<Item = &Act> {
        let mut at = Duration::ZERO;
        self.acts.iter().map_while(move |(after, act)| {
            at += *after;
            (at <= age).then_some(act)
        })
    }

    fn progress(&self, age: Duration) -> Progress {
        let length = |output| self.written(output, age).len() as u64;
        let written = Offsets { stdout: length(Output::Stdout), stderr: length(Output::Stderr) };
        let ended = self.acts_by(age).find_map(|act| match act {
            Act::End(outcome) => Some(*outcome),
            Act::Write(..) => None,
        });
        let stopped = self.stopped_at.is_some().then_some(Outcome::Stopped);
        Progress { written, outcome: ended.or(stopped) }
    }

    /// How long until it does something more.
    fn until_next(&self, age: Duration) -> Option<Duration> {
        let mut at = Duration::ZERO;
        self.acts.iter().find_map(|(after, _)| {
            at += *after;
            (at > age).then(|| at - age)
        })
    }
}

#[async_trait]
impl Sandboxes for MemorySandboxes {
    async fn create(&self, id: &SandboxId, label: &str) -> Result<(), SandboxError> {
        self.lock()
            .entry(id.clone())
            .or_insert_with(|| Sandbox { label: label.to_owned(), ..Sandbox::default() });
        Ok(())
    }

    async fn labels(&self) -> Result<Vec<(SandboxId, String)>, SandboxError> {
        Ok(self.lock().iter().map(|(id, sandbox)| (id.clone(), sandbox.label.clone())).collect())
    }

    fn workspace(&self, id: &SandboxId) -> Result<Arc<dyn Workspace>, SandboxError> {
        if !self.lock().contains_key(id) {
            return Err(SandboxError::Gone(id.clone()));
        }
        let folder = self.folder.join(id.as_str());
        let cannot = |error| SandboxError::Io { what: "cannot open the workspace".to_owned(), error };
        std::fs::create_dir_all(&folder).map_err(cannot)?;
        let index = self.folder.join(format!("{id}.index"));
        Ok(Arc::new(LocalWorkspace::open(&folder, index).map_err(cannot)?))
    }

    fn keeps_files_asleep(&self) -> bool {
        true
    }

    async fn look(&self, id: &SandboxId) -> Result<Presence, SandboxError> {
        Ok(match self.lock().get(id) {
            None => Presence::Gone,
            Some(sandbox) if sandbox.paused_at.is_some() => Presence::Paused,
            Some(_) => Presence::Running,
        })
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), SandboxError> {
        self.with(id, |sandbox| {
            sandbox.paused_at.get_or_insert_with(Instant::now);
            Ok(())
        })
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), SandboxError> {
        self.with(id, |sandbox| {
            if let Some(paused_at) = sandbox.paused_at.take() {
                sandbox.runs.values_mut().for_each(|run| run.slept += paused_at.elapsed());
            }
            Ok(())
        })
    }

    async fn kill(&self, id: &SandboxId) -> Result<(), SandboxError> {
        self.lose(id);
        Ok(())
    }

    async fn start(&self, id: &SandboxId, execution: &Execution) -> Result<Started, SandboxError> {
        self.with(id, |sandbox| {
            if sandbox.runs.contains_key(&execution.id) {
                return Ok(Started::Before);
            }
            if sandbox.paused_at.is_some() {
                return Err(SandboxError::Paused(id.clone()));
            }
            let run = Run {
                acts: (self.script)(execution),
                started: Instant::now(),
                slept: Duration::ZERO,
                stopped_at: None,
            };
            sandbox.runs.insert(execution.id.clone(), run);
            Ok(Started::Now)
        })
    }

    async fn read(&self, id: &SandboxId, span: &Span) -> Result<Bytes, SandboxError> {
        self.with(id, |sandbox| {
            let Some(run) = sandbox.runs.get(&span.execution) else {
                return Err(SandboxError::Unknown(span.execution.clone()));
            };
            let written = run.written(span.output, run.age(sandbox.paused_at));
            let from = usize::try_from(span.offset).unwrap_or(usize::MAX).min(written.len());
            Ok(written.slice(from..(from + span.max).min(written.len())))
        })
    }

    async fn wait(
        &self,
        id: &SandboxId,
        execution: &ExecutionId,
        beyond: Offsets,
    ) -> Result<Progress, SandboxError> {
        loop {
            let changed = self.changed.notified();
            let next = self.with_quietly(id, execution, |run, paused_at| {
                let age = run.age(paused_at);
                let progress = run.progress(age);
                let more = progress.written.stdout > beyond.stdout || progress.written.stderr > beyond.stderr;
                let wait = run.until_next(age).filter(|_| paused_at.is_none());
                (progress, more, wait)
            })?;
            let (progress, more, wait) = next;
            if more || progress.outcome.is_some() {
                return Ok(progress);
            }
            match wait {
                Some(wait) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(Instant::now() + wait) => {}
                },
                None => changed.await,
            }
        }
    }

    async fn running_here(&self) -> Result<Vec<(SandboxId, String)>, SandboxError> {
        let runs = |sandbox: &Sandbox| {
            sandbox.runs.values().any(|run| run.progress(run.age(sandbox.paused_at)).outcome.is_none())
        };
        let labelled = |(id, sandbox): (&SandboxId, &Sandbox)| (id.clone(), sandbox.label.clone());
        Ok(self.lock().iter().filter(|(_, sandbox)| runs(sandbox)).map(labelled).collect())
    }

    async fn stop(&self, id: &SandboxId, execution: &ExecutionId) -> Result<(), SandboxError> {
        self.with(id, |sandbox| {
            let paused_at = sandbox.paused_at;
            let never = || Run {
                acts: Vec::new(),
                started: Instant::now(),
                slept: Duration::ZERO,
                stopped_at: Some(Duration::ZERO),
            };
            let run = sandbox.runs.entry(execution.clone()).or_insert_with(never);
            let age = run.age(paused_at);
            if run.progress(age).outcome.is_none() {
                run.stopped_at = Some(age);
            }
            Ok(())
        })
    }
}

impl MemorySandboxes {
    /// Looks at a run without telling anybody that something changed.
    fn with_quietly<T>(
        &self,
        id: &SandboxId,
        execution: &ExecutionId,
        look: impl FnOnce(&Run, Option<Instant>) -> T,
    ) -> Result<T, SandboxError> {
        let sandboxes = self.lock();
        let sandbox = sandboxes.get(id).ok_or_else(|| SandboxError::Gone(id.clone()))?;
        let run = sandbox.runs.get(execution).ok_or_else(|| SandboxError::Unknown(execution.clone()))?;
        Ok(look(run, sandbox.paused_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execution(id: &str) -> Execution {
        let (id, stdin, env) = (id.into(), Bytes::new(), BTreeMap::new());
        Execution { id, program: vec!["true".into()], stdin, env, deadline: None }
    }

    fn two_lines() -> Arc<MemorySandboxes> {
        let line = |text: &'static str| Act::Write(Output::Stdout, Bytes::from_static(text.as_bytes()));
        let second = Duration::from_secs(1);
        MemorySandboxes::new(
            Box::new(move |_| {
                vec![
                    (second, line("one\n")),
                    (second, line("two\n")),
                    (second, Act::End(Outcome::Exited { code: 0 })),
                ]
            }),
            std::env::temp_dir(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn x8_an_execution_runs_once_and_can_be_followed_from_anywhere() {
        let (sandboxes, id) = (two_lines(), SandboxId::from("s"));
        sandboxes.create(&id, "").await.unwrap();
        assert_eq!(sandboxes.start(&id, &execution("a")).await.unwrap(), Started::Now);
        assert_eq!(sandboxes.start(&id, &execution("a")).await.unwrap(), Started::Before);
        let first = sandboxes.wait(&id, &"a".into(), Offsets::default()).await.unwrap();
        assert_eq!((first.written.stdout, first.outcome), (4, None));
        tokio::time::sleep(Duration::from_secs(9)).await;
        let last = sandboxes.wait(&id, &"a".into(), first.written).await.unwrap();
        assert_eq!((last.written.stdout, last.outcome), (8, Some(Outcome::Exited { code: 0 })));
        let span = Span { execution: "a".into(), output: Output::Stdout, offset: 4, max: 100 };
        assert_eq!(&sandboxes.read(&id, &span).await.unwrap()[..], b"two\n");
    }

    #[tokio::test(start_paused = true)]
    async fn s2_a_paused_sandbox_stands_still() {
        let (sandboxes, id) = (two_lines(), SandboxId::from("s"));
        sandboxes.create(&id, "").await.unwrap();
        sandboxes.start(&id, &execution("a")).await.unwrap();
        sandboxes.wait(&id, &"a".into(), Offsets::default()).await.unwrap();
        sandboxes.pause(&id).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        sandboxes.resume(&id).await.unwrap();
        let begun = Instant::now();
        let more = sandboxes.wait(&id, &"a".into(), Offsets { stdout: 4, stderr: 0 }).await.unwrap();
        assert_eq!((more.written.stdout, begun.elapsed().as_secs()), (8, 1));
    }
}
