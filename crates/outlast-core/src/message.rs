//! Messages of the transcript, as clients see them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ConversationId, GenerationId, MessageId, Outcome, Seq, Timestamp};

/// One message. An assistant's answer is one message per segment, in the order of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Never changes.
    pub id: MessageId,
    pub conversation_id: ConversationId,
    /// The generation it belongs to.
    #[schema(required)]
    pub generation_id: Option<GenerationId>,
    pub role: Role,
    /// The plain text of its parts.
    pub content: String,
    /// Its content, in the order of the log.
    pub parts: Vec<Part>,
    /// Whether it is complete.
    pub status: MessageStatus,
    /// What went wrong, if its status is `error`.
    #[schema(required)]
    pub error_message: Option<String>,
    /// The position at which it began. Messages are ordered by it.
    pub seq: Seq,
    /// When it began.
    pub created_at: Timestamp,
}

/// Who a message is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    User,
    /// The model or the worker.
    Assistant,
    /// A tool call and its result.
    Tool,
    /// Instructions for the model.
    System,
}

/// Whether a message is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MessageStatus {
    /// Nothing more will be added.
    Complete,
    /// Text is still arriving.
    Streaming,
    /// The generation was cancelled before the message was complete.
    Cancelled,
    /// The generation failed before the message was complete.
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Part {
    Text {
        text: String,
    },
    /// The model's thinking, if it shows it.
    Thinking {
        text: String,
        /// The vendor's signature, if it gave one. The vendor accepts this thinking only together with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// An image from the user.
    Image {
        /// Its address, or the image itself as a `data:` URL.
        url: String,
    },
    /// A tool call.
    ToolUse {
        /// Identifies the call.
        id: String,
        /// The name of the tool.
        name: String,
        /// Its arguments.
        input: serde_json::Value,
    },
    /// The result of a tool call.
    ToolResult {
        /// The id of the call.
        tool_use_id: String,
        /// The result: any JSON.
        content: serde_json::Value,
        /// Whether the tool failed.
        is_error: bool,
        /// Absent for a tool without one, and for one that was stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
        /// How long it ran, if the server ran it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        duration_ms: Option<u64>,
        /// The conversation of the sub-agent that did it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        conversation_id: Option<ConversationId>,
    },
}

impl Part {
    /// A result of which nothing else is known.
    pub fn tool_result(tool_use_id: String, content: serde_json::Value, is_error: bool) -> Part {
        let (exit_code, outcome, duration_ms, conversation_id) = (None, None, None, None);
        Part::ToolResult { tool_use_id, content, is_error, exit_code, outcome, duration_ms, conversation_id }
    }
}

/// Adds text to the last part if it is of the same kind, else opens a new one. Thinking that is signed is complete.
pub(crate) fn push_text(parts: &mut Vec<Part>, kind: TextKind, added: &str) {
    match (parts.last_mut(), kind) {
        (Some(Part::Text { text }), TextKind::Answer) => text.push_str(added),
        (Some(Part::Thinking { text, signature: None }), TextKind::Thinking) => text.push_str(added),
        (_, TextKind::Answer) => parts.push(Part::Text { text: added.to_owned() }),
        (_, TextKind::Thinking) => {
            parts.push(Part::Thinking { text: added.to_owned(), signature: None });
        }
    }
}

/// Signs the thinking that was last added to. A signature without any is of thinking that the vendor does not show.
pub(crate) fn sign(parts: &mut Vec<Part>, by_vendor: &str) {
    match parts.last_mut() {
        Some(Part::Thinking { signature: signature @ None, .. }) => *signature = Some(by_vendor.to_owned()),
        _ => parts.push(Part::Thinking { text: String::new(), signature: Some(by_vendor.to_owned()) }),
    }
}

/// The text of the parts, without thinking.
pub fn plain_text(parts: &[Part]) -> String {
    let said = |part: &Part| match part {
        Part::Text { text } => text.clone(),
        Part::Thinking { .. } | Part::Image { .. } | Part::ToolUse { .. } | Part::ToolResult { .. } => {
            String::new()
        }
    };
    parts.iter().map(said).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextKind {
    Answer,
    Thinking,
}
