//! Messages of the transcript, as clients see them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ConversationId, GenerationId, MessageId, Seq, Timestamp};

/// One message. An assistant's answer is one message per segment, in the order of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Its id, stable for ever.
    pub id: MessageId,
    /// Where it stands.
    pub conversation_id: ConversationId,
    /// The generation it belongs to.
    #[schema(required)]
    pub generation_id: Option<GenerationId>,
    /// Who speaks.
    pub role: Role,
    /// The plain text of its parts.
    pub content: String,
    /// Everything in it, in the order of the log.
    pub parts: Vec<Part>,
    /// Whether it is finished, and how.
    pub status: MessageStatus,
    /// Why it ended, when it ended in an error.
    #[schema(required)]
    pub error_message: Option<String>,
    /// Where in the log it began.
    pub seq: Seq,
    /// When it began.
    pub created_at: Timestamp,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A person.
    User,
    /// The model.
    Assistant,
    /// A tool's call and result.
    Tool,
    /// The server, or instructions for the model.
    System,
}

/// How far a message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MessageStatus {
    /// Nothing more will be added.
    Complete,
    /// Text is still arriving.
    Streaming,
    /// Cut short by a cancel.
    Cancelled,
    /// Cut short by an error.
    Error,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Part {
    /// What is said.
    Text {
        /// The words.
        text: String,
    },
    /// What the model thinks, when it shows it.
    Thinking {
        /// The words.
        text: String,
        /// The vendor's signature, if it gave one: it takes this thinking back only with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// A picture that the user shows.
    Image {
        /// Where it is, or itself as a `data:` address.
        url: String,
    },
    /// The model asks for a tool.
    ToolUse {
        /// Names the call.
        id: String,
        /// Which tool.
        name: String,
        /// Its arguments.
        input: serde_json::Value,
    },
    /// What the tool answered.
    ToolResult {
        /// Which call.
        tool_use_id: String,
        /// The answer.
        content: serde_json::Value,
        /// Whether the tool failed.
        is_error: bool,
    },
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

/// The plain text of some parts: what is said, without the thinking.
pub fn plain_text(parts: &[Part]) -> String {
    let said = |part: &Part| match part {
        Part::Text { text } => text.clone(),
        Part::Thinking { .. } | Part::Image { .. } | Part::ToolUse { .. } | Part::ToolResult { .. } => {
            String::new()
        }
    };
    parts.iter().map(said).collect()
}

/// Which kind of text arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// Part of the answer.
    Answer,
    /// Part of the model's thinking.
    Thinking,
}
