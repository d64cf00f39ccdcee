//! The sandbox of a conversation: when it must run, when it is saved, paused and killed, and what follows from reports
//! about it.

use std::time::Duration;

use crate::entries::Entries;
use crate::generation::{Phase, Rounds, Stage};
use crate::ids::derived;
use crate::resuming::system_message;
use crate::rounds::{interrupt_unless_auto, lose_executions, needs_sandbox};
use crate::{
    Checkpoint, CheckpointId, Conversation, Effect, Ensure, Event, ExecutionId, Generation, Rules, Sandbox,
    SandboxId, SandboxState, Timestamp,
};

/// How long to wait before saving again after the store of checkpoints failed, ...
const CHECKPOINT_WAIT: Duration = Duration::from_secs(60);
/// ... and how many times to try. After that, the next change of the files tries again. A sandbox whose files are not
/// saved is never killed.
const CHECKPOINT_TRIES: u32 = 3;
/// A sandbox that dies this many times in one round is probably killed by what the round does.
const LOST_PER_ROUND_MAX: u32 = 3;

/// What should be under way for the sandbox.
pub(crate) fn effects(state: &Conversation, rules: &Rules, now: Timestamp) -> Vec<Effect> {
    let stop = |owed: &crate::OwedStop| {
        let execution = owed.execution.clone();
        match (owed.child.clone(), owed.sandbox.clone()) {
            (Some(child), _) => Some(Effect::CancelChild { execution, child }),
            (None, Some(sandbox)) => Some(Effect::StopExecution { sandbox, execution }),
            (None, None) => None,
        }
    };
    let mut effects: Vec<Effect> = state.owed_stops.iter().filter_map(stop).collect();
    if must_run(state, rules) {
        effects.extend(ensure(state, rules).map(|(sandbox, how)| Effect::EnsureSandbox { sandbox, how }));
    }
    let Some(sandbox) = &state.sandbox else { return effects };
    let id = || sandbox.id.clone();
    let is_due = |time: Option<Timestamp>| time.is_some_and(|time| time <= now);
    if is_due(checkpoint_due(state, rules)) {
        effects.extend(
            checkpoint_id(state, rules)
                .map(|checkpoint| Effect::TakeCheckpoint { sandbox: id(), checkpoint }),
        );
    } else if is_due(pause_due(state, rules)) {
        effects.push(Effect::PauseSandbox { sandbox: id() });
    } else if is_due(kill_due(state, rules)) {
        effects.push(Effect::KillSandbox { sandbox: id() });
    }
    effects
}

/// When the server must look at the sandbox without being asked. Time zero means now.
pub(crate) fn due(state: &Conversation, rules: &Rules) -> Option<Timestamp> {
    let ensure = must_run(state, rules).then(|| ensure(state, rules)).flatten();
    let now = (ensure.is_some() || !state.owed_stops.is_empty()).then(Timestamp::default);
    let timers = [now, checkpoint_due(state, rules), pause_due(state, rules), kill_due(state, rules)];
    timers.into_iter().flatten().min()
}

/// Whether the sandbox must run now: for tools, because a person woke it, or to report the state of its files. It is
/// created while a person is asked for the first time, so that nobody has to wait for it after the decision.
fn must_run(state: &Conversation, rules: &Rules) -> bool {
    is_needed(state, rules) || must_be_saved(state)
}

/// Whether a sandbox that was paused during an interrupted run has files to save, now that nothing runs in it.
fn must_be_saved(state: &Conversation) -> bool {
    let asleep = state.sandbox.as_ref().filter(|sandbox| sandbox.state == SandboxState::Paused);
    let unsaved = asleep.is_some_and(|sandbox| sandbox.dirty.is_some() && sandbox.failures == 0);
    unsaved && state.owed_stops.is_empty() && !has_executions(state)
}

fn has_executions(state: &Conversation) -> bool {
    state.active().is_some_and(|active| runs_inside(&active.progress.rounds))
}

/// Whether anything runs in the sandbox. What runs elsewhere does not touch its files.
pub(crate) fn runs_inside(rounds: &Rounds) -> bool {
    rounds.executions.iter().any(|execution| execution.sandbox.is_some())
}

