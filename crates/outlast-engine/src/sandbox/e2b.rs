//! Sandboxes at E2B: virtual machines elsewhere, reached by HTTP.
//!
//! E2B names sandboxes itself, so ours carry our id as metadata, and whoever needs one looks for it there. Nothing has to be
//! remembered across a restart. E2B drops what a program writes while nobody listens, so this program also runs inside the
//! sandbox (`inside`), where it supervises executions and keeps their output in files.
//!
//! E2B's timeout is not about idleness: it counts from the last call. It is pushed while something is used, and pauses the
//! sandbox only if no server is there to do that.

mod api;
mod asking;
mod envd;
mod files;
mod settings;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use outlast_core::{ExecutionId, SandboxId};
use reqwest::Client;

pub use settings::E2bSettings;

use self::api::{Access, Api, ApiError, Listed};
use self::asking::Repeat;
use self::files::RemoteWorkspace;
use super::inside::{Answer, HOME, Question, Request, Seen, State};
use super::{
    Execution, Offsets, Output, Presence, Progress, SandboxError, Sandboxes, Span, Started, is_file_name,
};
use crate::checkpoints::Workspace;

/// How long to wait between tries, each time twice as long, ...
const RETRY_WAIT: Duration = Duration::from_millis(250);
/// ... and for how long to try. The engine tries again after that, where it makes sense.
const RETRY_TIME_MAX: Duration = Duration::from_secs(20);
/// How long one question about progress may take inside.
const WAIT_INSIDE: Duration = Duration::from_secs(20);
/// How often a paused sandbox is looked at by those who wait for something in it.
const PAUSED_POLL: Duration = Duration::from_secs(2);
/// How long E2B may take to finish a pause that somebody else began.
const PAUSING_MAX: Duration = Duration::from_secs(60);
/// The most that `read` returns, whatever was asked for.
const READ_MAX: usize = 1024 * 1024;
/// More sandboxes than one server works with at a time. If there are more, they are looked up again.
const KNOWN_MAX: usize = 10_000;

/// The provider `e2b`.
#[derive(Clone)]
pub struct E2b {
    inner: Arc<Inner>,
}

struct Inner {
    api: Api,
    client: Client,
    settings: E2bSettings,
    /// How to reach the sandboxes that are in use.
    known: Mutex<HashMap<SandboxId, Known>>,
    /// What the last checkpoint of a workspace knew. Kept here, out of reach of programs; losing it costs time only.
    indexes: files::Indexes,
}

#[derive(Clone)]
struct Known {
    access: Arc<Access>,
    extended: Instant,
}

impl E2b {
    /// Asks E2B for its sandboxes, so that a wrong key or address is found when the server starts.
    pub async fn open(settings: E2bSettings) -> Result<E2b, SandboxError> {
        let client = Client::builder()
            .retry(reqwest::retry::never())
            .redirect(reqwest::redirect::Policy::none()) // it would take the key to another host
            .connect_timeout(settings.patience)
            .build()
            .map_err(|error| SandboxError::Unavailable(format!("cannot make a client for E2B: {error}")))?;
        let api = Api::new(client.clone(), settings.clone());
        let (known, indexes) = (Mutex::default(), files::Indexes::default());
        let inner = Arc::new(Inner { api, client, settings, known, indexes });
        inner.retried(|| inner.api.find("none")).await.map_err(unavailable)?;
        Ok(E2b { inner })
    }
}

#[async_trait]
impl Sandboxes for E2b {
    /// Everybody finds a sandbox by its id, so the label is not needed.
    async fn create(&self, id: &SandboxId, _label: &str) -> Result<(), SandboxError> {
        checked(id.as_str())?;
        let inner = &self.inner;
        match inner.locate(id).await? {
            Some(found) if found.is_paused() => return Ok(()),
            Some(found) => inner.connect(id, &found.id).await?,
            None => inner.make(id).await?,
        };
        let made = inner.set_up(id).await;
        if let Err(SandboxError::Unavailable(_)) = &made {
            self.kill(id).await?; // it will never work
        }
        made
    }

    /// None: other installations may use the same account, and theirs must not be taken for ours.
    async fn labels(&self) -> Result<Vec<(SandboxId, String)>, SandboxError> {
        Ok(Vec::new())
    }

    async fn running_here(&self) -> Result<Vec<(SandboxId, String)>, SandboxError> {
        Ok(Vec::new())
    }

