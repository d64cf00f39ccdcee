//! Documents: put, remove, and find by each key.

use outlast_core::{Seq, UserId};

use super::{Subject, append, conversation, document, head, lines, put, texts};
use crate::contract::{
    Append, AppendError, Change, Document, Listed, Newest, Query, Store, StoreError, Table,
};

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
            second.state = Some("another".into());
            second.tags = vec!["".into(), "'; -- \"[]{},".into(), "ä".into()];
        }
        if table != Table::Messages {
            second.due = Some(-5);
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
        // Several share an order, so that a page boundary depends on the id. One order is negative.
        let documents = [(3, "b"), (3, "a"), (1, "z"), (3, "c"), (2, "y"), (-1, "x")];
        let documents = documents.map(|(order, id)| document(table, id, &c, order)).to_vec();
        store.append(put(&c, fence, 0, documents)).await.expect("append");
        for limit in 1..=7 {
            let query = Query { table: Some(table), limit, ..Query::default() };
            let found = page_through(&*store, query).await;
            assert_eq!(found, ["c", "b", "a", "y", "z", "x"], "{table:?} by {limit}");
        }
        let query = Query { table: Some(table), limit: 0, ..Query::default() };
        assert_eq!(store.list(query).await.expect("list"), Listed::default());
    }
}

/// The ids of all pages. Checks that each page but the last is full and has a `next`.
pub(super) async fn page_through(store: &dyn Store, query: Query) -> Vec<String> {
    let mut after = None;
    let mut found = Vec::new();
    loop {
        let page = store.list(Query { after, ..query.clone() }).await.expect("list");
        assert!(page.documents.len() <= query.limit && page.documents.iter().all(|d| d.state.is_none()));
        assert!(!page.documents.is_empty() || page.next.is_none());
        found.extend(page.documents.into_iter().map(|document| document.id));
        match page.next {
            Some(next) => after = Some(next),
            None => return found,
        }
    }
}

