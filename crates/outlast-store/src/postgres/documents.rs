//! Documents in their tables: put, removed, counted, found by their keys.

use deadpool_postgres::GenericClient;
use outlast_core::{ConversationId, Seq, UserId};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::contract::{Change, Document, Limit, Query, Table};
use crate::page::DocumentPage;

type Values = Vec<Box<dyn ToSql + Sync + Send>>;

fn name(table: Table) -> &'static str {
    match table {
        Table::Conversations => "stored_conversations",
        Table::Messages => "stored_messages",
        Table::Generations => "stored_generations",
    }
}

fn put_sql(table: Table) -> String {
    let table = name(table);
    format!(
        "INSERT INTO {table} (id, conversation_id, user_id, seq, ord, status, request_id, body, due) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
         ON CONFLICT (id) DO UPDATE SET conversation_id = excluded.conversation_id, \
         user_id = excluded.user_id, seq = excluded.seq, ord = excluded.ord, status = excluded.status, \
         request_id = excluded.request_id, body = excluded.body, due = excluded.due"
    )
}

const PUT_STATE: &str = "INSERT INTO stored_states (id, state) VALUES ($1, $2) \
                         ON CONFLICT (id) DO UPDATE SET state = excluded.state";

/// Everything but the state and the seq that it reflects.
const KEEP_STATE: &str = "UPDATE stored_conversations SET conversation_id = $2, user_id = $3, ord = $4, \
                          status = $5, request_id = $6, body = $7, due = $8 WHERE id = $1";

/// Applies one change. False if it should keep the state of a conversation that does not exist.
pub(super) async fn apply<C: GenericClient>(db: &C, change: &Change) -> Result<bool, tokio_postgres::Error> {
    match change {
        Change::Put(document) => put(db, document).await,
        Change::Remove(table, id) => {
            execute(db, &format!("DELETE FROM {} WHERE id = $1", name(*table)), &[id]).await?;
            if *table == Table::Conversations {
                execute(db, "DELETE FROM stored_states WHERE id = $1", &[id]).await?;
            }
            Ok(true)
        }
    }
}

