//! The tables, and what a person with `sqlite3` finds in them.
//!
//! `recent` and `log` are the logs: `recent` takes every append at its end, whatever the conversation,
//! because rows keyed by conversation dirty a page each; `log` holds what was settled, in large chunks.
//! The other three are the documents. Their readable columns are computed from the body when somebody
//! looks, so they cost nothing to write and cannot disagree with it.

use rusqlite::Connection;

use crate::StoreError;
use crate::sqlite::failure::broken;

const VERSION: i64 = 1;

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

CREATE TABLE conversations (
    id TEXT PRIMARY KEY NOT NULL, conversation_id TEXT NOT NULL, user_id TEXT NOT NULL,
    seq INTEGER NOT NULL, ord INTEGER NOT NULL, status TEXT NOT NULL, request_id TEXT NOT NULL,
    body TEXT NOT NULL, state TEXT NOT NULL,
    title TEXT AS (body ->> '$.title'),
    created_at TEXT AS (body ->> '$.createdAt')
);
CREATE INDEX conversations_by_user ON conversations (user_id, ord, id);
CREATE INDEX conversations_by_status ON conversations (status, ord, id);

CREATE TABLE messages (
    id TEXT PRIMARY KEY NOT NULL, conversation_id TEXT NOT NULL, user_id TEXT NOT NULL,
    seq INTEGER NOT NULL, ord INTEGER NOT NULL, status TEXT NOT NULL, request_id TEXT NOT NULL,
    body TEXT NOT NULL,
    role TEXT AS (body ->> '$.role'),
    content TEXT AS (body ->> '$.content'),
    created_at TEXT AS (body ->> '$.createdAt')
);
CREATE INDEX messages_by_conversation ON messages (conversation_id, ord, id);

CREATE TABLE generations (
    id TEXT PRIMARY KEY NOT NULL, conversation_id TEXT NOT NULL, user_id TEXT NOT NULL,
    seq INTEGER NOT NULL, ord INTEGER NOT NULL, status TEXT NOT NULL, request_id TEXT NOT NULL,
    body TEXT NOT NULL,
    model TEXT AS (body ->> '$.model'),
    error_message TEXT AS (body ->> '$.errorMessage'),
    started_at TEXT AS (body ->> '$.startedAt'),
    completed_at TEXT AS (body ->> '$.completedAt')
);
CREATE INDEX generations_by_conversation ON generations (conversation_id, ord, id);
CREATE INDEX generations_by_request ON generations (conversation_id, request_id);
-- Live ones are few among very many: found by status first, whoever asks.
CREATE INDEX generations_by_status ON generations (status, ord, id);
CREATE INDEX generations_by_user ON generations (user_id, status, ord, id);
";

/// Creates the tables in a new file, and refuses one that a newer Outlast has written.
pub(super) fn prepare(db: &mut Connection) -> Result<(), StoreError> {
    let version: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(broken)?;
    match version {
        VERSION => Ok(()),
        0 => create(db).map_err(broken),
        _ => Err(StoreError::Broken(format!(
            "the database has schema version {version}, this Outlast knows {VERSION}: use a newer Outlast"
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