pub async fn a_page_of_documents_is_limited_by_bytes_but_never_empty(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let fence = store.claim(&c).await.expect("claim");
    for table in TABLES {
        let body = format!(r#"{{"text":"{}"}}"#, "x".repeat(1000));
        let documents =
            (1..=5).map(|n| Document { body: body.clone(), ..document(table, &n.to_string(), &c, n) });
        store.append(put(&c, fence, 0, documents.collect())).await.expect("append");
        for (max_bytes, fit) in [(0, 1), (1, 1), (1500, 1), (2500, 2), (3500, 3), (1 << 20, 5)] {
            let query = Query { table: Some(table), limit: 9, max_bytes, ..Query::default() };
            let page = store.list(query.clone()).await.expect("list");
            assert_eq!((page.documents.len(), page.next.is_some()), (fit, fit < 5), "{max_bytes} bytes");
            assert_eq!(page_through(&*store, query).await, ["5", "4", "3", "2", "1"]);
        }
    }
}

pub async fn what_is_due_is_listed_oldest_first_and_pages(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let fence = store.claim(&c).await.expect("claim");
    for table in [Table::Conversations, Table::Generations] {
        let dues = [
            ("a", Some(30)),
            ("b", Some(10)),
            ("c", None),
            ("d", Some(10)),
            ("e", Some(20)),
            ("f", Some(-1)),
        ];
        let of = |(id, due)| Document { due, ..document(table, id, &c, 7) };
        store.append(put(&c, fence, 0, dues.map(of).to_vec())).await.expect("append");
        let query = Query { table: Some(table), ..Query::default() };
        for limit in 1..=6 {
            for (due_by, expected) in
                [(i64::MAX, vec!["f", "b", "d", "e", "a"]), (20, vec!["f", "b", "d", "e"]), (-2, vec![])]
            {
                let query = Query { due_by: Some(due_by), limit, ..query.clone() };
                assert_eq!(page_through(&*store, query).await, expected, "{table:?} by {limit}");
            }
        }
        // One is no longer due, and another has become due.
        let changed = [("f", None), ("c", Some(10))].map(of).to_vec();
        store.append(put(&c, fence, 0, changed)).await.expect("append");
        let query = Query { due_by: Some(10), limit: 9, ..query };
        assert_eq!(page_through(&*store, query).await, ["b", "c", "d"]);
    }
}

pub async fn messages_have_no_due(subject: &mut dyn Subject) {
    let query = Query { table: Some(Table::Messages), due_by: Some(0), limit: 1, ..Query::default() };
    let refused = subject.store().list(query).await;
    assert!(matches!(refused, Err(StoreError::Broken(_))), "{refused:?}");
}

pub async fn a_put_without_a_state_keeps_the_state_and_its_seq(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let fence = store.claim(&c).await.expect("claim");
    let first = Append { changes: vec![Change::Put(head(&c, 1))], ..append(&c, fence, 0, &["a"]) };
    store.append(first).await.expect("append");
    let changed = Document {
        user: UserId::from("someone else"),
        seq: Seq(2),
        due: Some(5),
        status: "running".into(),
        request: "r1".into(),
        tags: vec!["a".into()],
        body: "{}".into(),
        state: None,
        ..head(&c, 2)
    };
    let second = Append { changes: vec![Change::Put(changed.clone())], ..append(&c, fence, 1, &["b"]) };
    store.append(second).await.expect("append");
    drop(store);
    subject.settle().await;
    subject.reopen().await;
    let store = subject.store();
    let expected = Document { seq: Seq(1), state: head(&c, 1).state, ..changed };
    assert_eq!(store.get(Table::Conversations, "c").await.expect("get"), Some(expected.clone()));
    let loaded = store.load(&c, Newest::NONE).await.expect("load").expect("known");
    assert_eq!(loaded.conversation, expected);
    assert_eq!((texts(&loaded.records), loaded.last), (lines(&[(2, "b")]), Seq(2)));
}

pub async fn a_put_without_a_state_needs_a_conversation(subject: &mut dyn Subject) {
    let store = subject.store();
    let (c, other) = (conversation("c"), conversation("other"));
    let (fence, of_other) =
        (store.claim(&c).await.expect("claim"), store.claim(&other).await.expect("claim"));
    let stateless = || Change::Put(Document { state: None, ..head(&c, 0) });
    let removed = Change::Remove(Table::Conversations, "c".into());
    for changes in [vec![stateless()], vec![Change::Put(head(&c, 0)), removed.clone(), stateless()]] {
        let wrong = Append { changes, ..append(&c, fence, 0, &["a"]) };
        // In one batch with another append, which is not affected.
        let (refused, written) =
            tokio::join!(store.append(wrong), store.append(put(&other, of_other, 0, vec![head(&other, 0)])));
        assert!(matches!(refused, Err(AppendError::Broken(_))), "{refused:?}");
        written.expect("append");
        assert!(store.get(Table::Conversations, "c").await.expect("get").is_none());
        assert!(store.read(&c, Seq::ZERO, 100).await.expect("read").is_empty());
    }
    let both =
        Append { changes: vec![Change::Put(head(&c, 0)), stateless()], ..append(&c, fence, 0, &["a"]) };
    store.append(both).await.expect("the state came with the same append");
    assert_eq!(store.get(Table::Conversations, "c").await.expect("get"), Some(head(&c, 0)));
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
                    for after in [None, Some((12, "12".to_owned()))] {
                        queries.push(Query {
                            table: Some(table),
                            user: user.map(UserId::from),
                            conversation: c.map(conversation),
                            statuses: status.iter().map(|status| (*status).to_owned()).collect(),
                            request: request.map(str::to_owned),
                            after,
                            limit: 100,
                            ..Query::default()
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
        && query.after.as_ref().is_none_or(|(order, _)| document.order < *order)
}

async fn ids(store: &dyn Store, query: Query) -> Vec<String> {
    store.list(query).await.expect("list").documents.into_iter().map(|document| document.id).collect()
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
    let loaded = subject.store().load(&c, Newest::of(1)).await.expect("load").expect("known");
    assert_eq!((loaded.conversation, loaded.messages), (head(&c, 0), vec![message]));
}
