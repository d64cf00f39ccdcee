//! Looks at a log, alone or together with the documents of its conversation.

use deadpool_postgres::GenericClient;
use outlast_core::{ConversationId, Seq};
use tokio_postgres::IsolationLevel;

use super::connect::{Source, store_error};
use super::documents;
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
pub(super) async fn read<C: GenericClient>(
    db: &C,
    conversation: &ConversationId,
    after: Seq,
    max_bytes: usize,
) -> Result<Vec<Record>, StoreError> {
    let mut page = Page::of(max_bytes);
    let mut reached = after;
    let statement = db.prepare_cached(READ).await.map_err(store_error)?;
    loop {
        let from = i64::try_from(reached.0).unwrap_or(i64::MAX);
        let rows =
            db.query(&statement, &[&conversation.as_str(), &from, &ROWS]).await.map_err(store_error)?;
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
    let snapshot = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    let tx = snapshot.start().await.map_err(store_error)?;
    let document =
        documents::get(&tx, Table::Conversations, conversation.as_str()).await.map_err(store_error)?;
    let Some(document) = document else { return Ok(None) };
    let records = read(&tx, conversation, document.seq, usize::MAX).await?;
    let query = Query {
        conversation: Some(conversation.clone()),
        limit: newest.messages,
        max_bytes: newest.max_bytes,
        ..Query::default()
    };
    let page = documents::list(&tx, Table::Messages, &query, "").await.map_err(store_error)?;
    let (messages, more_messages) = page.into_ascending();
    let last = last(&tx, conversation).await?;
    Ok(Some(Loaded { conversation: document, messages, more_messages, records, last }))
}

async fn last<C: GenericClient>(db: &C, conversation: &ConversationId) -> Result<Seq, StoreError> {
    let sql = "SELECT last_seq FROM log WHERE conversation = $1 ORDER BY first_seq DESC LIMIT 1";
    let statement = db.prepare_cached(sql).await.map_err(store_error)?;
    let row = db.query_opt(&statement, &[&conversation.as_str()]).await.map_err(store_error)?;
    Ok(row.map_or(Seq::ZERO, |row| seq(row.get(0))))
}

pub(super) fn seq(value: i64) -> Seq {
    Seq(value.cast_unsigned())
}
