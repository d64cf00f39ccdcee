//! The state of a conversation: what its log adds up to.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::generation::{Approval, Decided, Phase, ScheduledRetry, Segment};
use crate::message::TextKind;
use crate::{
    ConversationId, Entry, Event, Generation, GenerationId, MessageId, MessageStatus, Part, RetryMode,
    RetryOf, Role, Seq, Timestamp, UserId,
};

/// How much of the first message is kept to make a title of.
const OPENING_CHARS: usize = 60;

/// Everything the rules need to know. The transcript is not here: it may be long and is only read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// Its id.
    pub id: ConversationId,
    /// Whose it is.
    pub user: UserId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed in more than text.
    pub updated_at: Timestamp,
    /// The last event applied.
    pub seq: Seq,
    /// Its title.
    pub title: Option<String>,
    /// Free JSON of the client.
    pub metadata: Option<Value>,
    /// How the first message begins: a title until somebody gives a better one.
    pub opening: Option<String>,
    /// The generation whose turn it is, or the last one that ended.
    pub current: Option<Generation>,
    /// Those that wait, oldest first.
    pub queue: VecDeque<Generation>,
}

impl Conversation {
    /// A conversation before its first event.
    pub fn new(id: ConversationId, user: UserId, created_at: Timestamp) -> Conversation {
        Conversation {
            id,
            user,
            created_at,
            updated_at: created_at,
            seq: Seq::ZERO,
            title: None,
            metadata: None,
            opening: None,
            current: None,
            queue: VecDeque::new(),
        }
    }

    /// Takes in what happened. Never fails: it already happened.
    pub fn apply(&mut self, entry: &Entry) {
        self.seq = entry.seq;
        if !entry.event.is_text() {
            self.updated_at = entry.ts;
        }
        match &entry.event {
            Event::ConversationUpdated { title, metadata } => {
                self.title = title.clone().or(self.title.take());
                if let Some(metadata) = metadata {
                    self.metadata = Some(metadata.clone()).filter(|metadata| !metadata.is_null());
                }
            }
            Event::MessageAdded { message } => {
                if self.opening.is_none() && message.role == Role::User {
                    self.opening = opening(&message.content);
                }
            }
            Event::GenerationQueued { .. } => self.enqueue(entry),
            Event::ChatStarted { .. }
            | Event::AssistantSegmentStarted { .. }
            | Event::AssistantSegmentEnded { .. }
            | Event::ChatDelta { .. }
            | Event::ThinkingDelta { .. }
            | Event::ToolStart { .. }
            | Event::ToolOutput { .. }
            | Event::ToolEnd { .. }
            | Event::ApprovalRequested { .. }
            | Event::ApprovalResolved { .. }
            | Event::Usage { .. }
            | Event::AttemptRetracted { .. }
            | Event::RetryScheduled { .. }
            | Event::ChatInterrupted { .. }
            | Event::ChatResumed { .. }
            | Event::ChatDone { .. }
            | Event::ChatError { .. }
            | Event::ChatCancelled { .. } => self.apply_to_generation(entry),
        }
    }

