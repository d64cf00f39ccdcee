//! What an agent does beside calling the model: running tools, finishing, or finding out where it stands.

use super::Next;
use crate::generation::Stage;
use crate::rounds;
use crate::{Conversation, Effect, Execution, Generation, Report, Rules};

pub(super) fn next_of_tools(state: &Conversation, generation: &Generation, rules: &Rules) -> Next {
    let id = || generation.id.clone();
    let progress = &generation.progress.rounds;
    if progress.resuming {
        let running = state.sandbox.as_ref().filter(|sandbox| sandbox.state.is_running());
        let inspect =
            running.map(|sandbox| Effect::Inspect { generation: id(), sandbox: sandbox.id.clone() });
        return Next { effects: inspect.into_iter().collect(), ..Next::default() };
    }
    if progress.stage == Stage::Finishing {
        return next_of_finishing(state, generation);
    }
    if rounds::is_done(generation) {
        return Next::report(Report::RoundDone { generation: id() });
    }
    let run = |execution: &Execution| Effect::RunTool {
        sandbox: execution.sandbox.clone(),
        generation: id(),
        execution: execution.id.clone(),
    };
    let may_begin = rounds::may_begin(state, generation) && !rounds::due(generation, rules).is_empty();
    Next {
        effects: progress.executions.iter().map(run).collect(),
        report: may_begin.then(|| Report::ToolsDue { generation: id() }),
        wake_at: None,
    }
}

/// What is left of a run whose last answer is complete: a checkpoint, then what changed since it began. Where there is
/// no checkpoint to compare with, it ends without a summary.
fn next_of_finishing(state: &Conversation, generation: &Generation) -> Next {
    let sandbox = state.sandbox.as_ref();
    let unsaved = sandbox.filter(|sandbox| sandbox.dirty.is_some() && sandbox.state.is_running());
    if unsaved.is_some_and(|sandbox| sandbox.failures == 0) {
        return Next::default(); // until the checkpoint is taken
    }
    let id = || generation.id.clone();
    let saved = sandbox.filter(|_| unsaved.is_none()).and_then(|sandbox| sandbox.checkpoint.as_ref());
    let before = sandbox.and_then(|sandbox| sandbox.before.clone());
    match saved.filter(|saved| before.as_ref() != Some(&saved.id)) {
        Some(saved) => {
            let summarize = Effect::Summarize { generation: id(), from: before, to: saved.id.clone() };
            Next { effects: vec![summarize], ..Next::default() }
        }
        None => Next::report(Report::Summarized { generation: id(), changes: Vec::new() }),
    }
}
