//! Looks at a log, alone or together with the documents of its conversation.

use outlast_core::{ConversationId, Seq};

use super::connect::{Source, store_error};
use super::documents;
use super::session::Session;
use crate::chunk::Chunk;
use crate::contract::{Loaded, Newest, Query, Record, StoreError, Table};
use crate::page::Page;

/// Rows that are fetched at once. A row holds one append, or a chunk of many.
const ROWS: i64 = 64;

// Rows do not overlap: the one with the largest first seq up to `after` is the only one before `after` that can
// reach beyond it.
const READ: &str = "SELECT first_seq, last_seq, bytes FROM log WHERE conversation = $1 AND last_seq > $2 \
                    AND first_seq >= coalesce((SELECT max(first_seq) FROM log \
                    WHERE conversation = $1 AND first_seq <= $2), 0) ORDER BY first_seq LIMIT $3";

/// See [`crate::Store::read`].
pub(super) async fn read(
    db: Session<'_>,
    conversation: &ConversationId,
    after: Seq,
    max_bytes: usize,
) -> Result<Vec<Record>, StoreError> {
    let mut page = Page::of(max_bytes);
    let mut reached = after;
    loop {
        let from = i64::try_from(reached.0).unwrap_or(i64::MAX);
        let rows = db.query(READ, &[&conversation.as_str(), &from, &ROWS]).await.map_err(store_error)?;
        for row in &rows {
            let (first, last) = (seq(row.get(0)), seq(row.get(1)));
            reached = last;
            let Some(bytes) = row.get::<_, Option<Vec<u8>>>(2) else { continue };
            for record in (Chunk { first, last, bytes }).records()? {
                let bytes = record.bytes.len();
                if record.seq > after && !page.add(record, bytes) {
                    return Ok(page.into_items());
                }
            }
        }
        if rows.len() < usize::try_from(ROWS).expect("a small number") {
            return Ok(page.into_items());
        }
    }
}

/// See [`crate::Store::load`].
pub(super) async fn load(
    source: &Source,
    conversation: &ConversationId,
    newest: Newest,
) -> Result<Option<Loaded>, StoreError> {
    let mut client = source.shared().await?;
    let snapshot = client.snapshot().await.map_err(store_error)?;
    let db = snapshot.session();
    let document =
        documents::get(db, Table::Conversations, conversation.as_str()).await.map_err(store_error)?;
    let Some(document) = document else { return Ok(None) };
    let records = read(db, conversation, document.seq, usize::MAX).await?;
    let query = Query {
        conversation: Some(conversation.clone()),
        limit: newest.messages,
        max_bytes: newest.max_bytes,
        ..Query::default()
    };
    let page = documents::list(db, Table::Messages, &query, "").await.map_err(store_error)?;
    let (messages, more_messages) = page.into_ascending();
    let last = last(db, conversation).await?;
    Ok(Some(Loaded { conversation: document, messages, more_messages, records, last }))
}

async fn last(db: Session<'_>, conversation: &ConversationId) -> Result<Seq, StoreError> {
    let sql = "SELECT last_seq FROM log WHERE conversation = $1 ORDER BY first_seq DESC LIMIT 1";
    let row = db.query_opt(sql, &[&conversation.as_str()]).await.map_err(store_error)?;
    Ok(row.map_or(Seq::ZERO, |row| seq(row.get(0))))
}

pub(super) fn seq(value: i64) -> Seq {
    Seq(value.cast_unsigned())
}
