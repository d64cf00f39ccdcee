//! What can happen to a conversation. A log is a list of events, and all other state is computed from it.
//!
//! The log outlives the code: an event may gain an optional field; it never loses, renames or reuses one.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::json::json_bytes;
use crate::{
    Brief, CancelReason, Decision, GenerationId, Message, MessageId, RequestId, RetryOf, Seq, Timestamp,
    ToolStream,
};

/// Counted for each event in addition to its bytes; the next constant is counted for each message. So an
/// answer of many tiny events or messages reaches its limit too.
const EVENT_BYTES: usize = 16;
const MESSAGE_BYTES: usize = 1024;

/// An event with its position and its time.
#[derive(Clone, Debug, PartialEq, ToSchema)]
#[schema(as = LogEvent)]
pub struct Entry {
    pub seq: Seq,
    /// When it happened.
    pub ts: Timestamp,
    #[schema(rename = "generationId", required)]
    pub generation: Option<GenerationId>,
    /// The idempotency key of the request that started that generation.
    #[schema(rename = "requestId", required)]
    pub request: Option<RequestId>,
    #[serde(flatten)]
    pub event: Event,
}

/// What happened. Each variant has its wire name; PROTOCOL.md explains them to clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", content = "payload", rename_all_fields = "camelCase")]
pub enum Event {
    /// The conversation was created, or its title or metadata changed.
    #[serde(rename = "conversation.updated")]
    ConversationUpdated {
        /// The new title, if it changed. Null clears it.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
        title: Option<Option<String>>,
        /// The new metadata, if it changed. Null clears it.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
        metadata: Option<Value>,
    },
    /// A user's or system message was added to the transcript.
    #[serde(rename = "message.added")]
    MessageAdded { message: Message },
    /// A generation was accepted. It runs when its turn comes.
    #[serde(rename = "generation.queued")]
    GenerationQueued {
        /// The user's message it answers.
        message_id: MessageId,
        /// Fingerprint of the request, to detect the same request id with a different body.
        digest: String,
        /// The failed generation that this one retries or continues.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_of: Option<RetryOf>,
        #[serde(flatten)]
        brief: Box<Brief>,
    },
    /// An attempt starts: the model is called, or a worker has claimed the generation.
    #[serde(rename = "chat.started")]
    ChatStarted { model: String, attempt: u32 },
    /// The assistant starts a new message.
    #[serde(rename = "assistant.segment.started")]
    AssistantSegmentStarted { message_id: MessageId },
    /// The message is complete.
    #[serde(rename = "assistant.segment.ended")]
    AssistantSegmentEnded { message_id: MessageId },
    /// A piece of the answer.
    #[serde(rename = "chat.delta")]
    ChatDelta {
        message_id: MessageId,
        text: String,
        /// How many pieces from the upstream this event combines.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        chunks: u32,
    },
    /// A piece of the model's thinking.
    #[serde(rename = "thinking.delta")]
    ThinkingDelta {
        message_id: MessageId,
        text: String,
        /// How many pieces from the upstream this event combines.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        chunks: u32,
    },
    /// The model calls a tool. The call is a message of its own.
    #[serde(rename = "tool.start")]
    ToolStart {
        message_id: MessageId,
        tool_use_id: String,
        tool_name: String,
        /// Its arguments: an object, or the model's literal text if that is not a JSON object.
        tool_input: Value,
    },
    /// A running tool wrote something.
    #[serde(rename = "tool.output")]
    ToolOutput { tool_use_id: String, stream: ToolStream, text: String },
    /// A tool has finished. Its result is added to the message of the call.
    #[serde(rename = "tool.end")]
    ToolEnd {
        /// The message of the call.
        message_id: MessageId,
        tool_use_id: String,
        result: Value,
        is_error: bool,
    },
    /// A tool call waits for a person's decision.
    #[serde(rename = "approval.requested")]
    ApprovalRequested {
        tool_use_id: String,
        tool_name: String,
        /// The decision applies to these arguments and no others.
        tool_input: Value,
        /// Identifies the tool, its arguments and the attempt. A decision may carry it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        hash: String,
    },
    /// A person decided.
    #[serde(rename = "approval.resolved")]
    ApprovalResolved {
        tool_use_id: String,
        decision: Decision,
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Whether the decision is meant for every later call of this tool.
        #[serde(default, skip_serializing_if = "is_false")]
        always: bool,
    },
    /// The token counts of the attempt, as reported by the upstream.
    #[serde(rename = "usage")]
    Usage { input_tokens: u64, output_tokens: u64 },
    /// What the attempt showed is withdrawn.
    #[serde(rename = "attempt.retracted")]
    AttemptRetracted { attempt: u32, message_ids: Vec<MessageId>, reason: String },
    /// The last attempt failed, and the next one starts after a delay.
    #[serde(rename = "retry.scheduled")]
    RetryScheduled {
        attempt: u32,
        /// Counted from this event's time.
        delay_ms: u64,
        /// What went wrong with the last attempt.
        reason: String,
    },
    /// The generation stopped in the middle and waits for a person or a worker.
    #[serde(rename = "chat.interrupted")]
    ChatInterrupted {
        reason: String,
        /// How many rounds of tools had run.
        round: u32,
    },
    /// An interrupted generation continues.
    #[serde(rename = "chat.resumed")]
    ChatResumed { by: String },
    /// The end: completed.
    #[serde(rename = "chat.done")]
    ChatDone {
        /// Why the model stopped, in the upstream's words.
        finish_reason: String,
    },
    /// The end: failed. What was said is kept.
    #[serde(rename = "chat.error")]
    ChatError { error_message: String, code: String },
    /// The end: cancelled. What was said is kept.
    #[serde(rename = "chat.cancelled")]
    ChatCancelled { reason: CancelReason },
}

