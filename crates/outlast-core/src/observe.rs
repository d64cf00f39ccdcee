//! Turns a report from outside into events. A report is never refused; a stale one yields no events.

use crate::attempts::{lose, start_again};
use crate::entries::Entries;
use crate::generation::{Phase, Stage};
use crate::telling::{Standing, tell};
use crate::{CancelReason, Conversation, Entry, Event, Generation, GenerationId, Report, Rules, Timestamp};
use crate::{finishing, resuming, rounds, sandboxes};

pub fn observe(state: &Conversation, report: Report, rules: &Rules, now: Timestamp) -> Vec<Entry> {
    let mut entries = Entries::after(state, now);
    match report {
        Report::Streamed(streamed) => {
            let running = running(state, &streamed.generation, streamed.attempt);
            if let Some(generation) = running.filter(|run| !run.survives_its_owner()) {
                tell(generation, streamed, Standing { rules, always: &state.always }, &mut entries);
            }
        }
        Report::CallLost { generation } => {
            let lost = |phase: &Phase| match phase {
                Phase::Running => true,
                Phase::Retrying { .. } => rules.ask_first(),
                Phase::Queued
                | Phase::Interrupted
                | Phase::Completed { .. }
                | Phase::Cancelled { .. }
                | Phase::Failed { .. } => false,
            };
            let generation = in_phase(state, &generation, lost);
            if let Some(generation) = generation.filter(|run| rules.ask_first() || !run.survives_its_owner())
            {
                lose(generation, rules, &mut entries);
            }
        }
        Report::RetryDue { generation } => {
            let retrying = |phase: &Phase| matches!(phase, Phase::Retrying { until } if *until <= now);
            if let Some(generation) = in_phase(state, &generation, retrying) {
                start_again(generation, "retried", rules, &mut entries);
            }
        }
        Report::TurnCame { generation } => {
            let first = state.queue.front().filter(|first| first.id == generation);
            if let Some(first) = first.filter(|_| state.active().is_none()) {
                start_again(first, "", rules, &mut entries);
            }
        }
        Report::WorkerSilent { generation } => {
            let running = in_phase(state, &generation, |phase| *phase == Phase::Running);
            // While a question waits for a person, the worker may be silent.
            let silent = |run: &&Generation| run.brief.is_for_worker() && !run.waits_for_a_decision();
            if let Some(generation) = running.filter(silent) {
                let reason = format!("its worker has not responded for {} s", rules.worker_silence.as_secs());
                entries.of(generation, Event::ChatInterrupted { reason, round: 0 });
            }
        }
        Report::Abandoned { generation } => {
            let at_work = |phase: &Phase| matches!(phase, Phase::Running | Phase::Retrying { .. });
            let generation = in_phase(state, &generation, at_work);
            if let Some(generation) = generation.filter(|run| run.is_at_work()) {
                entries.of(generation, Event::ChatCancelled { reason: CancelReason::Abandoned });
            }
        }
        of_agent => observe_agent(state, of_agent, rules, &mut entries),
    }
    entries.finish()
}

/// News about the rounds of an agent.
fn observe_agent(state: &Conversation, report: Report, rules: &Rules, entries: &mut Entries) {
    match report {
        Report::ToolsDue { generation } => {
            let running = in_tools(state, &generation).filter(|run| rounds::may_begin(state, run));
            if let Some(generation) = running {
                for id in rounds::due(generation, rules) {
                    rounds::admit(generation, id, &state.always, rules, entries);
                }
            }
        }
        Report::RoundDone { generation } => {
            if let Some(generation) = in_tools(state, &generation).filter(|run| rounds::is_done(run)) {
                rounds::next_round(generation, rules, entries);
            }
        }
        Report::Ran(ran) => {
            if let Some(generation) = in_tools(state, &ran.generation) {
                rounds::ran(generation, ran, rules, entries);
            }
        }
        Report::Summarized { generation, changes } => {
            let running = in_phase(state, &generation, |phase| *phase == Phase::Running);
            let finishing = |run: &&Generation| run.progress.rounds.stage == Stage::Finishing;
            if let Some(generation) = running.filter(finishing) {
                finishing::finish(state, generation, &changes, entries);
            }
        }
        Report::Inspected { generation, truth } => {
            let running = in_phase(state, &generation, |phase| *phase == Phase::Running);
            if let Some(generation) = running.filter(|run| run.progress.rounds.resuming) {
                resuming::go_on(state, generation, &truth, entries);
            }
        }
        of_sandbox => observe_sandbox(state, of_sandbox, rules, entries),
    }
}

