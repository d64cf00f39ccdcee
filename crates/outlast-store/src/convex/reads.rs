//! Looks at a log, alone or together with the documents of its conversation.

use outlast_core::{ConversationId, Seq};
use serde::Deserialize;
use serde_json::json;

use super::documents::{self, STEP};
use super::{ConvexStore, integer, lines, seq};
use crate::contract::{Loaded, Newest, Record, StoreError, Table};
use crate::page::Page;

/// What one query returns of a log.
#[derive(Deserialize)]
struct Found {
    /// Another one if the conversation was deleted and created again.
    name: Option<String>,
    lines: Vec<lines::Stored>,
    more: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Snapshot {
    document: documents::Stored,
    /// Newest first.
    messages: Vec<documents::Stored>,
    more_messages: bool,
    log: Found,
    last: String,
}

impl ConvexStore {
    pub(super) async fn records(
        &self,
        conversation: &ConversationId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let mut page = Page::of(max_bytes);
        let mut reached = after;
        loop {
            let found = self.lines(conversation, reached, max_bytes).await?;
            for record in lines::records(found.lines)? {
                // The first row may begin before the position.
                if record.seq <= reached {
                    continue;
                }
                let bytes = record.bytes.len();
                reached = record.seq;
                if !page.add(record, bytes) {
                    return Ok(page.into_items());
                }
            }
            if !found.more {
                return Ok(page.into_items());
            }
        }
    }

    async fn lines(
        &self,
        conversation: &ConversationId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Found, StoreError> {
        let (_, characters) = STEP.within(0, max_bytes);
        let args = json!({
            "conversation": conversation.as_str(),
            "after": integer(after.0),
            "characters": characters,
        });
        Ok(self.deployment.query("log:read", &args).await?)
    }

    pub(super) async fn loaded(
        &self,
        conversation: &ConversationId,
        newest: Newest,
    ) -> Result<Option<Loaded>, StoreError> {
        let (messages, max_bytes) = STEP.within(newest.messages, newest.max_bytes);
        let args = json!({
            "conversation": conversation.as_str(),
            "messages": messages,
            "maxBytes": max_bytes,
        });
        loop {
            let found: Option<Snapshot> = self.deployment.query("documents:load", &args).await?;
            let Some(found) = found else { return Ok(None) };
            let document = found.document.document(Table::Conversations)?;
            let last = seq(&found.last)?;
            let records = self.rest_of(conversation, found.log, document.seq, last).await?;
            let Some(records) = records else { continue };
            let ascending = found.messages.into_iter().rev();
            let messages: Result<_, _> = ascending.map(|message| message.document(Table::Messages)).collect();
            return Ok(Some(Loaded {
                conversation: document,
                messages: messages?,
                more_messages: found.more_messages,
                records,
                last,
            }));
        }
    }

    /// The records of a snapshot. A log only grows, so what one query could not return is read afterwards, up to where
    /// the log ended. `None` if the conversation was deleted meanwhile: the snapshot is then no longer complete.
    async fn rest_of(
        &self,
        conversation: &ConversationId,
        mut found: Found,
        mut reached: Seq,
        last: Seq,
    ) -> Result<Option<Vec<Record>>, StoreError> {
        let name = found.name.clone();
        let mut records = Vec::new();
        loop {
            for record in lines::records(found.lines)? {
                if record.seq > reached && record.seq <= last {
                    reached = record.seq;
                    records.push(record);
                }
            }
            if !found.more || reached >= last {
                return Ok(Some(records));
            }
            found = self.lines(conversation, reached, usize::MAX).await?;
            if found.name != name {
                return Ok(None);
            }
        }
    }
}
