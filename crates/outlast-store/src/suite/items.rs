//! Items: write by version, find by key, remove once.

use outlast_core::UserId;

use super::Subject;
use crate::items::{Item, ItemQuery, ListedItems, PutError};

/// A new item with the given keys, and a value in every other field.
pub fn item(kind: &str, id: &str, order: i64) -> Item {
    Item {
        kind: kind.to_owned(),
        id: id.to_owned(),
        user: UserId::from("user"),
        order,
        due: None,
        version: 0,
        body: format!(r#"{{"name":"{id}","text":"Grüße, 世界"}}"#),
    }
}

fn ids(listed: &ListedItems) -> Vec<&str> {
    listed.items.iter().map(|item| item.id.as_str()).collect()
}

pub async fn an_item_comes_back_as_it_was_written(subject: &mut dyn Subject) {
    let store = subject.store();
    let first = Item { due: Some(-5), ..item("a kind", "id", i64::MAX) };
    assert_eq!(store.put_item(first.clone()).await.expect("put"), 1);
    let stored = Item { version: 1, ..first };
    assert_eq!(store.get_item("a kind", "id").await.expect("get"), Some(stored.clone()));
    let second = Item {
        user: UserId::from("someone else"),
        order: -1,
        due: None,
        body: r#"{"a":"\u0000 '; DROP TABLE items"}"#.into(),
        ..stored
    };
    assert_eq!(store.put_item(second.clone()).await.expect("put"), 2);
    assert_eq!(store.get_item("a kind", "id").await.expect("get"), Some(Item { version: 2, ..second }));
    assert_eq!(store.get_item("another kind", "id").await.expect("get"), None, "kinds do not share ids");
}

pub async fn a_write_names_the_version_it_replaces(subject: &mut dyn Subject) {
    let store = subject.store();
    let new = item("k", "id", 1);
    let of = |version| Item { version, ..new.clone() };
    assert!(matches!(store.put_item(of(1)).await, Err(PutError::Conflict)), "there is none yet");
    assert_eq!(store.put_item(of(0)).await.expect("put"), 1);
    for stale in [0, 2] {
        let other = Item { body: "{}".into(), ..of(stale) };
        assert!(matches!(store.put_item(other).await, Err(PutError::Conflict)), "{stale}");
    }
    assert_eq!(store.put_item(of(1)).await.expect("put"), 2);
    assert_eq!(store.get_item("k", "id").await.expect("get"), Some(of(2)));
}

pub async fn of_many_writers_of_one_version_one_succeeds(subject: &mut dyn Subject) {
    const WRITERS: usize = 20;
    let store = subject.store();
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..WRITERS {
        let (store, body) = (store.clone(), format!(r#"{{"n":{n}}}"#));
        writers.spawn(async move { store.put_item(Item { body, ..item("k", "id", 1) }).await.is_ok() });
    }
    let written = writers.join_all().await.into_iter().filter(|written| *written).count();
    assert_eq!(written, 1);
}

pub async fn an_item_is_removed_once(subject: &mut dyn Subject) {
    const REMOVERS: usize = 20;
    let store = subject.store();
    store.put_item(item("k", "id", 1)).await.expect("put");
    store.put_item(item("k", "other", 1)).await.expect("put");
    let mut removers = tokio::task::JoinSet::new();
    for _ in 0..REMOVERS {
        let store = store.clone();
        removers.spawn(async move { store.remove_item("k", "id").await.expect("remove") });
    }
    let removed = removers.join_all().await.into_iter().filter(|removed| *removed).count();
    assert_eq!(removed, 1);
    assert_eq!(store.get_item("k", "id").await.expect("get"), None);
    assert!(store.get_item("k", "other").await.expect("get").is_some());
    assert_eq!(store.put_item(item("k", "id", 1)).await.expect("put"), 1, "versions start over");
}

pub async fn kinds_are_listed_while_they_have_items(subject: &mut dyn Subject) {
    let store = subject.store();
    for (kind, id) in [("b", "1"), ("a", "1"), ("a", "2")] {
        store.put_item(item(kind, id, 1)).await.expect("put");
    }
    assert_eq!(store.item_kinds().await.expect("kinds"), ["a", "b"]);
    store.remove_item("b", "1").await.expect("remove");
    store.remove_item("a", "1").await.expect("remove");
    assert_eq!(store.item_kinds().await.expect("kinds"), ["a"]);
}

pub async fn items_are_listed_newest_first_and_page(subject: &mut dyn Subject) {
    let store = subject.store();
    for (id, order) in [("a", 1), ("b", 3), ("c", 3), ("d", 2)] {
        store.put_item(item("k", id, order)).await.expect("put");
    }
    store.put_item(item("other", "e", 9)).await.expect("put");
    let mut query = ItemQuery::newest("k", 10);
    let all = store.list_items(query.clone()).await.expect("list");
    assert_eq!((ids(&all), all.next.as_ref()), (vec!["c", "b", "d", "a"], None));
    query.limit = 3;
    let page = store.list_items(query.clone()).await.expect("list");
    assert_eq!((ids(&page), page.next.clone()), (vec!["c", "b", "d"], Some((2, "d".to_owned()))));
    query.after = page.next;
    let rest = store.list_items(query).await.expect("list");
    assert_eq!((ids(&rest), rest.next.as_ref()), (vec!["a"], None));
}

pub async fn a_page_of_items_is_limited_by_bytes_but_never_empty(subject: &mut dyn Subject) {
    let store = subject.store();
    let body = format!(r#"{{"x":"{}"}}"#, "x".repeat(1000));
    for id in ["a", "b", "c"] {
        store.put_item(Item { body: body.clone(), ..item("k", id, 1) }).await.expect("put");
    }
    for (max_bytes, expected) in [(0, 1), (2 * body.len(), 2), (3 * body.len(), 3)] {
        let query = ItemQuery { max_bytes, ..ItemQuery::newest("k", 10) };
        let page = store.list_items(query).await.expect("list");
        assert_eq!((page.items.len(), page.next.is_some()), (expected, expected < 3));
    }
}

pub async fn items_of_one_user_are_listed_alone(subject: &mut dyn Subject) {
    let store = subject.store();
    for (id, user) in [("a", "one"), ("b", "two"), ("c", "one")] {
        store.put_item(Item { user: UserId::from(user), ..item("k", id, 1) }).await.expect("put");
    }
    let query = ItemQuery { user: Some(UserId::from("one")), ..ItemQuery::newest("k", 10) };
    assert_eq!(ids(&store.list_items(query).await.expect("list")), ["c", "a"]);
}

pub async fn items_that_are_due_are_listed_oldest_first(subject: &mut dyn Subject) {
    let store = subject.store();
    for (id, due) in [("a", Some(30)), ("b", None), ("c", Some(10)), ("d", Some(20)), ("e", Some(10))] {
        store.put_item(Item { due, ..item("k", id, 1) }).await.expect("put");
    }
    let mut query = ItemQuery { due_by: Some(20), limit: 2, ..ItemQuery::newest("k", 10) };
    let page = store.list_items(query.clone()).await.expect("list");
    assert_eq!((ids(&page), page.next.clone()), (vec!["c", "e"], Some((10, "e".to_owned()))));
    query.after = page.next;
    let rest = store.list_items(query).await.expect("list");
    assert_eq!((ids(&rest), rest.next.as_ref()), (vec!["d"], None));
}

pub async fn items_survive_a_restart(subject: &mut dyn Subject) {
    let store = subject.store();
    for id in ["kept", "removed"] {
        store.put_item(item("k", id, 1)).await.expect("put");
    }
    store.remove_item("k", "removed").await.expect("remove");
    drop(store);
    subject.reopen().await;
    if !subject.durable() {
        return;
    }
    let listed = subject.store().list_items(ItemQuery::newest("k", 10)).await.expect("list");
    assert_eq!((ids(&listed), listed.items[0].version), (vec!["kept"], 1));
}