/// News about the sandbox, its files and executions whose generation has ended.
fn observe_sandbox(state: &Conversation, report: Report, rules: &Rules, entries: &mut Entries) {
    match report {
        Report::Stopped { execution } => {
            if let Some(owed) = state.owed_stops.iter().find(|owed| owed.execution == execution) {
                let (tool_use_id, execution_id) = (owed.tool_use_id.clone(), execution);
                entries.of_conversation(None, Event::ToolStopped { tool_use_id, execution_id });
            }
        }
        Report::SandboxReady { sandbox, state: now_is } => {
            sandboxes::ready(state, &sandbox, now_is, rules, entries);
        }
        Report::SandboxFailed { sandbox, reason } => {
            sandboxes::failed(state, &sandbox, reason, rules, entries);
        }
        Report::SandboxPaused { sandbox } => sandboxes::paused(state, &sandbox, rules, entries),
        Report::SandboxKilled { sandbox } => sandboxes::killed(state, &sandbox, rules, entries),
        Report::SandboxGone { sandbox, not_started } => {
            sandboxes::gone(state, &sandbox, &not_started, rules, entries);
        }
        Report::CheckpointTaken { checkpoint, files, bytes, truth } => {
            if sandboxes::is_missing(state, &checkpoint) {
                let taken = Event::CheckpointTaken { checkpoint_id: checkpoint, files, bytes, truth };
                entries.of_active(state, taken);
            }
        }
        Report::CheckpointFailed { checkpoint, reason } => {
            if sandboxes::is_missing(state, &checkpoint) {
                entries.of_active(state, Event::CheckpointFailed { reason, checkpoint_id: None });
            }
        }
        Report::RestoreFailed { checkpoint, reason } => {
            sandboxes::restore_failed(state, checkpoint, reason, rules, entries);
        }
        // `observe` has dealt with these.
        Report::Streamed(_)
        | Report::CallLost { .. }
        | Report::RetryDue { .. }
        | Report::TurnCame { .. }
        | Report::Abandoned { .. }
        | Report::WorkerSilent { .. }
        | Report::ToolsDue { .. }
        | Report::RoundDone { .. }
        | Report::Ran(_)
        | Report::Summarized { .. }
        | Report::Inspected { .. } => {}
    }
}

/// The generation, if its tools are running.
fn in_tools<'a>(state: &'a Conversation, id: &GenerationId) -> Option<&'a Generation> {
    let running = in_phase(state, id, |phase| *phase == Phase::Running);
    running.filter(|run| run.progress.rounds.stage == Stage::Tools && !run.progress.rounds.resuming)
}

/// The generation, if this attempt is its current one. A report of an older attempt is stale.
fn running<'a>(state: &'a Conversation, id: &GenerationId, attempt: u32) -> Option<&'a Generation> {
    in_phase(state, id, |phase| *phase == Phase::Running)
        .filter(|running| running.progress.attempt == attempt)
}

fn in_phase<'a>(
    state: &'a Conversation,
    id: &GenerationId,
    wanted: impl Fn(&Phase) -> bool,
) -> Option<&'a Generation> {
    state.active().filter(|active| active.id == *id && wanted(&active.progress.phase))
}

#[cfg(test)]
mod tests;
