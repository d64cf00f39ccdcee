//! The SQL for documents: put, remove, and find by key.

use outlast_core::{ConversationId, Seq, UserId};
use rusqlite::types::{ToSql, Type, Value};
use rusqlite::{Connection, Row, params_from_iter};

use crate::contract::{Change, Document, Limit, Query, Table};
use crate::page::DocumentPage;
use crate::sqlite::sql_int;

/// Applies one change. Returns false if it should keep the state of a conversation that does not exist.
pub(super) fn apply(db: &Connection, change: &Change) -> rusqlite::Result<bool> {
    match change {
        Change::Put(document) => put(db, document),
        Change::Remove(table, id) => {
            let statements: &[&str] = match table {
                Table::Conversations => &[
                    "DELETE FROM stored_conversations WHERE id = ?1",
                    "DELETE FROM stored_states WHERE id = ?1",
                ],
                Table::Messages => &["DELETE FROM stored_messages WHERE id = ?1"],
                Table::Generations => &["DELETE FROM stored_generations WHERE id = ?1"],
            };
            for sql in statements {
                db.prepare_cached(sql)?.execute([id])?;
            }
            Ok(true)
        }
    }
}

// An upsert, because `INSERT OR REPLACE` would first delete the row and every index entry.
macro_rules! put_sql {
    ($table:literal $(, $own:literal)*) => {
        concat!(
            "INSERT INTO ",
            $table,
            " (id, conversation_id, user_id, seq, ord, status, request_id, body" $(, ", ", $own)*,
            ") VALUES (:id, :conversation, :user, :seq, :order, :status, :request, :body" $(, ", :", $own)*,
            ") ON CONFLICT (id) DO UPDATE SET conversation_id = excluded.conversation_id, ",
            "user_id = excluded.user_id, seq = excluded.seq, ord = excluded.ord, ",
            "status = excluded.status, request_id = excluded.request_id, body = excluded.body"
            $(, ", ", $own, " = excluded.", $own)*
        )
    };
}

const PUT_STATE: &str = "INSERT INTO stored_states (id, state) VALUES (?1, ?2) \
                         ON CONFLICT (id) DO UPDATE SET state = excluded.state";

/// Everything but the state and the seq that it reflects.
const UPDATE_CONVERSATION: &str = "UPDATE stored_conversations SET conversation_id = :conversation, \
                                   user_id = :user, ord = :order, status = :status, request_id = :request, \
                                   body = :body, due = :due, tags = :tags WHERE id = :id";

fn put(db: &Connection, document: &Document) -> rusqlite::Result<bool> {
    let Document { table, id, due, status, request, body, order, .. } = document;
    let (conversation, user) = (document.conversation.as_str(), document.user.as_str());
    let (seq, tags) = (sql_int(document.seq.0), to_json(&document.tags));
    let common: [(&str, &dyn ToSql); 7] = [
        (":id", id),
        (":conversation", &conversation),
        (":user", &user),
        (":order", order),
        (":status", status),
        (":request", request),
        (":body", body),
    ];
    let (sql, own): (&str, &[(&str, &dyn ToSql)]) = match (table, &document.state) {
        (Table::Conversations, Some(state)) => {
            db.prepare_cached(PUT_STATE)?.execute((id, state))?;
            (
                put_sql!("stored_conversations", "due", "tags"),
                &[(":seq", &seq), (":due", due), (":tags", &tags)],
            )
        }
        (Table::Conversations, None) => (UPDATE_CONVERSATION, &[(":due", due), (":tags", &tags)]),
        (Table::Messages, _) => (put_sql!("stored_messages"), &[(":seq", &seq)]),
        (Table::Generations, _) => (put_sql!("stored_generations", "due"), &[(":seq", &seq), (":due", due)]),
    };
    let values = [&common[..], own].concat();
    Ok(db.prepare_cached(sql)?.execute(&values[..])? > 0)
}

/// Tags as a list, which `json_each` can take apart.
fn to_json(tags: &[String]) -> String {
    serde_json::to_string(tags).expect("a list of strings can be written")
}

fn from_json(tags: &str) -> rusqlite::Result<Vec<String>> {
    serde_json::from_str(tags)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(10, Type::Text, Box::new(error)))
}

pub(super) fn get(db: &Connection, table: Table, id: &str) -> rusqlite::Result<Option<Document>> {
    let sql = match table {
        Table::Conversations => select_sql!(
            "stored_conversations",
            "due, (SELECT state FROM stored_states WHERE stored_states.id = stored_conversations.id), tags",
            " WHERE id = ?1 AND conversation_id NOT IN (SELECT conversation FROM removals)"
        ),
        Table::Messages => select_sql!(
            "stored_messages",
            "NULL, NULL, '[]'",
            " WHERE id = ?1 AND conversation_id NOT IN (SELECT conversation FROM removals)"
        ),
        Table::Generations => select_sql!(
            "stored_generations",
            "due, NULL, '[]'",
            " WHERE id = ?1 AND conversation_id NOT IN (SELECT conversation FROM removals)"
        ),
    };
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([id])?;
    rows.next()?.map(|row| document(table, row)).transpose()
}

