//! What can happen to a conversation. The log is a list of these and nothing else is true.
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

/// What an event costs its answer beside its bytes, and what a message does: a flood of tiny ones must meet
/// the limit on an answer too.
const EVENT_BYTES: usize = 16;
const MESSAGE_BYTES: usize = 1024;

/// One event in its place.
#[derive(Clone, Debug, PartialEq, ToSchema)]
#[schema(as = LogEvent)]
pub struct Entry {
    pub seq: Seq,
    /// When it was decided.
    pub ts: Timestamp,
    #[schema(rename = "generationId", required)]
    pub generation: Option<GenerationId>,
    /// The idempotency key of the request that started that generation.
    #[schema(rename = "requestId", required)]
    pub request: Option<RequestId>,
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
        /// The new title, if it changed. Null clears it.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
        title: Option<Option<String>>,
        /// The new metadata, if they changed. Null clears them.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
        metadata: Option<Value>,
    },
    /// A message of a person or of the server joined the transcript.
    #[serde(rename = "message.added")]
    MessageAdded { message: Message },
    /// A generation was accepted. It runs when its turn comes.
    #[serde(rename = "generation.queued")]
    GenerationQueued {
        /// The user's message it answers.
        message_id: MessageId,
        /// Fingerprint of the request, so that the same id with another body is noticed.
        digest: String,
        /// The failed generation that this one retries or continues.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_of: Option<RetryOf>,
        #[serde(flatten)]
        brief: Box<Brief>,
    },
    /// An attempt begins: the model is called, or a worker has claimed the generation.
    #[serde(rename = "chat.started")]
    ChatStarted { model: String, attempt: u32 },
    /// The assistant starts a new message.
    #[serde(rename = "assistant.segment.started")]
    AssistantSegmentStarted { message_id: MessageId },
    /// Nothing more is added to the message.
    #[serde(rename = "assistant.segment.ended")]
    AssistantSegmentEnded { message_id: MessageId },
    /// Text of the answer.
    #[serde(rename = "chat.delta")]
    ChatDelta {
        message_id: MessageId,
        text: String,
        /// How many chunks of the upstream were gathered into this event.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        chunks: u32,
    },
    /// Text of the thinking.
    #[serde(rename = "thinking.delta")]
    ThinkingDelta {
        message_id: MessageId,
        text: String,
        /// How many chunks of the upstream were gathered into this event.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        chunks: u32,
    },
    /// The model asked for a tool: a message of its own.
    #[serde(rename = "tool.start")]
    ToolStart {
        message_id: MessageId,
        tool_use_id: String,
        tool_name: String,
        /// Arguments: an object, or the literal text if the model wrote something else.
        tool_input: Value,
    },
    /// A tool wrote something while it ran.
    #[serde(rename = "tool.output")]
    ToolOutput { tool_use_id: String, stream: ToolStream, text: String },
    /// A tool is done. Its result joins the message that called it.
    #[serde(rename = "tool.end")]
    ToolEnd {
        /// The message that called it.
        message_id: MessageId,
        tool_use_id: String,
        result: Value,
        is_error: bool,
    },
    /// A tool waits for a person's decision.
    #[serde(rename = "approval.requested")]
    ApprovalRequested {
        tool_use_id: String,
        tool_name: String,
        /// The decision is about these arguments and no others.
        tool_input: Value,
        /// Names tool, arguments and attempt; a decision may carry it.
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
        /// Whether the decision holds for every further call of this tool.
        #[serde(default, skip_serializing_if = "is_false")]
        always: bool,
    },
    /// What the attempt cost, as the upstream counts.
    #[serde(rename = "usage")]
    Usage { input_tokens: u64, output_tokens: u64 },
    /// Whatever that attempt showed is withdrawn.
    #[serde(rename = "attempt.retracted")]
    AttemptRetracted { attempt: u32, message_ids: Vec<MessageId>, reason: String },
    /// The next attempt waits for its time.
    #[serde(rename = "retry.scheduled")]
    RetryScheduled {
        attempt: u32,
        /// Counted from this event's time.
        delay_ms: u64,
        /// What went wrong with the last attempt.
        reason: String,
    },
    /// The run stopped in the middle and waits for a person.
    #[serde(rename = "chat.interrupted")]
    ChatInterrupted {
        reason: String,
        /// How many rounds of tools had run.
        round: u32,
    },
    /// A person told it to go on.
    #[serde(rename = "chat.resumed")]
    ChatResumed { by: String },
    /// The end: completed.
    #[serde(rename = "chat.done")]
    ChatDone {
        /// Why the model stopped, in the upstream's words.
        finish_reason: String,
    },
    /// The end: failed. What was said stays.
    #[serde(rename = "chat.error")]
    ChatError { error_message: String, code: String },
    /// The end: cancelled. What was said stays.
    #[serde(rename = "chat.cancelled")]
    ChatCancelled { reason: CancelReason },
}

/// Writes down what depends on the kind of an event alone, once for each kind. The compiler misses no row.
macro_rules! kinds {
    ($($variant:ident $name:literal $by:ident $in_lists:ident;)*) => {
        impl Event {
            /// Every name that can stand in `type`.
            pub const KINDS: &'static [&'static str] = &[$($name),*];

            /// Its name on the wire.
            pub fn kind(&self) -> &'static str {
                match self { $(Event::$variant { .. } => $name),* }
            }

            /// Whether a worker appends this, or its claim.
            pub(crate) fn is_produced(&self) -> bool {
                match self { $(Event::$variant { .. } => columns::$by),* }
            }

            /// Whether somebody who lists generations would see a difference: their status, attempt or question.
            pub(crate) fn changes_generation(&self) -> bool {
                match self { $(Event::$variant { .. } => columns::$in_lists),* }
            }
        }
    };
}

/// The words of the table below.
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
    /// Whether nothing of this generation can follow.
    pub fn is_end(&self) -> bool {
        matches!(self, Event::ChatDone { .. } | Event::ChatError { .. } | Event::ChatCancelled { .. })
    }

    /// What this adds to the cost of its answer.
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

    /// Whether this is one of many small pieces: text, or output of a tool. Such events change no document
    /// and may be saved late where the durability setting says so.
    pub fn is_stream(&self) -> bool {
        self.is_text() || matches!(self, Event::ToolOutput { .. })
    }
}

/// Serde reads null as "absent"; here it is a value that somebody set.
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
