//! The documents that summarise a log: what a poll, a list or a person with a database client sees.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::generation::{Phase, Segment};
use crate::message::plain_text;
use crate::{
    Approval, Conversation, ConversationId, Entry, Event, Generation, GenerationId, GenerationStatus,
    Message, MessageId, MessageStatus, Part, RequestId, RetryOf, Role, Seq, Timestamp,
};

/// A change that an append makes to the documents.
#[derive(Clone, Debug, PartialEq)]
pub enum DocumentChange {
    /// The conversation's document is now this.
    Conversation(ConversationDocument),
    /// This message is now this.
    Message(Message),
    /// This message is gone.
    MessageRemoved(MessageId),
    /// This generation's document is now this.
    Generation(Box<GenerationDocument>),
}

/// A conversation, as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Conversation)]
pub struct ConversationDocument {
    /// Its id.
    pub id: ConversationId,
    /// Its title.
    #[schema(required)]
    pub title: Option<String>,
    /// Free JSON of the client.
    #[schema(required)]
    pub metadata: Option<Value>,
    /// What is going on in it.
    pub generation_status: ConversationStatus,
    /// The current or last generation.
    #[schema(required)]
    pub current_generation_id: Option<GenerationId>,
    /// Its sandbox, if it has one.
    #[schema(required)]
    pub sandbox_id: Option<String>,
    /// Where that sandbox can be seen.
    #[schema(required)]
    pub sandbox_url: Option<String>,
    /// Files worked on.
    pub files: Vec<Value>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The log's last seq.
    pub last_seq: Seq,
}

/// What is going on in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConversationStatus {
    /// Nothing, and nothing was.
    Idle,
    /// An answer is being made.
    Generating,
    /// A tool waits for a decision.
    AwaitingApproval,
    /// The same, and the sandbox sleeps.
    Paused,
    /// A run was cut short and waits for a person.
    Interrupted,
    /// The last generation was answered.
    Complete,
    /// The last generation was cancelled.
    Cancelled,
    /// The last generation failed.
    Error,
}

/// A generation, as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Generation)]
pub struct GenerationDocument {
    /// Its id.
    pub id: GenerationId,
    /// Its conversation.
    pub conversation_id: ConversationId,
    /// The user's message it answers.
    pub message_id: MessageId,
    /// The message that answers it: the id that the client chose, else its first words' once there are any.
    #[serde(default)]
    #[schema(required)]
    pub answer_id: Option<MessageId>,
    /// The client's name for the request.
    pub request_id: RequestId,
    /// How far it has come.
    pub status: GenerationStatus,
    /// Everything said, in the order of the log.
    pub content_parts: Vec<Part>,
    /// The decision it waits for.
    #[schema(required)]
    pub pending_approval: Option<Approval>,
    /// The sandbox it uses.
    #[schema(required)]
    pub sandbox_id: Option<String>,
    /// Whether that sandbox sleeps.
    pub is_paused: bool,
    /// Why it failed.
    #[schema(required)]
    pub error_message: Option<String>,
    /// How it ended: why the model stopped, why it was cancelled, or the code of the failure.
    #[schema(required)]
    pub end_reason: Option<String>,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Pieces received from the upstream.
    pub chunks_received: u64,
    /// The current attempt.
    pub attempt: u32,
    /// Which model.
    pub model: String,
    /// Free JSON of the client.
    #[schema(required)]
    pub metadata: Option<Value>,
    /// The failed generation that this one takes up again.
    #[schema(required)]
    pub retry_of: Option<RetryOf>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When its first call began.
    #[schema(required)]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[schema(required)]
    pub completed_at: Option<Timestamp>,
    /// Its first event.
    pub first_seq: Seq,
    /// Its newest event.
    pub last_seq: Seq,
    /// Fingerprint of the request.
    pub digest: String,
}