    /// Takes in several.
    pub fn apply_all(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.apply(entry);
        }
    }

    /// The generation of that id, if it is live or the last one.
    pub fn generation(&self, id: &GenerationId) -> Option<&Generation> {
        self.current.iter().chain(&self.queue).find(|generation| generation.id == *id)
    }

    /// The generation under way, if there is one.
    pub fn active(&self) -> Option<&Generation> {
        self.current.as_ref().filter(|generation| !generation.ended())
    }

    /// The generation that clients are told of: the one under way, else the next to run, else the last.
    pub(crate) fn foremost(&self) -> Option<&Generation> {
        self.active().or(self.queue.front()).or(self.current.as_ref())
    }

    /// The title that a conversation gets when its first answer is complete and nobody gave it one. It
    /// comes after the end, so that the generation's own events stay without a hole.
    pub fn title_owed(&self) -> Option<String> {
        let answered =
            self.current.as_ref().is_some_and(|current| matches!(current.phase, Phase::Completed { .. }));
        self.opening.clone().filter(|_| answered && self.title.is_none())
    }

    /// The same state without the words of a generation that has ended: they are in its messages, and
    /// no rule needs them.
    pub fn compact(mut self) -> Conversation {
        if let Some(ended) = self.current.as_mut().filter(|generation| generation.ended()) {
            ended.segments.iter_mut().for_each(|segment| segment.parts.clear());
        }
        self
    }

    fn enqueue(&mut self, entry: &Entry) {
        let Event::GenerationQueued {
            message_id,
            model,
            digest,
            system,
            metadata,
            retry_of,
            prompt,
            answer_id,
            producer,
        } = &entry.event
        else {
            return;
        };
        let (Some(id), Some(request)) = (entry.generation.clone(), entry.request.clone()) else {
            return;
        };
        // The user's message, when there is one, stands directly before and belongs to the generation.
        let first_seq = if retry_of.is_some() { entry.seq } else { Seq(entry.seq.0.saturating_sub(1)) };
        let kept = self.kept_by(retry_of.as_ref());
        self.queue.push_back(Generation {
            id,
            request,
            digest: digest.clone(),
            message: message_id.clone(),
            model: model.clone(),
            system: system.clone(),
            metadata: metadata.clone(),
            retry_of: retry_of.clone(),
            prompt_seq: prompt.is_some().then_some(entry.seq).or(self.prompt_of(retry_of.as_ref())),
            answer_id: answer_id.clone(),
            producer: *producer,
            produced: Seq::ZERO,
            first_seq,
            last_seq: entry.seq,
            kept,
            queued_at: entry.ts,
            started_at: None,
            at_work_since: None,
            completed_at: None,
            phase: Phase::Queued,
            attempt: 0,
            attempt_seq: Seq::ZERO,
            failures: 0,
            lost_in_a_row: 0,
            retry: None,
            segments: Vec::new(),
            approvals: Vec::new(),
            tool_bytes: 0,
            input_tokens: 0,
            output_tokens: 0,
            chunks_received: 0,
        });
    }

    /// What a generation was given holds for those that take it up again.
    fn prompt_of(&self, retry_of: Option<&RetryOf>) -> Option<Seq> {
        let failed =
            self.current.as_ref().filter(|failed| Some(&failed.id) == retry_of.map(|of| &of.generation_id));
        failed?.prompt_seq
    }

    /// What a continuation goes on from: all that stands there as an answer to the same question.
    fn kept_by(&self, retry_of: Option<&RetryOf>) -> Vec<MessageId> {
        let continued = retry_of.filter(|retry| retry.mode == RetryMode::Continue);
        match (continued, &self.current) {
            (Some(retry), Some(failed)) if failed.id == retry.generation_id => failed.answer_messages(),
            _ => Vec::new(),
        }
    }

    fn apply_to_generation(&mut self, entry: &Entry) {
        let Some(id) = &entry.generation else { return };
        if matches!(entry.event, Event::ChatStarted { .. }) {
            self.take_turn(id);
        }
        let found = self.current.iter_mut().chain(&mut self.queue).find(|generation| generation.id == *id);
        let Some(generation) = found else { return };
        generation.apply(entry);
        self.forget_the_ended();
    }

    /// One that was cancelled while it waited does not push aside the one under way. When none is, it is
    /// the last one that ended.
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
        }
    }
}

impl Generation {
    pub(crate) fn apply(&mut self, entry: &Entry) {
        self.last_seq = entry.seq;
        if entry.event.is_produced() {
            self.produced = entry.seq;
        }
        self.tool_bytes = self.tool_bytes.saturating_add(entry.event.tool_bytes());
        match &entry.event {
            Event::ChatStarted { attempt, .. } => self.begin_attempt(entry, *attempt),
            Event::AssistantSegmentStarted { message_id } => {
                self.begin(entry, message_id, Role::Assistant, Vec::new());
            }
            Event::AssistantSegmentEnded { .. } => self.close_segment(MessageStatus::Complete),
            Event::ChatDelta { message_id, text, chunks } => {
                self.add_text(message_id, TextKind::Answer, text, *chunks);
            }
            Event::ThinkingDelta { message_id, text, chunks } => {
                self.add_text(message_id, TextKind::Thinking, text, *chunks);
            }
            Event::ToolStart { message_id, tool_use_id, tool_name, tool_input } => {
                let (id, name) = (tool_use_id.clone(), tool_name.clone());
                let asked = Part::ToolUse { id, name, input: tool_input.clone() };
                self.begin(entry, message_id, Role::Tool, vec![asked]);
            }
            Event::Usage { input_tokens, output_tokens } => {
                self.input_tokens = self.input_tokens.saturating_add(*input_tokens);
                self.output_tokens = self.output_tokens.saturating_add(*output_tokens);
            }
            Event::ToolEnd { .. } | Event::ApprovalRequested { .. } | Event::ApprovalResolved { .. } => {
                self.apply_to_tool(&entry.event);
            }
            Event::AttemptRetracted { message_ids, .. } => {
                self.approvals.clear(); // what was asked for is withdrawn with what was said
                self.tool_bytes = 0;
                self.segments.retain(|segment| !message_ids.contains(&segment.message));
            }
            Event::RetryScheduled { attempt, delay_ms, reason } => {
                self.failures += 1;
                self.lost_in_a_row = 0;
                let (attempt, delay_ms, reason, ts) = (*attempt, *delay_ms, reason.clone(), entry.ts);
                self.retry = Some(ScheduledRetry { attempt, delay_ms, reason, ts });
                self.phase = Phase::Retrying { until: ts.after(Duration::from_millis(delay_ms)) };
            }
            Event::ChatInterrupted { .. } => {
                self.retry = None;
                self.phase = Phase::Interrupted;
            }
            Event::ChatResumed { .. } => {
                self.at_work_since = Some(entry.ts);
                self.lost_in_a_row = 0;
                self.phase = Phase::Running;
            }
            Event::ChatDone { finish_reason } => {
                self.end(entry.ts, Phase::Completed { finish_reason: finish_reason.clone() });
            }
            Event::ChatError { error_message, code } => {
                let phase = Phase::Failed { error_message: error_message.clone(), code: code.clone() };
                self.end(entry.ts, phase);
            }
            Event::ChatCancelled { reason } => self.end(entry.ts, Phase::Cancelled { reason: *reason }),
            Event::ConversationUpdated { .. }
            | Event::MessageAdded { .. }
            | Event::ToolOutput { .. }
            | Event::GenerationQueued { .. } => {}
        }
    }

