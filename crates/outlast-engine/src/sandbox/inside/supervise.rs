//! Runs one execution, at most once by its id, and writes down how it ended.

use std::fs::{self, File, TryLockError};
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{WaitOptions, set_child_subreaper, wait};

use super::state::{Records, State};
use super::{Answer, MARK, Request, WORKSPACE, incoming, say, tree};

const POLL_MIN: Duration = Duration::from_millis(1);
const POLL_MAX: Duration = Duration::from_millis(25);
/// How long somebody who only looks at an execution may hold its lock.
const LOCK_MAX: Duration = Duration::from_secs(5);
/// What a shell answers if it cannot find a program.
const NOT_FOUND: i32 = 127;

/// Answers whether this call began the execution, then stays until it has ended.
pub(super) fn run(id: &str, upload: &str) -> io::Result<()> {
    let records = Records::of(id)?;
    let upload = incoming(upload)?;
    let request: Request = serde_json::from_slice(&fs::read(&upload)?)?;
    records.create()?;
    let lock = match acquire(&records)? {
        Some(lock) if records.state()? == State::NotStarted => lock,
        Some(_) | None => {
            let began = fs::read_to_string(records.path("began")).unwrap_or_default();
            fs::remove_file(upload)?;
            return say(&Answer::Run { now: began == request.by }, &[]);
        }
    };
    records.write("began", &request.by)?;
    fs::remove_file(upload)?;
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let child = spawn(&records, &request);
    say(&Answer::Run { now: true }, &[])?;
    let state = match child {
        Ok(child) => supervise(&records, &request, &child)?,
        Err(error) => {
            fs::write(records.path("stderr"), format!("cannot run {:?}: {error}\n", request.program))?;
            State::Exited(NOT_FOUND)
        }
    };
    records.write("outcome", &serde_json::to_string(&state)?)?;
    drop(lock); // not earlier: whoever finds it free takes the outcome for complete
    Ok(())
}

/// Nothing if another supervisor has it.
fn acquire(records: &Records) -> io::Result<Option<File>> {
    let (lock, since) = (records.lock()?, Instant::now());
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(Some(lock)),
            Err(TryLockError::WouldBlock) if records.has("began") => return Ok(None),
            // Somebody looks, or is about to begin.
            Err(TryLockError::WouldBlock) if since.elapsed() < LOCK_MAX => std::thread::sleep(POLL_MIN),
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::TimedOut.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

fn spawn(records: &Records, request: &Request) -> io::Result<Child> {
    let (program, words) = request.program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(words).envs(&request.env).env(MARK, &records.id).current_dir(WORKSPACE);
    command.stdout(File::create(records.path("stdout"))?).stderr(File::create(records.path("stderr"))?);
    if request.stdin.is_empty() {
        command.stdin(Stdio::null());
    } else {
        fs::write(records.path("stdin"), &request.stdin)?;
        command.stdin(File::open(records.path("stdin"))?);
        fs::remove_file(records.path("stdin"))?; // the program has it open
    }
    command.spawn()
}

/// Whatever the program leaves behind ends with it.
fn supervise(records: &Records, request: &Request, child: &Child) -> io::Result<State> {
    let main = i32::try_from(child.id()).unwrap_or_default();
    let mut pause = POLL_MIN;
    loop {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid.as_raw_nonzero().get() == main {
                let code = status.exit_status().or(status.terminating_signal().map(|number| 128 + number));
                tree::kill_descendants()?;
                return Ok(State::Exited(code.unwrap_or_default()));
            }
        }
        let ended = if records.has("stop") {
            Some(State::Stopped)
        } else if request.deadline.is_some_and(|deadline| deadline <= now()) {
            Some(State::TimedOut)
        } else if records.written() > request.output_max {
            Some(State::OverOutput)
        } else {
            None
        };
        if let Some(state) = ended {
            tree::kill_descendants()?;
            return Ok(state);
        }
        std::thread::sleep(pause);
        pause = (pause * 9 / 8).min(POLL_MAX);
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
