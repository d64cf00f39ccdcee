//! An append as the arguments of its script, and what the script's answer means.

use redis::ScriptInvocation;

use super::documents::{keys, name};
use super::reads::seq;
use crate::contract::{Append, AppendError, Change, Fence, Limit, StoreError};
use crate::page;

/// Every list is preceded by its length. The order is the one in which append.lua takes them.
pub(super) fn give(script: &mut ScriptInvocation<'_>, append: &Append, instance: &str) {
    let last = append.expected.plus(append.records.len());
    script.arg(append.conversation.as_str()).arg(append.fence.0).arg(append.expected.0).arg(last.0);
    script.arg(instance);
    script.arg(append.records.len());
    for record in &append.records {
        script.arg(record.seq.0).arg(&record.bytes[..]);
    }
    script.arg(append.changes.len());
    for change in &append.changes {
        give_change(script, change);
    }
    script.arg(append.replies.len());
    for (mail, reply) in &append.replies {
        script.arg(&mail.0).arg(&reply[..]);
    }
    script.arg(append.limits.len());
    for limit in &append.limits {
        give_limit(script, limit);
    }
}

fn give_change(script: &mut ScriptInvocation<'_>, change: &Change) {
    match change {
        Change::Put(document) => {
            script.arg("put").arg(name(document.table)).arg(&document.id);
            script.arg(keys(document)).arg(document.seq.0).arg(&document.body);
            match &document.state {
                Some(state) => script.arg("state").arg(state),
                None => script.arg("stateless"),
            };
        }
        Change::Remove(table, id) => {
            script.arg("remove").arg(name(*table)).arg(id);
        }
    }
}

fn give_limit(script: &mut ScriptInvocation<'_>, limit: &Limit) {
    script.arg(name(limit.table)).arg(limit.at_most);
    match &limit.user {
        Some(user) => script.arg("user").arg(user.as_str()),
        None => script.arg("everybody"),
    };
    let mut statuses = limit.statuses.clone();
    statuses.sort();
    statuses.dedup();
    script.arg(statuses.len());
    for status in statuses {
        script.arg(status);
    }
}

pub(super) fn judge((answer, value): (String, String)) -> Result<(), AppendError> {
    let odd = |error: StoreError| AppendError::Unconfirmed(error.to_string());
    match answer.as_str() {
        "written" => Ok(()),
        "fenced" => Err(AppendError::Fenced { current: fence(&value).map_err(odd)? }),
        "conflict" => Err(AppendError::Conflict { last: seq(&value).map_err(odd)? }),
        "stateless" => Err(page::no_state_to_keep(&value)),
        "over" => {
            let limit = value.parse().map_err(|_| AppendError::Broken(format!("{value} is not a limit")))?;
            Err(AppendError::OverLimit { limit })
        }
        other => Err(AppendError::Unconfirmed(format!("an append was answered with {other}"))),
    }
}

pub(super) fn fence(text: &str) -> Result<Fence, StoreError> {
    text.parse().map(Fence).map_err(|_| StoreError::Broken(format!("{text} is not a fence")))
}
