//! Calls into a sandbox, repeated until they are answered.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use outlast_core::{ExecutionId, SandboxId};

use super::super::inside::{Answer, HOME, Question, VERSION, WORKSPACE};
use super::super::{SandboxError, TOOL_INSIDE};
use super::api::Access;
use super::envd::{Envd, EnvdError, Until};
use super::{Inner, RETRY_TIME_MAX, RETRY_WAIT, cannot, passing, unexpected};

/// How long a program inside may take to say that it has begun. If it was not heard, it is asked again.
const BEGIN_MAX: Duration = Duration::from_secs(10);
/// How long setting up a sandbox may take.
const SET_UP_MAX: Duration = Duration::from_secs(60);
/// The sandbox's timeout is pushed after this part of it.
const EXTEND_AFTER: u32 = 4;

/// Run as root, before anything else. A template may bring this program; then it need not be uploaded. The last line says
/// that no output was lost.
const SET_UP: &str = r#"set -eu
for folder in "$1" "$2" "$2/executions" "$2/incoming"; do
    mkdir -p "$folder"
    chown "$3" "$folder"
done
mkdir -p "$(dirname "$4")"
ln -sfn "$2/executions" "$(dirname "$4")/executions"
if test -e "$2/outlast"; then
    chmod 755 "$2/outlast"
    ln -sfn "$2/outlast" "$4"
elif command -v outlast >/dev/null; then
    ln -sfn "$(command -v outlast)" "$4"
fi
"$4" inside "$5" || true
echo end"#;

/// Whether a call may be made again although it may have been heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    Yes,
    No,
}

/// The tries of one call.
struct Tries {
    repeat: Repeat,
    give_up_at: Instant,
    pause: Duration,
}

impl Tries {
    fn new(repeat: Repeat) -> Tries {
        Tries { repeat, give_up_at: Instant::now() + RETRY_TIME_MAX, pause: RETRY_WAIT }
    }
}

impl Inner {
    /// Makes the folders, and sees to it that this program is there in the same version. Safe to repeat.
    pub(super) async fn set_up(&self, id: &SandboxId) -> Result<(), SandboxError> {
        if self.greet(id).await?.is_ok() {
            return Ok(());
        }
        let program = self.settings.program.clone();
        let content = tokio::task::spawn_blocking(move || std::fs::read(program)).await;
        let content =
            content.unwrap_or_else(|error| Err(error.into())).map_err(cannot("read this program"))?;
        tracing::info!(sandbox = ?id, bytes = content.len(), "uploading this program to a sandbox");
        self.upload(id, &format!("{HOME}/outlast"), content.into()).await?;
        self.greet(id).await?.map_err(|why| {
            SandboxError::Unavailable(format!(
                "{} does not run in the sandbox: {why}. Sandboxes at E2B are Linux on x86-64; name a build for it in \
                 e2b.program, or put one into the template as `outlast`",
                self.settings.program.display()
            ))
        })
    }

    /// The inner error says why this program does not answer there in this version.
    async fn greet(&self, id: &SandboxId) -> Result<Result<(), String>, SandboxError> {
        let hello = text(&Question::Hello)?;
        let user = &self.settings.user;
        let words = ["/bin/sh", "-c", SET_UP, "sh", WORKSPACE, HOME, user, TOOL_INSIDE, &hello];
        let mut tries = Tries::new(Repeat::Yes);
        let done = loop {
            let access = self.reach(id).await?;
            match self.envd(&access).run("root", &words, Until::End, SET_UP_MAX).await {
                Ok(done) if done.exit != 0 || done.stdout.ends_with(b"end\n") => break done,
                Ok(_) => {
                    self.failed(id, EnvdError::Passing("its output was lost".to_owned()), &mut tries).await?
                }
                Err(error) => self.failed(id, error, &mut tries).await?,
            }
        };
        let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        if done.exit != 0 {
            return Err(SandboxError::Unavailable(format!(
                "the sandbox cannot be set up: {said}. Check e2b.template and e2b.user"
            )));
        }
        let line = done.stdout.split(|byte| *byte == b'\n').next().unwrap_or_default();
        Ok(match serde_json::from_slice(line) {
            Ok(Answer::Hello { version }) if version == VERSION => Ok(()),
            Ok(Answer::Hello { version }) => Err(format!("it is version {version}")),
            Ok(other) => Err(format!("it answers {other:?}")),
            Err(_) => Err(said),
        })
    }

    /// Starts an execution. Whether it was this call that started it.
    pub(super) async fn run(
        &self,
        id: &SandboxId,
        execution: &ExecutionId,
        request: Bytes,
    ) -> Result<bool, SandboxError> {
        let mut tries = Tries::new(Repeat::Yes); // it runs at most once, however often it is asked for
        loop {
            let incoming = uuid::Uuid::now_v7().to_string();
            self.upload(id, &format!("{HOME}/incoming/{incoming}"), request.clone()).await?;
            let question = Question::Run { execution: execution.to_string(), incoming };
            let access = self.reach(id).await?;
            match ask(&self.envd(&access), &question, Until::Line, BEGIN_MAX).await {
                Ok(answer) => match answered(answer)?.0 {
                    Answer::Run { now } => return Ok(now),
                    other => return Err(unexpected(&other)),
                },
                Err(error) => self.failed(id, error, &mut tries).await?,
            }
        }
    }

