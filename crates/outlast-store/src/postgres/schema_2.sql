-- `stored_tags` is an index of the tags in each conversation's row, which a trigger keeps.
ALTER TABLE stored_conversations ADD COLUMN tags text[] COLLATE "C" NOT NULL DEFAULT '{}';
CREATE TABLE stored_tags (
    user_id text COLLATE "C" NOT NULL, tag text COLLATE "C" NOT NULL, ord bigint NOT NULL, id text COLLATE "C" NOT NULL,
    PRIMARY KEY (user_id, tag, ord, id)
);

CREATE FUNCTION keep_tags() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM stored_tags
            WHERE user_id = OLD.user_id AND tag = ANY(OLD.tags) AND ord = OLD.ord AND id = OLD.id;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO stored_tags SELECT NEW.user_id, tag, NEW.ord, NEW.id FROM unnest(NEW.tags) AS t (tag);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER tags_added AFTER INSERT ON stored_conversations
    FOR EACH ROW WHEN (NEW.tags <> '{}') EXECUTE FUNCTION keep_tags();
CREATE TRIGGER tags_changed AFTER UPDATE ON stored_conversations
    FOR EACH ROW WHEN (OLD.tags <> NEW.tags OR OLD.user_id <> NEW.user_id OR OLD.ord <> NEW.ord)
    EXECUTE FUNCTION keep_tags();
CREATE TRIGGER tags_removed AFTER DELETE ON stored_conversations
    FOR EACH ROW WHEN (OLD.tags <> '{}') EXECUTE FUNCTION keep_tags();
