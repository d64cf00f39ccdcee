//! Reads of many logs in one statement. Followers of many conversations are woken together, and a statement for each of
//! them would cost PostgreSQL more than the writes do.

use std::collections::HashMap;

use outlast_core::{ConversationId, Seq};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Row;

use super::connect::{Source, store_error};
use super::reads::seq;
use crate::chunk::Chunk;
use crate::contract::{Record, StoreError};
use crate::page::Page;

/// Reads that one statement serves.
const TOGETHER: usize = 256;
/// Rows of each conversation. Whoever is further behind reads alone.
const ROWS: usize = 8;

/// The same as a single read, for many conversations.
const READ: &str = "SELECT w.number, l.first_seq, l.last_seq, l.bytes \
     FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS w(id, after, number) CROSS JOIN LATERAL ( \
     SELECT first_seq, last_seq, bytes FROM log WHERE conversation = w.id AND last_seq > w.after \
     AND first_seq >= coalesce((SELECT max(first_seq) FROM log WHERE conversation = w.id \
     AND first_seq <= w.after), 0) ORDER BY first_seq LIMIT $3) AS l ORDER BY w.number, l.first_seq";

/// A read that waits for its turn.
pub(super) struct Wanted {
    pub(super) conversation: ConversationId,
    pub(super) after: Seq,
    pub(super) max_bytes: usize,
    pub(super) answer: oneshot::Sender<Result<Found, StoreError>>,
}

pub(super) enum Found {
    Records(Vec<Record>),
    /// More than is read together.
    TooMany,
}

/// Serves what has come while the statement before was under way.
pub(super) async fn serve(source: Source, mut waiting: mpsc::Receiver<Wanted>) {
    while let Some(first) = waiting.recv().await {
        let mut wanted = vec![first];
        while wanted.len() < TOGETHER
            && let Ok(more) = waiting.try_recv()
        {
            wanted.push(more);
        }
        let mut found = match read(&source, &wanted).await {
            Ok(found) => found,
            Err(error) => {
                for one in wanted {
                    let error = match &error {
                        StoreError::Unavailable(why) => StoreError::Unavailable(why.clone()),
                        StoreError::Broken(why) => StoreError::Broken(why.clone()),
                    };
                    // A reader that has gone away does not need its answer; below neither.
                    one.answer.send(Err(error)).ok();
                }
                continue;
            }
        };
        for (one, number) in wanted.into_iter().zip(1..) {
            let rows = found.remove(&number).unwrap_or_default();
            let records = one.records(&rows);
            one.answer.send(records).ok();
        }
    }
}

/// The rows by the number of the read that they belong to.
async fn read(source: &Source, wanted: &[Wanted]) -> Result<HashMap<i64, Vec<Row>>, StoreError> {
    let ids: Vec<&str> = wanted.iter().map(|one| one.conversation.as_str()).collect();
    let afters: Vec<i64> = wanted.iter().map(|one| i64::try_from(one.after.0).unwrap_or(i64::MAX)).collect();
    let most = i64::try_from(ROWS).expect("a small number");
    let client = source.shared().await?;
    let rows = client.session().query(READ, &[&ids, &afters, &most]).await.map_err(store_error)?;
    let mut found: HashMap<i64, Vec<Row>> = HashMap::new();
    for row in rows {
        found.entry(row.get(0)).or_default().push(row);
    }
    Ok(found)
}

impl Wanted {
    fn records(&self, rows: &[Row]) -> Result<Found, StoreError> {
        if rows.len() >= ROWS {
            return Ok(Found::TooMany);
        }
        let mut page = Page::of(self.max_bytes);
        for row in rows {
            let (first, last) = (seq(row.get(1)), seq(row.get(2)));
            let Some(bytes) = row.get::<_, Option<Vec<u8>>>(3) else { continue };
            for record in (Chunk { first, last, bytes }).records()? {
                let bytes = record.bytes.len();
                if record.seq > self.after && !page.add(record, bytes) {
                    return Ok(Found::Records(page.into_items()));
                }
            }
        }
        Ok(Found::Records(page.into_items()))
    }
}
