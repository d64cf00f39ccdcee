//! The rounds of an agent: what happens to the tool calls of an answer, which of them run now, and what follows once
//! all of them have ended.

use std::time::Duration;

use serde_json::Value;

use crate::attempts::begin_attempt;
use crate::delegation::{CHILDREN_MAX, memory_in};
use crate::entries::Entries;
use crate::generation::Stage;
use crate::ids::derived;
use crate::policy::Verdict;
use crate::{
    Always, Conversation, Decision, Event, ExecutionId, Generation, MessageId, Offsets, Outcome, Output,
    Place, Ran, Recovery, Rules, RunEnd, Seq, Timestamp,
};

/// The maximum number of calls that run for one answer. Each call is a message, and a model that asks for more is stuck.
const CALLS_PER_ROUND_MAX: usize = 128;
/// The maximum number of read-only calls that run side by side.
const SIDE_BY_SIDE_MAX: usize = 8;
/// How many bytes of an execution's output go into the log, and so to every follower. The sandbox keeps all of it.
pub(crate) const OUTPUT_BYTES_MAX: u64 = 256 * 1024;
/// Ids of calls are repeated in every event about them.
const CALL_ID_BYTES_MAX: usize = 64;
/// How many ids of calls the state remembers, so that a model that repeats them is noticed. Further ids are made up.
pub(crate) const CALL_IDS_MAX: usize = 1024;
/// How often a repeated id is only numbered: `call_0-2`. After that a new one is made up.
const NUMBERED_MAX: u32 = 9;

/// A call in a complete answer.
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) message: MessageId,
    pub(crate) name: String,
    pub(crate) input: Value,
}

/// Settles an answer with calls: each call may run, needs a person's approval, or ends with an error that the model reads.
pub(crate) fn settle(
    generation: &Generation,
    calls: Vec<Call>,
    always: &[Always],
    rules: &Rules,
    entries: &mut Entries,
) {
    let round = generation.progress.rounds.round;
    entries.of(generation, Event::RoundEnded { round, finish_reason: None });
    for (place, call) in calls.into_iter().enumerate() {
        match judge(generation, place, &call, always, rules) {
            Verdict::Run => {}
            Verdict::Ask => ask(generation, call, entries),
            Verdict::Deny(why) => deny(generation, &call.id, &call.message, why, entries),
            Verdict::Refuse(why) => refuse(generation, &call.id, &call.message, why, entries),
        }
    }
}

fn ask(generation: &Generation, call: Call, entries: &mut Entries) {
    let Call { id: tool_use_id, name: tool_name, input: tool_input, .. } = call;
    let hash = crate::approval_hash(&tool_name, &tool_input, generation.progress.attempt);
    entries.of(generation, Event::ApprovalRequested { tool_use_id, tool_name, tool_input, hash });
}

fn judge(generation: &Generation, place: usize, call: &Call, always: &[Always], rules: &Rules) -> Verdict {
    if place >= CALLS_PER_ROUND_MAX {
        return Verdict::Refuse("not run: too many tool calls in one answer");
    }
    let offered = generation.brief.tools.contains(&call.name);
    let Some(rule) = rules.tool(&call.name).filter(|_| offered) else {
        return Verdict::Refuse("not run: unknown tool");
    };
    if !call.input.is_object() {
        return Verdict::Refuse("not run: the arguments are not a JSON object");
    }
    if rule.place == Place::Child && depth(generation) >= rules.max_depth {
        return Verdict::Refuse("not run: no sub-agent may be started from here");
    }
    rule.verdict(&call.name, &call.input, always)
}

/// How many conversations delegated in turn until this one began.
fn depth(generation: &Generation) -> u32 {
    generation.brief.parent.as_ref().map_or(0, |parent| parent.depth)
}

/// What the model reads about a call that a person denied.
pub(crate) fn denial(reason: Option<&str>) -> String {
    reason.map_or_else(|| "denied by a person".to_owned(), |reason| format!("denied by a person: {reason}"))
}

/// Ends a call that must not run. The model reads why.
pub(crate) fn deny(generation: &Generation, id: &str, message: &MessageId, why: &str, entries: &mut Entries) {
    let (message_id, tool_use_id, result) = (message.clone(), id.to_owned(), why.into());
    let (is_error, exit_code, outcome) = (true, None, Some(Outcome::Denied));
    entries.of(generation, Event::ToolEnd { message_id, tool_use_id, result, is_error, exit_code, outcome });
}

/// Ends a call that cannot run. The model reads why.
fn refuse(generation: &Generation, id: &str, message: &MessageId, why: &str, entries: &mut Entries) {
    let end = RunEnd::Ended { result: why.into(), is_error: true, exit_code: None };
    end_call(generation, id, message, end, entries);
}