/// Applies `entries` and returns the documents they change. Text alone changes none: a message is
/// written when it begins and when it is closed, not with every word.
pub fn apply_with_documents(state: &mut Conversation, entries: &[Entry]) -> Vec<DocumentChange> {
    let mut changes = Vec::new();
    let mut touched: Vec<&GenerationId> = Vec::new();
    let mut changed: Vec<&MessageId> = Vec::new();
    for entry in entries {
        match &entry.event {
            Event::MessageAdded { message } => changes.push(DocumentChange::Message(message.clone())),
            Event::AttemptRetracted { message_ids, .. } => {
                changes.extend(message_ids.iter().cloned().map(DocumentChange::MessageRemoved));
            }
            Event::AssistantSegmentStarted { message_id }
            | Event::AssistantSegmentEnded { message_id }
            | Event::ToolStart { message_id, .. }
            | Event::ToolEnd { message_id, .. } => changed.push(message_id),
            // The state forgets a generation that ended as soon as another takes its place, which may be
            // in these very entries: write it down while it is known.
            event if event.is_end() => changes.extend(ended_documents(state, entry, &changed)),
            _ => {}
        }
        state.apply(entry);
        if let Some(id) = entry.generation.as_ref().filter(|id| !touched.contains(id)) {
            touched.push(id);
        }
    }
    if entries.iter().all(|entry| entry.event.is_text()) {
        return changes;
    }
    for generation in touched.into_iter().filter_map(|id| state.generation(id)) {
        if !generation.ended() {
            changes.extend(generation_documents(&state.id, generation, &changed));
        }
    }
    changes.push(DocumentChange::Conversation(conversation_document(state)));
    changes
}

fn ended_documents(state: &Conversation, end: &Entry, changed: &[&MessageId]) -> Vec<DocumentChange> {
    let Some(generation) = end.generation.as_ref().and_then(|id| state.generation(id)) else {
        return Vec::new();
    };
    let mut generation = generation.clone();
    generation.apply(end);
    generation_documents(&state.id, &generation, changed)
}

/// A generation's document, its messages that opened or closed, and its last one: an end or an
/// interruption changes that without naming it.
fn generation_documents(
    conversation: &ConversationId,
    generation: &Generation,
    changed: &[&MessageId],
) -> Vec<DocumentChange> {
    let last = generation.segments.len().saturating_sub(1);
    let segments = generation.segments.iter().enumerate();
    segments
        .filter(|(index, segment)| *index == last || changed.contains(&&segment.message))
        .map(|(_, segment)| DocumentChange::Message(segment_message(conversation, generation, segment)))
        .chain([DocumentChange::Generation(Box::new(generation_document(conversation, generation)))])
        .collect()
}

/// The document of a conversation in this state.
pub fn conversation_document(state: &Conversation) -> ConversationDocument {
    ConversationDocument {
        id: state.id.clone(),
        title: state.title.clone(),
        metadata: state.metadata.clone(),
        generation_status: conversation_status(state),
        current_generation_id: state.foremost().map(|foremost| foremost.id.clone()),
        sandbox_id: None,
        sandbox_url: None,
        files: Vec::new(),
        created_at: state.created_at,
        updated_at: state.updated_at,
        last_seq: state.seq,
    }
}

fn conversation_status(state: &Conversation) -> ConversationStatus {
    let Some(generation) = state.foremost() else {
        return ConversationStatus::Idle;
    };
    match generation.status() {
        GenerationStatus::Queued | GenerationStatus::Running => ConversationStatus::Generating,
        GenerationStatus::AwaitingApproval => ConversationStatus::AwaitingApproval,
        GenerationStatus::Paused => ConversationStatus::Paused,
        GenerationStatus::Interrupted => ConversationStatus::Interrupted,
        GenerationStatus::Completed => ConversationStatus::Complete,
        GenerationStatus::Cancelled => ConversationStatus::Cancelled,
        GenerationStatus::Error => ConversationStatus::Error,
    }
}

/// The document of a generation in this state.
pub fn generation_document(conversation: &ConversationId, generation: &Generation) -> GenerationDocument {
    let (end_reason, error_message) = generation.end_reason();
    GenerationDocument {
        id: generation.id.clone(),
        conversation_id: conversation.clone(),
        message_id: generation.message.clone(),
        answer_id: generation.answer_id.clone().or_else(|| first_answer(generation)),
        request_id: generation.request.clone(),
        status: generation.status(),
        content_parts: generation.content_parts(),
        pending_approval: generation.pending_approvals().next().cloned(),
        sandbox_id: None,
        is_paused: false,
        error_message,
        end_reason,
        input_tokens: generation.input_tokens,
        output_tokens: generation.output_tokens,
        chunks_received: generation.chunks_received,
        attempt: generation.attempt,
        model: generation.model.clone(),
        metadata: generation.metadata.clone(),
        retry_of: generation.retry_of.clone(),
        created_at: generation.queued_at,
        started_at: generation.started_at,
        completed_at: generation.completed_at,
        first_seq: generation.first_seq,
        last_seq: generation.last_seq,
        digest: generation.digest.clone(),
    }
}

/// The first message of an answer whose id nobody chose: what it continues, else what it said itself.
fn first_answer(generation: &Generation) -> Option<MessageId> {
    let said = generation.segments.iter().find(|segment| segment.role == Role::Assistant);
    generation.kept.first().or(said.map(|segment| &segment.message)).cloned()
}

