//! Documents in their tables: put, removed, counted, found by their keys.

use outlast_core::{ConversationId, Seq, UserId};
use tokio_postgres::Row;

use super::session::{Session, Value};
use crate::contract::{Change, Document, Limit, Query, Table};
use crate::page::DocumentPage;

type Values = Vec<Box<dyn Value + Send>>;

fn name(table: Table) -> &'static str {
    match table {
        Table::Conversations => "stored_conversations",
        Table::Messages => "stored_messages",
        Table::Generations => "stored_generations",
    }
}

fn put_sql(table: Table) -> String {
    let (column, value, changed) = match table {
        Table::Conversations => (", tags", ", $10", ", tags = excluded.tags"),
        Table::Messages | Table::Generations => ("", "", ""),
    };
    let table = name(table);
    format!(
        "INSERT INTO {table} (id, conversation_id, user_id, seq, ord, status, request_id, body, due{column}) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9{value}) \
         ON CONFLICT (id) DO UPDATE SET conversation_id = excluded.conversation_id, \
         user_id = excluded.user_id, seq = excluded.seq, ord = excluded.ord, status = excluded.status, \
         request_id = excluded.request_id, body = excluded.body, due = excluded.due{changed}"
    )
}

const PUT_STATE: &str = "INSERT INTO stored_states (id, state) VALUES ($1, $2) \
                         ON CONFLICT (id) DO UPDATE SET state = excluded.state";

/// Everything but the state and the seq that it reflects.
const KEEP_STATE: &str = "UPDATE stored_conversations SET conversation_id = $2, user_id = $3, ord = $4, \
                          status = $5, request_id = $6, body = $7, due = $8, tags = $9 WHERE id = $1";

/// Applies one change. False if it should keep the state of a conversation that does not exist.
pub(super) async fn apply(db: Session<'_>, change: &Change) -> Result<bool, tokio_postgres::Error> {
    match change {
        Change::Put(document) => put(db, document).await,
        Change::Remove(table, id) => {
            db.execute(&format!("DELETE FROM {} WHERE id = $1", name(*table)), &[id]).await?;
            if *table == Table::Conversations {
                db.execute("DELETE FROM stored_states WHERE id = $1", &[id]).await?;
            }
            Ok(true)
        }
    }
}

async fn put(db: Session<'_>, document: &Document) -> Result<bool, tokio_postgres::Error> {
    let Document { table, id, due, status, request, tags, body, order, .. } = document;
    let (conversation, user) = (document.conversation.as_str(), document.user.as_str());
    let seq = document.seq.0.cast_signed();
    if *table == Table::Conversations {
        match &document.state {
            Some(state) => {
                db.execute(PUT_STATE, &[id, state]).await?;
            }
            None => {
                let values: [&dyn Value; 9] =
                    [id, &conversation, &user, order, status, request, body, due, tags];
                return Ok(db.execute(KEEP_STATE, &values).await? > 0);
            }
        }
    }
    let values: [&dyn Value; 10] = [id, &conversation, &user, &seq, order, status, request, body, due, tags];
    let own = if *table == Table::Conversations { values.len() } else { values.len() - 1 };
    db.execute(&put_sql(*table), &values[..own]).await?;
    Ok(true)
}

/// Whether more documents match than the limit allows.
pub(super) async fn exceeds(db: Session<'_>, limit: &Limit) -> Result<bool, tokio_postgres::Error> {
    // Counting stops there: that there are more is all that matters.
    let most = i64::try_from(limit.at_most).unwrap_or(i64::MAX - 1);
    let user = limit.user.as_ref().map(UserId::as_str);
    let sql = format!(
        "SELECT count(*) FROM (SELECT 1 FROM {} WHERE ($1::text IS NULL OR user_id = $1) \
         AND status = ANY($2) LIMIT $3) AS counted",
        name(limit.table)
    );
    let row = db.query_opt(&sql, &[&user, &limit.statuses, &(most + 1)]).await?;
    Ok(row.is_some_and(|row| row.get::<_, i64>(0) > most))
}

/// One document by id.
pub(super) async fn get(
    db: Session<'_>,
    table: Table,
    id: &str,
) -> Result<Option<Document>, tokio_postgres::Error> {
    let state = match table {
        Table::Conversations => "(SELECT state FROM stored_states AS s WHERE s.id = d.id)",
        Table::Messages | Table::Generations => "NULL::text",
    };
    let sql = format!("{} WHERE id = $1", select_from(name(table), table, state));
    let row = db.query_opt(&sql, &[&id]).await?;
    Ok(row.map(|row| document(table, &row)))
}

/// One page of the documents that match, in the query's order and without states.
pub(super) async fn list(
    db: Session<'_>,
    table: Table,
    query: &Query,
    instance: &str,
) -> Result<DocumentPage, tokio_postgres::Error> {
    let mut conditions = vec!["true".to_owned()];
    let mut values: Values = Vec::new();
    let mut place = |value: Box<dyn Value + Send>| {
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
    if let Some(tag) = &query.tag {
        conditions.push(format!("tag = {}", place(Box::new(tag.clone()))));
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
    let from = match query.tag {
        Some(_) => TAGGED,
        None => name(table),
    };
    let select = select_from(from, table, "NULL::text");
    let sql = format!("{select} WHERE {matching} ORDER BY {order} LIMIT {limit}");
    let values: Vec<&dyn Value> = values.iter().map(|value| &**value as _).collect();
    let mut page = DocumentPage::new(query.limit, query.max_bytes);
    for row in db.query(&sql, &values).await? {
        if !page.add(document(table, &row)) {
            break;
        }
    }
    Ok(page)
}

/// The key of `stored_tags` has the order of the list.
const TAGGED: &str = "(stored_tags JOIN stored_conversations USING (user_id, ord, id))";

fn select_from(from: &str, table: Table, state: &str) -> String {
    let tags = match table {
        Table::Conversations => "tags",
        Table::Messages | Table::Generations => "'{}'::text[]",
    };
    format!(
        "SELECT id, conversation_id, user_id, seq, ord, status, request_id, body, due, {state}, {tags} \
         FROM {from} AS d"
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
        tags: row.get(10),
    }
}
