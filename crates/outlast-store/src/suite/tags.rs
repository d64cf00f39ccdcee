//! Tags: conversations that a user finds by them.

use outlast_core::UserId;

use super::documents::page_through;
use super::{Subject, conversation, document, head, put};
use crate::contract::{Change, Document, Query, Store, StoreError, Table};

fn tagged(id: &str, user: &str, order: i64, tags: &[&str]) -> Document {
    Document {
        user: UserId::from(user),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..document(Table::Conversations, id, &conversation(id), order)
    }
}

fn with_tag(user: &str, tag: &str) -> Query {
    Query {
        table: Some(Table::Conversations),
        user: Some(UserId::from(user)),
        tag: Some(tag.to_owned()),
        limit: 9,
        ..Query::default()
    }
}

async fn store_all(store: &dyn Store, documents: Vec<Document>) {
    for document in documents {
        let c = document.conversation.clone();
        let fence = store.claim(&c).await.expect("claim");
        store.append(put(&c, fence, 0, vec![document])).await.expect("append");
    }
}

pub async fn s1_conversations_are_found_by_a_tag_and_page(subject: &mut dyn Subject) {
    let odd = "\"[]{},%_' \u{1} ä 世界";
    let store = subject.store();
    let documents = vec![
        tagged("a", "ada", 3, &["red", "round"]),
        tagged("b", "ada", 3, &["red"]),
        tagged("c", "ada", -1, &[odd, "red"]),
        tagged("d", "ada", 9, &["re"]),
        tagged("e", "ada", 9, &[]),
        tagged("f", "bob", 9, &["red"]),
    ];
    store_all(&*store, documents).await;
    drop(store);
    subject.reopen().await;
    let store = subject.store();
    for (user, tag, expected) in [
        ("ada", "red", vec!["b", "a", "c"]),
        ("ada", "round", vec!["a"]),
        ("ada", odd, vec!["c"]),
        ("ada", "RED", vec![]),
        ("ada", "r%", vec![]),
        ("ada", "", vec![]),
        ("bob", "red", vec!["f"]),
        ("eve", "red", vec![]),
    ] {
        for limit in 1..=4 {
            let query = Query { limit, ..with_tag(user, tag) };
            assert_eq!(page_through(&*store, query).await, expected, "{tag:?} of {user} by {limit}");
        }
    }
    let found = store.list(Query { statuses: vec!["running".into()], ..with_tag("ada", "red") }).await;
    assert!(found.expect("list").documents.is_empty(), "the other keys must match too");
    let found = store.list(with_tag("ada", "round")).await.expect("list").documents;
    assert_eq!(found[0].tags, ["red", "round"]);
}

pub async fn s1_tags_change_with_their_conversation(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let fence = store.claim(&c).await.expect("claim");
    let with = |tags: &[&str]| Document { tags: tagged("c", "ada", 1, tags).tags, ..head(&c, 0) };
    let ids = async |tag: &str| page_through(&*store, with_tag("user", tag)).await;
    store.append(put(&c, fence, 0, vec![with(&["a", "b"])])).await.expect("append");
    assert_eq!((ids("a").await.len(), ids("b").await.len()), (1, 1));
    // Changed without the state, then with it, then left as they are.
    let stateless = Document { state: None, ..with(&["b", "c"]) };
    store.append(put(&c, fence, 0, vec![stateless])).await.expect("append");
    assert_eq!((ids("a").await.len(), ids("b").await.len(), ids("c").await.len()), (0, 1, 1));
    for _ in 0..2 {
        store.append(put(&c, fence, 0, vec![with(&["c"])])).await.expect("append");
        assert_eq!((ids("b").await.len(), ids("c").await.len()), (0, 1));
    }
    let removed = crate::contract::Append {
        changes: vec![Change::Remove(Table::Conversations, "c".into())],
        ..put(&c, fence, 0, Vec::new())
    };
    store.append(removed).await.expect("append");
    assert!(ids("c").await.is_empty());
    store.append(put(&c, fence, 0, vec![with(&["c"])])).await.expect("append");
    store.delete(&c).await.expect("delete");
    assert!(ids("c").await.is_empty(), "a deleted conversation is not found");
    let fence = store.claim(&c).await.expect("claim");
    store.append(put(&c, fence, 0, vec![with(&["d"])])).await.expect("append");
    assert_eq!((ids("c").await.len(), ids("d").await.len()), (0, 1), "one created again has its own tags");
}

pub async fn only_the_conversations_of_a_user_are_found_by_a_tag(subject: &mut dyn Subject) {
    let store = subject.store();
    let refused = [
        Query { table: Some(Table::Messages), ..with_tag("ada", "t") },
        Query { table: Some(Table::Generations), ..with_tag("ada", "t") },
        Query { user: None, ..with_tag("ada", "t") },
    ];
    for query in refused {
        let answer = store.list(query).await;
        assert!(matches!(answer, Err(StoreError::Broken(_))), "{answer:?}");
    }
}
