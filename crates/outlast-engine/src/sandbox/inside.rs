//! This program as it runs inside a sandbox that is a machine of its own: `outlast inside QUESTION`.
//!
//! Such a sandbox offers little more than "start a program", and drops what a program writes while nobody listens. So this
//! program supervises executions there and keeps their records in files. A provider outside starts it once for each
//! question and reads the answer from its output.
//!
//! ```text
//! /workspace                         where tools work
//! /var/lib/outlast/executions/<id>/  lock      held by the supervisor while it is alive
//!                                    began     who started it
//!                                    stop      it is to end, or must not begin
//!                                    outcome   how it ended
//!                                    stdout, stderr
//! /var/lib/outlast/incoming/<name>   uploads on their way
//! ```

mod files;
mod state;
mod supervise;
mod tree;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(super) use files::{FilesAnswer, FilesQuestion, encode};
pub(super) use state::{Seen, State};

/// Changes when this program and the server outside would no longer understand each other.
pub(super) const VERSION: &str = concat!("1 ", env!("CARGO_PKG_VERSION"));
pub(super) const WORKSPACE: &str = "/workspace";
pub(super) const HOME: &str = "/var/lib/outlast";
/// The variable that marks the processes of an execution.
const MARK: &str = "OUTLAST_EXECUTION";

/// What a server wants to know or have done. One line of JSON on the command line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "question", rename_all = "snake_case")]
pub(super) enum Question {
    /// Which version this is.
    Hello,
    /// Run an execution, whose request was uploaded. Answers at once, and stays alive until the execution has ended.
    Run {
        execution: String,
        incoming: String,
    },
    /// How far it got, as soon as there is news, or after a while.
    Wait {
        execution: String,
        stdout: u64,
        stderr: u64,
        longest: Duration,
    },
    Stop {
        execution: String,
    },
    Files(FilesQuestion),
}

/// The request of an execution.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// Who asks: whoever finds the own name in the record has started the execution.
    pub(super) by: String,
    pub(super) program: Vec<String>,
    pub(super) stdin: Vec<u8>,
    pub(super) env: BTreeMap<String, String>,
    /// Milliseconds since 1970.
    pub(super) deadline: Option<i64>,
    pub(super) output_max: u64,
}

/// The answer: one line of JSON, then the bytes that it announces.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum Answer {
    Hello {
        version: String,
    },
    /// Whether this question started it.
    Run {
        now: bool,
    },
    Wait(Seen),
    Stopped,
    Files(FilesAnswer),
    /// `os` is the number of the error, where it has one.
    Failed {
        os: Option<i32>,
        message: String,
    },
}

impl Answer {
    /// How many bytes follow.
    pub(super) fn length(&self) -> usize {
        match self {
            Answer::Files(FilesAnswer::Read { length, .. }) => *length,
            _ => 0,
        }
    }
}

/// Answers one question.
pub fn main(question: &str) -> ExitCode {
    let answered = match serde_json::from_str(question) {
        Ok(question) => answer(question),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidInput, error)),
    };
    let answered = answered.or_else(|error| {
        let message = error.to_string();
        say(&Answer::Failed { os: number(&error), message }, &[])
    });
    if answered.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn answer(question: Question) -> io::Result<()> {
    match question {
        Question::Hello => say(&Answer::Hello { version: VERSION.to_owned() }, &[]),
        Question::Run { execution, incoming } => supervise::run(&execution, &incoming),
        Question::Wait { execution, stdout, stderr, longest } => {
            let seen = state::wait(&execution, (stdout, stderr), longest)?;
            say(&Answer::Wait(seen), &[])
        }
        Question::Stop { execution } => {
            state::stop(&execution)?;
            say(&Answer::Stopped, &[])
        }
        Question::Files(question) => {
            let (answer, bytes) = files::answer(question)?;
            say(&Answer::Files(answer), &bytes)
        }
    }
}

fn say(answer: &Answer, bytes: &[u8]) -> io::Result<()> {
    let mut said = serde_json::to_vec(answer)?;
    said.push(b'\n');
    said.extend_from_slice(bytes);
    let mut stdout = io::stdout().lock();
    stdout.write_all(&said)?;
    stdout.flush()
}

/// The number of an error, also of one that was made from its kind alone.
fn number(error: &io::Error) -> Option<i32> {
    use rustix::io::Errno;
    error.raw_os_error().or_else(|| {
        let errno = match error.kind() {
            io::ErrorKind::NotFound => Errno::NOENT,
            io::ErrorKind::AlreadyExists => Errno::EXIST,
            io::ErrorKind::IsADirectory => Errno::ISDIR,
            io::ErrorKind::NotADirectory => Errno::NOTDIR,
            io::ErrorKind::InvalidInput => Errno::INVAL,
            _ => return None,
        };
        Some(errno.raw_os_error())
    })
}

/// An upload on its way.
fn incoming(name: &str) -> io::Result<PathBuf> {
    if !super::is_file_name(name) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(PathBuf::from(HOME).join("incoming").join(name))
}
