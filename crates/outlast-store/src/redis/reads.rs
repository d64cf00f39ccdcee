//! Looks at a log, alone or together with the documents of its conversation.

use bytes::Bytes;
use outlast_core::{ConversationId, Seq};

use super::RedisStore;
use super::documents::{self, Listed, Stored};
use crate::contract::{Loaded, Newest, Record, StoreError, Table};
use crate::page::{DocumentPage, Page};

/// Alternately a seq and the bytes of its record.
type Lines = Vec<(String, Vec<u8>)>;

impl RedisStore {
    pub(super) async fn records(
        &self,
        conversation: &ConversationId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let mut page = Page::of(max_bytes);
        let mut reached = after;
        loop {
            let asked = self.link.run(&self.scripts.read, |script| {
                script.arg(conversation.as_str()).arg(reached.0).arg(max_bytes);
            });
            let (lines, more): (Lines, bool) = asked.await?;
            for record in records(lines)? {
                let bytes = record.bytes.len();
                reached = record.seq;
                if !page.add(record, bytes) {
                    return Ok(page.into_items());
                }
            }
            if !more {
                return Ok(page.into_items());
            }
        }
    }

    pub(super) async fn loaded(
        &self,
        conversation: &ConversationId,
        newest: Newest,
    ) -> Result<Option<Loaded>, StoreError> {
        let asked = self.link.run(&self.scripts.load, |script| {
            script.arg(conversation.as_str()).arg(newest.messages).arg(newest.max_bytes);
        });
        let found: Option<(Stored, Vec<Listed>, Lines, String)> = asked.await?;
        let Some((document, messages, lines, last)) = found else { return Ok(None) };
        let mut page = DocumentPage::new(newest.messages, newest.max_bytes);
        for (id, keys, seq, body) in messages {
            if !page.add(documents::document(Table::Messages, (id, keys, seq, body, None))?) {
                break;
            }
        }
        let (messages, more_messages) = page.into_ascending();
        Ok(Some(Loaded {
            conversation: documents::document(Table::Conversations, document)?,
            messages,
            more_messages,
            records: records(lines)?,
            last: seq(&last)?,
        }))
    }
}

fn records(lines: Lines) -> Result<Vec<Record>, StoreError> {
    let record = |(at, bytes): (String, Vec<u8>)| Ok(Record { seq: seq(&at)?, bytes: Bytes::from(bytes) });
    lines.into_iter().map(record).collect()
}

pub(super) fn seq(text: &str) -> Result<Seq, StoreError> {
    text.parse().map(Seq).map_err(|_| StoreError::Broken(format!("{text} is not a position in a log")))
}
