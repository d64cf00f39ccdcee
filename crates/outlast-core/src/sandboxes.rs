//! The sandbox of a conversation: when it must run, when it is saved, paused and killed, and what comes of the news
//! about it.

use std::time::Duration;

use crate::entries::Entries;
use crate::generation::{Phase, Stage};
use crate::ids::derived;
use crate::resuming::system_message;
use crate::rounds::{interrupt_unless_auto, lose_executions};
use crate::{
    Checkpoint, CheckpointId, Conversation, Effect, Ensure, Event, ExecutionId, Generation, Rules, Sandbox,
    SandboxId, SandboxState, Timestamp,
};

/// How long a store of checkpoints that failed is left alone, ...
const CHECKPOINT_WAIT: Duration = Duration::from_secs(60);
/// ... and how often the same files are tried. Then it is broken, and the next change of the files tries again. A sandbox
/// whose files are not saved is never killed.
const CHECKPOINT_TRIES: u32 = 3;
/// A sandbox that dies so often in one round dies of what the round does.
const LOST_PER_ROUND_MAX: u32 = 3;

/// What should be under way for the sandbox.
pub(crate) fn effects(state: &Conversation, rules: &Rules, now: Timestamp) -> Vec<Effect> {
    let stop = |owed: &crate::OwedStop| Effect::StopExecution {
        sandbox: owed.sandbox.clone(),
        execution: owed.execution.clone(),
    };
    let mut effects: Vec<Effect> = state.owed_stops.iter().map(stop).collect();
    if must_run(state) {
        effects.extend(ensure(state, rules).map(|(sandbox, how)| Effect::EnsureSandbox { sandbox, how }));
    }
    let Some(sandbox) = &state.sandbox else { return effects };
    let id = || sandbox.id.clone();
    let is_due = |time: Option<Timestamp>| time.is_some_and(|time| time <= now);
    if is_due(checkpoint_due(state, rules)) {
        effects.extend(
            checkpoint_id(sandbox).map(|checkpoint| Effect::TakeCheckpoint { sandbox: id(), checkpoint }),
        );
    } else if is_due(pause_due(state, rules)) {
        effects.push(Effect::PauseSandbox { sandbox: id() });
    } else if is_due(kill_due(state, rules)) {
        effects.push(Effect::KillSandbox { sandbox: id() });
    }
    effects
}

/// When somebody must look after the sandbox, even if nobody asks. The beginning of time means now.
pub(crate) fn due(state: &Conversation, rules: &Rules) -> Option<Timestamp> {
    let ensure = must_run(state).then(|| ensure(state, rules)).flatten();
    let now = (ensure.is_some() || !state.owed_stops.is_empty()).then(Timestamp::default);
    let timers = [now, checkpoint_due(state, rules), pause_due(state, rules), kill_due(state, rules)];
    timers.into_iter().flatten().min()
}

/// Whether the sandbox has to run now: for tools, for a person who wakes it, or to be asked what is true. While a person
/// is asked for the first time it is made, so that they do not wait for it afterwards.
fn must_run(state: &Conversation) -> bool {
    is_needed(state) || must_be_saved(state)
}

/// Whether a sandbox that fell asleep beside an interrupted run has files to save, now that nothing runs in it.
fn must_be_saved(state: &Conversation) -> bool {
    let asleep = state.sandbox.as_ref().filter(|sandbox| sandbox.state == SandboxState::Paused);
    let unsaved = asleep.is_some_and(|sandbox| sandbox.dirty.is_some() && sandbox.failures == 0);
    unsaved && state.owed_stops.is_empty() && !has_executions(state)
}

fn has_executions(state: &Conversation) -> bool {
    state.active().is_some_and(|active| !active.progress.rounds.executions.is_empty())
}

fn is_needed(state: &Conversation) -> bool {
    let Some(generation) = state.active().filter(|active| active.is_agent()) else { return false };
    let rounds = &generation.progress.rounds;
    if generation.progress.phase != Phase::Running {
        return false;
    }
    let tools = rounds.stage == Stage::Tools && generation.open_calls().next().is_some();
    rounds.resuming || (tools && (!generation.is_blocked() || state.sandbox.is_none() || rounds.woken))
}

/// How the sandbox comes to run, if it does not.
fn ensure(state: &Conversation, rules: &Rules) -> Option<(SandboxId, Ensure)> {
    let Some(sandbox) = &state.sandbox else { return Some((state.next_sandbox_id(), Ensure::Create)) };
    match sandbox.state {
        SandboxState::Created | SandboxState::Resumed | SandboxState::Restored => None,
        SandboxState::Paused => Some((sandbox.id.clone(), Ensure::Resume)),
        SandboxState::Killed | SandboxState::Lost => {
            let how = match (&sandbox.checkpoint, unusable(state, sandbox, rules)) {
                (Some(checkpoint), None) => Ensure::Restore(checkpoint.id.clone()),
                _ => Ensure::Create,
            };
            Some((state.next_sandbox_id(), how))
        }
    }
}

