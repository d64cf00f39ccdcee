//! How an event changes the state. Applying an event never fails, because it already happened.

mod agent;
mod approvals;
mod ends;

use crate::delegation::{is_news, memory_in};
use crate::documents::{Touched, generation_document, segment_message};
use crate::generation::{Counters, Phase, Progress, Segment};
use crate::message::{TextKind, push_text};
use crate::{
    Brief, Conversation, Entry, Event, Generation, GenerationId, Memory, MessageId, MessageStatus, Part,
    Reporting, RetryOf, Role, Seq, Stage, UPDATE_PLAN,
};

/// Counted for each part of a message in addition to its bytes, so that many tiny parts reach the limit too.
const PART_BYTES: usize = 256;

impl Conversation {
    pub fn apply(&mut self, entry: &Entry) {
        self.apply_and_tell(entry);
    }

    /// Applies the event, and returns which documents it changes.
    pub(crate) fn apply_and_tell(&mut self, entry: &Entry) -> Touched {
        self.seq = entry.seq;
        self.said_bytes = self.said_bytes.saturating_add(entry.event.said_bytes());
        if !entry.event.is_text() {
            self.updated_at = entry.ts;
        }
        match &entry.event {
            Event::ConversationUpdated { title, metadata, files, key } => {
                if let Some(title) = title {
                    self.title = title.clone();
                }
                if let Some(metadata) = metadata {
                    self.metadata = Some(metadata.clone()).filter(|metadata| !metadata.is_null());
                }
                if let Some(files) = files {
                    self.files.clone_from(files);
                }
                if key.is_some() {
                    self.key.clone_from(key);
                }
                Touched::default()
            }
            Event::MessageAdded { message, .. } => {
                self.begun |= message.role == Role::User && !message.content.trim().is_empty();
                let touched = self.apply_to_generation(entry);
                Touched { messages: vec![message.clone()], ..touched }
            }
            Event::GenerationQueued { message_id, digest, retry_of, brief } => {
                let asked = Asked { message: message_id, digest, retry_of: retry_of.as_ref(), brief };
                self.enqueue(entry, &asked)
            }
            // `Generation::apply` names every event, so a new one cannot be forgotten.
            _ => self.apply_to_generation(entry),
        }
    }

    fn enqueue(&mut self, entry: &Entry, asked: &Asked<'_>) -> Touched {
        let (Some(id), Some(request)) = (entry.generation.clone(), entry.request.clone()) else {
            return Touched::default();
        };
        // The user's message, if any, is the event directly before this one and belongs to the generation.
        let first_seq = if asked.retry_of.is_some() { entry.seq } else { Seq(entry.seq.0.saturating_sub(1)) };
        let own_prompt = asked.brief.prompt.is_some().then_some(entry.seq);
        let queued = Generation {
            id,
            request,
            digest: asked.digest.to_owned(),
            message: asked.message.clone(),
            retry_of: asked.retry_of.cloned(),
            brief: Brief { prompt: None, ..asked.brief.clone() },
            prompt_seq: own_prompt.or(self.prompt_of(asked.retry_of)),
            progress: Progress {
                phase: Phase::Queued,
                attempt: 0,
                attempt_seq: Seq::ZERO,
                retry: None,
                first_seq,
                last_seq: entry.seq,
                produced: Seq::ZERO,
                queued_at: entry.ts,
                started_at: None,
                at_work_since: None,
                completed_at: None,
                kept: self.kept_by(asked.retry_of),
                shown: Vec::new(),
                first_answer: None,
                only_text: true,
                open: Vec::new(),
                approvals: Vec::new(),
                rounds: self.rounds_taken_up_by(asked.retry_of),
                reporting: Reporting::default(),
            },
            counters: Counters::default(),
        };
        let document = Box::new(generation_document(&self.id, &queued));
        self.queue.push_back(queued);
        Touched { messages: Vec::new(), generation: Some(document) }
    }

    fn apply_to_generation(&mut self, entry: &Entry) -> Touched {
        self.apply_to_sandbox(entry);
        self.apply_to_notifications(entry);
        let Some(id) = &entry.generation else { return Touched::default() };
        if matches!(entry.event, Event::ChatStarted { .. }) {
            self.take_turn(id);
        }
        let found = self.current.iter_mut().chain(&mut self.queue).find(|generation| generation.id == *id);
        let Some(generation) = found else { return Touched::default() };
        let segments = generation.apply(entry);
        if entry.event.is_end() {
            self.owed_stops.extend(generation.progress.rounds.take_executions(&self.user));
        }
        // Written down at once: the state forgets a generation that ended as soon as another takes its place.
        let document = entry.event.changes_generation();
        let document = document.then(|| Box::new(generation_document(&self.id, generation)));
        let messages = segments.iter().map(|segment| segment_message(&self.id, generation, segment));
        let touched = Touched { messages: messages.collect(), generation: document };
        self.forget_the_ended();
        touched
    }

