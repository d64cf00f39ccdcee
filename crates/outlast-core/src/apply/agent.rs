//! What events change in the rounds of an agent, in its sandbox, and in what is owed after an end.

use std::time::Duration;

use crate::generation::{Phase, Rounds, ScheduledRetry, Stage};
use crate::message::sign;
use crate::rounds::CALL_IDS_MAX;
use crate::sandbox::{ALWAYS_MAX, Checkpoint};
use crate::{
    Always, Child, Conversation, ConversationId, Entry, Event, Execution, Generation, MessageId, Offsets,
    Outcome, OwedStop, Place, RetryMode, RetryOf, Sandbox, SandboxId, SandboxState, Segment, Seq, Timestamp,
    UserId, child_conversation,
};

/// How many failed generations can hand their settled rounds on to the one that continues them, ...
const TAKEN_UP_MAX: usize = 16;
/// ... and how many rounds: more than a model can read.
const ROUND_ENDS_MAX: usize = 1024;

impl Conversation {
    /// A generation whose turn has come works in the sandbox that is there.
    pub(super) fn settle_in(&mut self) {
        let Some(generation) = &mut self.current else { return };
        let Some(sandbox) = self.sandbox.as_mut() else { return };
        generation.progress.rounds.sandbox = (!sandbox.state.is_gone()).then(|| sandbox.id.clone());
        // What a generation changes is what changed since the first of those it takes up began.
        if generation.retry_of.is_none() {
            sandbox.before = sandbox.checkpoint.as_ref().map(|checkpoint| checkpoint.id.clone());
        }
        generation.progress.rounds.before.clone_from(&sandbox.before);
    }

    /// A generation's prompt is also used by those that retry or continue it.
    pub(super) fn prompt_of(&self, retry_of: Option<&RetryOf>) -> Option<Seq> {
        let failed =
            self.current.as_ref().filter(|failed| Some(&failed.id) == retry_of.map(|of| &of.generation_id));
        failed?.prompt_seq
    }

    /// The messages that a continuation builds on: all that answer the same question so far.
    pub(super) fn kept_by(&self, retry_of: Option<&RetryOf>) -> Vec<MessageId> {
        let continued = retry_of.filter(|retry| retry.mode == RetryMode::Continue);
        match (continued, &self.current) {
            (Some(retry), Some(failed)) if failed.id == retry.generation_id => failed.answer_messages(),
            _ => Vec::new(),
        }
    }

    /// The settled rounds of the generation that this one retries or continues.
    pub(super) fn rounds_taken_up_by(&self, retry_of: Option<&RetryOf>) -> Rounds {
        let failed =
            self.current.as_ref().filter(|failed| Some(&failed.id) == retry_of.map(|of| &of.generation_id));
        let Some(failed) = failed else { return Rounds::default() };
        let rounds = &failed.progress.rounds;
        let mut of = rounds.of.clone();
        if !rounds.ends.is_empty() {
            of.push(failed.id.clone());
        }
        of.drain(..of.len().saturating_sub(TAKEN_UP_MAX));
        let ends = rounds.ends[rounds.ends.len().saturating_sub(ROUND_ENDS_MAX)..].to_vec();
        Rounds {
            inherited: rounds.settled(),
            ends,
            of,
            messages: rounds.messages,
            call_ids: rounds.call_ids.clone(),
            touched: rounds.touched,
            ..Rounds::default()
        }
    }

