use rusqlite::Connection;

use super::{REMOVALS, SINCE_2, TABLES};

use crate::contract::{Document, Newest, Query, Table};
use crate::suite::items::item;
use crate::suite::{all, append, conversation, head, lines, put, write};
use crate::{Items, SqliteStore, Store};

/// A database of schema version 2: a conversation for each status of a generation, `c-STATUS` with the
/// generation `g-STATUS` and two records.
fn version_2(path: &std::path::Path, statuses: &[&str]) {
    let db = Connection::open(path).unwrap();
    db.execute_batch(include_str!("version_2.sql")).unwrap();
    for (n, status) in (1_i64..).zip(statuses) {
        let (c, g) = (format!("c-{status}"), format!("g-{status}"));
        db.execute(
            "INSERT INTO stored_conversations VALUES (?1, ?1, 'user', 1, ?2, '', '', '{\"title\":\"T\"}', ?3)",
            (&c, 10 * n, format!("state of {c}")),
        )
        .unwrap();
        db.execute(
            "INSERT INTO stored_generations VALUES (?1, ?2, 'user', 1, ?3, ?4, 'r', '{}')",
            (&g, &c, 100 * n, status),
        )
        .unwrap();
        db.execute("INSERT INTO recent VALUES (?1, ?2, 7, 1, 2, ?3)", (n, &c, b"one\ntwo")).unwrap();
    }
    db.pragma_update(None, "user_version", 2).unwrap();
}

#[tokio::test]
async fn a_database_of_version_2_opens_and_keeps_everything() {
    const LIVE: [&str; 5] = ["queued", "running", "awaiting_approval", "paused", "interrupted"];
    const ENDED: [&str; 3] = ["completed", "cancelled", "error"];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    version_2(&path, &[&LIVE[..], &ENDED[..]].concat());
    // The second time there is nothing to upgrade.
    for _ in 0..2 {
        let store = SqliteStore::open(&path).unwrap();
        for status in LIVE.iter().chain(&ENDED) {
            let id = conversation(&format!("c-{status}"));
            let loaded = store.load(&id, Newest::NONE).await.unwrap().unwrap();
            assert_eq!(loaded.conversation.state, Some(format!("state of {id}")));
            assert_eq!((loaded.conversation.seq.0, loaded.records.len(), loaded.last.0), (1, 1, 2));
            assert_eq!(loaded.conversation.due, LIVE.contains(status).then_some(0), "{status}");
            assert_eq!(all(&store, &id).await, lines(&[(1, "one"), (2, "two")]));
        }
        let due = |table| {
            let query = Query { table: Some(table), due_by: Some(i64::MAX), limit: 100, ..Query::default() };
            store.list(query)
        };
        assert_eq!(due(Table::Conversations).await.unwrap().documents.len(), LIVE.len());
        let ended = due(Table::Generations).await.unwrap().documents;
        let ended: Vec<_> = ended.iter().map(|document| (document.id.as_str(), document.due)).collect();
        assert_eq!(
            ended,
            [("g-completed", Some(600)), ("g-cancelled", Some(700)), ("g-error", Some(800))],
            "each is due since it was created"
        );
    }
    let store = SqliteStore::open(&path).unwrap();
    let c = conversation("c-running");
    let fence = store.claim(&c).await.unwrap();
    store.append(append(&c, fence, 2, &["three"])).await.unwrap();
    assert_eq!(all(&store, &c).await.len(), 3);
}

/// A database of schema version 3, which knew no items, with one conversation.
async fn version_3(path: &std::path::Path) {
    drop(SqliteStore::open(path).unwrap());
    let store = SqliteStore::open(path).unwrap();
    write(&store, &conversation("c"), 0, &["one", "two"]).await;
    drop(store);
    let db = Connection::open(path).unwrap();
    db.execute_batch(&format!("{WITHOUT_TAGS} DROP TABLE items;")).unwrap();
    db.pragma_update(None, "user_version", 3).unwrap();
}

/// Takes away what version 5 added.
const WITHOUT_TAGS: &str = "DROP TRIGGER tags_added; DROP TRIGGER tags_changed; DROP TRIGGER tags_removed; \
                            DROP TABLE stored_tags; ALTER TABLE stored_conversations DROP COLUMN tags;";