    fn begin_attempt(&mut self, entry: &Entry, attempt: u32) {
        self.attempt = attempt;
        self.attempt_seq = entry.seq;
        self.retry = None;
        // A call that is begun while one should be under way, and not by somebody's word just now, takes the
        // place of one that was lost.
        if self.phase == Phase::Running && self.at_work_since != Some(entry.ts) {
            self.lost_in_a_row = self.lost_in_a_row.saturating_add(1);
        }
        self.started_at = self.started_at.or(Some(entry.ts));
        self.at_work_since = self.at_work_since.or(Some(entry.ts));
        self.phase = Phase::Running;
    }

    fn apply_to_tool(&mut self, event: &Event) {
        match event {
            Event::ToolEnd { message_id, tool_use_id, result, is_error } => {
                let asked = self.segments.iter_mut().find(|segment| segment.message == *message_id);
                if let Some(segment) = asked {
                    let (tool_use_id, content) = (tool_use_id.clone(), result.clone());
                    segment.parts.push(Part::ToolResult { tool_use_id, content, is_error: *is_error });
                }
            }
            Event::ApprovalRequested { tool_use_id, tool_name, tool_input } => {
                let (tool_use_id, tool_name) = (tool_use_id.clone(), tool_name.clone());
                let tool_input = tool_input.clone();
                self.approvals.push(Approval { tool_use_id, tool_name, tool_input, decided: None });
            }
            Event::ApprovalResolved { tool_use_id, decision, by, reason, always } => {
                let asked = self.approvals.iter_mut().find(|approval| approval.tool_use_id == *tool_use_id);
                if let Some(approval) = asked {
                    let (decision, by, always) = (*decision, by.clone(), *always);
                    approval.decided = Some(Decided { decision, by, reason: reason.clone(), always });
                }
            }
            _ => {}
        }
    }

    /// A message begins. What the assistant says grows; what it asks of a tool is complete.
    fn begin(&mut self, entry: &Entry, message: &MessageId, role: Role, parts: Vec<Part>) {
        let status = if parts.is_empty() { MessageStatus::Streaming } else { MessageStatus::Complete };
        let (message, attempt) = (message.clone(), self.attempt);
        let (seq, created_at) = (entry.seq, entry.ts);
        self.segments.push(Segment { message, seq, created_at, attempt, role, parts, status });
    }

    /// The end closes the segment that was open; how, tells a reader whether the text is all there is.
    fn end(&mut self, at: Timestamp, phase: Phase) {
        self.close_segment(match phase {
            Phase::Cancelled { .. } => MessageStatus::Cancelled,
            Phase::Failed { .. } => MessageStatus::Error,
            _ => MessageStatus::Complete,
        });
        self.completed_at = Some(at);
        self.phase = phase;
    }

    fn close_segment(&mut self, status: MessageStatus) {
        if let Some(segment) = self.segments.last_mut().filter(|segment| segment.is_open()) {
            segment.status = status;
        }
    }
}

