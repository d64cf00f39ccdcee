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
-- Live generations are few among very many, so they are found by status first.
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
