//! The tables, and the views for people who use `sqlite3`.
//!
//! `recent` and `log` hold the records. Every append adds a row at the end of `recent`, whatever its
//! conversation, because rows keyed by conversation would dirty a page each. `log` holds settled records in
//! large chunks. The `stored_` tables hold the documents. For each, a view under the plain name has readable
//! columns, computed from the body on demand, so they cost nothing to write and cannot disagree with it. (A
//! virtual generated column would be computed at every write, although its value is not stored.) States have
//! a separate table, because SQLite rewrites a whole row when one of its columns changes.

use rusqlite::Connection;

use crate::StoreError;
use crate::sqlite::failure::broken;

const VERSION: i64 = 5;

const TABLES: &str = "
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

-- Not WITHOUT ROWID: with 32 KiB of bytes in the tree of keys, a page would hold few keys.
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
    body TEXT NOT NULL, due INTEGER
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
    body TEXT NOT NULL, due INTEGER
);
CREATE INDEX generations_by_conversation ON stored_generations (conversation_id, ord, id);
CREATE INDEX generations_by_request ON stored_generations (conversation_id, request_id);
-- Live ones are few among very many: found by status first, whoever asks.
CREATE INDEX generations_by_status ON stored_generations (status, ord, id);
CREATE INDEX generations_by_user ON stored_generations (user_id, status, ord, id);
";

/// What version 3 added, and the views. A new file gets both after the tables of version 2.
const SINCE_2: &str = "
CREATE TABLE stored_states (
    id    TEXT PRIMARY KEY NOT NULL,
    state TEXT NOT NULL
);
CREATE INDEX conversations_by_due ON stored_conversations (due, id) WHERE due IS NOT NULL;
CREATE INDEX generations_by_due ON stored_generations (due, id) WHERE due IS NOT NULL;

CREATE VIEW conversations AS SELECT
    id, user_id, status, seq, due, body ->> '$.title' AS title, body ->> '$.createdAt' AS created_at, body
FROM stored_conversations;
CREATE VIEW messages AS SELECT
    body ->> '$.id' AS id, conversation_id, user_id, status, seq, body ->> '$.role' AS role, body ->> '$.content' AS content,
    body ->> '$.createdAt' AS created_at, body
FROM stored_messages;
CREATE VIEW generations AS SELECT
    id, conversation_id, user_id, status, seq, due, request_id, body ->> '$.model' AS model,
    body ->> '$.errorMessage' AS error_message, body ->> '$.startedAt' AS started_at,
    body ->> '$.completedAt' AS completed_at, body
FROM stored_generations;
";

/// The deleted conversations. They are invisible, and their data is removed step by step.
const REMOVALS: &str = "
CREATE TABLE IF NOT EXISTS removals (conversation TEXT PRIMARY KEY NOT NULL) WITHOUT ROWID;
";

/// What version 4 added: see [`crate::Items`].
const SINCE_3: &str = "
CREATE TABLE items (
    kind TEXT NOT NULL, id TEXT NOT NULL, user_id TEXT NOT NULL, ord INTEGER NOT NULL, due INTEGER,
    version INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (kind, id)
);
CREATE INDEX items_by_order ON items (kind, ord, id);
CREATE INDEX items_by_user ON items (kind, user_id, ord, id);
CREATE INDEX items_by_due ON items (kind, due, id) WHERE due IS NOT NULL;
";

/// What version 5 added. `stored_tags` is an index of the tags in each conversation's row, which triggers keep.
const SINCE_4: &str = "
ALTER TABLE stored_conversations ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';
CREATE TABLE stored_tags (
    user_id TEXT NOT NULL, tag TEXT NOT NULL, ord INTEGER NOT NULL, id TEXT NOT NULL,
    PRIMARY KEY (user_id, tag, ord, id)
) WITHOUT ROWID;
CREATE TRIGGER tags_added AFTER INSERT ON stored_conversations WHEN new.tags <> '[]' BEGIN
    INSERT INTO stored_tags SELECT new.user_id, value, new.ord, new.id FROM json_each(new.tags);
