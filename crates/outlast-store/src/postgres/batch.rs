//! One flush: the appends of many conversations in one transaction, guarded by the instance's own row.

use std::collections::BTreeSet;

use outlast_core::{ConversationId, Seq};

use super::connect::{is_refusal, reason};
use super::documents;
use super::session::{Pooled, Session, Value};
use crate::chunk::Chunk;
use crate::contract::{Append, AppendError, Change, Limit};
use crate::page;

/// Who writes, what it knows of its row, and the number of this flush.
#[derive(Clone, Copy)]
pub(super) struct Guard<'a> {
    pub(super) instance: &'a str,
    pub(super) claims: i64,
    pub(super) flush: i64,
}

pub(super) enum Flushed {
    /// Committed. Mail of these instances was answered.
    Done { answered: Vec<String> },
    /// Somebody has taken conversations from this instance: nothing was written.
    Fenced,
    /// One append can never be written. The others can, without it.
    Wrong { append: usize, why: AppendError },
    /// Nothing was written.
    Refused(String),
    /// The connection broke: nobody knows.
    Unknown(String),
}

/// Writes all of it or nothing.
pub(super) async fn flush(client: &mut Pooled, guard: Guard<'_>, appends: &[&Append]) -> Flushed {
    let flushed = if appends.iter().all(|append| is_text(append)) {
        flush_text(client, guard, appends).await
    } else {
        flush_all(client, guard, appends).await
    };
    flushed.unwrap_or_else(|error| {
        let why = reason(&error);
        if is_refusal(&error) { Flushed::Refused(why) } else { Flushed::Unknown(why) }
    })
}

/// Whether nothing but the log changes. That is nearly every append, and one statement is enough for it.
fn is_text(append: &Append) -> bool {
    !append.records.is_empty()
        && append.changes.is_empty()
        && append.replies.is_empty()
        && append.limits.is_empty()
}

/// Text that PostgreSQL cannot store is refused before it spoils the flush for others.
pub(super) fn check(append: &Append) -> Result<(), AppendError> {
    let document = |change: &Change| match change {
        Change::Put(document) => [
            Some(&document.id),
            Some(&document.status),
            Some(&document.request),
            Some(&document.body),
            document.state.as_ref(),
        ]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .chain([document.user.as_str(), document.conversation.as_str()])
        .chain(document.tags.iter().map(String::as_str))
        .any(|text| text.contains('\0')),
        Change::Remove(_, id) => id.contains('\0'),
    };
    if append.changes.iter().any(document) {
        return Err(AppendError::Broken("a document contains the character U+0000".to_owned()));
    }
    Ok(())
}

const FLUSH_TEXT: &str = "WITH me AS (UPDATE writers SET flush = $3 WHERE instance = $1 AND claims = $2 RETURNING 1) \
     INSERT INTO log (conversation, first_seq, last_seq, bytes) SELECT t.* \
     FROM me, unnest($4::text[], $5::bigint[], $6::bigint[], $7::bytea[]) AS t";

const ENTER: &str = "UPDATE writers SET flush = $3 WHERE instance = $1 AND claims = $2";

const INSERT: &str = "INSERT INTO log (conversation, first_seq, last_seq, bytes) SELECT t.* \
     FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[]) AS t";

const ANSWER: &str = "UPDATE mail SET reply = $3 WHERE id = $1 AND conversation = $2 AND reply IS NULL \
     RETURNING sender";

async fn flush_text(
    client: &Pooled,
    guard: Guard<'_>,
    appends: &[&Append],
) -> Result<Flushed, tokio_postgres::Error> {
    let rows = Rows::of(appends);
    let Rows { conversations, firsts, lasts, bytes } = &rows;
    let Guard { instance, claims, flush } = &guard;
    let values: [&dyn Value; 7] = [instance, claims, flush, conversations, firsts, lasts, bytes];
    let written = client.session().execute(FLUSH_TEXT, &values).await?;
    Ok(if written == 0 { Flushed::Fenced } else { Flushed::Done { answered: Vec::new() } })
}

