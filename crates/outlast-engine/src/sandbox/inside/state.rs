//! What the files of an execution say about it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::super::{Limit, Outcome, is_file_name};
use super::{HOME, tree};

/// The shortest and longest interval between looks at an execution.
const POLL_MIN: Duration = Duration::from_millis(2);
const POLL_MAX: Duration = Duration::from_millis(100);
/// How long the supervisor may take to end what it started.
const STOP_MAX: Duration = Duration::from_secs(10);

/// How far an execution got.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in super::super) struct Seen {
    pub(in super::super) state: State,
    pub(in super::super) stdout: u64,
    pub(in super::super) stderr: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum State {
    NotStarted,
    Running,
    Exited(i32),
    Stopped,
    TimedOut,
    OverOutput,
    Lost,
}

impl State {
    pub(in super::super) fn outcome(self) -> Option<Outcome> {
        match self {
            State::NotStarted | State::Running => None,
            State::Exited(code) => Some(Outcome::Exited { code }),
            State::Stopped => Some(Outcome::Stopped),
            State::TimedOut => Some(Outcome::TimedOut),
            State::OverOutput => Some(Outcome::OverLimit(Limit::Output)),
            State::Lost => Some(Outcome::Lost),
        }
    }
}

/// The files of one execution.
pub(super) struct Records {
    pub(super) id: String,
    folder: PathBuf,
}

impl Records {
    pub(super) fn of(id: &str) -> io::Result<Records> {
        if !is_file_name(id) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Records { id: id.to_owned(), folder: PathBuf::from(HOME).join("executions").join(id) })
    }

    pub(super) fn create(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Writes a file so that nobody ever sees a part of it.
    pub(super) fn write(&self, name: &str, content: &str) -> io::Result<()> {
        let draft = self.path(&format!("{name}.{}", std::process::id()));
        fs::write(&draft, content)?;
        fs::rename(draft, self.path(name))
    }

    pub(super) fn lock(&self) -> io::Result<File> {
        OpenOptions::new().create(true).truncate(false).write(true).open(self.path("lock"))
    }

    fn size(&self, name: &str) -> u64 {
        fs::metadata(self.path(name)).map_or(0, |file| file.len())
    }

    pub(super) fn written(&self) -> u64 {
        self.size("stdout") + self.size("stderr")
    }

    /// How it ended, if it did and that was written down.
    fn outcome(&self) -> io::Result<Option<State>> {
        match fs::read(self.path("outcome")) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The lock is looked at first: whoever lets go of it has written the outcome before.
    pub(super) fn state(&self) -> io::Result<State> {
        let supervised = match File::open(self.path("lock")) {
            Ok(lock) => lock.try_lock_shared().is_err(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if let Some(outcome) = self.outcome()? {
            return Ok(outcome);
        }
        Ok(match (self.has("began"), supervised, self.has("stop")) {
            (true, true, _) => State::Running,
            (true, false, _) => State::Lost,
            (false, _, true) => State::Stopped,
            (false, _, false) => State::NotStarted,
        })
    }

    fn seen(&self) -> io::Result<Seen> {
        let state = self.state()?; // first: after the end the sizes do not change
        if state == State::Lost {
            tree::kill_marked(&self.id)?; // its supervisor is dead and ends nothing any more
        }
        Ok(Seen { state, stdout: self.size("stdout"), stderr: self.size("stderr") })
    }
}

/// Returns when there is more output than `beyond`, when the execution is not running, or after `longest`.
pub(super) fn wait(id: &str, beyond: (u64, u64), longest: Duration) -> io::Result<Seen> {
    let (records, began) = (Records::of(id)?, Instant::now());
    let mut pause = POLL_MIN;
    loop {
        let seen = records.seen()?;
        let news = seen.stdout > beyond.0 || seen.stderr > beyond.1;
        if seen.state != State::Running || news || began.elapsed() >= longest {
            return Ok(seen);
        }
        std::thread::sleep(pause);
        pause = (pause * 9 / 8).min(POLL_MAX);
    }
}

/// Returns when nothing of the execution is alive, and nothing of it will ever be.
pub(super) fn stop(id: &str) -> io::Result<()> {
    let (records, began) = (Records::of(id)?, Instant::now());
    records.create()?;
    records.write("stop", "")?;
    loop {
        match records.seen()?.state {
            State::NotStarted | State::Running if began.elapsed() > STOP_MAX => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "its processes do not end"));
            }
            State::NotStarted | State::Running => std::thread::sleep(POLL_MIN),
            _ => return Ok(()),
        }
    }
}