pub(crate) fn end_call(
    generation: &Generation,
    id: &str,
    message: &MessageId,
    end: RunEnd,
    entries: &mut Entries,
) {
    let (result, is_error, exit_code, outcome) = match end {
        RunEnd::Ended { result, is_error, exit_code } => (result, is_error, exit_code, None),
        RunEnd::Lost => {
            let mut running = generation.progress.rounds.executions.iter();
            let elsewhere = running.any(|run| run.tool_use_id == id && run.runs_in() == Place::Elsewhere);
            let said = match elsewhere {
                true => "outcome unknown: the tool was asked, and its answer did not arrive",
                false => "outcome unknown: the tool began, and the sandbox has no record of how it ended",
            };
            (said.into(), true, None, Some(Outcome::Unknown))
        }
    };
    let (message_id, tool_use_id) = (message.clone(), id.to_owned());
    entries.of(generation, Event::ToolEnd { message_id, tool_use_id, result, is_error, exit_code, outcome });
}

/// An id for the call that is recorded at `seq`, unique within its generation, because models reuse ids.
pub(crate) fn unique_id(
    generation: &Generation,
    given: String,
    called: &[(String, MessageId)],
    seq: Seq,
) -> String {
    let made_up = || derived("call", &[generation.id.as_str(), &seq.to_string()]);
    if generation.progress.rounds.call_ids.len() >= CALL_IDS_MAX {
        return made_up();
    }
    let given = match given.len() {
        0 => "call".to_owned(),
        1..=CALL_ID_BYTES_MAX => given,
        _ => derived("call", &[&given]),
    };
    let used = |id: &String| {
        generation.progress.rounds.call_ids.contains(id) || called.iter().any(|(other, _)| other == id)
    };
    let numbered = (2..=NUMBERED_MAX).map(|n| format!("{given}-{n}"));
    std::iter::once(given.clone()).chain(numbered).find(|id| !used(id)).unwrap_or_else(made_up)
}

/// The calls that should be running, in order: the first one that has not ended and, if it is read-only, the read-only
/// ones directly after it. A call that waits for a decision holds up the calls after it.
pub(crate) fn wanted<'a>(generation: &'a Generation, rules: &Rules) -> Vec<&'a str> {
    let mut wanted = Vec::new();
    for (id, _) in generation.open_calls() {
        let undecided = generation.pending_approvals().any(|asked| asked.tool_use_id == id);
        let alone = !runs_beside_others(generation, id, rules);
        if undecided || wanted.len() == SIDE_BY_SIDE_MAX || (alone && !wanted.is_empty()) {
            break;
        }
        wanted.push(id);
        if alone {
            break;
        }
    }
    wanted
}

pub(crate) fn is_read_only(generation: &Generation, id: &str, rules: &Rules) -> bool {
    let rule = generation.call(id).and_then(|(name, _)| rules.tool(name));
    rule.is_some_and(|rule| rule.read_only)
}

/// Whether it does not get in the way of others: it changes nothing, or a child does it in a sandbox of its own.
fn runs_beside_others(generation: &Generation, id: &str, rules: &Rules) -> bool {
    let rule = generation.call(id).and_then(|(name, _)| rules.tool(name));
    rule.is_some_and(|rule| rule.read_only || rule.place == Place::Child)
}

/// Whether the call needs the sandbox. A call of a tool that no longer exists is refused without one.
pub(crate) fn needs_sandbox(generation: &Generation, id: &str, rules: &Rules) -> bool {
    let rule = generation.call(id).and_then(|(name, _)| rules.tool(name));
    rule.is_some_and(|rule| rule.place.is_sandbox())
}

/// The calls that should be running, have not begun, and may begin now. None begins while a tool of an earlier
/// generation is still alive.
pub(crate) fn due<'a>(state: &Conversation, generation: &'a Generation, rules: &Rules) -> Vec<&'a str> {
    if !state.owed_stops.is_empty() {
        return Vec::new();
    }
    let running = &generation.progress.rounds.executions;
    let begun = |id: &str| running.iter().any(|execution| execution.tool_use_id == id);
    let ready = sandbox_is_ready(state, generation);
    let may_begin = |id: &&str| !begun(id) && (ready || !needs_sandbox(generation, id, rules));
    wanted(generation, rules).into_iter().filter(may_begin).collect()
}

/// Whether the sandbox runs, and what earlier rounds changed is saved.
fn sandbox_is_ready(state: &Conversation, generation: &Generation) -> bool {
    let Some(sandbox) = &state.sandbox else { return false };
    let unsaved = sandbox.dirty.is_some_and(|dirty| Some(&dirty) < generation.progress.rounds.ends.last());
    let unsaved = unsaved && sandbox.failures == 0;
    sandbox.state.is_running() && !unsaved
}