    /// What an event changes outside its generation, before the generation takes it in.
    pub(super) fn apply_to_sandbox(&mut self, entry: &Entry) {
        match &entry.event {
            Event::SandboxChanged { sandbox_id, state, reason } => {
                self.change_sandbox(sandbox_id, *state, entry.ts);
                if let Some(sandbox) = &mut self.sandbox {
                    sandbox.reason.clone_from(reason);
                }
            }
            Event::ToolBegan { tool_use_id, read_only, place: Place::Sandbox, .. } => {
                self.use_sandbox(entry.ts);
                let call = self.active().and_then(|active| active.call(tool_use_id));
                let background = call.is_some_and(|(_, input)| input["background"] == true);
                if let Some(sandbox) = self.sandbox.as_mut().filter(|_| !read_only) {
                    sandbox.background |= background;
                    (sandbox.dirty, sandbox.changed_by_person) = (Some(entry.seq), false);
                    (sandbox.failures, sandbox.failed_at) = (0, Timestamp::default());
                }
            }
            Event::FileChanged { .. } => {
                self.use_sandbox(entry.ts);
                let Some(sandbox) = &mut self.sandbox else { return };
                (sandbox.dirty, sandbox.changed_by_person) = (Some(entry.seq), true);
                (sandbox.failures, sandbox.failed_at) = (0, Timestamp::default());
            }
            Event::CheckpointTaken { checkpoint_id, bytes, left_out, .. } => {
                let (id, taken_at, branch) = (checkpoint_id.clone(), entry.ts, self.branch());
                let (branch, bytes, left_out) = (branch.map(str::to_owned), *bytes, left_out.clone());
                self.keep_checkpoint(Checkpoint { id, taken_at, branch, bytes, left_out });
            }
            Event::CheckpointFailed { checkpoint_id, .. } => {
                let Some(sandbox) = &mut self.sandbox else { return };
                if checkpoint_id.is_some() {
                    (sandbox.checkpoint, sandbox.before) = (None, None);
                    return;
                }
                (sandbox.failures, sandbox.failed_at) = (sandbox.failures + 1, entry.ts);
            }
            Event::ToolBegan { execution_id, place: Place::Child, .. } => {
                self.children.push(child_conversation(&self.user, execution_id));
            }
            Event::ParentTold { seq } => {
                if let Some(child) = &mut self.current {
                    let told = &mut child.progress.reporting.told;
                    *told = (*told).max(*seq);
                }
            }
            Event::ToolStopped { execution_id, .. } => {
                self.owed_stops.retain(|owed| owed.execution != *execution_id);
            }
            Event::ApprovalResolved { tool_use_id, decision, always, pattern, .. } => {
                self.use_sandbox(entry.ts);
                if *always && let Some(tool) = self.asked_tool(entry, tool_use_id) {
                    self.always.push(Always { tool, decision: *decision, pattern: pattern.clone() });
                    self.always.drain(..self.always.len().saturating_sub(ALWAYS_MAX));
                }
            }
            event if event.is_end() => self.use_sandbox(entry.ts),
            Event::ApprovalRequested { .. } | Event::ToolEnd { .. } | Event::ChatResumed { .. } => {
                self.use_sandbox(entry.ts);
            }
            _ => {}
        }
    }

    fn keep_checkpoint(&mut self, checkpoint: Checkpoint) {
        let touched = self.active().is_some_and(|active| active.progress.rounds.touched);
        let Some(sandbox) = &mut self.sandbox else { return };
        (sandbox.dirty, sandbox.changed_by_person) = (None, false);
        (sandbox.failures, sandbox.failed_at) = (0, Timestamp::default());
        if !touched {
            sandbox.before = Some(checkpoint.id.clone()); // of what an earlier generation left behind
            if let Some(active) = self.current.as_mut().filter(|current| !current.ended()) {
                active.progress.rounds.before = Some(checkpoint.id.clone());
            }
        }
        sandbox.checkpoint = Some(checkpoint);
    }

    fn change_sandbox(&mut self, id: &SandboxId, state: SandboxState, now: Timestamp) {
        if state.is_gone() {
            self.owed_stops.retain(|owed| owed.sandbox.as_ref() != Some(id)); // it took them with it
        }
        let new = Sandbox {
            id: id.clone(),
            state,
            since: now,
            reason: String::new(),
            used_at: now,
            dirty: None,
            changed_by_person: false,
            checkpoint: None,
            before: None,
            failures: 0,
            failed_at: Timestamp::default(),
            count: 0,
            background: false,
        };
        let sandbox = self.sandbox.get_or_insert(new);
        (sandbox.id, sandbox.state, sandbox.since) = (id.clone(), state, now);
        match state {
            SandboxState::Created | SandboxState::Restored => {
                (sandbox.used_at, sandbox.dirty, sandbox.count) = (now, None, sandbox.count + 1);
                sandbox.background = false;
                if state == SandboxState::Created {
                    (sandbox.checkpoint, sandbox.before) = (None, None);
                }
            }
            SandboxState::Resumed => sandbox.used_at = now,
            SandboxState::Lost | SandboxState::Killed => sandbox.dirty = None,
            SandboxState::Paused => {}
        }
    }

    fn use_sandbox(&mut self, now: Timestamp) {
        if let Some(sandbox) = &mut self.sandbox {
            sandbox.used_at = now;
        }
    }

