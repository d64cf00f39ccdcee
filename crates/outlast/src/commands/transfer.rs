//! The lines of an export: one conversation after another, each with its documents and events.
//!
//! Events keep the bytes of the log. Keys, sessions and sandboxes are not part of an export.

use outlast_core::{ConversationId, Seq, UserId};
use outlast_store::{Document, Table};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The first line's version. A reader refuses another one.
pub(super) const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line {
    /// The first line.
    OutlastExport {
        version: u32,
    },
    /// Begins a conversation. Its generations, messages and events follow.
    Conversation(Kept),
    Generation(Kept),
    Message(Kept),
    Event(Logged),
    /// The conversation is complete. One without this line was cut off.
    End {
        conversation: String,
        last: u64,
    },
}

/// A document with the keys that the store knows.
#[derive(Serialize, Deserialize)]
pub(super) struct Kept {
    id: String,
    user: String,
    seq: u64,
    order: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<i64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    request: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    body: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<Box<RawValue>>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Logged {
    pub(super) seq: u64,
    pub(super) line: Box<RawValue>,
}

impl Kept {
    pub(super) fn new(document: Document) -> serde_json::Result<Kept> {
        let Document { id, user, seq, order, due, status, request, tags, body, state, .. } = document;
        let state = state.map(RawValue::from_string).transpose()?;
        let (user, body) = (user.as_str().to_owned(), RawValue::from_string(body)?);
        Ok(Kept { id, user, seq: seq.0, order, due, status, request, tags, body, state })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn into_document(self, table: Table, conversation: &ConversationId) -> Document {
        Document {
            table,
            id: self.id,
            conversation: conversation.clone(),
            user: UserId::from(self.user.as_str()),
            seq: Seq(self.seq),
            order: self.order,
            due: self.due,
            status: self.status,
            request: self.request,
            tags: self.tags,
            body: self.body.get().to_owned(),
            state: self.state.map(|state| state.get().to_owned()),
        }
    }
}
