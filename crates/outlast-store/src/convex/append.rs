//! An append as the arguments of its mutation, and what the answer means.

use serde::Serialize;

use super::documents::{Written, name};
use super::lines::{self, Line};
use super::{Verdict, fence, integer, opaque, seq};
use crate::contract::{Append, AppendError, Change, Limit, StoreError};

/// A transaction of Convex reads and writes at most 16 MiB. A quarter is left for keys and for what is replaced.
const APPEND_BYTES_MAX: usize = 12 << 20;

#[derive(Serialize)]
pub(super) struct Args<'a> {
    conversation: &'a str,
    instance: &'a str,
    fence: String,
    expected: String,
    last: String,
    lines: Vec<Line>,
    changes: Vec<Changed<'a>>,
    replies: Vec<Reply<'a>>,
    limits: Vec<Limited<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Changed<'a> {
    Put(Written<'a>),
    Remove { table: &'static str, id: &'a str },
}

#[derive(Serialize)]
struct Reply<'a> {
    id: &'a str,
    body: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Limited<'a> {
    table: &'static str,
    user: Option<&'a str>,
    statuses: Vec<&'a str>,
    at_most: usize,
}

pub(super) fn args<'a>(append: &'a Append, instance: &'a str) -> Result<Args<'a>, AppendError> {
    let lines = lines::rows(&append.records);
    let replies = append.replies.iter().map(|(mail, body)| Reply { id: &mail.0, body: opaque::encode(body) });
    let replies: Vec<Reply<'_>> = replies.collect();
    let bytes = lines.iter().map(|line| line.text.len()).sum::<usize>()
        + append.changes.iter().map(size).sum::<usize>()
        + replies.iter().map(|reply| reply.body.len()).sum::<usize>();
    if bytes > APPEND_BYTES_MAX {
        return Err(AppendError::Broken(format!(
            "it has {bytes} bytes, and Convex takes at most {APPEND_BYTES_MAX} at once"
        )));
    }
    Ok(Args {
        conversation: append.conversation.as_str(),
        instance,
        fence: integer(append.fence.0),
        expected: integer(append.expected.0),
        last: integer(append.expected.plus(append.records.len()).0),
        lines,
        changes: append.changes.iter().map(changed).collect(),
        replies,
        limits: append.limits.iter().map(limited).collect(),
    })
}

fn size(change: &Change) -> usize {
    match change {
        Change::Put(document) => document.body.len() + document.state.as_ref().map_or(0, String::len),
        Change::Remove(..) => 0,
    }
}

fn changed(change: &Change) -> Changed<'_> {
    match change {
        Change::Put(document) => Changed::Put(Written::new(document)),
        Change::Remove(table, id) => Changed::Remove { table: name(*table), id },
    }
}

fn limited(limit: &Limit) -> Limited<'_> {
    let mut statuses: Vec<&str> = limit.statuses.iter().map(String::as_str).collect();
    statuses.sort_unstable();
    statuses.dedup();
    let user = limit.user.as_ref().map(|user| user.as_str());
    Limited { table: name(limit.table), user, statuses, at_most: limit.at_most.min(COUNT_MAX) }
}

/// A transaction of Convex reads at most 32,000 rows, so it fails before it has counted this many.
const COUNT_MAX: usize = 1 << 31;

pub(super) fn judge(Verdict { answer, value }: &Verdict) -> Result<(), AppendError> {
    let odd = |error: StoreError| AppendError::Unconfirmed(error.to_string());
    match answer.as_str() {
        "written" => Ok(()),
        "fenced" => Err(AppendError::Fenced { current: fence(value).map_err(odd)? }),
        "conflict" => Err(AppendError::Conflict { last: seq(value).map_err(odd)? }),
        other => Err(AppendError::Unconfirmed(format!("an append was answered with {other}"))),
    }
}