#[tokio::test]
async fn a_database_of_version_4_opens_and_its_conversations_take_tags() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    let c = conversation("c");
    let store = SqliteStore::open(&path).unwrap();
    let fence = store.claim(&c).await.unwrap();
    store.append(put(&c, fence, 0, vec![head(&c, 0)])).await.unwrap();
    drop(store);
    let db = Connection::open(&path).unwrap();
    db.execute_batch(WITHOUT_TAGS).unwrap();
    db.pragma_update(None, "user_version", 4).unwrap();
    drop(db);
    for opened in 1..=2 {
        let store = SqliteStore::open(&path).unwrap();
        let found = store.get(Table::Conversations, "c").await.unwrap().unwrap();
        assert_eq!(found.tags.len(), opened - 1);
        let fence = store.claim(&c).await.unwrap();
        let tagged = Document { tags: vec!["t".into()], state: None, ..head(&c, 0) };
        store.append(put(&c, fence, 0, vec![tagged])).await.unwrap();
        let query = Query {
            table: Some(Table::Conversations),
            user: Some("user".into()),
            tag: Some("t".into()),
            limit: 9,
            ..Query::default()
        };
        assert_eq!(store.list(query).await.unwrap().documents.len(), 1);
    }
}

#[test]
fn s1_a_tag_is_found_by_its_index_in_the_order_of_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    drop(SqliteStore::open(&path).unwrap());
    let db = Connection::open(&path).unwrap();
    let sql = format!(
        "EXPLAIN QUERY PLAN {} WHERE user_id = ? AND tag = ? AND (ord, id) < (?, ?) \
         ORDER BY ord DESC, id DESC LIMIT ?",
        crate::sqlite::documents::SELECT_TAGGED
    );
    let mut statement = db.prepare(&sql).unwrap();
    let rows = statement.query_map([0, 0, 0, 0, 0], |row| row.get(3)).unwrap();
    let plan: Vec<String> = rows.map(Result::unwrap).collect();
    assert!(plan.len() == 2 && plan[0].contains("SEARCH stored_tags USING PRIMARY KEY"), "{plan:?}");
    assert!(plan[1].starts_with("SEARCH stored_conversations"), "nothing is sorted: {plan:?}");
}

#[tokio::test]
async fn a_database_of_version_3_opens_keeps_its_log_and_takes_items() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    version_3(&path).await;
    for opened in 1..=2 {
        let store = SqliteStore::open(&path).unwrap();
        assert_eq!(all(&store, &conversation("c")).await, lines(&[(1, "one"), (2, "two")]));
        assert_eq!(store.get_item("k", "id").await.unwrap().is_some(), opened == 2);
        if opened == 1 {
            store.put_item(item("k", "id", 1)).await.unwrap();
        }
    }
}

#[test]
fn an_upgraded_database_has_the_schema_of_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old.db"), folder.path().join("new.db"));
    version_2(&old, &["running"]);
    let last = folder.path().join("last.db");
    let db = Connection::open(&last).unwrap();
    db.execute_batch(&[TABLES, SINCE_2, REMOVALS].concat()).unwrap();
    db.pragma_update(None, "user_version", 3).unwrap();
    drop(db);
    let schema = |path| {
        drop(SqliteStore::open(path).unwrap());
        let db = Connection::open(path).unwrap();
        let mut statement = db.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        // `ALTER TABLE` edits the text of a table's definition, so its spacing differs.
        let dense = |sql: String| sql.split_whitespace().collect::<String>();
        rows.map(|row| row.map(|(name, sql): (String, Option<String>)| (name, sql.map(dense))))
            .collect::<Result<Vec<_>, _>>()
            .unwrap()
    };
    assert_eq!(schema(&old), schema(&new));
    assert_eq!(schema(&last), schema(&new));
}

#[test]
fn what_is_due_is_found_by_its_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    drop(SqliteStore::open(&path).unwrap());
    let db = Connection::open(&path).unwrap();
    for table in ["conversations", "generations"] {
        let sql = format!(
            "EXPLAIN QUERY PLAN SELECT id FROM stored_{table} \
             WHERE due <= ? AND (due, id) > (?, ?) ORDER BY due, id LIMIT ?"
        );
        let plan: Vec<String> = db
            .prepare(&sql)
            .unwrap()
            .query_map([0, 0, 0, 0], |row| row.get(3))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert!(plan.len() == 1 && plan[0].contains(&format!("{table}_by_due")), "{plan:?}");
    }
}