    pub(super) async fn ask(
        &self,
        id: &SandboxId,
        question: &Question,
        longest: Duration,
        repeat: Repeat,
    ) -> Result<(Answer, Vec<u8>), SandboxError> {
        let mut tries = Tries::new(repeat);
        loop {
            let access = self.reach(id).await?;
            match ask(&self.envd(&access), question, Until::End, longest).await {
                Ok(answer) => return answered(answer),
                Err(error) => self.failed(id, error, &mut tries).await?,
            }
        }
    }

    pub(super) async fn upload(
        &self,
        id: &SandboxId,
        path: &str,
        content: Bytes,
    ) -> Result<(), SandboxError> {
        let mut tries = Tries::new(Repeat::Yes);
        loop {
            let access = self.reach(id).await?;
            match self.envd(&access).upload(path, content.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) => self.failed(id, error, &mut tries).await?,
            }
        }
    }

    /// A part of a file; nothing if there is no file.
    pub(super) async fn fetch(
        &self,
        id: &SandboxId,
        path: &str,
        (offset, max): (u64, usize),
    ) -> Result<Option<Bytes>, SandboxError> {
        let mut tries = Tries::new(Repeat::Yes);
        loop {
            let access = self.reach(id).await?;
            match self.envd(&access).read(path, offset, max).await {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(EnvdError::NotFound(_)) => return Ok(None),
                Err(error) => self.failed(id, error, &mut tries).await?,
            }
        }
    }

    fn envd<'a>(&'a self, access: &'a Access) -> Envd<'a> {
        Envd { client: &self.client, settings: &self.settings, access }
    }

    /// Waits before the next try, or says that there is none. Whatever went wrong, the control API is asked next: it says
    /// whether the sandbox is gone or paused, and gives a new token.
    async fn failed(&self, id: &SandboxId, error: EnvdError, tries: &mut Tries) -> Result<(), SandboxError> {
        self.forget(id);
        let may_repeat = match &error {
            EnvdError::Refused(why) => return Err(SandboxError::Refused(why.clone())),
            EnvdError::Away => true, // it was not heard
            EnvdError::NotFound(_) | EnvdError::Cut | EnvdError::Passing(_) => tries.repeat == Repeat::Yes,
        };
        if !may_repeat || Instant::now() > tries.give_up_at {
            return Err(passing(&error));
        }
        tracing::warn!(sandbox = ?id, %error, "a call to a sandbox failed; will retry");
        tokio::time::sleep(tries.pause).await;
        tries.pause *= 2;
        Ok(())
    }

    /// How to reach a sandbox that is running, and will be for a while.
    async fn reach(&self, id: &SandboxId) -> Result<Arc<Access>, SandboxError> {
        let known = self.lock().get(id).cloned();
        if let Some(known) = known {
            if known.extended.elapsed() < self.settings.lifetime / EXTEND_AFTER {
                return Ok(known.access);
            }
            if self.api.extend(&known.access.id).await.is_ok() {
                if let Some(known) = self.lock().get_mut(id) {
                    known.extended = Instant::now();
                }
                return Ok(known.access);
            }
            self.forget(id); // it may be gone or paused
        }
        let found = self.existing(id).await?;
        if found.is_paused() {
            return Err(SandboxError::Paused(id.clone()));
        }
        self.connect(id, &found.id).await
    }
}

async fn ask(
    envd: &Envd<'_>,
    question: &Question,
    until: Until,
    longest: Duration,
) -> Result<(Answer, Vec<u8>), EnvdError> {
    let text = text(question).map_err(|error| EnvdError::Refused(error.to_string()))?;
    let finished = envd.run(&envd.settings.user, &[TOOL_INSIDE, "inside", &text], until, longest).await?;
    let line = finished.stdout.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Ok(answer) = serde_json::from_slice::<Answer>(line) else {
        let said = String::from_utf8_lossy(&finished.stderr).trim().to_owned();
        return Err(EnvdError::Passing(format!("the sandbox gave no answer {said}")));
    };
    let bytes = finished.stdout[(line.len() + 1).min(finished.stdout.len())..].to_vec();
    match answer.length() == bytes.len() {
        true => Ok((answer, bytes)),
        false => Err(EnvdError::Passing("a part of the sandbox's answer was lost".to_owned())),
    }
}

fn text(question: &Question) -> Result<String, SandboxError> {
    serde_json::to_string(question).map_err(|error| cannot("write a question")(error.into()))
}

/// An error inside is an error here, with the same number.
fn answered((answer, bytes): (Answer, Vec<u8>)) -> Result<(Answer, Vec<u8>), SandboxError> {
    match answer {
        Answer::Failed { os, message } => {
            let error = os.map_or_else(|| io::Error::other(message.clone()), io::Error::from_raw_os_error);
            Err(SandboxError::Io { what: format!("in the sandbox: {message}"), error })
        }
        answer => Ok((answer, bytes)),
    }
}