    /// A generation that was cancelled in the queue does not replace one that is running. If none is running,
    /// it becomes the last one that ended.
    fn forget_the_ended(&mut self) {
        let Some(place) = self.queue.iter().position(Generation::ended) else { return };
        let ended = self.queue.remove(place);
        if self.active().is_none() {
            self.current = ended;
        }
    }

    /// The first attempt of a waiting generation makes it the current one.
    fn take_turn(&mut self, id: &GenerationId) {
        if let Some(place) = self.queue.iter().position(|generation| generation.id == *id) {
            self.current = self.queue.remove(place);
            self.settle_in();
        }
    }
}

/// The payload of `generation.queued`.
struct Asked<'a> {
    message: &'a MessageId,
    digest: &'a str,
    retry_of: Option<&'a RetryOf>,
    brief: &'a Brief,
}

impl Generation {
    /// Applies an event, and returns the segments that began, or changed in more than their text. A closed
    /// segment is removed from the state, because its content is in the message from then on.
    pub(crate) fn apply(&mut self, entry: &Entry) -> Vec<Segment> {
        let was_at_work = self.is_at_work();
        let remembered = self.remembered(&entry.event);
        let segments = self.apply_event(entry);
        if self.brief.parent.is_some() && (remembered.is_some() || is_news(&entry.event)) {
            self.progress.reporting.news = entry.seq;
        }
        if let Some(memory) = remembered {
            self.progress.reporting.memory = memory;
        }
        self.count_work(was_at_work, entry.ts);
        segments
    }

    /// The working memory that a call of `update_plan` which ended well leaves behind.
    fn remembered(&self, event: &Event) -> Option<Memory> {
        let Event::ToolEnd { tool_use_id, is_error: false, .. } = event else { return None };
        let (name, input) = self.call(tool_use_id)?;
        (name == UPDATE_PLAN).then(|| memory_in(input).ok()).flatten()
    }

    fn apply_event(&mut self, entry: &Entry) -> Vec<Segment> {
        self.progress.last_seq = entry.seq;
        if entry.event.is_produced() {
            self.progress.produced = entry.seq;
        }
        self.charge(entry.event.answer_bytes());
        match &entry.event {
            Event::ChatStarted { attempt, round, .. } => {
                self.begin_attempt(entry, *attempt);
                self.begin_round(*round);
                self.streaming()
            }
            Event::AssistantSegmentStarted { message_id } => {
                self.progress.first_answer.get_or_insert_with(|| message_id.clone());
                self.begin(entry, message_id, Role::Assistant, Vec::new())
            }
            Event::AssistantSegmentEnded { .. } => {
                self.progress.rounds.summarized = self.progress.rounds.stage == Stage::Finishing;
                self.close(MessageStatus::Complete)
            }
            Event::ChatDelta { message_id, text, chunks } => {
                self.add_text(message_id, TextKind::Answer, text, *chunks)
            }
            Event::ThinkingDelta { message_id, text, chunks, signature } => {
                self.progress.only_text = false;
                self.add_text(message_id, TextKind::Thinking, text, *chunks);
                self.sign(message_id, signature.as_deref())
            }
            Event::ToolStart { message_id, tool_use_id, tool_name, tool_input } => {
                self.progress.only_text = false;
                let (id, name) = (tool_use_id.clone(), tool_name.clone());
                let asked = Part::ToolUse { id, name, input: tool_input.clone() };
                self.progress.rounds.called(tool_use_id);
                self.begin(entry, message_id, Role::Tool, vec![asked])
            }
            Event::RoundEnded { .. }
            | Event::ToolBegan { .. }
            | Event::ToolOutput { .. }
            | Event::DelegationChanged { .. }
            | Event::MessageAdded { .. }
            | Event::SandboxChanged { .. }
            | Event::ToolEnd { .. }
            | Event::ApprovalRequested { .. }
            | Event::ApprovalResolved { .. }
            | Event::Usage { .. } => self.apply_to_round(entry),
            Event::AttemptRetracted { message_ids, .. } => {
                self.retract(message_ids);
                Vec::new()
            }
            Event::RetryScheduled { .. } | Event::ChatInterrupted { .. } | Event::ChatResumed { .. } => {
                self.pause_or_go_on(entry);
                self.streaming()
            }
            Event::ChatDone { .. } | Event::ChatError { .. } | Event::ChatCancelled { .. } => self.end(entry),
            Event::ConversationUpdated { .. }
            | Event::ToolStopped { .. }
            | Event::FileChanged { .. }
            | Event::ParentTold { .. }
            | Event::CheckpointTaken { .. }
            | Event::CheckpointFailed { .. }
            | Event::NotificationOwed { .. }
            | Event::NotificationMade { .. }
            | Event::GenerationQueued { .. } => Vec::new(),
        }
    }