    async fn look(&self, id: &SandboxId) -> Result<Presence, SandboxError> {
        checked(id.as_str())?;
        Ok(match self.inner.locate(id).await? {
            None => Presence::Gone,
            Some(found) if found.is_paused() => Presence::Paused,
            Some(_) => Presence::Running,
        })
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let found = self.inner.existing(id).await?;
        self.inner.forget(id); // resuming it gives another token
        if found.is_paused() {
            return Ok(());
        }
        let paused = self.inner.retried(|| async {
            match self.inner.api.pause(&found.id).await {
                Err(ApiError::Conflict(_)) => Ok(()), // already paused, or being paused: see below
                paused => paused,
            }
        });
        match paused.await {
            Ok(()) => {}
            Err(ApiError::NotFound(_)) => return Err(SandboxError::Gone(id.clone())),
            Err(error) => return Err(passing(&error)),
        }
        let began = Instant::now();
        while !self.inner.existing(id).await?.is_paused() {
            if began.elapsed() > PAUSING_MAX {
                return Err(passing(&"E2B does not finish a pause"));
            }
            tokio::time::sleep(RETRY_WAIT).await;
        }
        Ok(())
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let found = self.inner.existing(id).await?;
        self.inner.connect(id, &found.id).await?;
        // Part of what was set up is in memory there, and may not have survived.
        self.inner.set_up(id).await
    }

    async fn kill(&self, id: &SandboxId) -> Result<(), SandboxError> {
        checked(id.as_str())?;
        self.inner.forget(id);
        self.inner.indexes.remove(id);
        let api = &self.inner.api;
        for found in self.inner.retried(|| api.find(id.as_str())).await.map_err(|error| passing(&error))? {
            self.inner.retried(|| api.kill(&found.id)).await.map_err(|error| passing(&error))?;
        }
        Ok(())
    }

    async fn start(&self, id: &SandboxId, execution: &Execution) -> Result<Started, SandboxError> {
        checked(execution.id.as_str())?;
        let by = uuid::Uuid::now_v7().to_string();
        let request = Request {
            by,
            program: execution.program.clone(),
            stdin: execution.stdin.to_vec(),
            env: execution.env.clone(),
            deadline: execution.deadline.map(|deadline| deadline.as_millisecond()),
            output_max: self.inner.settings.output_bytes,
        };
        let request = serde_json::to_vec(&request).map_err(|error| cannot("ask for a tool")(error.into()))?;
        match self.inner.run(id, &execution.id, request.into()).await? {
            true => Ok(Started::Now),
            false => Ok(Started::Before),
        }
    }

    async fn read(&self, id: &SandboxId, span: &Span) -> Result<Bytes, SandboxError> {
        checked(span.execution.as_str())?;
        let name = match span.output {
            Output::Stdout => "stdout",
            Output::Stderr => "stderr",
        };
        let path = format!("{HOME}/executions/{}/{name}", span.execution);
        let (offset, max) = (span.offset, span.max.min(READ_MAX));
        match self.inner.fetch(id, &path, (offset, max)).await? {
            Some(bytes) => Ok(bytes),
            None => {
                self.seen(id, &span.execution, Offsets::default(), Duration::ZERO).await?;
                Ok(Bytes::new()) // it has written nothing
            }
        }
    }

    async fn wait(
        &self,
        id: &SandboxId,
        execution: &ExecutionId,
        beyond: Offsets,
    ) -> Result<Progress, SandboxError> {
        checked(execution.as_str())?;
        let longest = WAIT_INSIDE.min(self.inner.settings.lifetime / 8); // its timeout is pushed in between
        loop {
            let seen = match self.seen(id, execution, beyond, longest).await {
                Err(SandboxError::Paused(_)) => {
                    tokio::time::sleep(PAUSED_POLL).await; // nothing happens in its sleep
                    continue;
                }
                seen => seen?,
            };
            let written = Offsets { stdout: seen.stdout, stderr: seen.stderr };
            let outcome = seen.state.outcome();
            if outcome.is_some() || written.stdout > beyond.stdout || written.stderr > beyond.stderr {
                return Ok(Progress { written, outcome });
            }
        }
    }

    fn workspace(&self, id: &SandboxId) -> Result<Arc<dyn Workspace>, SandboxError> {
        checked(id.as_str())?;
        Ok(Arc::new(RemoteWorkspace::new(self.inner.clone(), id.clone())))
    }

    fn keeps_files_asleep(&self) -> bool {
        false // users have reported files that were missing after a second resume
    }

    async fn stop(&self, id: &SandboxId, execution: &ExecutionId) -> Result<(), SandboxError> {
        checked(execution.as_str())?;
        let question = Question::Stop { execution: execution.to_string() };
        let patience = self.inner.settings.patience;
        match self.inner.ask(id, &question, patience, Repeat::Yes).await {
            Err(SandboxError::Paused(_)) => {
                self.resume(id).await?;
                self.inner.ask(id, &question, patience, Repeat::Yes).await?;
                self.pause(id).await
            }
            answer => answer.map(drop),
        }
    }
}