async fn execute<C: GenericClient>(
    db: &C,
    sql: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<u64, tokio_postgres::Error> {
    let statement = db.prepare_cached(sql).await?;
    db.execute(&statement, values).await
}

async fn put<C: GenericClient>(db: &C, document: &Document) -> Result<bool, tokio_postgres::Error> {
    let Document { table, id, due, status, request, body, order, .. } = document;
    let (conversation, user) = (document.conversation.as_str(), document.user.as_str());
    let seq = document.seq.0.cast_signed();
    if *table == Table::Conversations {
        match &document.state {
            Some(state) => {
                execute(db, PUT_STATE, &[id, state]).await?;
            }
            None => {
                let values: [&(dyn ToSql + Sync); 8] =
                    [id, &conversation, &user, order, status, request, body, due];
                return Ok(execute(db, KEEP_STATE, &values).await? > 0);
            }
        }
    }
    let values: [&(dyn ToSql + Sync); 9] =
        [id, &conversation, &user, &seq, order, status, request, body, due];
    execute(db, &put_sql(*table), &values).await?;
    Ok(true)
}

/// Whether more documents match than the limit allows.
pub(super) async fn exceeds<C: GenericClient>(db: &C, limit: &Limit) -> Result<bool, tokio_postgres::Error> {
    // Counting stops there: that there are more is all that matters.
    let most = i64::try_from(limit.at_most).unwrap_or(i64::MAX - 1);
    let user = limit.user.as_ref().map(UserId::as_str);
    let sql = format!(
        "SELECT count(*) FROM (SELECT 1 FROM {} WHERE ($1::text IS NULL OR user_id = $1) \
         AND status = ANY($2) LIMIT $3) AS counted",
        name(limit.table)
    );
    let statement = db.prepare_cached(&sql).await?;
    let row = db.query_one(&statement, &[&user, &limit.statuses, &(most + 1)]).await?;
    Ok(row.get::<_, i64>(0) > most)
}

/// One document by id.
pub(super) async fn get<C: GenericClient>(
    db: &C,
    table: Table,
    id: &str,
) -> Result<Option<Document>, tokio_postgres::Error> {
    let state = match table {
        Table::Conversations => "(SELECT state FROM stored_states AS s WHERE s.id = d.id)",
        Table::Messages | Table::Generations => "NULL::text",
    };
    let sql = format!("{} WHERE id = $1", select(table, state));
    let statement = db.prepare_cached(&sql).await?;
    let row = db.query_opt(&statement, &[&id]).await?;
    Ok(row.map(|row| document(table, &row)))
}

/// One page of the documents that match, in the query's order and without states.
pub(super) async fn list<C: GenericClient>(
    db: &C,
    table: Table,
    query: &Query,
    instance: &str,
) -> Result<DocumentPage, tokio_postgres::Error> {
    let mut conditions = vec!["true".to_owned()];
    let mut values: Values = Vec::new();
    let mut place = |value: Box<dyn ToSql + Sync + Send>| {
        values.push(value);
        format!("${}", values.len())
    };
    if let Some(user) = &query.user {
        conditions.push(format!("user_id = {}", place(Box::new(user.as_str().to_owned()))));
    }
    if let Some(conversation) = &query.conversation {
        conditions.push(format!("conversation_id = {}", place(Box::new(conversation.as_str().to_owned()))));
    }
    if !query.statuses.is_empty() {
        conditions.push(format!("status = ANY({})", place(Box::new(query.statuses.clone()))));
    }
    if let Some(request) = &query.request {
        conditions.push(format!("request_id = {}", place(Box::new(request.clone()))));
    }
    if query.unowned {
        conditions.push(format!(
            "NOT EXISTS (SELECT 1 FROM owners AS o WHERE o.conversation = d.conversation_id \
             AND (o.instance = {} OR is_live(o.instance)))",
            place(Box::new(instance.to_owned()))
        ));
    }
    let (beyond, order) = match query.due_by {
        Some(by) => {
            conditions.push(format!("due <= {}", place(Box::new(by))));
            ("(due, id) >", "due, id")
        }
        None => ("(ord, id) <", "ord DESC, id DESC"),
    };
    if let Some((key, id)) = &query.after {
        let (key, id) = (place(Box::new(*key)), place(Box::new(id.clone())));
        conditions.push(format!("{beyond} ({key}, {id})"));
    }
    // One more than wanted tells whether there are more.
    let limit = place(Box::new(i64::try_from(query.limit).unwrap_or(i64::MAX).saturating_add(1)));
    let matching = conditions.join(" AND ");
    let sql = format!("{} WHERE {matching} ORDER BY {order} LIMIT {limit}", select(table, "NULL::text"));
    let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| &**value as _).collect();
    let statement = db.prepare_cached(&sql).await?;
    let mut page = DocumentPage::new(query.limit, query.max_bytes);
    for row in db.query(&statement, &values).await? {
        if !page.add(document(table, &row)) {
            break;
        }
    }
    Ok(page)
}

fn select(table: Table, state: &str) -> String {
    let table = name(table);
    format!(
        "SELECT id, conversation_id, user_id, seq, ord, status, request_id, body, due, {state} FROM {table} AS d"
    )
}

fn document(table: Table, row: &Row) -> Document {
    Document {
        table,
        id: row.get(0),
        conversation: ConversationId::from(row.get::<_, &str>(1)),
        user: UserId::from(row.get::<_, &str>(2)),
        seq: Seq(row.get::<_, i64>(3).cast_unsigned()),
        order: row.get(4),
        status: row.get(5),
        request: row.get(6),
        body: row.get(7),
        due: row.get(8),
        state: row.get(9),
    }
}