/// The message that a segment stands for. While it is open its words are left to the overlay of the
/// view, so that a snapshot and the events after it never add up to the same text twice.
pub(crate) fn segment_message(
    conversation: &ConversationId,
    generation: &Generation,
    segment: &Segment,
) -> Message {
    let interrupted = generation.phase == Phase::Interrupted;
    let parts = if segment.is_open() && !interrupted { Vec::new() } else { segment.parts.clone() };
    let error_message = match &generation.phase {
        Phase::Failed { error_message, .. } if segment.status == MessageStatus::Error => {
            Some(error_message.clone())
        }
        _ => None,
    };
    Message {
        id: segment.message.clone(),
        conversation_id: conversation.clone(),
        generation_id: Some(generation.id.clone()),
        role: segment.role,
        content: plain_text(&parts),
        parts,
        status: segment.status,
        error_message,
        seq: segment.seq,
        created_at: segment.created_at,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::*;
    use crate::{CancelReason, decide, observe};

    fn status(past: impl IntoIterator<Item = Past>) -> (ConversationStatus, Option<String>) {
        let document = given(past).stored.conversation;
        (document.generation_status, document.current_generation_id.map(|id| id.to_string()))
    }

    #[test]
    fn g8_a_conversation_tells_what_is_going_on_in_it() {
        let of = |status, id: &str| (status, Some(id.to_owned()));
        assert_eq!(status([]), (ConversationStatus::Idle, None));
        assert_eq!(status([running(G1)]), of(ConversationStatus::Generating, G1));
        assert_eq!(status([running(G1), retrying(G1, 2, 500)]), of(ConversationStatus::Generating, G1));
        assert_eq!(status([running(G1), interrupted(G1)]), of(ConversationStatus::Interrupted, G1));
        assert_eq!(status([running(G1), completed(G1)]), of(ConversationStatus::Complete, G1));
        assert_eq!(status([running(G1), cancelled(G1)]), of(ConversationStatus::Cancelled, G1));
        assert_eq!(status([running(G1), failed(G1)]), of(ConversationStatus::Error, G1));
    }

    #[test]
    fn g8_status_and_current_generation_tell_of_the_same_one_also_between_two_turns() {
        let of = |status, id: &str| (status, Some(id.to_owned()));
        assert_eq!(status([asked(G1)]), of(ConversationStatus::Generating, G1));
        assert_eq!(status([running(G1), asked(G2)]), of(ConversationStatus::Generating, G1));
        assert_eq!(status([running(G1), asked(G2), completed(G1)]), of(ConversationStatus::Generating, G2));
        assert_eq!(
            status([running(G1), asked(G2), cancelled(G2), completed(G1)]),
            of(ConversationStatus::Complete, G1)
        );
    }

    #[test]
    fn g8_a_generation_tells_everything_about_itself() {
        let world = given([titled("Tea"), running(G1)])
            .observed(stream(G1, 1, vec![thoughts("Hm"), words("Hello"), usage(7, 3)], Some(finished())))
            .then([
                "assistant.segment.started",
                "thinking.delta",
                "chat.delta",
                "usage",
                "assistant.segment.ended",
                "chat.done",
            ]);
        let document = serde_json::to_value(&world.stored.generations[&G1.into()]).unwrap();
        assert_eq!(
            document,
            json!({
                "id": "gen_1",
                "conversationId": "conv_fixture",
                "messageId": "question_of_gen_1",
                "answerId": "answer_1_of_gen_1",
                "requestId": "request_of_gen_1",
                "status": "completed",
                "contentParts": [{"type": "thinking", "text": "Hm"}, {"type": "text", "text": "Hello"}],
                "pendingApproval": null,
                "sandboxId": null,
                "isPaused": false,
                "errorMessage": null,
                "endReason": "stop",
                "inputTokens": 7,
                "outputTokens": 3,
                "chunksReceived": 2,
                "attempt": 1,
                "model": "default",
                "metadata": {"tab": 1},
                "retryOf": null,
                "createdAt": "2026-01-01T00:00:00.300Z",
                "startedAt": "2026-01-01T00:00:00.400Z",
                "completedAt": "2026-01-01T00:00:00.500Z",
                "firstSeq": 2,
                "lastSeq": 10,
                "digest": "digest of gen_1",
            })
        );
    }

    #[test]
    fn g4_each_end_is_in_the_documents() {
        let ends = [
            (completed(G1), GenerationStatus::Completed, MessageStatus::Complete, "stop"),
            (cancelled(G1), GenerationStatus::Cancelled, MessageStatus::Cancelled, "user"),
            (failed(G1), GenerationStatus::Error, MessageStatus::Error, "upstream_failed"),
        ];
        for (end, status, message_status, reason) in ends {
            let world = given([answering(G1, "Hel"), end]);
            let document = &world.stored.generations[&G1.into()];
            assert_eq!((document.status, document.end_reason.as_deref()), (status, Some(reason)));
            assert_eq!(document.content_parts, [Part::Text { text: "Hel".into() }]);
            assert_eq!(document.error_message.is_some(), status == GenerationStatus::Error);
            let message = &world.stored.messages[1];
            assert_eq!((&*message.content, message.status), ("Hel", message_status));
            assert_eq!(message.error_message, document.error_message);
        }
    }

    #[test]
    fn g10_text_changes_no_document_and_everything_else_does() {
        let world = given([answering(G1, "Hel")]);
        let mut state = world.transcript.state.clone();
        let text = observe(&state, says(G1, 1, "lo"), &world.rules, world.now);
        assert_eq!(apply_with_documents(&mut state, &text), []);
        let end = decide(&state, cancel(G1), &world.rules, world.now).unwrap();
        assert_eq!(apply_with_documents(&mut state, &end).len(), 3, "conversation, message, generation");
        assert_eq!(apply_with_documents(&mut state, &[]), []);
    }

    #[test]
    fn g10_only_words_may_be_saved_late() {
        for kind in Event::KINDS {
            let late = matches!(*kind, "chat.delta" | "thinking.delta");
            let events = given([answered(G1, "Hello"), titled("Tea"), running(G2), interrupted(G2)]).log;
            for entry in events.iter().filter(|entry| crate::testing::kind(entry) == *kind) {
                assert_eq!(entry.event.is_text(), late, "{kind}");
            }
        }
    }

    #[test]
    fn o4_an_open_message_is_stored_without_its_words_until_it_closes() {
        let world = given([answering(G1, "Hel")]);
        let open = &world.stored.messages[1];
        assert_eq!((&*open.content, open.status), ("", MessageStatus::Streaming));
        let world = world.observed(finishes(G1, 1)).then(["assistant.segment.ended", "chat.done"]);
        assert_eq!(world.stored.messages[1].content, "Hel");
    }

    #[test]
    fn g11_a_retracted_message_is_removed_from_the_store() {
        let world = given([answering(G1, "Hel"), retracted(G1, 1), retrying(G1, 2, 500)]);
        assert_eq!(world.stored.messages.len(), 1);
        assert_eq!(world.stored.generations[&G1.into()].content_parts, []);
    }

    #[test]
    fn a_generation_forgotten_in_the_same_append_is_written_down_all_the_same() {
        let world = given([answering(G1, "Hel")])
            .when(start_when_busy(G2, crate::WhenBusy::Interrupt))
            .then(["chat.cancelled", "message.added", "generation.queued", "chat.started"]);
        assert_eq!(world.transcript.state.generation(&G1.into()), None);
        let reason = Some(CancelReason::Superseded.as_str());
        assert_eq!(world.stored.generations[&G1.into()].end_reason.as_deref(), reason);
    }

    #[test]
    fn o2_segments_that_close_and_open_in_one_append_are_all_stored() {
        let mut world = given([answering(G1, "Let me look. ")]);
        let of = |event| Entry {
            seq: Seq::ZERO,
            ts: world.now,
            generation: Some(G1.into()),
            request: Some(format!("request_of_{G1}").into()),
            event,
        };
        let open = |message: &str| of(Event::AssistantSegmentStarted { message_id: message.into() });
        let close = |message: &str| of(Event::AssistantSegmentEnded { message_id: message.into() });
        let say = |message: &str| {
            of(Event::ChatDelta { message_id: message.into(), text: format!("in {message}"), chunks: 1 })
        };
        // As a report will, once tools stand between the segments.
        let first = answer(G1, 1);
        let mut entries =
            vec![close(&first), open("second"), say("second"), close("second"), open("third"), say("third")];
        entries.push(close("third"));
        entries.push(of(Event::ChatDone { finish_reason: "stop".into() }));
        let next = world.transcript.state.seq.next();
        for (index, entry) in entries.iter_mut().enumerate() {
            entry.seq = next.plus(index);
        }
        for split in 1..entries.len() {
            let mut split_world = world.clone();
            split_world.append(entries[..split].to_vec());
            split_world.append(entries[split..].to_vec());
        }
        world.append(entries); // and checks that the documents are what the log adds up to
        assert_eq!(world.shown().len(), 4);
    }
}