END;
CREATE TRIGGER tags_changed AFTER UPDATE ON stored_conversations
WHEN old.tags <> new.tags OR old.user_id <> new.user_id OR old.ord <> new.ord BEGIN
    DELETE FROM stored_tags WHERE user_id = old.user_id AND ord = old.ord AND id = old.id
        AND tag IN (SELECT value FROM json_each(old.tags));
    INSERT INTO stored_tags SELECT new.user_id, value, new.ord, new.id FROM json_each(new.tags);
END;
CREATE TRIGGER tags_removed AFTER DELETE ON stored_conversations WHEN old.tags <> '[]' BEGIN
    DELETE FROM stored_tags WHERE user_id = old.user_id AND ord = old.ord AND id = old.id
        AND tag IN (SELECT value FROM json_each(old.tags));
END;
";

/// Turns the tables of version 2 into those of version 3.
const FROM_2: &str = "
DROP VIEW conversations;
DROP VIEW messages;
DROP VIEW generations;
ALTER TABLE stored_conversations ADD COLUMN due INTEGER;
ALTER TABLE stored_generations ADD COLUMN due INTEGER;
";

/// Version 2 kept states in the conversation's row and had no `due`. Unfinished conversations become due at
/// once, and their owners then write the actual time. Ended generations are due for retention.
const FILL_FROM_2: &str = "
INSERT INTO stored_states SELECT id, state FROM stored_conversations;
ALTER TABLE stored_conversations DROP COLUMN state;
UPDATE stored_conversations SET due = 0 WHERE id IN (
    SELECT conversation_id FROM stored_generations
    WHERE status IN ('queued', 'running', 'awaiting_approval', 'paused', 'interrupted'));
UPDATE stored_generations SET due = ord WHERE status IN ('completed', 'cancelled', 'error');
";

/// Creates the tables in a new file, brings those of the last three versions up to date, and refuses others.
pub(super) fn prepare(db: &mut Connection) -> Result<(), StoreError> {
    let version = version(db)?;
    match version {
        VERSION => run(db, &[REMOVALS]).map_err(broken),
        0 => run(db, &[TABLES, SINCE_2, REMOVALS, SINCE_3, SINCE_4]).map_err(broken),
        2 => upgrade(db, version, &[FROM_2, SINCE_2, FILL_FROM_2, REMOVALS, SINCE_3, SINCE_4]),
        3 => upgrade(db, version, &[REMOVALS, SINCE_3, SINCE_4]),
        4 => upgrade(db, version, &[REMOVALS, SINCE_4]),
        _ => Err(unknown(version)),
    }
}

/// Refuses a database that another version of Outlast has open.
pub(super) fn check(db: &Connection) -> Result<(), StoreError> {
    match version(db)? {
        VERSION => Ok(()),
        other => Err(unknown(other)),
    }
}

fn version(db: &Connection) -> Result<i64, StoreError> {
    db.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(broken)
}

fn unknown(version: i64) -> StoreError {
    StoreError::Broken(format!(
        "the database has schema version {version}, this version of Outlast supports {VERSION}: use the \
         Outlast version that wrote it, or another data folder"
    ))
}

fn upgrade(db: &mut Connection, from: i64, steps: &[&str]) -> Result<(), StoreError> {
    tracing::info!("upgrading the database from schema version {from} to {VERSION}");
    run(db, steps).map_err(broken)
}

fn run(db: &mut Connection, steps: &[&str]) -> rusqlite::Result<()> {
    let tx = db.transaction()?;
    for step in steps {
        tx.execute_batch(step)?;
    }
    tx.pragma_update(None, "user_version", VERSION)?;
    tx.commit()
}

/// Counts this start durably and returns the count, so that no fence of an earlier start is handed out
/// again.
pub(super) fn next_epoch(db: &Connection) -> Result<u64, StoreError> {
    let sql = "UPDATE meta SET value = value + 1 WHERE key = 'epoch' RETURNING value";
    db.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned).map_err(broken)
}

/// Makes the next start at least the one after this.
pub(super) fn raise_epoch(db: &Connection, epoch: u64) -> rusqlite::Result<()> {
    let sql = "UPDATE meta SET value = max(value, ?1) WHERE key = 'epoch'";
    db.execute(sql, [epoch.cast_signed()]).map(|_| ())
}

#[cfg(test)]
mod tests;