    /// What happens to a round after the model has spoken.
    fn apply_to_round(&mut self, entry: &Entry) -> Vec<Segment> {
        match &entry.event {
            Event::RoundEnded { finish_reason, .. } => {
                self.settle(entry.seq, finish_reason.as_ref());
                Vec::new()
            }
            Event::ToolBegan { .. } | Event::ToolOutput { .. } | Event::MessageAdded { .. } => {
                self.progress.rounds.apply(entry);
                Vec::new()
            }
            Event::DelegationChanged { .. } => {
                self.progress.rounds.apply(entry);
                self.progress.rounds.paused &= self.waits_for_a_decision();
                Vec::new()
            }
            Event::SandboxChanged { state, .. } => {
                self.progress.rounds.apply(entry);
                self.sleep(*state);
                Vec::new()
            }
            Event::ToolEnd { message_id, tool_use_id, result, is_error, exit_code, outcome } => {
                let duration_ms = self.progress.rounds.ran_for(tool_use_id, entry.ts);
                let conversation_id = self.progress.rounds.child_of(tool_use_id);
                self.progress.rounds.apply(entry);
                let result = Part::ToolResult {
                    tool_use_id: tool_use_id.clone(),
                    content: result.clone(),
                    is_error: *is_error,
                    exit_code: *exit_code,
                    outcome: *outcome,
                    duration_ms,
                    conversation_id,
                };
                self.end_tool(message_id, result)
            }
            Event::ApprovalRequested { .. } | Event::ApprovalResolved { .. } => {
                self.apply_to_approvals(&entry.event);
                Vec::new()
            }
            Event::Usage { input_tokens, output_tokens } => {
                self.counters.input_tokens = self.counters.input_tokens.saturating_add(*input_tokens);
                self.counters.output_tokens = self.counters.output_tokens.saturating_add(*output_tokens);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn charge(&mut self, bytes: usize) {
        self.counters.answer_bytes = self.counters.answer_bytes.saturating_add(bytes);
    }

    fn begin_attempt(&mut self, entry: &Entry, attempt: u32) {
        let progress = &mut self.progress;
        progress.attempt = attempt;
        progress.attempt_seq = entry.seq;
        progress.retry = None;
        // An attempt that begins while one should be under way, and not by somebody's word just now, takes
        // the place of one that was lost.
        let goes_on = progress.rounds.resuming || progress.rounds.stage != Stage::Answering;
        if progress.phase == Phase::Running && progress.at_work_since != Some(entry.ts) && !goes_on {
            self.counters.lost_in_a_row = self.counters.lost_in_a_row.saturating_add(1);
            self.counters.resumed = self.counters.resumed.saturating_add(1);
        }
        progress.started_at = progress.started_at.or(Some(entry.ts));
        progress.phase = Phase::Running;
    }

    /// The segment whose text is arriving. A change of phase may show or hide it.
    fn streaming(&self) -> Vec<Segment> {
        self.open_segment().cloned().into_iter().collect()
    }

    /// Begins a message. Text is added to the assistant's later; a tool call has its arguments from the start.
    fn begin(&mut self, entry: &Entry, message: &MessageId, role: Role, parts: Vec<Part>) -> Vec<Segment> {
        let status = if parts.is_empty() { MessageStatus::Streaming } else { MessageStatus::Complete };
        let message = message.clone();
        self.progress.shown.push(message.clone());
        let (seq, created_at) = (entry.seq, entry.ts);
        let segment = Segment { message, seq, created_at, role, parts, status };
        self.progress.open.push(segment.clone());
        vec![segment]
    }

    fn add_text(&mut self, message: &MessageId, kind: TextKind, text: &str, chunks: u32) -> Vec<Segment> {
        self.counters.chunks_received += u64::from(chunks);
        let open = self.progress.open.iter_mut();
        // `observe` never records text for a segment that is not open. If a log has some anyway, it is ignored,
        // so that the rest of the log can still be folded.
        if let Some(segment) = open.into_iter().find(|open| open.is_streaming() && open.message == *message) {
            let parts = segment.parts.len();
            push_text(&mut segment.parts, kind, text);
            let new_parts = segment.parts.len() - parts;
            self.charge(new_parts * PART_BYTES);
        }
        Vec::new()
    }

    /// Closes the segment that is streaming.
    fn close(&mut self, status: MessageStatus) -> Vec<Segment> {
        let Some(place) = self.progress.open.iter().position(Segment::is_streaming) else {
            return Vec::new();
        };
        let segment = self.progress.open.remove(place);
        vec![Segment { status, ..segment }]
    }

    fn end_tool(&mut self, message: &MessageId, result: Part) -> Vec<Segment> {
        let open = &mut self.progress.open;
        let Some(place) = open.iter().position(|open| open.message == *message) else {
            return Vec::new();
        };
        let mut segment = open.remove(place);
        segment.parts.push(result);
        vec![segment]
    }

    /// Questions are withdrawn with what was said. Those of an agent belong to settled rounds.
    fn retract(&mut self, message_ids: &[MessageId]) {
        if !self.is_agent() {
            self.progress.approvals.clear();
        }
        let progress = &mut self.progress;
        progress.shown.retain(|message| !message_ids.contains(message));
        progress.open.retain(|segment| !message_ids.contains(&segment.message));
        progress.first_answer.take_if(|message| message_ids.contains(message));
        if progress.shown.is_empty() {
            progress.only_text = true;
            self.counters.answer_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests;
