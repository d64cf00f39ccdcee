//! What an agent does besides calling the model: run tools, finish, or find out where it stands.

use super::Next;
use crate::generation::Stage;
use crate::rounds;
use crate::{Conversation, Effect, Execution, Generation, Place, Ran, Report, RunEnd, Seq, Surroundings};

pub(super) fn next_of_tools(
    state: &Conversation,
    generation: &Generation,
    around: &Surroundings<'_>,
) -> Next {
    let id = || generation.id.clone();
    let progress = &generation.progress.rounds;
    if progress.resuming {
        if state.sandbox.is_none() {
            return Next::report(Report::Inspected { generation: id(), truth: String::new() });
        }
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
    if let Some(lost) = progress.executions.iter().find(|run| is_lost(run, around.owned_after)) {
        let (execution, output, end) = (lost.id.clone(), Vec::new(), Some(RunEnd::Lost));
        return Next::report(Report::Ran(Ran { generation: id(), execution, output, end }));
    }
    let run = |execution: &Execution| {
        let (generation, run) = (id(), execution.id.clone());
        match (execution.runs_in(), execution.sandbox.clone()) {
            (Place::Child, _) => Effect::Delegate { generation, execution: run },
            (_, Some(sandbox)) => Effect::RunTool { sandbox, generation, execution: run },
            (_, None) => Effect::AskTool { generation, execution: run },
        }
    };
    let due = rounds::due(state, generation, around.rules);
    Next {
        effects: progress.executions.iter().map(run).collect(),
        report: (!due.is_empty()).then(|| Report::ToolsDue { generation: id() }),
        wake_at: None,
    }
}

/// Whether a former owner may have asked a tool elsewhere that must not be asked twice. Its answer went to that owner.
fn is_lost(execution: &Execution, owned_after: Seq) -> bool {
    execution.runs_in() == Place::Elsewhere && !execution.repeatable && execution.began_seq <= owned_after
}

/// What is left to do when the last answer is complete: take a checkpoint, then compare it with the one before the run. If
/// there is none to compare with, the run ends without a summary.
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