/// Defines what depends only on the kind of an event, with one row per kind. The compiler reports a missing row.
macro_rules! kinds {
    ($($variant:ident $name:literal $by:ident $in_lists:ident;)*) => {
        impl Event {
            /// All wire names, as they appear in `type`.
            pub const KINDS: &'static [&'static str] = &[$($name),*];

            /// The wire name.
            pub fn kind(&self) -> &'static str {
                match self { $(Event::$variant { .. } => $name),* }
            }

            /// Whether this comes from a worker: an append or a claim.
            pub(crate) fn is_produced(&self) -> bool {
                match self { $(Event::$variant { .. } => columns::$by),* }
            }

            /// Whether a list of generations would show a difference: status, attempt or question.
            pub(crate) fn changes_generation(&self) -> bool {
                match self { $(Event::$variant { .. } => columns::$in_lists),* }
            }
        }
    };
}

/// The names used in the table below.
mod columns {
    pub(super) const WORKER: bool = true;
    pub(super) const SERVER: bool = false;
    pub(super) const LISTED: bool = true;
    pub(super) const UNLISTED: bool = false;
}

kinds! {
    ConversationUpdated     "conversation.updated"      SERVER UNLISTED;
    MessageAdded            "message.added"             SERVER UNLISTED;
    GenerationQueued        "generation.queued"         SERVER LISTED;
    ChatStarted             "chat.started"              WORKER LISTED;
    AssistantSegmentStarted "assistant.segment.started" WORKER UNLISTED;
    AssistantSegmentEnded   "assistant.segment.ended"   WORKER UNLISTED;
    ChatDelta               "chat.delta"                WORKER UNLISTED;
    ThinkingDelta           "thinking.delta"            WORKER UNLISTED;
    ToolStart               "tool.start"                WORKER UNLISTED;
    ToolOutput              "tool.output"               WORKER UNLISTED;
    ToolEnd                 "tool.end"                  WORKER UNLISTED;
    ApprovalRequested       "approval.requested"        WORKER LISTED;
    ApprovalResolved        "approval.resolved"         SERVER LISTED;
    Usage                   "usage"                     WORKER UNLISTED;
    AttemptRetracted        "attempt.retracted"         SERVER LISTED;
    RetryScheduled          "retry.scheduled"           SERVER LISTED;
    ChatInterrupted         "chat.interrupted"          SERVER LISTED;
    ChatResumed             "chat.resumed"              SERVER LISTED;
    ChatDone                "chat.done"                 WORKER LISTED;
    ChatError               "chat.error"                WORKER LISTED;
    ChatCancelled           "chat.cancelled"            SERVER LISTED;
}

impl Event {
    /// Whether this is the last event of its generation.
    pub fn is_end(&self) -> bool {
        matches!(self, Event::ChatDone { .. } | Event::ChatError { .. } | Event::ChatCancelled { .. })
    }

    /// How many bytes this adds to the answer, as counted against its limit.
    pub(crate) fn answer_bytes(&self) -> usize {
        match self {
            Event::ChatDelta { text, .. }
            | Event::ThinkingDelta { text, .. }
            | Event::ToolOutput { text, .. } => text.len() + EVENT_BYTES,
            Event::AssistantSegmentStarted { .. } => MESSAGE_BYTES,
            Event::ToolStart { tool_use_id, tool_name, tool_input, .. }
            | Event::ApprovalRequested { tool_use_id, tool_name, tool_input, .. } => {
                tool_use_id.len() + tool_name.len() + json_bytes(tool_input) + MESSAGE_BYTES
            }
            Event::ToolEnd { result, .. } => json_bytes(result) + EVENT_BYTES,
            _ => 0,
        }
    }

    /// Whether this only adds text to the open segment.
    pub fn is_text(&self) -> bool {
        matches!(self, Event::ChatDelta { .. } | Event::ThinkingDelta { .. })
    }

    /// Whether this is one of many small pieces: text or tool output. Such events change no document, and in
    /// some durability modes they are saved late.
    pub fn is_stream(&self) -> bool {
        self.is_text() || matches!(self, Event::ToolOutput { .. })
    }
}

/// Serde reads null as "absent". Here null is a value that somebody set.
fn even_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
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