/// Whether more documents match than the limit allows.
pub(super) fn exceeds(db: &Connection, limit: &Limit) -> rusqlite::Result<bool> {
    let mut conditions = Vec::new();
    let mut values: Vec<Value> = Vec::new();
    if let Some(user) = &limit.user {
        conditions.push("user_id = ?".to_owned());
        values.push(user.as_str().to_owned().into());
    }
    let places = vec!["?"; limit.statuses.len()].join(", ");
    conditions.push(format!("status IN ({places})"));
    values.extend(limit.statuses.iter().cloned().map(Value::from));
    // Nothing in a conversation that is being removed is live.
    conditions.push("conversation_id NOT IN (SELECT conversation FROM removals)".to_owned());
    let table = match limit.table {
        Table::Conversations => "stored_conversations",
        Table::Messages => "stored_messages",
        Table::Generations => "stored_generations",
    };
    // Counting stops there: that there are more is all that matters.
    values.push(sql_int((limit.at_most as u64).saturating_add(1)).into());
    let matching = conditions.join(" AND ");
    let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {matching} LIMIT ?)");
    let count: i64 = db.prepare_cached(&sql)?.query_row(params_from_iter(values), |row| row.get(0))?;
    Ok(count > sql_int(limit.at_most as u64))
}

/// One page of the documents that match, in the query's order and without states.
pub(super) fn list(
    db: &Connection,
    table: Table,
    query: &Query,
    is_owned: impl Fn(&ConversationId) -> bool,
) -> rusqlite::Result<DocumentPage> {
    let mut conditions = vec!["conversation_id NOT IN (SELECT conversation FROM removals)".to_owned()];
    let mut values: Vec<Value> = Vec::new();
    if let Some(user) = &query.user {
        conditions.push("user_id = ?".to_owned());
        values.push(user.as_str().to_owned().into());
    }
    if let Some(conversation) = &query.conversation {
        conditions.push("conversation_id = ?".to_owned());
        values.push(conversation.as_str().to_owned().into());
    }
    if !query.statuses.is_empty() {
        let places = vec!["?"; query.statuses.len()].join(", ");
        conditions.push(format!("status IN ({places})"));
        values.extend(query.statuses.iter().cloned().map(Value::from));
    }
    if let Some(request) = &query.request {
        conditions.push("request_id = ?".to_owned());
        values.push(request.clone().into());
    }
    if let Some(tag) = &query.tag {
        conditions.push("tag = ?".to_owned());
        values.push(tag.clone().into());
    }
    let (beyond, order) = match query.due_by {
        Some(by) => {
            conditions.push("due <= ?".to_owned());
            values.push(by.into());
            ("(due, id) > (?, ?)", "due, id")
        }
        None => ("(ord, id) < (?, ?)", "ord DESC, id DESC"),
    };
    if let Some((key, id)) = &query.after {
        conditions.push(beyond.to_owned());
        values.extend([Value::from(*key), id.clone().into()]);
    }
    // One more than the limit, to tell whether another page follows. Owned ones are left out below.
    let limit = if query.unowned { -1 } else { sql_int((query.limit as u64).saturating_add(1)) };
    values.push(limit.into());
    let matching = conditions.join(" AND ");
    let from = if query.tag.is_some() { SELECT_TAGGED } else { select(table) };
    let sql = format!("{from} WHERE {matching} ORDER BY {order} LIMIT ?");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut page = DocumentPage::new(query.limit, query.max_bytes);
    while let Some(row) = rows.next()? {
        if query.unowned && is_owned(&ConversationId::from(row.get_ref(1)?.as_str()?)) {
            continue;
        }
        if !page.add(document(table, row)?) {
            break;
        }
    }
    Ok(page)
}

macro_rules! select_sql {
    ($table:literal, $own:literal, $matching:literal) => {
        concat!(
            "SELECT id, conversation_id, user_id, seq, ord, status, request_id, body, ",
            $own,
            " FROM ",
            $table,
            $matching
        )
    };
}
use select_sql;

/// `CROSS JOIN` makes SQLite begin with the tags, whose index has the order of the list.
pub(super) const SELECT_TAGGED: &str = select_sql!(
    "stored_tags CROSS JOIN stored_conversations USING (user_id, ord, id)",
    "due, NULL, tags",
    ""
);

fn select(table: Table) -> &'static str {
    match table {
        Table::Conversations => select_sql!("stored_conversations", "due, NULL, tags", ""),
        Table::Messages => select_sql!("stored_messages", "NULL, NULL, '[]'", ""),
        Table::Generations => select_sql!("stored_generations", "due, NULL, '[]'", ""),
    }
}

fn document(table: Table, row: &Row<'_>) -> rusqlite::Result<Document> {
    Ok(Document {
        table,
        id: row.get(0)?,
        conversation: ConversationId::from(row.get_ref(1)?.as_str()?),
        user: UserId::from(row.get_ref(2)?.as_str()?),
        seq: Seq(row.get::<_, i64>(3)?.cast_unsigned()),
        order: row.get(4)?,
        status: row.get(5)?,
        request: row.get(6)?,
        body: row.get(7)?,
        due: row.get(8)?,
        state: row.get(9)?,
        tags: from_json(row.get_ref(10)?.as_str()?)?,
    })
}
