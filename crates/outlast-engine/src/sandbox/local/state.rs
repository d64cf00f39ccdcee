//! Determines from its files alone what happened to an execution, no matter which server started it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::{Limit, Offsets, Outcome, Output};
use super::folder::{Records, is_locked, small_text};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No process of it ever ran.
    NotStarted,
    /// `init` is the first process in its pid namespace; absent until bwrap has reported it.
    Running {
        init: Option<i32>,
    },
    /// The program has ended, but processes that it started are alive.
    Leaving {
        init: i32,
    },
    Over(Outcome),
}

/// What a start records, durably, before anything runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// The kernel's boot id. For an execution of an earlier boot, `status` may be incomplete, because it is not synced
    /// to disk.
    pub(super) boot: String,
    pub(super) deadline: Option<Timestamp>,
    pub(super) cgroups: Vec<PathBuf>,
}

impl Request {
    pub(super) fn read(records: &Records) -> io::Result<Option<Request>> {
        let Some(text) = small_text(&records.request())? else { return Ok(None) };
        Ok(Some(serde_json::from_str(&text)?))
    }
}

pub(super) fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

pub(super) fn inspect(records: &Records) -> io::Result<State> {
    let status = Status::read(records)?;
    let alive = is_locked(&records.alive())?;
    if let (Some(code), Some(init)) = (status.exit_code, status.child_pid) {
        return Ok(if alive { State::Leaving { init } } else { State::Over(ended(records, code)?) });
    }
    if alive || is_locked(&records.status())? {
        return Ok(State::Running { init: status.child_pid });
    }
    // Both locks are free, so whoever wrote `status` has finished: only now is it complete.
    let status = Status::read(records)?;
    if let Some(code) = status.exit_code {
        return Ok(State::Over(ended(records, code)?));
    }
    if let Some(outcome) = ending(records)? {
        return Ok(State::Over(outcome));
    }
    if status.child_pid.is_some() {
        return Ok(State::Over(Outcome::Lost));
    }
    match Request::read(records)? {
        Some(request) if request.boot != boot()? => Ok(State::Over(Outcome::Lost)),
        Some(_) | None => Ok(State::NotStarted),
    }
}

/// How much output there is.
pub(super) fn written(records: &Records) -> io::Result<Offsets> {
    let size = |output| match fs::metadata(records.output(output)) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    };
    Ok(Offsets { stdout: size(Output::Stdout)?, stderr: size(Output::Stderr)? })
}

/// Records why an execution is being ended. The first reason stays.
pub(super) fn end(records: &Records, reason: Outcome) -> io::Result<()> {
    let word = word(reason);
    let path = records.ending();
    match fs::OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => io::Write::write_all(&mut file, word.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

pub(super) fn ending(records: &Records) -> io::Result<Option<Outcome>> {
    Ok(small_text(&records.ending())?.map(|word| match word.as_str() {
        "timed_out" => Outcome::TimedOut,
        "disk" => Outcome::OverLimit(Limit::Disk),
        "output" => Outcome::OverLimit(Limit::Output),
        _ => Outcome::Stopped, // even if we died before we could write the reason
    }))
}

/// The control groups that executions were started in.
pub(super) fn cgroups<'a>(records: impl Iterator<Item = &'a Records>) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for records in records {
        found.extend(Request::read(records)?.into_iter().flat_map(|request| request.cgroups));
    }
    Ok(found)
}

fn word(reason: Outcome) -> &'static str {
    match reason {
        Outcome::TimedOut => "timed_out",
        Outcome::OverLimit(Limit::Disk) => "disk",
        Outcome::OverLimit(Limit::Output) => "output",
        Outcome::Stopped | Outcome::Exited { .. } | Outcome::Lost => "stopped",
    }
}

/// A program that ended by itself just before we could end it keeps its own exit code.
fn ended(records: &Records, code: i32) -> io::Result<Outcome> {
    const KILLED: i32 = 128 + 9;
    let reason = if code == KILLED { ending(records)? } else { None };
    Ok(reason.unwrap_or(Outcome::Exited { code }))
}

/// What bwrap reports about a run: a sequence of JSON documents.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Status {
    pub(super) child_pid: Option<i32>,
    pub(super) exit_code: Option<i32>,
}

impl Status {
    pub(super) fn read(records: &Records) -> io::Result<Status> {
        let text = small_text(&records.status())?.unwrap_or_default();
        let mut all = Status::default();
        for document in serde_json::Deserializer::from_str(&text).into_iter::<Status>() {
            // The last document may be incomplete: it is read again later.
            let Ok(document) = document else { break };
            all.child_pid = all.child_pid.or(document.child_pid);
            all.exit_code = all.exit_code.or(document.exit_code);
        }
        Ok(all)
    }
}
