//! The view a client renders, and how events change it. The TypeScript client folds the same way; the
//! logs in `fixtures/` hold both to it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::documents::{ConversationDocument, conversation_document, segment_message};
use crate::{
    Approval, Conversation, Entry, Event, Generation, GenerationId, GenerationStatus, Message, MessageId,
    Part, RequestId, ScheduledRetry, Seq, Timestamp,
};

/// Everything needed to show a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversationView {
    /// The conversation itself.
    pub conversation: ConversationDocument,
    /// The newest messages, ascending.
    pub messages: Vec<Message>,
    /// Whether there are older ones.
    pub has_more: bool,
    /// The generation under way.
    #[schema(required)]
    pub active_run: Option<ActiveRun>,
    /// How the last generation ended, while none is under way.
    #[schema(required)]
    pub last_end: Option<LastEnd>,
    /// Those that wait behind it, oldest first: the next becomes the active run when this one ends.
    pub queue: Vec<QueuedRun>,
    /// The text of the segment that is open, by its message.
    pub overlays: BTreeMap<MessageId, String>,
    /// The same with thinking and text apart.
    pub overlay_parts: BTreeMap<MessageId, Vec<Part>>,
    /// The last event that is in this view: go on after it.
    pub last_seq: Seq,
}

/// The generation under way, in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRun {
    /// Which.
    pub generation_id: GenerationId,
    /// The client's name for the request.
    pub request_id: RequestId,
    /// How far it has come.
    pub status: GenerationStatus,
    /// Which model.
    pub model: String,
    /// Which attempt.
    pub attempt: u32,
    /// When it began.
    #[schema(required)]
    pub started_at: Option<Timestamp>,
    /// How many wait behind it.
    pub queued: usize,
    /// What a person is asked to decide about, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_approvals: Vec<Approval>,
    /// The attempt that waits for its time, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<ScheduledRetry>,
}

/// How a generation ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastEnd {
    /// Which.
    pub generation_id: GenerationId,
    /// How.
    pub status: GenerationStatus,
    /// Why the model stopped, why it was cancelled, or the code of the failure.
    #[schema(required)]
    pub reason: Option<String>,
    /// Why it failed, for a person.
    #[schema(required)]
    pub error_message: Option<String>,
}

/// A generation that waits for its turn, in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueuedRun {
    /// Which.
    pub generation_id: GenerationId,
    /// The client's name for the request.
    pub request_id: RequestId,
    /// Which model.
    pub model: String,
}

/// The view of a state, given the stored messages at the state's position or at any earlier one since
/// its document was written.
pub fn view(state: &Conversation, mut messages: Vec<Message>, has_more: bool) -> ConversationView {
    let mut overlays = BTreeMap::new();
    let mut overlay_parts = BTreeMap::new();
    if let Some(segment) = state.active().and_then(|active| active.open_segment()) {
        overlays.insert(segment.message.clone(), crate::message::plain_text(&segment.parts));
        overlay_parts.insert(segment.message.clone(), segment.parts.clone());
        // Shown through the overlay alone, also when an interruption has stored it.
        for message in messages.iter_mut().filter(|message| message.id == segment.message) {
            *message = Message { content: String::new(), parts: Vec::new(), ..message.clone() };
        }
    }
    let foremost = state.foremost().filter(|run| !run.ended());
    let behind = |waiting: &&Generation| foremost.is_some_and(|run| run.id != waiting.id);
    let queue: Vec<QueuedRun> = state.queue.iter().filter(behind).map(QueuedRun::from).collect();
    let active_run = foremost.map(|run| ActiveRun {
        generation_id: run.id.clone(),
        request_id: run.request.clone(),
        status: run.status(),
        model: run.model.clone(),
        attempt: run.attempt,
        started_at: run.started_at,
        queued: queue.len(),
        pending_approvals: run.pending_approvals().cloned().collect(),
        retry: run.retry.clone(),
    });
    ConversationView {
        conversation: conversation_document(state),
        messages,
        has_more,
        active_run,
        last_end: state.foremost().filter(|run| run.ended()).map(last_end),
        queue,
        overlays,
        overlay_parts,
        last_seq: state.seq,
    }
}

fn last_end(ended: &Generation) -> LastEnd {
    let (reason, error_message) = ended.end_reason();
    LastEnd { generation_id: ended.id.clone(), status: ended.status(), reason, error_message }
}

impl From<&Generation> for QueuedRun {
    fn from(waiting: &Generation) -> QueuedRun {
        QueuedRun {
            generation_id: waiting.id.clone(),
            request_id: waiting.request.clone(),
            model: waiting.model.clone(),
        }
    }
}

/// The transcript that a whole log adds up to: what the message documents must be, and what a client
/// that saw every event shows.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// The state.
    pub state: Conversation,
    /// The messages, ascending.
    pub messages: Vec<Message>,
}

impl Transcript {
    /// Before the first event.
    pub fn new(state: Conversation) -> Transcript {
        Transcript { state, messages: Vec::new() }
    }

