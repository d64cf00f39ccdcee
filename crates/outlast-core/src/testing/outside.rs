//! Sandboxes, executions and checkpoints of the tests. They survive their owner, as the real ones do.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::{
    Change, ChangedFile, CheckpointId, Conversation, Effect, Ensure, Entry, Event, ExecutionId, Output, Ran,
    Report, RunEnd, SandboxId, SandboxState, ToolStream,
};

/// What every tool of the tests writes, in two pieces.
pub(crate) const OUTPUT: [&str; 2] = ["working\n", "done\n"];

#[derive(Clone, Debug, Default)]
pub(crate) struct Outside {
    /// The sandboxes that exist, and whether they are paused.
    pub(crate) sandboxes: BTreeMap<SandboxId, bool>,
    /// Executions that have started. A second start under the same id is a broken promise.
    pub(crate) started: BTreeSet<ExecutionId>,
    pub(crate) stopped: BTreeSet<ExecutionId>,
    /// How often a tool elsewhere was asked, by the idempotency key.
    pub(crate) asked: BTreeMap<ExecutionId, u32>,
    /// Starts of each call that is not read-only, by what the call does.
    pub(crate) ran: BTreeMap<String, u32>,
    pub(crate) checkpoints: BTreeSet<CheckpointId>,
    /// What checkpoints leave out.
    pub(crate) left_out: Option<String>,
    /// Tools do not get on.
    pub(crate) held: bool,
    /// Executions of which the sandbox no longer has a record.
    pub(crate) forgotten: BTreeSet<ExecutionId>,
    /// Sandboxes cannot be made, checkpoints cannot be taken, or cannot be restored.
    pub(crate) no_sandboxes: bool,
    pub(crate) no_checkpoints: bool,
    pub(crate) no_restores: bool,
}

impl Outside {
    /// The outside to which this log is true. What has begun and not ended has either started or not.
    pub(crate) fn after(log: &[Entry], started: bool) -> Outside {
        let mut outside = Outside::default();
        let mut open: BTreeMap<&str, &ExecutionId> = BTreeMap::new();
        for entry in log {
            match &entry.event {
                Event::SandboxChanged { sandbox_id, state, .. } if state.is_gone() => {
                    outside.sandboxes.remove(sandbox_id);
                }
                Event::SandboxChanged { sandbox_id, state, .. } => {
                    outside.sandboxes.insert(sandbox_id.clone(), *state == SandboxState::Paused);
                }
                Event::CheckpointTaken { checkpoint_id, .. } => {
                    outside.checkpoints.insert(checkpoint_id.clone());
                }
                Event::ToolBegan { tool_use_id, execution_id, .. } => {
                    open.insert(tool_use_id, execution_id);
                    outside.started.insert(execution_id.clone());
                }
                Event::ToolOutput { tool_use_id, .. } | Event::ToolEnd { tool_use_id, .. } => {
                    open.remove(tool_use_id.as_str());
                }
                Event::ToolStopped { execution_id, .. } => {
                    outside.stopped.insert(execution_id.clone());
                }
                _ => {}
            }
        }
        for execution in open.into_values().filter(|_| !started) {
            outside.started.remove(execution);
        }
        outside
    }

    /// Does this, or the next bit of it, and tells what came of it.
    pub(crate) fn carry_out(&mut self, effect: &Effect, state: &Conversation) -> Option<Report> {
        match effect {
            Effect::CallModel { .. } => None,
            Effect::EnsureSandbox { sandbox, how } => Some(self.ensure(sandbox, how)),
            Effect::RunTool { sandbox, execution, .. } => self.run(sandbox, execution, state),
            Effect::Delegate { .. } | Effect::TellParent { .. } => None, // the test carries these out
            Effect::CancelChild { execution, .. } => Some(Report::Stopped { execution: execution.clone() }),
            Effect::AskTool { generation, execution } => {
                *self.asked.entry(execution.clone()).or_default() += 1;
                let (generation, execution) = (generation.clone(), execution.clone());
                let end = RunEnd::Ended { result: json!("asked"), is_error: false, exit_code: None };
                let ran = Ran { generation, execution, output: Vec::new(), end: Some(end) };
                (!self.held).then_some(Report::Ran(ran))
            }
            Effect::StopExecution { execution, .. } => {
                self.stopped.insert(execution.clone());
                Some(Report::Stopped { execution: execution.clone() })
            }
            Effect::TakeCheckpoint { sandbox, checkpoint } => Some(self.checkpoint(sandbox, checkpoint)),
            Effect::PauseSandbox { sandbox } => Some(match self.sandboxes.get_mut(sandbox) {
                Some(paused) => {
                    *paused = true;
                    Report::SandboxPaused { sandbox: sandbox.clone() }
                }
                None => gone(sandbox),
            }),
            Effect::KillSandbox { sandbox } => {
                self.sandboxes.remove(sandbox);
                Some(Report::SandboxKilled { sandbox: sandbox.clone() })
            }
            Effect::Summarize { generation, to, .. } => {
                assert!(self.checkpoints.contains(to));
                let changes = vec![ChangedFile { path: "src/main.rs".into(), change: Change::Added }];
                Some(Report::Summarized { generation: generation.clone(), changes })
            }
            Effect::Notify { notification } => Some(Report::Notified { notification: notification.clone() }),
            Effect::Inspect { sandbox, .. } if !self.sandboxes.contains_key(sandbox) => Some(gone(sandbox)),
            Effect::Inspect { generation, .. } => {
                Some(Report::Inspected { generation: generation.clone(), truth: " M src/main.rs".into() })
            }
        }
    }

