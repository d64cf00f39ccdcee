-- The heartbeat. Apart from `writers`, because it changes often and nobody waits for it.
CREATE TABLE instances (
    instance    text COLLATE "C" PRIMARY KEY,
    lease_until timestamptz NOT NULL
);

-- One row for each instance that writes. A flush updates its own row and needs the `claims` that it knows, so
-- whoever raises `claims` has waited for the flush on its way and has shut out every later one. `flush` is the
-- number of the last flush that was committed.
CREATE TABLE writers (
    instance text COLLATE "C" PRIMARY KEY,
    claims   bigint NOT NULL DEFAULT 0,
    flush    bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 20);

CREATE SEQUENCE fences;

-- Conversations that some instance holds. Released ones have no row.
CREATE TABLE owners (
    conversation text COLLATE "C" PRIMARY KEY,
    fence        bigint NOT NULL,
    instance     text COLLATE "C" NOT NULL
);
CREATE INDEX owners_by_instance ON owners (instance);

-- Lines of JSON, joined by newlines. Bytes are NULL where the end of a log was trimmed: the row then only says
-- where the log ended.
CREATE TABLE log (
    conversation text COLLATE "C" NOT NULL,
    first_seq    bigint NOT NULL,
    last_seq     bigint NOT NULL,
    bytes        bytea,
    PRIMARY KEY (conversation, first_seq)
);

CREATE TABLE stored_conversations (
    id text COLLATE "C" PRIMARY KEY, conversation_id text COLLATE "C" NOT NULL, user_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL, ord bigint NOT NULL, status text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL, body text NOT NULL, due bigint
);
CREATE INDEX conversations_by_user ON stored_conversations (user_id, ord, id);
CREATE INDEX conversations_by_status ON stored_conversations (status, ord, id);
CREATE INDEX conversations_by_due ON stored_conversations (due, id) WHERE due IS NOT NULL;
CREATE TABLE stored_states (id text COLLATE "C" PRIMARY KEY, state text NOT NULL);

CREATE TABLE stored_messages (
    id text COLLATE "C" PRIMARY KEY, conversation_id text COLLATE "C" NOT NULL, user_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL, ord bigint NOT NULL, status text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL, body text NOT NULL, due bigint
);
CREATE INDEX messages_by_conversation ON stored_messages (conversation_id, ord, id);

CREATE TABLE stored_generations (
    id text COLLATE "C" PRIMARY KEY, conversation_id text COLLATE "C" NOT NULL, user_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL, ord bigint NOT NULL, status text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL, body text NOT NULL, due bigint
);
CREATE INDEX generations_by_conversation ON stored_generations (conversation_id, ord, id);
CREATE INDEX generations_by_request ON stored_generations (conversation_id, request_id);
CREATE INDEX generations_by_status ON stored_generations (status, ord, id);
CREATE INDEX generations_by_user ON stored_generations (user_id, status, ord, id);
CREATE INDEX generations_by_due ON stored_generations (due, id) WHERE due IS NOT NULL;

CREATE TABLE items (
    kind text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL, user_id text COLLATE "C" NOT NULL,
    ord bigint NOT NULL, due bigint, version bigint NOT NULL, body text NOT NULL, PRIMARY KEY (kind, id)
);
CREATE INDEX items_by_order ON items (kind, ord, id);
CREATE INDEX items_by_user ON items (kind, user_id, ord, id);
CREATE INDEX items_by_due ON items (kind, due, id) WHERE due IS NOT NULL;

CREATE TABLE mail (
    id           text COLLATE "C" PRIMARY KEY,
    number       bigint GENERATED ALWAYS AS IDENTITY,
    sender       text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    body         bytea NOT NULL,
    reply        bytea
);
CREATE INDEX mail_unanswered ON mail (conversation, number) WHERE reply IS NULL;
CREATE INDEX mail_by_sender ON mail (sender);

CREATE VIEW conversations AS SELECT
    id, user_id, status, seq, due, body::json ->> 'title' AS title, body::json ->> 'createdAt' AS created_at, body
FROM stored_conversations;
CREATE VIEW messages AS SELECT
    body::json ->> 'id' AS id, conversation_id, user_id, status, seq, body::json ->> 'role' AS role,
    body::json ->> 'content' AS content, body::json ->> 'createdAt' AS created_at, body
FROM stored_messages;
CREATE VIEW generations AS SELECT
    id, conversation_id, user_id, status, seq, due, request_id, body::json ->> 'model' AS model,
    body::json ->> 'errorMessage' AS error_message, body::json ->> 'startedAt' AS started_at,
    body::json ->> 'completedAt' AS completed_at, body
FROM stored_generations;

-- The lease is judged by this server's clock and nobody else's.
CREATE FUNCTION is_live(name text) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT EXISTS (SELECT 1 FROM instances WHERE instance = name AND lease_until > clock_timestamp())
$$;

-- Each statement of these functions has a snapshot of its own. That matters in `claim`: the end of the log is
-- looked up after the wait for the former owner's flush, not before it.
CREATE FUNCTION claim(wanted text, me text, OUT holder text, OUT new_fence bigint, OUT last bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    LOOP
        INSERT INTO owners VALUES (wanted, nextval('fences'), me)
            ON CONFLICT DO NOTHING RETURNING fence INTO new_fence;
        EXIT WHEN new_fence IS NOT NULL;
        SELECT instance INTO holder FROM owners WHERE conversation = wanted FOR UPDATE;
        CONTINUE WHEN holder IS NULL; -- released just now
        IF holder <> me THEN
            IF is_live(holder) THEN RETURN; END IF;
            UPDATE writers SET claims = claims + 1 WHERE instance = holder;
        END IF;
        UPDATE owners SET instance = me, fence = nextval('fences')
            WHERE conversation = wanted RETURNING fence INTO new_fence;
        EXIT;
    END LOOP;
    holder := NULL;
    SELECT last_seq INTO last FROM log WHERE conversation = wanted ORDER BY first_seq DESC LIMIT 1;
    last := coalesce(last, 0);
END
$$;

CREATE FUNCTION mail_waits(wanted text) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT EXISTS (SELECT 1 FROM mail WHERE conversation = wanted AND reply IS NULL AND is_live(sender))
$$;

CREATE FUNCTION release(wanted text, me text, known_fence bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM owners WHERE conversation = wanted AND instance = me AND fence = known_fence;
    RETURN mail_waits(wanted);
END
$$;

CREATE FUNCTION send_mail(mail_id text, me text, wanted text, letter bytea) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO mail (id, sender, conversation, body) VALUES (mail_id, me, wanted, letter) ON CONFLICT DO NOTHING;
    PERFORM pg_notify('outlast_mail', instance) FROM owners WHERE conversation = wanted;
END
$$;

CREATE FUNCTION delete_conversation(gone text, me text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE holder text;
BEGIN
    DELETE FROM owners WHERE conversation = gone RETURNING instance INTO holder;
    IF holder <> me THEN
        UPDATE writers SET claims = claims + 1 WHERE instance = holder;
    END IF;
    DELETE FROM log WHERE conversation = gone;
    DELETE FROM stored_states WHERE id IN (SELECT id FROM stored_conversations WHERE conversation_id = gone);
    DELETE FROM stored_conversations WHERE conversation_id = gone;
    DELETE FROM stored_messages WHERE conversation_id = gone;
    DELETE FROM stored_generations WHERE conversation_id = gone;
    PERFORM pg_notify('outlast_log', gone || ' 0');
END
$$;