/// Lets all calls begin that may. Children count against the limit as they begin.
pub(crate) fn begin_due(state: &Conversation, generation: &Generation, rules: &Rules, entries: &mut Entries) {
    let mut children = generation.progress.rounds.delegated;
    let full = state.children.len();
    for (begun, id) in due(state, generation, rules).into_iter().enumerate() {
        let is_child = is_delegation(generation, id, rules);
        let none_left = is_child && full + begun >= CHILDREN_MAX;
        admit(generation, id, if none_left { u32::MAX } else { children }, &state.always, rules, entries);
        children += u32::from(is_child);
    }
}

fn is_delegation(generation: &Generation, id: &str, rules: &Rules) -> bool {
    let rule = generation.call(id).and_then(|(name, _)| rules.tool(name));
    rule.is_some_and(|rule| rule.place == Place::Child)
}

/// The last check before a call runs. A call that a person denied, or that the operator has forbidden since, does not run.
/// If a person should have been asked and no question was recorded, the question is asked now.
pub(crate) fn admit(
    generation: &Generation,
    id: &str,
    children: u32,
    always: &[Always],
    rules: &Rules,
    entries: &mut Entries,
) {
    let called = generation.open_calls().find(|(call, _)| *call == id);
    let (Some((_, message)), Some((name, input))) = (called, generation.call(id)) else { return };
    let call =
        Call { id: id.to_owned(), message: message.clone(), name: name.to_owned(), input: input.clone() };
    let asked = generation.progress.approvals.iter().rev().find(|asked| asked.tool_use_id == id);
    let decided = asked.and_then(|asked| asked.decided.as_ref());
    match (judge(generation, 0, &call, always, rules), decided.map(|decided| decided.decision)) {
        (_, Some(Decision::Deny)) => {
            let why = denial(decided.and_then(|decided| decided.reason.as_deref()));
            deny(generation, id, message, &why, entries);
        }
        (Verdict::Deny(why), _) => deny(generation, id, message, why, entries),
        (Verdict::Refuse(why), _) => refuse(generation, id, message, why, entries),
        (Verdict::Ask, None) => ask(generation, call, entries),
        (Verdict::Ask, Some(Decision::Approve)) | (Verdict::Run, _) => {
            match rules.tool(&call.name).map(|rule| rule.place) {
                Some(Place::Log) => note(generation, &call, entries),
                Some(Place::Child) if children >= rules.max_children => {
                    let why = "not run: this run has started as many sub-agents as it may";
                    refuse(generation, id, message, why, entries);
                }
                _ => begin(generation, id, rules, entries),
            }
        }
    }
}

/// A call that only changes what the log says about the run: it is done when it is recorded.
fn note(generation: &Generation, call: &Call, entries: &mut Entries) {
    let (result, is_error) = match memory_in(&call.input) {
        Ok(_) => ("noted".to_owned(), false),
        Err(why) => (why, true),
    };
    let end = RunEnd::Ended { result: result.into(), is_error, exit_code: None };
    end_call(generation, &call.id, &call.message, end, entries);
}

pub(crate) fn begin(generation: &Generation, id: &str, rules: &Rules, entries: &mut Entries) {
    // Named after its position in the log. If a failed write is decided again, nothing has started under this id.
    let place = entries.next_seq().to_string();
    let execution_id: ExecutionId = derived("exec", &[generation.id.as_str(), id, &place]).into();
    let Some(rule) = generation.call(id).and_then(|(name, _)| rules.tool(name)) else { return };
    let (tool_use_id, read_only, place) = (id.to_owned(), rule.read_only, rule.place);
    // In a sandbox every execution is: there is nothing to record.
    let idempotent = rule.idempotent && !place.is_sandbox();
    entries.of(generation, Event::ToolBegan { tool_use_id, execution_id, read_only, place, idempotent });
}

/// What an execution wrote, and how it ended.
pub(crate) fn ran(generation: &Generation, ran: Ran, rules: &Rules, entries: &mut Entries) {
    let Some(execution) = generation.execution(&ran.execution) else { return };
    let id = execution.tool_use_id.as_str();
    let mut offsets = execution.offsets;
    for output in ran.output {
        write(generation, id, output, &mut offsets, entries);
    }
    let called = generation.open_calls().find(|(call, _)| *call == id);
    let (Some(end), Some((_, message))) = (ran.end, called) else { return };
    match end {
        RunEnd::Lost if is_read_only(generation, id, rules) && !execution.again => {
            begin(generation, id, rules, entries);
        }
        RunEnd::Lost => {
            end_call(generation, id, message, RunEnd::Lost, entries);
            interrupt_unless_auto(generation, rules, entries);
        }
        ended @ RunEnd::Ended { .. } => end_call(generation, id, message, ended, entries),
    }
}

