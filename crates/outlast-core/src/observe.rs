//! Turns a report from outside into events. A report is never refused; a stale one yields no events.

use crate::attempts::{hand_over, lose, start_again};
use crate::delegation::owed_news;
use crate::entries::Entries;
use crate::generation::{Phase, Stage};
use crate::telling::{Standing, tell};
use crate::{CancelReason, Conversation, Entry, Event, Generation, GenerationId, Report, Rules, Timestamp};
use crate::{finishing, resuming, rounds, sandboxes, workspace};

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
        Report::HandedOver { generation } => {
            let running = in_phase(state, &generation, |phase| *phase == Phase::Running);
            let calls = |run: &&Generation| !run.brief.is_for_worker() && !run.survives_its_owner();
            if let Some(generation) = running.filter(calls) {
                hand_over(generation, rules, &mut entries);
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
        Report::Notified { notification } => {
            if state.owed_notifications.iter().any(|owed| owed.id == notification) {
                entries.of_conversation(None, Event::NotificationMade { notification_id: notification });
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
            if let Some(generation) = in_tools(state, &generation) {
                rounds::begin_due(state, generation, rules, entries);
            }
        }
        Report::RoundDone { generation } => {
            if let Some(generation) = in_tools(state, &generation).filter(|run| rounds::is_done(run)) {
                rounds::next_round(generation, rules, entries);
            }
        }
        Report::TimeUsedUp { generation } => {
            let at_work = |phase: &Phase| matches!(phase, Phase::Running | Phase::Retrying { .. });
            if let Some(generation) = in_phase(state, &generation, at_work).filter(|run| run.is_at_work()) {
                rounds::end_in_time(generation, rules, entries);
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
        Report::ParentTold { seq } => {
            if owed_news(state).is_some_and(|(child, _)| child.progress.reporting.told < seq) {
                entries.of_conversation(None, Event::ParentTold { seq });
            }
        }
        Report::ParentGone => match (state.active(), owed_news(state)) {
            (Some(active), Some(_)) => {
                entries.of(active, Event::ChatCancelled { reason: CancelReason::ParentEnded });
            }
            (None, Some((_, seq))) => entries.of_conversation(None, Event::ParentTold { seq }),
            (_, None) => {}
        },
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
        Report::FileChanged(file) => workspace::changed(state, file, entries),
        Report::CheckpointTaken { checkpoint: checkpoint_id, files, bytes, truth, left_out } => {
            if sandboxes::is_missing(state, &checkpoint_id, rules) {
                let taken = Event::CheckpointTaken { checkpoint_id, files, bytes, truth, left_out };
                entries.of_active(state, taken);
            }
        }
        Report::CheckpointFailed { checkpoint, reason } => {
            if sandboxes::is_missing(state, &checkpoint, rules) {
                entries.of_active(state, Event::CheckpointFailed { reason, checkpoint_id: None });
            }
        }
        Report::RestoreFailed { checkpoint, reason } => {
            sandboxes::restore_failed(state, checkpoint, reason, rules, entries);
        }
        // `observe` has dealt with these.
        Report::Streamed(_)
        | Report::CallLost { .. }
        | Report::HandedOver { .. }
        | Report::RetryDue { .. }
        | Report::TurnCame { .. }
        | Report::Abandoned { .. }
        | Report::WorkerSilent { .. }
        | Report::Notified { .. }
        | Report::ToolsDue { .. }
        | Report::TimeUsedUp { .. }
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
