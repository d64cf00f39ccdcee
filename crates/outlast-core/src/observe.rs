//! Turns a report from outside into events. A report is never refused; a stale one yields no events.

use crate::attempts::{lose, start_again};
use crate::entries::Entries;
use crate::generation::Phase;
use crate::telling::tell;
use crate::{CancelReason, Conversation, Entry, Event, Generation, GenerationId, Report, Rules, Timestamp};

pub fn observe(state: &Conversation, report: Report, rules: &Rules, now: Timestamp) -> Vec<Entry> {
    let mut entries = Entries::after(state, now);
    match report {
        Report::Streamed(streamed) => {
            if let Some(generation) = running(state, &streamed.generation, streamed.attempt) {
                tell(generation, streamed, rules, &mut entries);
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
            if let Some(generation) = in_phase(state, &generation, lost) {
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
            let waits = |run: &&Generation| run.waits_for_a_decision();
            if let Some(generation) = in_phase(state, &generation, at_work).filter(|run| !waits(run)) {
                entries.of(generation, Event::ChatCancelled { reason: CancelReason::Abandoned });
            }
        }
    }
    entries.finish()
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
