//! Documents: put, removed, found by each of their keys.

use outlast_core::{Seq, UserId};

use super::{Subject, append, conversation, document, head, put};
use crate::contract::{Append, Change, Document, Query, Store, StoreError, Table};

const TABLES: [Table; 3] = [Table::Conversations, Table::Messages, Table::Generations];

pub async fn a_put_replaces_every_field(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let fence = store.claim(&c).await.expect("claim");
    for table in TABLES {
        let first = document(table, "id", &c, 5);
        let mut second = Document {
            user: UserId::from("someone else"),
            seq: Seq(1 << 40),
            status: "running".into(),
            request: "r1".into(),
            body: r#"{"a":[1,2,{"b":"\u0000 '; DROP TABLE messages"}]}"#.into(),
            ..first.clone()
        };
        if table == Table::Conversations {
            second.state = "another".into();
        }
        for document in [first, second] {
            store.append(put(&c, fence, 0, vec![document.clone()])).await.expect("append");
            assert_eq!(store.get(table, "id").await.expect("get"), Some(document));
        }
    }
}

pub async fn changes_apply_in_order(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let fence = store.claim(&c).await.expect("claim");
    let of = |body: &str| Document { body: body.into(), ..document(Table::Messages, "m", &c, 1) };
    let changes = vec![
        Change::Put(of("{}")),
        Change::Remove(Table::Messages, "m".into()),
        Change::Remove(Table::Messages, "never there".into()),
        Change::Put(of(r#"{"n":2}"#)),
        Change::Put(of(r#"{"n":3}"#)),
    ];
    store.append(Append { changes, ..append(&c, fence, 0, &["a"]) }).await.expect("append");
    assert_eq!(store.get(Table::Messages, "m").await.expect("get"), Some(of(r#"{"n":3}"#)));
    let changes = vec![Change::Put(of("{}")), Change::Remove(Table::Messages, "m".into())];
    store.append(Append { changes, ..append(&c, fence, 1, &[]) }).await.expect("append");
    assert_eq!(store.get(Table::Messages, "m").await.expect("get"), None);
}

pub async fn tables_do_not_share_ids(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let fence = store.claim(&c).await.expect("claim");
    for (table, order) in TABLES.into_iter().zip(1..) {
        store.append(put(&c, fence, 0, vec![document(table, "id", &c, order)])).await.expect("append");
    }
    let changes = vec![Change::Remove(Table::Messages, "id".into())];
    store.append(Append { changes, ..append(&c, fence, 0, &[]) }).await.expect("append");
    assert!(store.get(Table::Conversations, "id").await.expect("get").is_some_and(|d| d.order == 1));
    assert!(store.get(Table::Messages, "id").await.expect("get").is_none());
    assert!(store.get(Table::Generations, "id").await.expect("get").is_some_and(|d| d.order == 3));
    assert!(store.get(Table::Generations, "ID").await.expect("get").is_none());
}

pub async fn list_needs_a_table(subject: &mut dyn Subject) {
    let answer = subject.store().list(Query { limit: 1, ..Query::default() }).await;
    assert!(matches!(answer, Err(StoreError::Broken(_))), "{answer:?}");
}

pub async fn list_is_newest_first_and_pages(subject: &mut dyn Subject) {
    let store = subject.store();
    for table in TABLES {
        let c = conversation("c");
        let fence = store.claim(&c).await.expect("claim");
        // Several share an order, so that only the id tells where a page ends; one is negative.
        let documents = [(3, "b"), (3, "a"), (1, "z"), (3, "c"), (2, "y"), (-1, "x")];
        let documents = documents.map(|(order, id)| document(table, id, &c, order)).to_vec();
        store.append(put(&c, fence, 0, documents)).await.expect("append");
        for limit in 1..=7 {
            let mut before = None;
            let mut found = Vec::new();
            loop {
                let query = Query { table: Some(table), before, limit, ..Query::default() };
                let page = store.list(query).await.expect("list");
                assert!(page.len() <= limit);
                let Some(oldest) = page.last() else { break };
                before = Some((oldest.order, oldest.id.clone()));
                found.extend(page.into_iter().map(|document| document.id));
            }
            assert_eq!(found, ["c", "b", "a", "y", "z", "x"], "{table:?} by {limit}");
        }
        let query = Query { table: Some(table), limit: 0, ..Query::default() };
        assert!(store.list(query).await.expect("list").is_empty());
    }
}

pub async fn every_given_key_must_match(subject: &mut dyn Subject) {
    let store = subject.store();
    for table in TABLES {
        let mut documents = Vec::new();
        for n in 0..16 {
            let bit = |at: u32| n >> at & 1;
            let c = conversation(&format!("c{}", bit(0)));
            documents.push(Document {
                user: UserId::from(format!("u{}", bit(1))),
                status: ["running", "done"][bit(2)].into(),
                request: ["", "r1"][bit(3)].into(),
                ..document(table, &format!("{n:02}"), &c, n as i64)
            });
        }
        let c = conversation("c");
        let fence = store.claim(&c).await.expect("claim");
        store.append(put(&c, fence, 0, documents.clone())).await.expect("append");
        for query in queries(table) {
            let found = ids(&*store, query.clone()).await;
            let mut expected: Vec<_> =
                documents.iter().filter(|d| selects(&query, d)).map(|d| d.id.clone()).collect();
            expected.reverse();
            assert_eq!(found, expected, "{query:?}");
        }
    }
}

fn queries(table: Table) -> Vec<Query> {
    let mut queries = Vec::new();
    let statuses: [&[&str]; 4] = [&[], &["running"], &["running", "done"], &["unheard of"]];
    for user in [None, Some("u0"), Some("u1"), Some("u9")] {
        for c in [None, Some("c0"), Some("c1")] {
            for status in statuses {
                for request in [None, Some("r1"), Some("")] {
                    for before in [None, Some((12, "12".to_owned()))] {
                        queries.push(Query {
                            table: Some(table),
                            user: user.map(UserId::from),
                            conversation: c.map(conversation),
                            statuses: status.iter().map(|status| (*status).to_owned()).collect(),
                            request: request.map(str::to_owned),
                            before,
                            limit: 100,
                        });
                    }
                }
            }
        }
    }
    queries
}

fn selects(query: &Query, document: &Document) -> bool {
    query.user.as_ref().is_none_or(|user| *user == document.user)
        && query.conversation.as_ref().is_none_or(|c| *c == document.conversation)
        && (query.statuses.is_empty() || query.statuses.contains(&document.status))
        && query.request.as_ref().is_none_or(|request| *request == document.request)
        && query.before.as_ref().is_none_or(|(order, _)| document.order < *order)
}

async fn ids(store: &dyn Store, query: Query) -> Vec<String> {
    store.list(query).await.expect("list").into_iter().map(|document| document.id).collect()
}

pub async fn documents_survive_a_restart(subject: &mut dyn Subject) {
    if !subject.durable() {
        return;
    }
    let c = conversation("c");
    let store = subject.store();
    let fence = store.claim(&c).await.expect("claim");
    let message = document(Table::Messages, "m", &c, 1);
    store.append(put(&c, fence, 0, vec![head(&c, 0), message.clone()])).await.expect("append");
    drop(store);
    subject.reopen().await;
    let loaded = subject.store().load(&c, 1).await.expect("load").expect("known");
    assert_eq!((loaded.conversation, loaded.messages), (head(&c, 0), vec![message]));
}