fn is_needed(state: &Conversation, rules: &Rules) -> bool {
    let Some(generation) = state.active().filter(|active| active.is_agent()) else { return false };
    let rounds = &generation.progress.rounds;
    if generation.progress.phase != Phase::Running {
        return false;
    }
    let in_sandbox = generation.open_calls().any(|(id, _)| needs_sandbox(generation, id, rules));
    let tools = rounds.stage == Stage::Tools && in_sandbox;
    let asked = rounds.resuming && state.sandbox.is_some(); // for what is true
    asked || (tools && (!generation.is_blocked() || state.sandbox.is_none() || rounds.woken))
}

/// How to get the sandbox running, if it is not.
pub(crate) fn ensure(state: &Conversation, rules: &Rules) -> Option<(SandboxId, Ensure)> {
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

/// Why the last checkpoint must not be restored, if there is a reason.
fn unusable(state: &Conversation, sandbox: &Sandbox, rules: &Rules) -> Option<String> {
    let Some(Checkpoint { taken_at, branch, .. }) = &sandbox.checkpoint else {
        return Some("it had no checkpoint".to_owned());
    };
    if branch.as_deref() != state.branch() {
        return Some(format!(
            "the checkpoint of {taken_at} was discarded because the branch has changed since"
        ));
    }
    let resumed = state.active().filter(|active| active.progress.rounds.resuming);
    let resumed_at = resumed.and_then(|active| active.progress.at_work_since)?;
    let expired = sandbox.state == SandboxState::Lost && resumed_at.since(*taken_at) > rules.checkpoint_age;
    expired.then(|| format!("sandbox expired: its last checkpoint was taken at {taken_at}"))
}

/// The checkpoint that has yet to be taken: the files after the last call that may have changed them, or at the time of a
/// pause if a command in the background may have.
fn checkpoint_id(state: &Conversation, rules: &Rules) -> Option<CheckpointId> {
    let sandbox = state.sandbox.as_ref()?;
    let since = match sandbox.dirty {
        Some(dirty) => dirty.to_string(),
        None => format!("at {}", background_due(state, rules)?),
    };
    Some(derived("cp", &[sandbox.id.as_str(), &since]).into())
}

/// When files are saved that a command in the background may have changed since the last checkpoint: before each pause.
fn background_due(state: &Conversation, rules: &Rules) -> Option<Timestamp> {
    let sandbox =
        state.sandbox.as_ref().filter(|sandbox| sandbox.background && sandbox.state.is_running())?;
    let pause = idle_until(state, rules)?;
    let is_saved = sandbox.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.taken_at >= pause);
    (!is_saved && sandbox.failures == 0).then_some(pause)
}

/// When the files of a tool are saved that an interrupted run left frozen: before its sandbox is killed.
fn frozen_due(state: &Conversation, rules: &Rules) -> Option<Timestamp> {
    let sandbox = state.sandbox.as_ref().filter(|sandbox| sandbox.state == SandboxState::Paused)?;
    let unsaved = sandbox.dirty.is_some() && sandbox.failures == 0 && has_executions(state);
    (unsaved && !must_run(state, rules)).then(|| sandbox.since.after(rules.sandbox_kill))
}

/// When files are saved: after each round, before a pause, at the end, and after a person has changed one, but never
/// while a tool may change them.
fn checkpoint_due(state: &Conversation, rules: &Rules) -> Option<Timestamp> {
    let sandbox = state.sandbox.as_ref()?;
    if !state.owed_stops.is_empty() || sandbox.failures >= CHECKPOINT_TRIES {
        return None;
    }
    if !sandbox.state.is_running() {
        return frozen_due(state, rules);
    }
    let Some(dirty) = sandbox.dirty else {
        return background_due(state, rules).filter(|_| !has_executions(state) && !must_run(state, rules));
    };
    let wait =
        if sandbox.failures > 0 { sandbox.failed_at.after(CHECKPOINT_WAIT) } else { Timestamp::default() };
    let Some(generation) = state.active() else { return Some(wait) };
    let rounds = &generation.progress.rounds;
    if runs_inside(rounds) || rounds.resuming {
        return None;
    }
    let of_an_earlier_round = Some(&dirty) < rounds.ends.last();
    match rounds.stage {
        Stage::Answering | Stage::Finishing => Some(wait),
        Stage::Tools if generation.progress.phase == Phase::Interrupted => Some(wait),
        Stage::Tools if of_an_earlier_round || sandbox.changed_by_person => Some(wait),
        Stage::Tools => idle_until(state, rules).map(|pause| pause.max(wait)),
    }
}