    /// Takes in one event.
    pub fn apply(&mut self, entry: &Entry) {
        if let Event::MessageAdded { message } = &entry.event {
            self.messages.push(message.clone());
        }
        if let Event::AttemptRetracted { message_ids, .. } = &entry.event {
            self.messages.retain(|message| !message_ids.contains(&message.id));
        }
        self.state.apply(entry);
        let generation = entry.generation.as_ref().and_then(|id| self.state.generation(id));
        let Some(generation) = generation else { return };
        let ended = |message: &MessageId| generation.segments.iter().find(|known| known.message == *message);
        let segment = match &entry.event {
            Event::ToolEnd { message_id, .. } => ended(message_id),
            _ => generation.segments.last(),
        };
        let Some(segment) = segment else { return };
        let message = segment_message(&self.state.id, generation, segment);
        match self.messages.iter_mut().find(|known| known.id == message.id) {
            Some(known) => *known = message,
            None => self.messages.push(message),
        }
    }

    /// What a client shows now.
    pub fn view(&self) -> ConversationView {
        view(&self.state, self.messages.clone(), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use crate::{ConversationStatus, MessageStatus};

    #[test]
    fn o4_an_empty_conversation_can_be_shown() {
        let view = given([]).view();
        assert_eq!(view.conversation.generation_status, ConversationStatus::Idle);
        assert_eq!((view.messages.len(), view.active_run, view.last_seq), (0, None, Seq::ZERO));
    }

    #[test]
    fn o4_the_words_of_the_open_segment_are_in_the_overlay_alone() {
        let view = given([answering(G1, "Hel")]).view();
        let id = MessageId::from(answer(G1, 1));
        assert_eq!(view.overlays[&id], "Hel");
        assert_eq!(view.overlay_parts[&id], [Part::Text { text: "Hel".into() }]);
        assert_eq!((&*view.messages[1].content, view.messages[1].parts.len()), ("", 0));
        assert_eq!(view.messages[1].status, MessageStatus::Streaming);
        assert_eq!(view.active_run.unwrap().status, GenerationStatus::Running);
    }

    #[test]
    fn o4_an_interrupted_answer_is_shown_once_though_it_is_stored() {
        let world = given([answering(G1, "Hel"), interrupted(G1)]);
        assert_eq!(world.stored.messages[1].content, "Hel");
        let view = view(&world.transcript.state, world.stored.messages.clone(), false);
        assert_eq!(view.messages[1].content, "");
        assert_eq!(view.overlays.values().collect::<Vec<_>>(), ["Hel"]);
        assert_eq!(view.active_run.unwrap().status, GenerationStatus::Interrupted);
    }

    #[test]
    fn o4_after_the_end_there_is_no_overlay_and_no_run() {
        for end in [completed(G1), cancelled(G1), failed(G1)] {
            let view = given([answering(G1, "Hel"), end]).view();
            assert_eq!((view.overlays.len(), view.overlay_parts.len(), view.active_run), (0, 0, None));
            assert_eq!(view.messages[1].content, "Hel");
        }
    }

    #[test]
    fn o4_thinking_is_in_the_overlay_but_not_in_its_text() {
        let world = given([running(G1)])
            .observed(stream(G1, 1, vec![thoughts("Hm"), words("Hel")], None))
            .then(["assistant.segment.started", "thinking.delta", "chat.delta"]);
        let view = world.view();
        assert_eq!(view.overlays.values().collect::<Vec<_>>(), ["Hel"]);
        assert_eq!(view.overlay_parts.values().next().unwrap().len(), 2);
    }

    #[test]
    fn g14_a_run_tells_how_many_wait_behind_it() {
        let queued = |past: Vec<Past>| {
            let run = given(past).view().active_run.unwrap();
            (run.generation_id.to_string(), run.status, run.queued)
        };
        let running_first = vec![running(G1), asked(G2), asked(G3)];
        assert_eq!(queued(running_first.clone()), (G1.into(), GenerationStatus::Running, 2));
        let between = [running_first, vec![completed(G1)]].concat();
        assert_eq!(queued(between.clone()), (G2.into(), GenerationStatus::Queued, 1));
        let second = [between, vec![started(G2, 1)]].concat();
        assert_eq!(queued(second), (G2.into(), GenerationStatus::Running, 1));
    }

    #[test]
    fn i11_a_view_of_stored_messages_is_the_view_of_the_log() {
        let world = given([answered(G1, "Hello"), answering(G2, "Hel")]);
        assert_eq!(view(&world.transcript.state, world.stored.messages.clone(), false), world.view());
    }

    #[test]
    fn g9_a_view_survives_its_bytes() {
        let view = given([answered(G1, "Hello"), answering(G2, "Hel"), interrupted(G2)]).view();
        let bytes = serde_json::to_vec(&view).unwrap();
        assert_eq!(serde_json::from_slice::<ConversationView>(&bytes).unwrap(), view);
    }
}