/// The first line that says something, cut to size.
fn opening(content: &str) -> Option<String> {
    let line = content.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(match line.char_indices().nth(OPENING_CHARS) {
        Some((cut, _)) => format!("{}…", line[..cut].trim_end()),
        None => line.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    #[test]
    fn o1_a_generation_becomes_current_at_its_first_attempt_and_stays_after_its_end() {
        let world = given([running(G1), asked(G2)]);
        assert_eq!(world.transcript.state.current.as_ref().unwrap().id.as_str(), G1);
        let world = given([running(G1), asked(G2), completed(G1)]);
        assert_eq!(world.transcript.state.current.as_ref().unwrap().id.as_str(), G1);
        assert_eq!(world.transcript.state.active(), None);
        let world = given([running(G1), asked(G2), completed(G1), started(G2, 1)]);
        assert_eq!(world.transcript.state.active().unwrap().id.as_str(), G2);
        assert_eq!(world.transcript.state.generation(&G1.into()), None, "only the last is remembered");
    }

    #[test]
    fn the_last_that_ended_stays_current_also_when_it_never_ran() {
        let current = |past: Vec<Past>| given(past).transcript.state.current.unwrap().id.to_string();
        let one_waits = vec![running(G1), asked(G2)];
        let both_over = [one_waits.clone(), vec![completed(G1), cancelled(G2)]].concat();
        assert_eq!(current(both_over), G2);
        let one_runs = [one_waits, vec![cancelled(G2)]].concat();
        assert_eq!(current(one_runs), G1, "one that runs is not pushed aside");
    }

    #[test]
    fn i11_a_compact_state_goes_on_like_the_full_one() {
        let full = given([answering(G1, "Hel"), failed(G1)]).transcript.state;
        let compact = full.clone().compact();
        assert!(compact.current.as_ref().unwrap().content_parts().is_empty());
        let again = |state| decide_retry_of(state).len();
        assert_eq!(again(&compact), again(&full));
    }

    fn decide_retry_of(state: &Conversation) -> Vec<Entry> {
        crate::decide(state, retry(G1, crate::RetryMode::Retry, G2), &crate::Rules::default(), CREATED)
            .unwrap()
    }

    #[test]
    fn i11_a_compact_state_keeps_the_words_of_a_run_that_is_not_over() {
        for past in [answering(G1, "Hel"), [answering(G1, "Hel"), interrupted(G1)].concat()] {
            let state = given([past]).transcript.state;
            assert_eq!(state.clone().compact(), state);
        }
    }

    #[test]
    fn a_conversation_changes_its_time_with_everything_but_text() {
        let world = given([running(G1)]);
        let before = world.transcript.state.updated_at;
        let world = world.observed(says(G1, 1, "Hel")).then(["assistant.segment.started", "chat.delta"]);
        let opened = world.transcript.state.updated_at;
        assert!(opened > before);
        let world = world.observed(says(G1, 1, "lo")).then(["chat.delta"]);
        assert_eq!(world.transcript.state.updated_at, opened);
    }

    #[test]
    fn g3_a_generation_begins_with_its_question_and_ends_with_its_end() {
        let world = given([answered(G1, "Hello"), answered(G2, "Hello")]);
        let second = world.generation(G2);
        assert_eq!((second.first_seq, second.last_seq), (Seq(8), Seq(14)));
        assert_eq!(world.transcript.state.seq, Seq(14));
    }

    #[test]
    fn an_event_of_an_unknown_generation_is_passed_over() {
        let mut state = given([running(G1)]).transcript.state;
        let before = state.clone();
        let entry = Entry {
            seq: state.seq.next(),
            ts: state.updated_at,
            generation: Some(G3.into()),
            request: None,
            event: Event::ChatDone { finish_reason: "stop".into() },
        };
        state.apply(&entry);
        assert_eq!(state, Conversation { seq: entry.seq, ..before });
    }

    #[test]
    fn text_for_a_segment_that_is_not_open_is_counted_and_passed_over() {
        let mut state = given([answering(G1, "Hel")]).transcript.state;
        let entry = Entry {
            seq: state.seq.next(),
            ts: state.updated_at,
            generation: Some(G1.into()),
            request: None,
            event: Event::ChatDelta { message_id: "elsewhere".into(), text: "lo".into(), chunks: 1 },
        };
        state.apply(&entry);
        let generation = state.active().unwrap();
        assert_eq!(crate::plain_text(&generation.content_parts()), "Hel");
        assert_eq!(generation.chunks_received, 2);
    }
}
