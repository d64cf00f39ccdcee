//! Files that a person puts into the workspace of a conversation, or takes away.
//!
//! The owner changes the file first and then reports it, because only a file that is there can be saved. What it has to
//! ask before that is here.

use crate::entries::Entries;
use crate::generation::{Phase, Stage};
use crate::sandboxes::{ensure, runs_inside};
use crate::{Change, Conversation, Ensure, Event, Refusal, Rules, SandboxId};

/// What a person did to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// Relative to the workspace.
    pub path: String,
    pub change: Change,
    /// Absent if the file was taken away.
    pub size: Option<u64>,
    pub by: String,
}

/// Whether a person may change files now. `adds` is the size of a file to be put there; `None` takes one away.
pub fn may_change_files(state: &Conversation, adds: Option<u64>, rules: &Rules) -> Result<(), Refusal> {
    if is_used_by_tools(state) {
        return Err(Refusal::ToolRunning);
    }
    let (Some(size), sandbox) = (adds, state.sandbox.as_ref()) else { return Ok(()) };
    // What cannot be saved cannot be measured either: the size below is that of the last checkpoint.
    if sandbox.is_some_and(|sandbox| sandbox.failures > 0) {
        return Err(Refusal::FilesNotSaved);
    }
    let saved =
        sandbox.and_then(|sandbox| sandbox.checkpoint.as_ref()).map_or(0, |checkpoint| checkpoint.bytes);
    if saved.saturating_add(size) > rules.workspace_bytes {
        return Err(Refusal::WorkspaceFull { limit: rules.workspace_bytes });
    }
    Ok(())
}

/// How to get a sandbox running to change files in it; `None` if it runs.
pub fn sandbox_for_files(state: &Conversation, rules: &Rules) -> Option<(SandboxId, Ensure)> {
    ensure(state, rules)
}

/// Whether a tool runs in the sandbox, is about to, or must still be killed there.
fn is_used_by_tools(state: &Conversation) -> bool {
    let used = state.active().is_some_and(|active| {
        let rounds = &active.progress.rounds;
        let goes_on = active.progress.phase == Phase::Running && !active.is_blocked();
        runs_inside(rounds)
            || (active.is_agent() && goes_on && (rounds.stage == Stage::Tools || rounds.resuming))
    });
    used || !state.owed_stops.is_empty()
}

pub(crate) fn changed(state: &Conversation, file: FileChange, entries: &mut Entries) {
    if state.sandbox.as_ref().is_some_and(|sandbox| sandbox.state.is_running()) {
        let FileChange { path, change, size, by } = file;
        entries.of_conversation(None, Event::FileChanged { path, change, size, by });
    }
}

#[cfg(test)]
mod tests;
