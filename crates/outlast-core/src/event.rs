//! What can happen to a conversation. The log is a list of these and nothing else is true.
//!
//! The log outlives the code: an event may gain an optional field; it never loses, renames or reuses one.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::json::json_bytes;
use crate::{
    CancelReason, Decision, GenerationId, Message, MessageId, Producer, Prompt, RequestId, RetryOf, Seq,
    Timestamp, ToolStream,
};

/// One event in its place.
#[derive(Clone, Debug, PartialEq, ToSchema)]
#[schema(as = LogEvent)]
pub struct Entry {
    /// Its position.
    pub seq: Seq,
    /// When it was decided.
    pub ts: Timestamp,
    /// Which generation it belongs to, if any.
    #[schema(rename = "generationId", required)]
    pub generation: Option<GenerationId>,
    /// The client's name for the request that began that generation.
    #[schema(rename = "requestId", required)]
    pub request: Option<RequestId>,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened. Names on the wire stand beside each variant; PROTOCOL.md explains them to clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", content = "payload", rename_all_fields = "camelCase")]
pub enum Event {
    /// Title or metadata were set.
    #[serde(rename = "conversation.updated")]
    ConversationUpdated {
        /// The new title, if it changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The new metadata, if they changed. Null takes them away.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
        metadata: Option<Value>,
    },
    /// A message of a person or of the server joined the transcript.
    #[serde(rename = "message.added")]
    MessageAdded {
        /// All of it.
        message: Message,
    },
    /// A generation was accepted. It runs when its turn comes.
    #[serde(rename = "generation.queued")]
    GenerationQueued {
        /// The user's message it answers.
        message_id: MessageId,
        /// The model that will answer, by its name in the settings.
        model: String,
        /// Fingerprint of the request, so that the same id with another body is noticed.
        digest: String,
        /// Instructions for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        system: Option<String>,
        /// Free JSON of the client.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Value>,
        /// The failed generation that this one takes up again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_of: Option<RetryOf>,
        /// What the model is given instead of the transcript.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<Prompt>,
        /// The id that the client wants its answer's first message to have.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer_id: Option<MessageId>,
        /// Who makes the answer, if not a model of the settings.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        producer: Option<Producer>,
    },
    /// A call to the model begins.
    #[serde(rename = "chat.started")]
    ChatStarted {
        /// Which model.
        model: String,
        /// 1 for the first.
        attempt: u32,
    },
    /// The assistant begins to speak: a new message.
    #[serde(rename = "assistant.segment.started")]
    AssistantSegmentStarted {
        /// The new message.
        message_id: MessageId,
    },
    /// The segment is complete as it stands.
    #[serde(rename = "assistant.segment.ended")]
    AssistantSegmentEnded {
        /// Which message.
        message_id: MessageId,
    },
    /// The assistant said something.
    #[serde(rename = "chat.delta")]
    ChatDelta {
        /// Which message grows.
        message_id: MessageId,
        /// By how much.
        text: String,
        /// How many pieces of the upstream were gathered into this one.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        chunks: u32,
    },
    /// The assistant thought something.
    #[serde(rename = "thinking.delta")]
    ThinkingDelta {
        /// Which message grows.
        message_id: MessageId,
        /// By how much.
        text: String,
        /// How many pieces of the upstream were gathered into this one.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        chunks: u32,
    },
    /// The model asked for a tool: a message of its own.
    #[serde(rename = "tool.start")]
    ToolStart {
        /// The new message.
        message_id: MessageId,
        /// Names the call.
        tool_use_id: String,
        /// Which tool.
        tool_name: String,
        /// Its arguments: an object, or the very text if the model wrote none.
        tool_input: Value,
    },
    /// A tool wrote something while it ran.
    #[serde(rename = "tool.output")]
    ToolOutput {
        /// Which call.
        tool_use_id: String,
        /// Where it wrote.
        stream: ToolStream,
        /// What.
        text: String,
    },
    /// A tool is done. Its result joins the message that asked for it.
    #[serde(rename = "tool.end")]
    ToolEnd {
        /// The message that asked for it.
        message_id: MessageId,
        /// Which call.
        tool_use_id: String,
        /// What it answered.
        result: Value,
        /// Whether it failed.
        is_error: bool,
    },
    /// A tool waits for a person's decision.
    #[serde(rename = "approval.requested")]
    ApprovalRequested {
        /// Which call.
        tool_use_id: String,
        /// Which tool.
        tool_name: String,
        /// Its arguments: the decision is about these and no others.
        tool_input: Value,
    },
    /// A person decided.
    #[serde(rename = "approval.resolved")]
    ApprovalResolved {
        /// Which call.
        tool_use_id: String,
        /// How.
        decision: Decision,
        /// Who.
        by: String,
        /// Why, if they said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Whether it is meant for every further call of this tool.
        #[serde(default, skip_serializing_if = "is_false")]
        always: bool,
    },
    /// What the call cost, as the upstream counts.
    #[serde(rename = "usage")]
    Usage {
        /// Tokens read.
        input_tokens: u64,
        /// Tokens written.
        output_tokens: u64,
    },
    /// Whatever that attempt showed is withdrawn.
    #[serde(rename = "attempt.retracted")]
    AttemptRetracted {
        /// Which attempt.
        attempt: u32,
        /// The messages that are gone.
        message_ids: Vec<MessageId>,
        /// Why.
        reason: String,
    },
    /// The next attempt waits.
    #[serde(rename = "retry.scheduled")]
    RetryScheduled {
        /// The attempt that will follow.
        attempt: u32,
        /// How long it waits, from this event's time.
        delay_ms: u64,
        /// What went wrong with the last one.
        reason: String,
    },
    /// The run stopped in the middle and waits for a person.
    #[serde(rename = "chat.interrupted")]
    ChatInterrupted {
        /// Why.
        reason: String,
        /// How many rounds of tools had run.
        round: u32,
    },
    /// A person told it to go on.
    #[serde(rename = "chat.resumed")]
    ChatResumed {
        /// Who.
        by: String,
    },
    /// The end: answered.
    #[serde(rename = "chat.done")]
    ChatDone {
        /// Why the model stopped, in its own words.
        finish_reason: String,
    },
    /// The end: failed. What was said stays.
    #[serde(rename = "chat.error")]
    ChatError {
        /// For a person.
        error_message: String,
        /// For a program.
        code: String,
    },
    /// The end: cancelled. What was said stays.
    #[serde(rename = "chat.cancelled")]
    ChatCancelled {
        /// By whom or why.
        reason: CancelReason,
    },
}

impl Event {
    /// Every name that can stand in `type`, for documents and tests that must know all.
    pub const KINDS: &'static [&'static str] = &[
        "conversation.updated",
        "message.added",
        "generation.queued",
        "chat.started",
        "assistant.segment.started",
        "assistant.segment.ended",
        "chat.delta",
        "thinking.delta",
        "tool.start",
        "tool.output",
        "tool.end",
        "approval.requested",
        "approval.resolved",
        "usage",
        "attempt.retracted",
        "retry.scheduled",
        "chat.interrupted",
        "chat.resumed",
        "chat.done",
        "chat.error",
        "chat.cancelled",
    ];

