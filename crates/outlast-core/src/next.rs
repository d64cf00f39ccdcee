//! What should be under way for a conversation. The owner asks after every change. Recovery after a restart
//! is the same: fold the log and ask.

mod tools;

use tools::next_of_tools;

use crate::delegation::owed_news;
use crate::generation::Phase;
use crate::{Conversation, Effect, Generation, Report, Rules, Seq, Timestamp};
use crate::{notifications, rounds, sandboxes};

/// What the rules need to know besides the state.
#[derive(Clone, Debug)]
pub struct Surroundings<'a> {
    pub now: Timestamp,
    /// The last seq when this owner took over. An attempt that started before belongs to a previous owner.
    pub owned_after: Seq,
    /// When the last follower left; `None` while there are any.
    pub unwatched_since: Option<Timestamp>,
    /// When a worker last sent something, or when this owner took over if that is later.
    pub worker_heard: Timestamp,
    pub rules: &'a Rules,
}

/// The effects that should be under way, whether or not they already are. The owner starts what is missing
/// and drops what is no longer wanted. So cancelling needs no special code: the call is no longer wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Next {
    pub effects: Vec<Effect>,
    /// Something that follows from the time or from a change of owner: observe it and ask again.
    pub report: Option<Report>,
    /// Ask again at this time, or when something changes.
    pub wake_at: Option<Timestamp>,
}

impl Next {
    /// Whether there is nothing to do until the next command.
    pub fn is_nothing(&self) -> bool {
        *self == Next::default()
    }

    fn report(report: Report) -> Next {
        Next { report: Some(report), ..Next::default() }
    }

    fn wake_at(wake_at: Option<Timestamp>) -> Next {
        Next { wake_at, ..Next::default() }
    }
}

pub fn next(state: &Conversation, around: &Surroundings<'_>) -> Next {
    let mut next = next_of_generation(state, around);
    next.effects.extend(sandboxes::effects(state, around.rules, around.now));
    next.effects.extend(notifications::effects(state));
    if let Some((child, seq)) = owed_news(state) {
        next.effects.push(Effect::TellParent { generation: child.id.clone(), seq });
    }
    next
}

fn next_of_generation(state: &Conversation, around: &Surroundings<'_>) -> Next {
    let Some(generation) = state.active() else {
        return match state.queue.front() {
            Some(waiting) => Next::report(Report::TurnCame { generation: waiting.id.clone() }),
            None => Next::default(),
        };
    };
    let id = || generation.id.clone();
    if !generation.is_at_work() {
        return Next::default(); // waits for a person, for as long as it takes
    }
    let unwatched = unwatched_limit(generation, around);
    if unwatched.is_some_and(|limit| limit <= around.now) {
        return Next::report(Report::Abandoned { generation: id() });
    }
    let time = rounds::time_limit(generation, around.rules);
    if time.is_some_and(|limit| limit <= around.now) {
        return Next::report(Report::TimeUsedUp { generation: id() });
    }
    let limit = earlier(unwatched, time);
    let before_this_owner = |seq: Seq| seq <= around.owned_after;
    match &generation.progress.phase {
        Phase::Running if generation.brief.is_for_worker() => {
            // A queued generation's silence timer starts when its turn comes.
            let heard = generation.progress.at_work_since.unwrap_or_default().max(around.worker_heard);
            let silent = heard.after(around.rules.worker_silence);
            if silent <= around.now {
                return Next::report(Report::WorkerSilent { generation: id() });
            }
            Next::wake_at(earlier(limit, Some(silent)))
        }
        Phase::Running if generation.survives_its_owner() => {
            // What runs in the sandbox is not lost with its owner. In `ask` mode a person is asked anyway.
            if around.rules.ask_first() && before_this_owner(generation.progress.last_seq) {
                return Next::report(Report::CallLost { generation: id() });
            }
            Next { wake_at: limit, ..next_of_tools(state, generation, around) }
        }
        Phase::Running if before_this_owner(generation.progress.attempt_seq) => {
            Next::report(Report::CallLost { generation: id() })
        }
        Phase::Running => {
            let attempt = generation.progress.attempt;
            let call = Effect::CallModel { generation: id(), attempt };
            Next { effects: vec![call], report: None, wake_at: limit }
        }
        // If a person must be asked before the model is called again, ask now, not after the delay.
        Phase::Retrying { .. }
            if around.rules.ask_first() && before_this_owner(generation.progress.last_seq) =>
        {
            Next::report(Report::CallLost { generation: id() })
        }
        Phase::Retrying { until } if *until <= around.now => {
            Next::report(Report::RetryDue { generation: id() })
        }
        Phase::Retrying { until } => Next::wake_at(earlier(limit, Some(*until))),
        Phase::Queued
        | Phase::Interrupted
        | Phase::Completed { .. }
        | Phase::Cancelled { .. }
        | Phase::Failed { .. } => Next::default(),
    }
}

/// When the server must look at this conversation again without being asked: time zero if something should be
/// under way now, `None` if there is nothing to do. It is stored in the conversation's document, so that a
/// server that starts finds unfinished conversations without looking at the others.
pub fn due(state: &Conversation, rules: &Rules) -> Option<Timestamp> {
    let due = earlier(due_of_generation(state, rules), sandboxes::due(state, rules));
    let owed = owed_news(state).map(|_| Timestamp::default());
    earlier(owed, earlier(due, notifications::due(state)))
}

fn due_of_generation(state: &Conversation, rules: &Rules) -> Option<Timestamp> {
    let Some(generation) = state.active() else {
        return (!state.queue.is_empty()).then_some(Timestamp::default());
    };
    match generation.progress.phase {
        Phase::Retrying { until } if !rules.ask_first() => Some(until),
        _ => generation.is_at_work().then_some(Timestamp::default()),
    }
}

/// When a generation that nobody follows is cancelled. Time during which it was not at work does not count,
/// even if nobody has followed the conversation for days.
fn unwatched_limit(generation: &Generation, around: &Surroundings<'_>) -> Option<Timestamp> {
    if generation.brief.parent.is_some() {
        return None; // people watch the parent, which takes its children with it
    }
    let since = around.unwatched_since?.max(generation.progress.at_work_since?);
    Some(since.after(around.rules.unwatched))
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests;