async fn flush_all(
    client: &mut Pooled,
    guard: Guard<'_>,
    appends: &[&Append],
) -> Result<Flushed, tokio_postgres::Error> {
    // Dropped without a commit, the transaction is rolled back.
    let tx = client.transaction().await?;
    let db = tx.session();
    if db.execute(ENTER, &[&guard.instance, &guard.claims, &guard.flush]).await? == 0 {
        return Ok(Flushed::Fenced);
    }
    lock_limits(db, appends).await?;
    let Rows { conversations, firsts, lasts, bytes } = &Rows::of(appends);
    if !conversations.is_empty() {
        db.execute(INSERT, &[conversations, firsts, lasts, bytes]).await?;
    }
    let mut answered = BTreeSet::new();
    for (n, append) in appends.iter().enumerate() {
        for change in &append.changes {
            if !documents::apply(db, change).await? {
                let why = page::no_state_to_keep(append.conversation.as_str());
                return Ok(Flushed::Wrong { append: n, why });
            }
        }
        for (limit, judged) in append.limits.iter().enumerate() {
            if documents::exceeds(db, judged).await? {
                return Ok(Flushed::Wrong { append: n, why: AppendError::OverLimit { limit } });
            }
        }
        for (mail, reply) in &append.replies {
            let values: [&dyn Value; 3] = [&mail.0, &append.conversation.as_str(), &&reply[..]];
            answered.extend(db.query_opt(ANSWER, &values).await?.map(|row| row.get::<_, String>(0)));
        }
    }
    tx.commit().await?;
    Ok(Flushed::Done { answered: answered.into_iter().collect() })
}

/// Two transactions that count the same documents come one after the other: each would miss what the other is
/// about to add. Everybody takes these locks in the same order.
async fn lock_limits(db: Session<'_>, appends: &[&Append]) -> Result<(), tokio_postgres::Error> {
    let key = |limit: &Limit| match &limit.user {
        Some(user) => format!("{:?} of {user}", limit.table),
        None => format!("{:?}", limit.table),
    };
    let keys: BTreeSet<String> = appends.iter().flat_map(|append| &append.limits).map(key).collect();
    for key in keys {
        db.query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", &[&key]).await?;
    }
    Ok(())
}

#[derive(Default)]
struct Rows<'a> {
    conversations: Vec<&'a str>,
    firsts: Vec<i64>,
    lasts: Vec<i64>,
    bytes: Vec<Vec<u8>>,
}

impl<'a> Rows<'a> {
    fn of(appends: &[&'a Append]) -> Self {
        let mut rows = Self::default();
        for append in appends {
            let (Some(first), Some(last)) = (append.records.first(), append.records.last()) else { continue };
            let joined = Chunk::join(&append.records);
            rows.conversations.push(append.conversation.as_str());
            rows.firsts.push(first.seq.0.cast_signed());
            rows.lasts.push(last.seq.0.cast_signed());
            rows.bytes.push(joined.to_vec());
        }
        rows
    }
}

/// Removes the records from `first` to `last`.
pub(super) async fn trim(
    client: &mut Pooled,
    conversation: &ConversationId,
    first: Seq,
    last: Seq,
) -> Result<(), tokio_postgres::Error> {
    let limit = |seq: Seq| i64::try_from(seq.0).unwrap_or(i64::MAX);
    let (id, from, to) = (conversation.as_str(), limit(first), limit(last));
    let tx = client.transaction().await?;
    let db = tx.session();
    let end = "SELECT last_seq FROM log WHERE conversation = $1 ORDER BY first_seq DESC LIMIT 1";
    let Some(end) = db.query_opt(end, &[&id]).await?.map(|row| row.get::<_, i64>(0)) else { return Ok(()) };
    let gone = "DELETE FROM log WHERE conversation = $1 AND bytes IS NOT NULL AND first_seq <= $3 \
                AND last_seq >= $2 RETURNING first_seq, last_seq, bytes";
    for row in db.query(gone, &[&id, &from, &to]).await? {
        let chunk = Chunk {
            first: Seq(row.get::<_, i64>(0).cast_unsigned()),
            last: Seq(row.get::<_, i64>(1).cast_unsigned()),
            bytes: row.get(2),
        };
        let before = first.0.checked_sub(1).and_then(|before| chunk.part(chunk.first, Seq(before)));
        let after = chunk.part(Seq(last.0.saturating_add(1)), chunk.last);
        for part in [before, after].into_iter().flatten() {
            let insert = "INSERT INTO log (conversation, first_seq, last_seq, bytes) VALUES ($1, $2, $3, $4)";
            let (first, last) = (part.first.0.cast_signed(), part.last.0.cast_signed());
            db.execute(insert, &[&id, &first, &last, &part.bytes]).await?;
        }
    }
    // The end of the log must be known although nothing is there any more.
    let keep = "INSERT INTO log (conversation, first_seq, last_seq) SELECT $1, $2, $2 WHERE NOT EXISTS \
                (SELECT 1 FROM log WHERE conversation = $1 AND last_seq = $2)";
    db.execute(keep, &[&id, &end]).await?;
    tx.commit().await
}