/// Why the last checkpoint is not restored, if it is not.
fn unusable(state: &Conversation, sandbox: &Sandbox, rules: &Rules) -> Option<String> {
    let Some(Checkpoint { taken_at, branch, .. }) = &sandbox.checkpoint else {
        return Some("there was no checkpoint of its files".to_owned());
    };
    if branch.as_deref() != state.branch() {
        return Some(format!(
            "the branch has changed since the checkpoint of {taken_at}, which is discarded"
        ));
    }
    let resumed = state.active().filter(|active| active.progress.rounds.resuming);
    let resumed_at = resumed.and_then(|active| active.progress.at_work_since)?;
    let expired = sandbox.state == SandboxState::Lost && resumed_at.since(*taken_at) > rules.checkpoint_age;
    expired.then(|| format!("sandbox expired: its last checkpoint is of {taken_at}"))
}

/// The checkpoint that is missing: of the files as they are after the last call that may have changed them.
fn checkpoint_id(sandbox: &Sandbox) -> Option<CheckpointId> {
    let dirty = sandbox.dirty?.to_string();
    Some(derived("cp", &[sandbox.id.as_str(), &dirty]).into())
}

/// When the files are to be saved: after each round, before a pause, at the end. Never while a tool may change them.
fn checkpoint_due(state: &Conversation, rules: &Rules) -> Option<Timestamp> {
    let sandbox = state.sandbox.as_ref().filter(|sandbox| sandbox.state.is_running())?;
    let dirty = sandbox.dirty?;
    if !state.owed_stops.is_empty() || sandbox.failures >= CHECKPOINT_TRIES {
        return None;
    }
    let wait =
        if sandbox.failures > 0 { sandbox.failed_at.after(CHECKPOINT_WAIT) } else { Timestamp::default() };
    let Some(generation) = state.active() else { return Some(wait) };
    let rounds = &generation.progress.rounds;
    if !rounds.executions.is_empty() || rounds.resuming {
        return None;
    }
    let of_an_earlier_round = Some(&dirty) < rounds.ends.last();
    match rounds.stage {
        Stage::Answering | Stage::Finishing => Some(wait),
        Stage::Tools if generation.progress.phase == Phase::Interrupted => Some(wait),
        Stage::Tools if of_an_earlier_round => Some(wait),
        Stage::Tools => idle_until(state, rules).map(|pause| pause.max(wait)),
    }
}

/// When a running sandbox is put to sleep. What is not saved by then is saved first, unless that fails.
fn pause_due(state: &Conversation, rules: &Rules) -> Option<Timestamp> {
    let sandbox = state.sandbox.as_ref().filter(|sandbox| sandbox.state.is_running())?;
    // What an interrupted run left running is frozen with it, and saved when it has ended.
    let unsaved = sandbox.dirty.is_some() && sandbox.failures == 0 && !has_executions(state);
    if unsaved || !state.owed_stops.is_empty() || must_run(state) {
        return None;
    }
    idle_until(state, rules)
}

/// How long the sandbox may stay awake for nothing; `None` while a generation is at work.
fn idle_until(state: &Conversation, rules: &Rules) -> Option<Timestamp> {
    let used_at = state.sandbox.as_ref()?.used_at;
    match state.active() {
        Some(active) if active.is_at_work() => None,
        Some(active) if active.is_blocked() => Some(used_at.after(rules.approval_pause)),
        _ => Some(used_at.after(rules.sandbox_idle_pause)),
    }
}

fn kill_due(state: &Conversation, rules: &Rules) -> Option<Timestamp> {
    let sandbox = state.sandbox.as_ref().filter(|sandbox| sandbox.state == SandboxState::Paused)?;
    let kept = sandbox.dirty.is_some() || must_run(state);
    (!kept).then(|| sandbox.since.after(rules.sandbox_kill))
}

/// The sandbox runs. If files were lost on the way, the transcript says so.
pub(crate) fn ready(
    state: &Conversation,
    id: &SandboxId,
    now_is: SandboxState,
    rules: &Rules,
    entries: &mut Entries,
) {
    let Some((expected, how)) = ensure(state, rules).filter(|(expected, _)| expected == id) else { return };
    let fits = match how {
        Ensure::Resume => now_is == SandboxState::Resumed,
        Ensure::Create => now_is == SandboxState::Created,
        Ensure::Restore(_) => now_is == SandboxState::Restored,
    };
    if !fits {
        return;
    }
    let (reason, is_loss) = why(state, now_is, rules);
    change(state, &expected, now_is, &reason, entries);
    let active = state.active().filter(|active| is_loss && !active.progress.rounds.resuming);
    if let Some(active) = active {
        system_message(state, active, reason, false, entries);
    }
}