    /// Whether nothing of this generation can follow.
    pub fn is_end(&self) -> bool {
        matches!(self, Event::ChatDone { .. } | Event::ChatError { .. } | Event::ChatCancelled { .. })
    }

    /// Whether this is what a producer brings, or the beginning of its work.
    pub(crate) fn is_produced(&self) -> bool {
        match self {
            Event::ChatStarted { .. }
            | Event::AssistantSegmentStarted { .. }
            | Event::AssistantSegmentEnded { .. }
            | Event::ChatDelta { .. }
            | Event::ThinkingDelta { .. }
            | Event::ToolStart { .. }
            | Event::ToolOutput { .. }
            | Event::ToolEnd { .. }
            | Event::ApprovalRequested { .. }
            | Event::Usage { .. }
            | Event::ChatDone { .. }
            | Event::ChatError { .. } => true,
            Event::ConversationUpdated { .. }
            | Event::MessageAdded { .. }
            | Event::GenerationQueued { .. }
            | Event::AttemptRetracted { .. }
            | Event::RetryScheduled { .. }
            | Event::ChatInterrupted { .. }
            | Event::ChatResumed { .. }
            | Event::ApprovalResolved { .. }
            | Event::ChatCancelled { .. } => false,
        }
    }

    /// How much a tool adds to its generation: what it was asked, wrote or answered.
    pub(crate) fn tool_bytes(&self) -> usize {
        match self {
            Event::ToolStart { tool_use_id, tool_name, tool_input, .. }
            | Event::ApprovalRequested { tool_use_id, tool_name, tool_input } => {
                tool_use_id.len() + tool_name.len() + json_bytes(tool_input)
            }
            Event::ToolOutput { text, .. } => text.len(),
            Event::ToolEnd { result, .. } => json_bytes(result),
            _ => 0,
        }
    }

    /// Whether this only adds text. Such events change no document and may be saved late when the
    /// durability setting says so.
    pub fn is_text(&self) -> bool {
        matches!(self, Event::ChatDelta { .. } | Event::ThinkingDelta { .. })
    }
}

/// Serde reads null as "absent"; here it is a value that somebody set.
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn one() -> u32 {
    1
}

fn is_one(chunks: &u32) -> bool {
    *chunks == 1
}
