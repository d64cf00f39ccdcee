//! The tables, and what a person with `sqlite3` finds in them.
//!
//! `recent` and `log` are the logs: `recent` takes every append at its end, whatever the conversation,
//! because rows keyed by conversation dirty a page each; `log` holds what was settled, in large chunks.
//! The `stored_` tables are the documents, and a view on each gives a person readable columns under the
//! plain name. They are computed from the body when somebody looks, so they cost nothing to write and cannot
//! disagree with it. (A generated column would be computed at every write, though nothing keeps its value.)

use rusqlite::Connection;

use crate::StoreError;
use crate::sqlite::failure::broken;

const VERSION: i64 = 2;

const SCHEMA: &str = "
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO meta VALUES ('epoch', 0);

CREATE TABLE recent (
    position     INTEGER PRIMARY KEY,
    conversation TEXT NOT NULL,
    fence        INTEGER NOT NULL,
    first_seq    INTEGER NOT NULL,
    last_seq     INTEGER NOT NULL,
    bytes        BLOB NOT NULL
);

-- Not WITHOUT ROWID: with 64 KiB of bytes in the key's own tree, a page would hold eight keys.
-- Bytes are NULL where the end of a log was trimmed: the row then only says where the log ended.
CREATE TABLE log (
    conversation TEXT NOT NULL,
    first_seq    INTEGER NOT NULL,
    last_seq     INTEGER NOT NULL,
    bytes        BLOB,
    PRIMARY KEY (conversation, first_seq)
);

CREATE TABLE stored_conversations (
    id TEXT PRIMARY KEY NOT NULL, conversation_id TEXT NOT NULL, user_id TEXT NOT NULL,
    seq INTEGER NOT NULL, ord INTEGER NOT NULL, status TEXT NOT NULL, request_id TEXT NOT NULL,
    body TEXT NOT NULL, state TEXT NOT NULL
);
CREATE INDEX conversations_by_user ON stored_conversations (user_id, ord, id);
CREATE INDEX conversations_by_status ON stored_conversations (status, ord, id);

CREATE TABLE stored_messages (
    id TEXT PRIMARY KEY NOT NULL, conversation_id TEXT NOT NULL, user_id TEXT NOT NULL,
    seq INTEGER NOT NULL, ord INTEGER NOT NULL, status TEXT NOT NULL, request_id TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX messages_by_conversation ON stored_messages (conversation_id, ord, id);

CREATE TABLE stored_generations (
    id TEXT PRIMARY KEY NOT NULL, conversation_id TEXT NOT NULL, user_id TEXT NOT NULL,
    seq INTEGER NOT NULL, ord INTEGER NOT NULL, status TEXT NOT NULL, request_id TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX generations_by_conversation ON stored_generations (conversation_id, ord, id);
CREATE INDEX generations_by_request ON stored_generations (conversation_id, request_id);
-- Live ones are few among very many: found by status first, whoever asks.
CREATE INDEX generations_by_status ON stored_generations (status, ord, id);
CREATE INDEX generations_by_user ON stored_generations (user_id, status, ord, id);

CREATE VIEW conversations AS SELECT
    id, user_id, status, seq, body ->> '$.title' AS title, body ->> '$.createdAt' AS created_at, body
FROM stored_conversations;
CREATE VIEW messages AS SELECT
    body ->> '$.id' AS id, conversation_id, user_id, status, seq, body ->> '$.role' AS role, body ->> '$.content' AS content,
    body ->> '$.createdAt' AS created_at, body
FROM stored_messages;
CREATE VIEW generations AS SELECT
    id, conversation_id, user_id, status, seq, request_id, body ->> '$.model' AS model,
    body ->> '$.errorMessage' AS error_message, body ->> '$.startedAt' AS started_at,
    body ->> '$.completedAt' AS completed_at, body
FROM stored_generations;
";

/// Creates the tables in a new file, and refuses one that has others.
pub(super) fn prepare(db: &mut Connection) -> Result<(), StoreError> {
    let version: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(broken)?;
    match version {
        VERSION => Ok(()),
        0 => create(db).map_err(broken),
        _ => Err(StoreError::Broken(format!(
            "the database has schema version {version}, this Outlast knows {VERSION}: use the Outlast that \
             wrote it, or another data folder"
        ))),
    }
}

fn create(db: &mut Connection) -> rusqlite::Result<()> {
    let tx = db.transaction()?;
    tx.execute_batch(SCHEMA)?;
    tx.pragma_update(None, "user_version", VERSION)?;
    tx.commit()
}

/// Counts this start of the store, durably, and returns the count: no fence of an earlier start can
/// come again.
pub(super) fn next_epoch(db: &Connection) -> Result<u64, StoreError> {
    let sql = "UPDATE meta SET value = value + 1 WHERE key = 'epoch' RETURNING value";
    db.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned).map_err(broken)
}
