//! The rounds of an agent: what becomes of the calls in an answer, which of them run now, and what follows when they
//! have ended.

use serde_json::Value;

use crate::attempts::begin_attempt;
use crate::entries::Entries;
use crate::generation::Stage;
use crate::ids::derived;
use crate::policy::Verdict;
use crate::{
    Always, Conversation, Decision, Event, ExecutionId, Generation, MessageId, Offsets, Outcome, Output, Ran,
    Recovery, Rules, RunEnd,
};

/// The maximum number of calls that run for one answer. A model that asks for more has lost its way, and each of them is a message.
const CALLS_PER_ROUND_MAX: usize = 128;
/// The maximum number of read-only calls that run side by side.
const SIDE_BY_SIDE_MAX: usize = 8;
/// How much output of one execution goes into the log, in bytes; all of it is in the sandbox. Every follower gets it.
pub(crate) const OUTPUT_BYTES_MAX: u64 = 256 * 1024;
/// Ids of calls are repeated in every event about them.
const CALL_ID_BYTES_MAX: usize = 64;

/// A call of an answer that is complete.
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) message: MessageId,
    pub(crate) name: String,
    pub(crate) input: Value,
}

/// Settles an answer with calls: each may run, is put to a person, or ends with an error that the model reads.
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
    let Some(rule) = rules.tools.get(&call.name).filter(|_| offered) else {
        return Verdict::Refuse("not run: there is no tool of this name");
    };
    if !call.input.is_object() {
        return Verdict::Refuse("not run: the arguments are not a JSON object");
    }
    rule.verdict(&call.name, &call.input, always)
}

/// What the model reads about a call that a person denied.
pub(crate) fn denial(reason: Option<&str>) -> String {
    reason.map_or_else(|| "denied by a person".to_owned(), |reason| format!("denied by a person: {reason}"))
}

/// Ends a call that does not run. The model reads why.
pub(crate) fn refuse(
    generation: &Generation,
    id: &str,
    message: &MessageId,
    why: &str,
    entries: &mut Entries,
) {
    let end = RunEnd::Ended { result: why.into(), is_error: true, exit_code: None };
    end_call(generation, id, message, end, entries);
}

fn end_call(generation: &Generation, id: &str, message: &MessageId, end: RunEnd, entries: &mut Entries) {
    let (result, is_error, exit_code, outcome) = match end {
        RunEnd::Ended { result, is_error, exit_code } => (result, is_error, exit_code, None),
        RunEnd::Lost => {
            let said = "outcome unknown: the tool began, and the sandbox has no record of how it ended";
            (said.into(), true, None, Some(Outcome::Unknown))
        }
    };
    let (message_id, tool_use_id) = (message.clone(), id.to_owned());
    entries.of(generation, Event::ToolEnd { message_id, tool_use_id, result, is_error, exit_code, outcome });
}

/// An id for a call that no other call of this generation has: models repeat theirs.
pub(crate) fn unique_id(generation: &Generation, given: String, called: &[(String, MessageId)]) -> String {
    let given = match given.len() {
        0 => "call".to_owned(),
        1..=CALL_ID_BYTES_MAX => given,
        _ => derived("call", &[&given]),
    };
    let used = |id: &String| {
        generation.progress.rounds.call_ids.contains(id) || called.iter().any(|(other, _)| other == id)
    };
    let numbered = (2_u32..).map(|n| format!("{given}-{n}"));
    std::iter::once(given.clone()).chain(numbered).find(|id| !used(id)).unwrap_or(given)
}

/// The calls that should be running, in order: the first that has not ended, and if it is read-only those directly
/// behind it that are read-only too. A call that nobody has decided about holds up what is behind it.
pub(crate) fn wanted<'a>(generation: &'a Generation, rules: &Rules) -> Vec<&'a str> {
    let mut wanted = Vec::new();
    for (id, _) in generation.open_calls() {
        let undecided = generation.pending_approvals().any(|asked| asked.tool_use_id == id);
        let alone = !is_read_only(generation, id, rules);
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
    let rule = generation.call(id).and_then(|(name, _)| rules.tools.get(name));
    rule.is_some_and(|rule| rule.read_only)
}

/// The calls that should be running and have not begun.
pub(crate) fn due<'a>(generation: &'a Generation, rules: &Rules) -> Vec<&'a str> {
    let running = &generation.progress.rounds.executions;
    let begun = |id: &str| running.iter().any(|execution| execution.tool_use_id == id);
    wanted(generation, rules).into_iter().filter(|id| !begun(id)).collect()
}

