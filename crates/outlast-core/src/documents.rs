//! The documents that summarise a log: what polling, lists and people with a database client see.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::generation::{Phase, Segment};
use crate::message::plain_text;
use crate::{
    Approval, Brief, Conversation, ConversationId, Entry, Event, Generation, GenerationId, GenerationStatus,
    Message, MessageId, MessageStatus, Part, RequestId, RetryOf, Seq, Timestamp,
};

#[derive(Clone, Debug, PartialEq)]
pub enum DocumentChange {
    Conversation(ConversationDocument),
    Message(Message),
    MessageRemoved(MessageId),
    Generation(Box<GenerationDocument>),
}

/// A conversation, as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Conversation)]
pub struct ConversationDocument {
    pub id: ConversationId,
    #[schema(required)]
    pub title: Option<String>,
    #[schema(required)]
    pub metadata: Option<Value>,
    pub generation_status: ConversationStatus,
    /// The current or last generation.
    #[schema(required)]
    pub current_generation_id: Option<GenerationId>,
    #[schema(required)]
    pub sandbox_id: Option<String>,
    #[schema(required)]
    pub sandbox_url: Option<String>,
    /// Reserved for files that the agent works on.
    pub files: Vec<Value>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The log's last seq.
    pub last_seq: Seq,
}

/// The status of a conversation, which follows from its current or last generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConversationStatus {
    Idle,
    Generating,
    /// A tool call waits for a person's decision.
    AwaitingApproval,
    /// Reserved: a tool call waits for a decision, and the sandbox is paused.
    Paused,
    /// The current generation was interrupted and waits for a person.
    Interrupted,
    /// The last generation was completed.
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
    pub id: GenerationId,
    pub conversation_id: ConversationId,
    /// The user's message it answers.
    pub message_id: MessageId,
    pub request_id: RequestId,
    pub status: GenerationStatus,
    /// Without the instructions and the prompt. `answerId` is the id that the client chose, or else the id of
    /// the answer's first message once there is one.
    #[serde(flatten)]
    pub brief: Brief,
    /// Everything said, in the order of the log. Not stored: it is assembled from the messages when a client
    /// gets this generation, and left out of lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_parts: Option<Vec<Part>>,
    /// The oldest question that waits for a decision.
    #[schema(required)]
    pub pending_approval: Option<Approval>,
    #[schema(required)]
    pub sandbox_id: Option<String>,
    /// Reserved: whether the sandbox is paused.
    pub is_paused: bool,
    #[schema(required)]
    pub error_message: Option<String>,
    /// Why the model stopped, why it was cancelled, or the code of the failure.
    #[schema(required)]
    pub end_reason: Option<String>,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Pieces received from the upstream.
    pub chunks_received: u64,
    pub attempt: u32,
    /// The failed generation that this one retries or continues.
    #[schema(required)]
    pub retry_of: Option<RetryOf>,
    pub created_at: Timestamp,
    /// When its first attempt began.
    #[schema(required)]
    pub started_at: Option<Timestamp>,
    #[schema(required)]
    pub completed_at: Option<Timestamp>,
    pub first_seq: Seq,
    pub last_seq: Seq,
    /// Fingerprint of the request.
    pub digest: String,
}

impl GenerationDocument {
    /// `content_parts`, or nothing if they were not assembled.
    pub fn parts(&self) -> &[Part] {
        self.content_parts.as_deref().unwrap_or_default()
    }
}

/// What an event changed besides the state.
#[derive(Default)]
pub(crate) struct Touched {
    pub(crate) messages: Vec<Message>,
    pub(crate) generation: Option<Box<GenerationDocument>>,
}

/// Applies `entries` and returns the documents they change. Text and tool output change none: a message is
/// written when it begins and when it is complete, and the other documents only when a list would show a
/// difference. So the cost of an event does not depend on the length of the answer.
pub fn apply_with_documents(state: &mut Conversation, entries: &[Entry]) -> Vec<DocumentChange> {
    let mut changes = Vec::new();
    let mut generations: Vec<Box<GenerationDocument>> = Vec::new();
    let mut conversation_changed = false;
    for entry in entries {
        if let Event::AttemptRetracted { message_ids, .. } = &entry.event {
            changes.extend(message_ids.iter().cloned().map(DocumentChange::MessageRemoved));
        }
        conversation_changed |= matches!(entry.event, Event::ConversationUpdated { .. });
        let touched = state.apply_and_tell(entry);
        changes.extend(touched.messages.into_iter().map(DocumentChange::Message));
        if let Some(document) = touched.generation {
            generations.retain(|earlier| earlier.id != document.id);
            generations.push(document);
        }
    }
    conversation_changed |= !generations.is_empty();
    changes.extend(generations.into_iter().map(DocumentChange::Generation));
    if conversation_changed {
        changes.push(DocumentChange::Conversation(conversation_document(state)));
    }
    changes
}

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

pub fn generation_document(conversation: &ConversationId, generation: &Generation) -> GenerationDocument {
    let (end_reason, error_message) = generation.end_reason();
    let (progress, counters) = (&generation.progress, &generation.counters);
    GenerationDocument {
        id: generation.id.clone(),
        conversation_id: conversation.clone(),
        message_id: generation.message.clone(),
        request_id: generation.request.clone(),
        status: generation.status(),
        brief: Brief {
            system: None,
            prompt: None,
            answer_id: generation.brief.answer_id.clone().or_else(|| first_answer(generation)),
            ..generation.brief.clone()
        },
        content_parts: None,
        pending_approval: generation.pending_approvals().next().map(Approval::shown),
        sandbox_id: None,
        is_paused: false,
        error_message,
        end_reason,
        input_tokens: counters.input_tokens,
        output_tokens: counters.output_tokens,
        chunks_received: counters.chunks_received,
        attempt: progress.attempt,
        retry_of: generation.retry_of.clone(),
        created_at: progress.queued_at,
        started_at: progress.started_at,
        completed_at: progress.completed_at,
        first_seq: progress.first_seq,
        last_seq: progress.last_seq,
        digest: generation.digest.clone(),
    }
}

/// The first message of the answer: one that it continues, or else one of its own.
fn first_answer(generation: &Generation) -> Option<MessageId> {
    generation.progress.kept.first().or(generation.progress.first_answer.as_ref()).cloned()
}

/// The message of a segment. While its text is arriving, the text is only in the view's overlay, so that a
/// snapshot and the events after it never yield the same text twice.
pub(crate) fn segment_message(
    conversation: &ConversationId,
    generation: &Generation,
    segment: &Segment,
) -> Message {
    let interrupted = generation.progress.phase == Phase::Interrupted;
    let parts = if segment.is_streaming() && !interrupted { Vec::new() } else { segment.parts.clone() };
    let error_message = match &generation.progress.phase {
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
mod tests;