/// Only output that continues its stream is recorded, because output that an earlier owner recorded may be read again.
fn write(generation: &Generation, id: &str, output: Output, offsets: &mut Offsets, entries: &mut Entries) {
    let Output { stream, offset, bytes, text } = output;
    let recorded = offsets.stdout.saturating_add(offsets.stderr);
    if offset != offsets.of(stream) || bytes == 0 || recorded >= OUTPUT_BYTES_MAX {
        return;
    }
    offsets.advance(stream, offset.saturating_add(bytes));
    let bytes = (bytes != text.len() as u64).then_some(bytes);
    let (tool_use_id, offset) = (id.to_owned(), Some(offset));
    entries.of(generation, Event::ToolOutput { tool_use_id, stream, text, offset, bytes });
}

/// The sandbox is gone, and with it the record of what ran there. Calls that certainly never started, or that change
/// nothing, start again in the next sandbox.
pub(crate) fn lose_executions(
    generation: &Generation,
    not_started: &[ExecutionId],
    rules: &Rules,
    entries: &mut Entries,
) -> bool {
    let mut any = false;
    let inside = |execution: &&crate::Execution| execution.sandbox.is_some();
    for execution in generation.progress.rounds.executions.iter().filter(inside) {
        let id = execution.tool_use_id.as_str();
        let message = generation.open_calls().find(|(call, _)| *call == id).map(|(_, message)| message);
        if !not_started.contains(&execution.id) && !is_read_only(generation, id, rules) {
            any |= message.is_some();
            message.inspect(|message| end_call(generation, id, message, RunEnd::Lost, entries));
        }
    }
    any
}

/// A tool's outcome is unknown. A person decides whether to continue, unless `recovery.mode` already says so.
pub(crate) fn interrupt_unless_auto(generation: &Generation, rules: &Rules, entries: &mut Entries) {
    match rules.recovery {
        Recovery::Auto => {}
        Recovery::Safe | Recovery::Ask => {
            let (reason, round) = ("the outcome of a tool is unknown", generation.progress.rounds.round);
            entries.of(generation, Event::ChatInterrupted { reason: reason.to_owned(), round });
        }
    }
}

/// All calls have ended: the next round begins, unless the run has reached a limit.
pub(crate) fn next_round(generation: &Generation, rules: &Rules, entries: &mut Entries) {
    if let Some((code, error_message)) = used_up(generation, rules, entries) {
        entries.of(generation, Event::ChatError { error_message, code: code.to_owned() });
        return;
    }
    begin_attempt(generation, entries);
}

fn used_up(generation: &Generation, rules: &Rules, entries: &Entries) -> Option<(&'static str, String)> {
    let (rounds, counters) = (&generation.progress.rounds, &generation.counters);
    if rounds.round - rounds.inherited >= rules.max_rounds {
        let said = format!("the run reached its limit of {} rounds", rules.max_rounds);
        return Some(("too_many_rounds", said));
    }
    let tokens = counters.input_tokens.saturating_add(counters.output_tokens);
    if let Some(most) = rules.max_tokens.filter(|most| tokens >= *most) {
        let said = format!("the run used {tokens} tokens; the limit is {most}");
        return Some(("too_many_tokens", said));
    }
    time_used_up(generation, rules, entries)
}

fn time_used_up(generation: &Generation, rules: &Rules, entries: &Entries) -> Option<(&'static str, String)> {
    time_limit(generation, rules).filter(|limit| *limit <= entries.now())?;
    let most = rules.max_time.unwrap_or_default().as_secs();
    Some(("too_much_time", format!("the run reached its limit of {most} s")))
}

/// When an agent at work has used up its time, whether it answers or runs tools. Waiting for a person does not count.
pub(crate) fn time_limit(generation: &Generation, rules: &Rules) -> Option<Timestamp> {
    let most = rules.max_time.filter(|_| generation.is_agent())?;
    let left = most.saturating_sub(Duration::from_millis(generation.counters.worked_ms));
    Some(generation.progress.at_work_since?.after(left))
}

/// Ends a run whose time is used up. What its tools are doing is stopped.
pub(crate) fn end_in_time(generation: &Generation, rules: &Rules, entries: &mut Entries) {
    if let Some((code, error_message)) = time_used_up(generation, rules, entries) {
        entries.of(generation, Event::ChatError { error_message, code: code.to_owned() });
    }
}

/// Whether all calls of this round have ended.
pub(crate) fn is_done(generation: &Generation) -> bool {
    let rounds = &generation.progress.rounds;
    rounds.stage == Stage::Tools && !rounds.resuming && generation.open_calls().next().is_none()
}

#[cfg(test)]
mod tests;