    fn asked_tool(&self, entry: &Entry, tool_use_id: &str) -> Option<String> {
        let generation = self.generation(entry.generation.as_ref()?)?;
        let mut asked = generation.progress.approvals.iter();
        asked.find(|approval| approval.tool_use_id == tool_use_id).map(|approval| approval.tool_name.clone())
    }

    /// What the client says the branch is.
    pub(crate) fn branch(&self) -> Option<&str> {
        self.metadata.as_ref()?.get("branch")?.as_str()
    }
}

impl Generation {
    /// Counts the time at work: what it spends waiting for a person does not count.
    pub(super) fn count_work(&mut self, before: bool, now: Timestamp) {
        match (before, self.is_at_work()) {
            (false, true) => self.progress.at_work_since = Some(now),
            (true, false) => {
                let since = self.progress.at_work_since.unwrap_or(now);
                let worked = u64::try_from(now.since(since).as_millis()).unwrap_or(u64::MAX);
                self.counters.worked_ms = self.counters.worked_ms.saturating_add(worked);
            }
            (true, true) | (false, false) => {}
        }
    }

    /// A generation that waits for a person sleeps with its sandbox.
    pub(super) fn sleep(&mut self, state: SandboxState) {
        let waits = self.progress.phase == Phase::Running && self.waits_for_a_decision();
        let sleeps = matches!(state, SandboxState::Paused | SandboxState::Killed);
        self.progress.rounds.paused = waits && sleeps;
    }

    /// The answer is complete. From here on it can only be added to.
    pub(super) fn settle(&mut self, seq: Seq, finish_reason: Option<&String>) {
        let progress = &mut self.progress;
        progress.rounds.messages += progress.kept.len() + progress.shown.len();
        progress.shown.clear();
        let kept = std::mem::take(&mut progress.kept);
        progress.first_answer = kept.into_iter().next().or(progress.first_answer.take());
        progress.only_text = true;
        progress.rounds.ends.push(seq);
        progress.rounds.stage = if finish_reason.is_some() { Stage::Finishing } else { Stage::Tools };
        progress.rounds.finish_reason = finish_reason.cloned();
        self.start_counting();
    }

    /// What was lost and what failed counts for one round.
    fn start_counting(&mut self) {
        (self.counters.failures, self.counters.lost_in_a_row, self.counters.answer_bytes) = (0, 0, 0);
    }

    pub(super) fn begin_round(&mut self, round: u32) {
        let rounds = &mut self.progress.rounds;
        (rounds.round, rounds.resuming, rounds.paused) = (round, false, false);
        match rounds.stage {
            Stage::Answering => {}
            Stage::Tools | Stage::Finishing => {
                rounds.stage = Stage::Answering;
                rounds.unknown.clear();
                rounds.lost = 0;
                self.start_counting(); // the output of the tools counts for the round that had them
            }
        }
    }

    /// A person resumes an interrupted run, or wakes the sandbox of one that waits.
    pub(super) fn wake(&mut self) {
        let interrupted = self.progress.phase == Phase::Interrupted;
        let is_agent = self.is_agent();
        let rounds = &mut self.progress.rounds;
        let finishing = rounds.stage == Stage::Finishing; // needs no sandbox that tells the truth
        rounds.resuming = interrupted && is_agent && !finishing;
        rounds.woken = !interrupted && is_agent;
    }

    pub(super) fn pause_or_go_on(&mut self, entry: &Entry) {
        if matches!(entry.event, Event::ChatResumed { .. }) {
            self.wake();
        }
        let (progress, counters) = (&mut self.progress, &mut self.counters);
        match &entry.event {
            Event::RetryScheduled { attempt, delay_ms, reason, handed_over } => {
                if !handed_over {
                    counters.failures += 1;
                    counters.lost_in_a_row = 0;
                }
                let (attempt, delay_ms, reason, ts) = (*attempt, *delay_ms, reason.clone(), entry.ts);
                progress.retry = Some(ScheduledRetry { attempt, delay_ms, reason, ts });
                progress.phase = Phase::Retrying { until: ts.after(Duration::from_millis(delay_ms)) };
            }
            Event::ChatInterrupted { .. } => {
                progress.retry = None;
                progress.phase = Phase::Interrupted;
            }
            Event::ChatResumed { .. } => {
                counters.lost_in_a_row = 0;
                counters.resumed = counters.resumed.saturating_add(1);
                progress.phase = Phase::Running;
            }
            _ => {}
        }
    }

