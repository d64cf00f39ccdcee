//! The documents that summarise a log: what polling, lists and people with a database client see.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::generation::{Phase, Segment};
use crate::message::plain_text;
use crate::{
    Approval, Brief, CheckpointId, ChildQuestion, Conversation, ConversationId, Entry, Event, Generation,
    GenerationId, GenerationStatus, Message, MessageId, MessageStatus, Parent, Part, RequestId, RetryOf,
    SandboxState, Seq, Timestamp,
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
    /// The client's own key, if the conversation was created with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The call that it works for, if it is the conversation of a sub-agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    pub generation_status: ConversationStatus,
    /// The current or last generation.
    #[schema(required)]
    pub current_generation_id: Option<GenerationId>,
    #[schema(required)]
    pub sandbox_id: Option<String>,
    /// Where a server that runs in the sandbox can be reached. Null for sandboxes on this machine: nothing leads into them.
    #[schema(required)]
    pub sandbox_url: Option<String>,
    /// What last happened to the sandbox, if there has been one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_state: Option<SandboxState>,
    /// The files that the agent worked on.
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
    /// A tool call waits for a decision, and the sandbox is paused.
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

impl ConversationStatus {
    pub const ALL: &'static [ConversationStatus] = &[
        ConversationStatus::Idle,
        ConversationStatus::Generating,
        ConversationStatus::AwaitingApproval,
        ConversationStatus::Paused,
        ConversationStatus::Interrupted,
        ConversationStatus::Complete,
        ConversationStatus::Cancelled,
        ConversationStatus::Error,
    ];
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
    /// Whether the sandbox is paused.
    pub is_paused: bool,
    /// The newest checkpoint before it changed any files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub checkpoint_before: Option<CheckpointId>,
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
        conversation_changed |=
            // The last of these also records that nothing is owed any longer.
            matches!(
                entry.event,
                Event::ConversationUpdated { .. }
                    | Event::SandboxChanged { .. }
                    | Event::FileChanged { .. }
                    | Event::NotificationMade { .. }
            );
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
    let sandbox = state.sandbox.as_ref();
    ConversationDocument {
        id: state.id.clone(),
        title: state.title.clone(),
        metadata: state.metadata.clone(),
        key: state.key.clone(),
        parent: state.parent().cloned(),
        generation_status: conversation_status(state),
        current_generation_id: state.foremost().map(|foremost| foremost.id.clone()),
        sandbox_id: sandbox.filter(|sandbox| !sandbox.state.is_gone()).map(|sandbox| sandbox.id.to_string()),
        sandbox_url: None,
        sandbox_state: sandbox.map(|sandbox| sandbox.state),
        files: state.files.clone(),
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
        pending_approval: generation
            .pending_approvals()
            .next()
            .map(Approval::shown)
            .or_else(|| asked_by_child(generation)),
        sandbox_id: progress.rounds.sandbox.as_ref().map(ToString::to_string),
        is_paused: progress.rounds.paused,
        checkpoint_before: progress.rounds.before.clone(),
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

/// A question of a child, as if it were the parent's. Its id leads the decision to the child.
fn asked_by_child(generation: &Generation) -> Option<Approval> {
    // One whose arguments are too long is shown and decided in the child alone.
    let mut shown = generation.questions().filter(|question| !question.tool_input.is_null());
    let question = shown.next().filter(|_| !generation.ended())?.clone();
    let ChildQuestion { id: tool_use_id, tool_name, tool_input, hash, .. } = question;
    Some(Approval { tool_use_id, tool_name, tool_input, hash, attempt: 0, decided: None })
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
