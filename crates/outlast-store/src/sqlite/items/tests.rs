use outlast_core::UserId;

use super::*;
use crate::suite::items::item;

#[tokio::test]
async fn a_command_beside_a_running_server_reads_and_writes_items() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    let store = SqliteStore::open(&path).unwrap();
    let beside = ItemFile::open(&path).unwrap();
    assert_eq!(beside.put_item(item("key", "a", 1)).await.unwrap(), 1);
    let found = store.get_item("key", "a").await.unwrap().unwrap();
    assert_eq!((found.version, found.user.clone()), (1, UserId::from("user")));
    assert_eq!(store.put_item(Item { body: "{}".into(), ..found.clone() }).await.unwrap(), 2);
    let late = beside.put_item(Item { body: r#"{"late":1}"#.into(), ..found }).await;
    assert!(matches!(late, Err(PutError::Conflict)), "{late:?}");
    assert_eq!(beside.list_items(ItemQuery::newest("key", 10)).await.unwrap().items[0].body, "{}");
    assert!(beside.remove_item("key", "a").await.unwrap());
    assert!(!store.remove_item("key", "a").await.unwrap());
}

#[tokio::test]
async fn a_command_works_before_the_server_has_ever_run_and_leaves_the_file_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data/outlast.db");
    let beside = ItemFile::open(&path).unwrap();
    beside.put_item(item("key", "a", 1)).await.unwrap();
    let store = SqliteStore::open(&path).unwrap();
    assert!(store.get_item("key", "a").await.unwrap().is_some());
}

#[tokio::test]
async fn a_command_of_another_version_is_kept_away_from_a_running_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    let _store = SqliteStore::open(&path).unwrap();
    let db = Connection::open(&path).unwrap();
    db.pragma_update(None, "user_version", 3).unwrap();
    let refused = ItemFile::open(&path).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("schema version 3"), "{refused}");
}

#[test]
fn items_are_found_by_their_indexes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    drop(SqliteStore::open(&path).unwrap());
    let db = Connection::open(&path).unwrap();
    for (matching, index) in [
        ("kind = ? ORDER BY ord DESC, id DESC LIMIT 1", "items_by_order"),
        ("kind = ? AND user_id = ? ORDER BY ord DESC, id DESC LIMIT 1", "items_by_user"),
        ("kind = ? AND due <= ? ORDER BY due, id LIMIT 1", "items_by_due"),
    ] {
        let sql = format!("EXPLAIN QUERY PLAN SELECT id FROM items WHERE {matching}");
        let mut statement = db.prepare(&sql).unwrap();
        let bound = vec![0; statement.parameter_count()];
        let plan: Vec<String> = statement
            .query_map(params_from_iter(bound), |row| row.get(3))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert!(plan.len() == 1 && plan[0].contains(index), "{plan:?}");
    }
}
