//! Documents in their tables: put, removed, found by their keys.

use outlast_core::{ConversationId, Seq, UserId};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};

use crate::contract::{Change, Document, Query, Table};
use crate::sqlite::sql_int;

/// Applies one change.
pub(super) fn apply(db: &Connection, change: &Change) -> rusqlite::Result<()> {
    match change {
        Change::Put(document) => put(db, document),
        Change::Remove(table, id) => {
            let sql = match table {
                Table::Conversations => "DELETE FROM stored_conversations WHERE id = ?1",
                Table::Messages => "DELETE FROM stored_messages WHERE id = ?1",
                Table::Generations => "DELETE FROM stored_generations WHERE id = ?1",
            };
            db.prepare_cached(sql)?.execute([id])?;
            Ok(())
        }
    }
}

// An update in place: `INSERT OR REPLACE` would delete the row and every index entry first.
macro_rules! put_sql {
    ($table:literal, $state:literal, $state_value:literal, $state_update:literal) => {
        concat!(
            "INSERT INTO ",
            $table,
            " (id, conversation_id, user_id, seq, ord, status, request_id, body",
            $state,
            ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8",
            $state_value,
            ") ON CONFLICT (id) DO UPDATE SET conversation_id = excluded.conversation_id, ",
            "user_id = excluded.user_id, seq = excluded.seq, ord = excluded.ord, ",
            "status = excluded.status, request_id = excluded.request_id, body = excluded.body",
            $state_update
        )
    };
}

fn put(db: &Connection, document: &Document) -> rusqlite::Result<()> {
    let sql = match document.table {
        Table::Conversations => {
            put_sql!("stored_conversations", ", state", ", ?9", ", state = excluded.state")
        }
        Table::Messages => put_sql!("stored_messages", "", "", ""),
        Table::Generations => put_sql!("stored_generations", "", "", ""),
    };
    let mut statement = db.prepare_cached(sql)?;
    let (id, conversation, user) = (&document.id, document.conversation.as_str(), document.user.as_str());
    let (seq, order) = (sql_int(document.seq.0), document.order);
    let Document { status, request, body, state, .. } = document;
    match document.table {
        Table::Conversations => {
            statement.execute(params![id, conversation, user, seq, order, status, request, body, state])?
        }
        Table::Messages | Table::Generations => {
            statement.execute(params![id, conversation, user, seq, order, status, request, body])?
        }
    };
    Ok(())
}

/// Removes every document of a conversation.
pub(super) fn delete_all(db: &Connection, conversation: &str) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM stored_messages WHERE conversation_id = ?1",
        "DELETE FROM stored_generations WHERE conversation_id = ?1",
        "DELETE FROM stored_conversations WHERE conversation_id = ?1",
    ] {
        db.prepare_cached(sql)?.execute([conversation])?;
    }
    Ok(())
}

/// One document by id.
pub(super) fn get(db: &Connection, table: Table, id: &str) -> rusqlite::Result<Option<Document>> {
    let mut statement = db.prepare_cached(&format!("{} WHERE id = ?1", select(table)))?;
    let mut rows = statement.query([id])?;
    rows.next()?.map(|row| document(table, row)).transpose()
}

/// Documents that match, newest first.
pub(super) fn list(db: &Connection, table: Table, query: &Query) -> rusqlite::Result<Vec<Document>> {
    let mut conditions = Vec::new();
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
    if let Some((order, id)) = &query.before {
        conditions.push("(ord, id) < (?, ?)".to_owned());
        values.extend([Value::from(*order), id.clone().into()]);
    }
    values.push(sql_int(query.limit as u64).into());
    let matching =
        if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    let sql = format!("{}{matching} ORDER BY ord DESC, id DESC LIMIT ?", select(table));
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), |row| document(table, row))?;
    rows.collect()
}

macro_rules! select_sql {
    ($table:literal, $state:literal) => {
        concat!(
            "SELECT id, conversation_id, user_id, seq, ord, status, request_id, body, ",
            $state,
            " FROM ",
            $table
        )
    };
}

fn select(table: Table) -> &'static str {
    match table {
        Table::Conversations => select_sql!("stored_conversations", "state"),
        Table::Messages => select_sql!("stored_messages", "''"),
        Table::Generations => select_sql!("stored_generations", "''"),
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
        state: row.get(8)?,
    })
}