    pub(super) fn sign(&mut self, message: &MessageId, signature: Option<&str>) -> Vec<Segment> {
        let mut open = self.progress.open.iter_mut();
        if let (Some(segment), Some(signature)) = (open.find(|open| open.message == *message), signature) {
            sign(&mut segment.parts, signature);
        }
        Vec::new()
    }
}

impl Rounds {
    pub(super) fn called(&mut self, tool_use_id: &str) {
        if self.round > 0 && self.call_ids.len() < CALL_IDS_MAX {
            self.call_ids.push(tool_use_id.to_owned());
        }
    }

    /// The conversation of the sub-agent that did a call.
    pub(super) fn child_of(&self, tool_use_id: &str) -> Option<ConversationId> {
        let running = self.executions.iter().find(|execution| execution.tool_use_id == tool_use_id)?;
        running.child.as_ref().map(|child| child.conversation.clone())
    }

    /// How long a call has been running, in milliseconds. `None` if it is not.
    pub(super) fn ran_for(&self, tool_use_id: &str, now: Timestamp) -> Option<u64> {
        let running = self.executions.iter().find(|execution| execution.tool_use_id == tool_use_id)?;
        Some(u64::try_from(now.since(running.began_at).as_millis()).unwrap_or(u64::MAX))
    }

    /// The end of a generation leaves its running tools to the conversation.
    pub(super) fn take_executions(&mut self, user: &UserId) -> Vec<OwedStop> {
        let running = std::mem::take(&mut self.executions).into_iter();
        // A tool elsewhere notices that its connection is closed; there is nothing to stop.
        let owed = running.filter(|run| matches!(run.runs_in(), Place::Sandbox | Place::Child));
        let stop = |run: Execution| OwedStop {
            child: (run.place == Place::Child).then(|| child_conversation(user, &run.id)),
            tool_use_id: run.tool_use_id,
            execution: run.id,
            sandbox: run.sandbox,
        };
        owed.map(stop).collect()
    }

    pub(super) fn apply(&mut self, entry: &Entry) {
        match &entry.event {
            Event::ToolBegan { tool_use_id, execution_id, read_only, place, idempotent } => {
                let sandbox = self.sandbox.clone().filter(|_| place.is_sandbox());
                if sandbox.is_none() && place.is_sandbox() {
                    return;
                }
                self.touched |= place.is_sandbox() && !read_only;
                self.delegated += u32::from(*place == Place::Child);
                let lost = self.executions.iter().position(|execution| execution.tool_use_id == *tool_use_id);
                let again = lost.map(|place| self.executions.remove(place)).is_some();
                self.executions.push(Execution {
                    tool_use_id: tool_use_id.clone(),
                    id: execution_id.clone(),
                    sandbox,
                    began_seq: entry.seq,
                    began_at: entry.ts,
                    offsets: Offsets::default(),
                    again,
                    place: *place,
                    child: None,
                    repeatable: *read_only || *idempotent,
                });
            }
            Event::DelegationChanged { tool_use_id, conversation_id, state } => {
                let mut running = self.executions.iter_mut();
                if let Some(run) = running.find(|run| run.tool_use_id == *tool_use_id) {
                    let (conversation, state) = (conversation_id.clone(), state.clone());
                    run.child = Some(Box::new(Child { conversation, state }));
                }
            }
            Event::ToolOutput { tool_use_id, stream, text, offset, bytes } => {
                let mut running = self.executions.iter_mut();
                let running = running.find(|execution| execution.tool_use_id == *tool_use_id);
                if let (Some(execution), Some(offset)) = (running, offset) {
                    execution.offsets.advance(*stream, offset + bytes.unwrap_or(text.len() as u64));
                }
            }
            Event::ToolEnd { tool_use_id, outcome, .. } => {
                self.executions.retain(|execution| execution.tool_use_id != *tool_use_id);
                if *outcome == Some(Outcome::Unknown) {
                    self.unknown.push(tool_use_id.clone());
                }
            }
            Event::SandboxChanged { sandbox_id, state, .. } => {
                self.woken = false;
                self.sandbox = (!state.is_gone()).then(|| sandbox_id.clone());
                if state.is_gone() {
                    // What has not ended by now starts again in the next one. What runs elsewhere continues.
                    self.executions.retain(|execution| execution.sandbox.is_none());
                    self.lost += u32::from(*state == SandboxState::Lost);
                }
            }
            Event::MessageAdded { resumes, .. } => {
                self.resuming &= !resumes;
                self.messages += 1;
            }
            _ => {}
        }
    }
}