/// When a running sandbox is paused. Unsaved files are saved first, unless that fails.
fn pause_due(state: &Conversation, rules: &Rules) -> Option<Timestamp> {
    let sandbox = state.sandbox.as_ref().filter(|sandbox| sandbox.state.is_running())?;
    // A tool that an interrupted run left running is frozen too. Its files are saved once it has ended.
    let unsaved = sandbox.dirty.is_some() || background_due(state, rules).is_some();
    let unsaved = unsaved && sandbox.failures == 0 && !has_executions(state);
    if unsaved || !state.owed_stops.is_empty() || must_run(state, rules) {
        return None;
    }
    idle_until(state, rules)
}

/// How long the sandbox may stay idle before it is paused; `None` while a generation is at work.
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
    let kept = sandbox.dirty.is_some() || must_run(state, rules);
    (!kept).then(|| sandbox.since.after(rules.sandbox_kill))
}

/// The sandbox is running. If files were lost, a message in the transcript says so.
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

/// Tells a person why the sandbox is in this state; also says whether files were lost.
fn why(state: &Conversation, now_is: SandboxState, rules: &Rules) -> (String, bool) {
    let Some(sandbox) = &state.sandbox else {
        let by = if state.active().is_some() { "needed by a tool" } else { "needed for a file" };
        return (by.to_owned(), false);
    };
    let was_lost = sandbox.state == SandboxState::Lost;
    let taken = sandbox.checkpoint.as_ref().map(|checkpoint| checkpoint.taken_at.to_string());
    let taken = taken.unwrap_or_default();
    match now_is {
        SandboxState::Restored if was_lost => {
            let said = format!(
                "The sandbox was lost. Its files were restored as of {taken}; later changes and running \
                 processes are gone.{}",
                not_restored(sandbox)
            );
            (said, true)
        }
        SandboxState::Restored if sandbox.background || !not_restored(sandbox).is_empty() => {
            let ended = if sandbox.background { " Commands in its background have ended." } else { "" };
            let left = not_restored(sandbox);
            (
                format!("The sandbox was removed, and its files were restored as of {taken}.{ended}{left}"),
                true,
            )
        }
        SandboxState::Restored => (format!("its files were restored as of {taken}"), false),
        SandboxState::Created if sandbox.state.is_gone() => {
            let why = unusable(state, sandbox, rules).unwrap_or_default();
            (format!("The sandbox was lost, and its replacement is empty: {why}."), true)
        }
        _ => ("needed again".to_owned(), false),
    }
}

/// What the restored checkpoint has not, as a sentence.
fn not_restored(sandbox: &Sandbox) -> String {
    let left_out = sandbox.checkpoint.as_ref().and_then(|checkpoint| checkpoint.left_out.as_ref());
    left_out.map(|left_out| format!(" Not restored: {left_out}.")).unwrap_or_default()
}

/// The sandbox cannot be created. A generation that needs it fails, and can be retried.
pub(crate) fn failed(
    state: &Conversation,
    id: &SandboxId,
    reason: String,
    rules: &Rules,
    entries: &mut Entries,
) {
    let expected = ensure(state, rules).is_some_and(|(expected, _)| expected == *id);
    if let Some(active) = state.active().filter(|_| expected && is_needed(state, rules)) {
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
        // A tool that an interrupted run left frozen ends here. Its files were saved, its outcome is unknown.
        if let Some(active) = state.active() {
            lose_executions(active, &[], rules, entries);
        }
        let reason = format!("paused for {} s", rules.sandbox_kill.as_secs());
        change(state, id, SandboxState::Killed, &reason, entries);
    }
}

/// The sandbox no longer exists. The outcome of what ran in it is unknown, except for tools that change nothing.
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

/// Whether this is the checkpoint that was to be taken. If files have changed since, it is not.
pub(crate) fn is_missing(state: &Conversation, id: &CheckpointId, rules: &Rules) -> bool {
    let sandbox = state.sandbox.as_ref().filter(|sandbox| !sandbox.state.is_gone());
    sandbox.and_then(|_| checkpoint_id(state, rules)).as_ref() == Some(id)
}

/// The checkpoint cannot be restored, so it is treated as if it did not exist.
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