/// The last gate before a call runs: what a person denied, or the operator forbids by now, does not run, and what needs a
/// question that was never recorded is asked.
pub(crate) fn admit(
    generation: &Generation,
    id: &str,
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
            refuse(generation, id, message, &why, entries);
        }
        (Verdict::Refuse(why), _) => refuse(generation, id, message, why, entries),
        (Verdict::Ask, None) => ask(generation, call, entries),
        (Verdict::Ask, Some(Decision::Approve)) | (Verdict::Run, _) => begin(generation, id, rules, entries),
    }
}

pub(crate) fn begin(generation: &Generation, id: &str, rules: &Rules, entries: &mut Entries) {
    // Named after its place in the log: if this is decided again after a failed write, nothing has begun under this id.
    let place = entries.next_seq().to_string();
    let execution_id: ExecutionId = derived("exec", &[generation.id.as_str(), id, &place]).into();
    let (tool_use_id, read_only) = (id.to_owned(), is_read_only(generation, id, rules));
    entries.of(generation, Event::ToolBegan { tool_use_id, execution_id, read_only });
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

/// Only what continues its stream is recorded: what a former owner recorded already may be read again.
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

/// The sandbox is gone, and with it the record of what ran there. What certainly never began, or changes nothing,
/// begins again in the next one.
pub(crate) fn lose_executions(
    generation: &Generation,
    not_started: &[ExecutionId],
    rules: &Rules,
    entries: &mut Entries,
) -> bool {
    let mut any = false;
    for execution in &generation.progress.rounds.executions {
        let id = execution.tool_use_id.as_str();
        let message = generation.open_calls().find(|(call, _)| *call == id).map(|(_, message)| message);
        if !not_started.contains(&execution.id) && !is_read_only(generation, id, rules) {
            any |= message.is_some();
            message.inspect(|message| end_call(generation, id, message, RunEnd::Lost, entries));
        }
    }
    any
}

/// A tool's outcome is unknown: a person decides whether to go on, unless the operator said so once and for all.
pub(crate) fn interrupt_unless_auto(generation: &Generation, rules: &Rules, entries: &mut Entries) {
    match rules.recovery {
        Recovery::Auto => {}
        Recovery::Safe | Recovery::Ask => {
            let (reason, round) = ("the outcome of a tool is unknown", generation.progress.rounds.round);
            entries.of(generation, Event::ChatInterrupted { reason: reason.to_owned(), round });
        }
    }
}

/// All calls have ended: the next round begins, unless the run has used up what it may use.
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
        let said = format!("the run has taken {} rounds, the most that are allowed", rules.max_rounds);
        return Some(("too_many_rounds", said));
    }
    let tokens = counters.input_tokens.saturating_add(counters.output_tokens);
    if let Some(most) = rules.max_tokens.filter(|most| tokens >= *most) {
        let said = format!("the run has used {tokens} tokens, and {most} are allowed");
        return Some(("too_many_tokens", said));
    }
    let since = generation.progress.at_work_since.unwrap_or(entries.now());
    let worked = std::time::Duration::from_millis(counters.worked_ms) + entries.now().since(since);
    if let Some(most) = rules.max_time.filter(|most| worked >= *most) {
        let said =
            format!("the run has worked for {} s, and {} s are allowed", worked.as_secs(), most.as_secs());
        return Some(("too_much_time", said));
    }
    None
}

/// Whether nothing but ends is left of the calls of this round.
pub(crate) fn is_done(generation: &Generation) -> bool {
    let rounds = &generation.progress.rounds;
    rounds.stage == Stage::Tools && !rounds.resuming && generation.open_calls().next().is_none()
}

/// Whether calls may begin: the sandbox runs, what earlier rounds changed is saved, and no tool of an earlier generation
/// is still alive.
pub(crate) fn may_begin(state: &Conversation, generation: &Generation) -> bool {
    let Some(sandbox) = &state.sandbox else { return false };
    let unsaved = sandbox.dirty.is_some_and(|dirty| Some(&dirty) < generation.progress.rounds.ends.last());
    let unsaved = unsaved && sandbox.failures == 0;
    sandbox.state.is_running() && !unsaved && state.owed_stops.is_empty()
}

#[cfg(test)]
mod tests;