/// Why the sandbox is as it is now, for a person, and whether something was lost.
fn why(state: &Conversation, now_is: SandboxState, rules: &Rules) -> (String, bool) {
    let Some(sandbox) = &state.sandbox else { return ("needed by a tool".to_owned(), false) };
    let was_lost = sandbox.state == SandboxState::Lost;
    let taken = sandbox.checkpoint.as_ref().map(|checkpoint| checkpoint.taken_at.to_string());
    let taken = taken.unwrap_or_default();
    match now_is {
        SandboxState::Restored if was_lost => {
            let said = format!(
                "The sandbox was lost. Its files are restored as they were at {taken}; later changes and running \
                 processes are gone."
            );
            (said, true)
        }
        SandboxState::Restored => (format!("its files are restored as they were at {taken}"), false),
        SandboxState::Created if sandbox.state.is_gone() => {
            let why = unusable(state, sandbox, rules).unwrap_or_default();
            (format!("The sandbox is gone and a new one is empty: {why}."), true)
        }
        _ => ("needed again".to_owned(), false),
    }
}

/// It cannot be had: a generation that needs it fails, and may be retried.
pub(crate) fn failed(
    state: &Conversation,
    id: &SandboxId,
    reason: String,
    rules: &Rules,
    entries: &mut Entries,
) {
    let expected = ensure(state, rules).is_some_and(|(expected, _)| expected == *id);
    if let Some(active) = state.active().filter(|_| expected && is_needed(state)) {
        let code = "sandbox_unavailable".to_owned();
        entries.of(active, Event::ChatError { error_message: reason, code });
    } else if expected && must_be_saved(state) {
        entries.of_active(state, Event::CheckpointFailed { reason, checkpoint_id: None });
    }
}

pub(crate) fn paused(state: &Conversation, id: &SandboxId, rules: &Rules, entries: &mut Entries) {
    let running =
        state.sandbox.as_ref().is_some_and(|sandbox| sandbox.id == *id && sandbox.state.is_running());
    let used = state.active().is_some_and(|active| active.progress.phase == Phase::Running);
    if running && !(used && has_executions(state)) {
        let asked = state.active().is_some_and(Generation::is_blocked);
        let after = if asked { rules.approval_pause } else { rules.sandbox_idle_pause };
        let reason = format!("not needed for {} s", after.as_secs());
        change(state, id, SandboxState::Paused, &reason, entries);
    }
}

pub(crate) fn killed(state: &Conversation, id: &SandboxId, rules: &Rules, entries: &mut Entries) {
    if state
        .sandbox
        .as_ref()
        .is_some_and(|sandbox| sandbox.id == *id && sandbox.state == SandboxState::Paused)
    {
        let reason = format!("paused for {} s", rules.sandbox_kill.as_secs());
        change(state, id, SandboxState::Killed, &reason, entries);
    }
}

/// The sandbox is not there any more. What ran in it has an unknown outcome, unless it changes nothing.
pub(crate) fn gone(
    state: &Conversation,
    id: &SandboxId,
    not_started: &[ExecutionId],
    rules: &Rules,
    entries: &mut Entries,
) {
    if !state.sandbox.as_ref().is_some_and(|sandbox| sandbox.id == *id && !sandbox.state.is_gone()) {
        return;
    }
    let unknown = state.active().is_some_and(|active| lose_executions(active, not_started, rules, entries));
    change(state, id, SandboxState::Lost, "not found", entries);
    let Some(active) = state.active().filter(|active| active.progress.phase == Phase::Running) else {
        return;
    };
    if active.progress.rounds.lost + 1 >= LOST_PER_ROUND_MAX {
        let error_message = format!("the sandbox was lost {LOST_PER_ROUND_MAX} times in this round");
        entries.of(active, Event::ChatError { error_message, code: "sandbox_unavailable".to_owned() });
    } else if unknown {
        interrupt_unless_auto(active, rules, entries);
    }
}

fn change(state: &Conversation, id: &SandboxId, to: SandboxState, reason: &str, entries: &mut Entries) {
    let (sandbox_id, reason) = (id.clone(), reason.to_owned());
    entries.of_active(state, Event::SandboxChanged { sandbox_id, state: to, reason });
}

/// Whether this is the checkpoint that is missing. One of files that have changed since is not.
pub(crate) fn is_missing(state: &Conversation, id: &CheckpointId) -> bool {
    let running = state.sandbox.as_ref().filter(|sandbox| sandbox.state.is_running());
    running.and_then(checkpoint_id).as_ref() == Some(id)
}

/// The checkpoint cannot be restored: it is as if there were none.
pub(crate) fn restore_failed(
    state: &Conversation,
    id: CheckpointId,
    reason: String,
    rules: &Rules,
    entries: &mut Entries,
) {
    if ensure(state, rules).is_some_and(|(_, how)| how == Ensure::Restore(id.clone())) {
        entries.of_active(state, Event::CheckpointFailed { reason, checkpoint_id: Some(id) });
    }
}

#[cfg(test)]
mod tests;