impl E2b {
    async fn seen(
        &self,
        id: &SandboxId,
        execution: &ExecutionId,
        beyond: Offsets,
        longest: Duration,
    ) -> Result<Seen, SandboxError> {
        let Offsets { stdout, stderr } = beyond;
        let question = Question::Wait { execution: execution.to_string(), stdout, stderr, longest };
        let longest = longest + self.inner.settings.patience;
        match self.inner.ask(id, &question, longest, Repeat::Yes).await?.0 {
            Answer::Wait(Seen { state: State::NotStarted, .. }) => {
                Err(SandboxError::Unknown(execution.clone()))
            }
            Answer::Wait(seen) => Ok(seen),
            other => Err(unexpected(&other)),
        }
    }
}

impl Inner {
    /// The sandbox with our id, if there is one. Two servers that created it at the same time agree on the older one.
    async fn locate(&self, id: &SandboxId) -> Result<Option<Listed>, SandboxError> {
        let found = self.retried(|| self.api.find(id.as_str())).await.map_err(|error| passing(&error))?;
        Ok(found.into_iter().next())
    }

    async fn existing(&self, id: &SandboxId) -> Result<Listed, SandboxError> {
        checked(id.as_str())?;
        self.locate(id).await?.ok_or_else(|| self.gone(id))
    }

    fn gone(&self, id: &SandboxId) -> SandboxError {
        self.forget(id);
        SandboxError::Gone(id.clone())
    }

    /// Creates a sandbox. If E2B does not respond, it may still have created one.
    async fn make(&self, id: &SandboxId) -> Result<Arc<Access>, SandboxError> {
        let created = self.retried(|| async {
            match self.api.create(id.as_str()).await {
                Err(error @ ApiError::Passing(_)) => {
                    match self.api.find(id.as_str()).await?.into_iter().next() {
                        Some(found) => self.api.connect(&found.id).await,
                        None => Err(error),
                    }
                }
                created => created,
            }
        });
        let access = created.await.map_err(|error| match error {
            ApiError::NotFound(said) => SandboxError::Unavailable(format!(
                "{said}. Check e2b.template, which is {:?}",
                self.settings.template
            )),
            error => unavailable(error),
        })?;
        let all = self.retried(|| self.api.find(id.as_str())).await.map_err(|error| passing(&error))?;
        for surplus in all.iter().skip(1) {
            self.retried(|| self.api.kill(&surplus.id)).await.map_err(|error| passing(&error))?;
        }
        match all.first() {
            Some(oldest) if oldest.id != access.id => self.connect(id, &oldest.id).await,
            _ => Ok(self.learn(id, access)),
        }
    }

    /// Resumes it if it is paused.
    async fn connect(&self, id: &SandboxId, theirs: &str) -> Result<Arc<Access>, SandboxError> {
        match self.retried(|| self.api.connect(theirs)).await {
            Ok(access) => Ok(self.learn(id, access)),
            Err(ApiError::NotFound(_)) => Err(self.gone(id)),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// Repeats a call that may succeed later.
    async fn retried<T, F: Future<Output = Result<T, ApiError>>>(
        &self,
        call: impl Fn() -> F,
    ) -> Result<T, ApiError> {
        let give_up_at = Instant::now() + RETRY_TIME_MAX;
        let mut pause = RETRY_WAIT;
        loop {
            let error = match call().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let Some(asked) = error.wait() else { return Err(error) };
            let wait = asked.max(pause);
            if Instant::now() + wait > give_up_at {
                return Err(error);
            }
            tracing::warn!(%error, "a call to E2B failed; will retry");
            tokio::time::sleep(wait).await;
            pause *= 2;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Known>> {
        self.known.lock().expect("nobody panics while holding this")
    }

    fn learn(&self, id: &SandboxId, access: Access) -> Arc<Access> {
        let access = Arc::new(access);
        let mut known = self.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(id.clone(), Known { access: access.clone(), extended: Instant::now() });
        access
    }

    fn forget(&self, id: &SandboxId) {
        self.lock().remove(id);
    }
}

fn checked(id: &str) -> Result<(), SandboxError> {
    if is_file_name(id) { Ok(()) } else { Err(SandboxError::Refused(format!("invalid id {id:?}"))) }
}

/// Nothing can be done but what the message says.
fn unavailable(error: ApiError) -> SandboxError {
    match error {
        ApiError::Passing(_) | ApiError::Conflict(_) | ApiError::NotFound(_) => passing(&error),
        ApiError::Refused(_) | ApiError::Limit { .. } | ApiError::Capacity { .. } => {
            SandboxError::Unavailable(error.to_string())
        }
    }
}

fn passing(error: &dyn std::fmt::Display) -> SandboxError {
    SandboxError::Io { what: error.to_string(), error: io::ErrorKind::Other.into() }
}

fn cannot(what: &str) -> impl FnOnce(io::Error) -> SandboxError {
    move |error| SandboxError::Io { what: format!("cannot {what}: {error}"), error }
}

fn unexpected(answer: &Answer) -> SandboxError {
    passing(&format!("the sandbox gave an answer to another question: {answer:?}"))
}