    pub(crate) fn ensure(&mut self, sandbox: &SandboxId, how: &Ensure) -> Report {
        let id = sandbox.clone();
        let state = match how {
            Ensure::Resume if !self.sandboxes.contains_key(sandbox) => return gone(sandbox),
            Ensure::Restore(checkpoint) if self.no_restores => {
                let (checkpoint, reason) = (checkpoint.clone(), "damaged".to_owned());
                return Report::RestoreFailed { checkpoint, reason };
            }
            _ if self.no_sandboxes => {
                return Report::SandboxFailed { sandbox: id, reason: "no bwrap".into() };
            }
            Ensure::Resume => SandboxState::Resumed,
            Ensure::Create => SandboxState::Created,
            Ensure::Restore(checkpoint) => {
                assert!(self.checkpoints.contains(checkpoint), "only what was saved can be restored");
                SandboxState::Restored
            }
        };
        self.sandboxes.insert(id.clone(), false);
        Report::SandboxReady { sandbox: id, state }
    }

    fn run(&mut self, sandbox: &SandboxId, execution: &ExecutionId, state: &Conversation) -> Option<Report> {
        let running = state.active().expect("a generation runs its tools");
        let begun = running.execution(execution).expect("recorded before anything is started");
        let Some(paused) = self.sandboxes.get_mut(sandbox) else {
            let not_started = (!self.started.contains(execution)).then(|| execution.clone());
            let not_started = not_started.into_iter().collect();
            return Some(Report::SandboxGone { sandbox: sandbox.clone(), not_started });
        };
        *paused = false;
        assert!(!self.stopped.contains(execution), "a stopped execution never runs");
        if self.started.insert(execution.clone()) {
            let (name, input) = running.call(&begun.tool_use_id).expect("the call is open");
            *self.ran.entry(format!("{name} {input}")).or_default() += 1;
        }
        let (generation, execution) = (running.id.clone(), execution.clone());
        let ran = |output, end| Some(Report::Ran(Ran { generation, execution, output, end }));
        if self.forgotten.contains(&begun.id) {
            return ran(vec![], Some(RunEnd::Lost));
        }
        if self.held {
            return None;
        }
        let written = begun.offsets.stdout;
        let text = match written {
            0 => OUTPUT[0],
            so_far if so_far == OUTPUT[0].len() as u64 => OUTPUT[1],
            _ => {
                let result = json!(OUTPUT.concat());
                return ran(vec![], Some(RunEnd::Ended { result, is_error: false, exit_code: Some(0) }));
            }
        };
        let bytes = text.len() as u64;
        ran(vec![Output { stream: ToolStream::Stdout, offset: written, bytes, text: text.into() }], None)
    }

    fn checkpoint(&mut self, sandbox: &SandboxId, checkpoint: &CheckpointId) -> Report {
        let id = checkpoint.clone();
        match self.sandboxes.get(sandbox) {
            None => gone(sandbox),
            Some(_) if self.no_checkpoints => {
                Report::CheckpointFailed { checkpoint: id, reason: "disk full".into() }
            }
            Some(_) => {
                self.checkpoints.insert(id.clone());
                let truth = Some(" M src/main.rs".to_owned());
                Report::CheckpointTaken {
                    checkpoint: id,
                    files: 3,
                    bytes: 120,
                    truth,
                    left_out: self.left_out.clone(),
                }
            }
        }
    }
}

fn gone(sandbox: &SandboxId) -> Report {
    Report::SandboxGone { sandbox: sandbox.clone(), not_started: Vec::new() }
}
