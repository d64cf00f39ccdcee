//! Trim and delete: removed data stays away, and the rest is intact.

use outlast_core::Seq;

use super::{Subject, all, append, conversation, document, head, lines, put, texts, write};
use crate::contract::{Append, AppendError, Change, Newest, Query, Table};

const SIX: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

pub async fn trim_leaves_a_hole(subject: &mut dyn Subject) {
    for settled in [false, true] {
        let c = conversation(if settled { "settled" } else { "fresh" });
        let store = subject.store();
        let fence = write(&*store, &c, 0, &SIX).await;
        store.append(put(&c, fence, 6, vec![head(&c, 1)])).await.expect("append");
        drop(store);
        if settled {
            subject.settle().await;
        }
        let store = subject.store();
        store.trim(&c, Seq(2), Seq(3)).await.expect("trim");
        store.trim(&c, Seq(5), Seq(5)).await.expect("trim");
        let left = lines(&[(1, "a"), (4, "d"), (6, "f")]);
        assert_eq!(all(&*store, &c).await, left);
        let page = store.read(&c, Seq(1), 1).await.expect("read");
        assert_eq!(texts(&page), lines(&[(4, "d")]), "the first record may be later than after + 1");
        let page = store.read(&c, Seq(2), 100).await.expect("read");
        assert_eq!(texts(&page), lines(&[(4, "d"), (6, "f")]));
        let loaded = store.load(&c, Newest::of(1)).await.expect("load").expect("documents stay");
        assert_eq!((texts(&loaded.records), loaded.last), (lines(&[(4, "d"), (6, "f")]), Seq(6)));
        store.append(append(&c, fence, 6, &["g"])).await.expect("append");
        assert_eq!(all(&*store, &c).await, [left, lines(&[(7, "g")])].concat());
    }
}

pub async fn trim_may_take_everything(subject: &mut dyn Subject) {
    for settled in [false, true] {
        let c = conversation(if settled { "settled" } else { "fresh" });
        let fence = write(&*subject.store(), &c, 0, &SIX).await;
        if settled {
            subject.settle().await;
        }
        let store = subject.store();
        store.append(put(&c, fence, 6, vec![head(&c, 0)])).await.expect("append");
        store.trim(&c, Seq(4), Seq(6)).await.expect("trim");
        store.trim(&c, Seq(0), Seq(u64::MAX)).await.expect("trim");
        store.trim(&c, Seq(1), Seq(6)).await.expect("trim");
        assert!(all(&*store, &c).await.is_empty());
        let loaded = store.load(&c, Newest::of(1)).await.expect("load").expect("documents stay");
        assert_eq!((loaded.records.len(), loaded.last), (0, Seq(6)), "the end of the log is kept");
        let answer = store.append(append(&c, fence, 0, &["x"])).await;
        assert!(matches!(answer, Err(AppendError::Conflict { last: Seq(6) })), "{answer:?}");
        store.append(append(&c, fence, 6, &["g"])).await.expect("append");
        assert_eq!(all(&*store, &c).await, lines(&[(7, "g")]));
    }
}

pub async fn trim_ignores_missing_records(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    store.trim(&c, Seq(1), Seq(5)).await.expect("trim");
    let fence = write(&*store, &c, 0, &["a", "b"]).await;
    store.trim(&c, Seq(3), Seq(9)).await.expect("trim");
    store.trim(&c, Seq(2), Seq(1)).await.expect("trim");
    store.trim(&conversation("unheard of"), Seq(1), Seq(9)).await.expect("trim");
    store.append(append(&c, fence, 2, &["c"])).await.expect("append");
    assert_eq!(all(&*store, &c).await, lines(&[(1, "a"), (2, "b"), (3, "c")]));
}

pub async fn trimmed_records_stay_away_after_a_restart(subject: &mut dyn Subject) {
    if !subject.durable() {
        return;
    }
    let (c, d) = (conversation("c"), conversation("d"));
    write(&*subject.store(), &c, 0, &SIX).await;
    write(&*subject.store(), &d, 0, &SIX).await;
    subject.store().trim(&c, Seq(2), Seq(6)).await.expect("trim");
    subject.store().trim(&d, Seq(1), Seq(6)).await.expect("trim");
    subject.reopen().await;
    assert_eq!(all(&*subject.store(), &c).await, lines(&[(1, "a")]));
    assert!(all(&*subject.store(), &d).await.is_empty());
    write(&*subject.store(), &c, 6, &["g"]).await;
    write(&*subject.store(), &d, 6, &["g"]).await;
    subject.reopen().await;
    assert_eq!(all(&*subject.store(), &c).await, lines(&[(1, "a"), (7, "g")]));
    assert_eq!(all(&*subject.store(), &d).await, lines(&[(7, "g")]));
}

pub async fn delete_removes_everything_of_one_conversation(subject: &mut dyn Subject) {
    let (c, d) = (conversation("c"), conversation("d"));
    for id in [&c, &d] {
        let store = subject.store();
        let fence = store.claim(id).await.expect("claim");
        let name = |kind: &str| format!("{kind} of {id}");
        let changes = vec![
            Change::Put(head(id, 0)),
            Change::Put(document(Table::Messages, &name("message"), id, 1)),
            Change::Put(document(Table::Generations, &name("generation"), id, 1)),
        ];
        store.append(Append { changes, ..append(id, fence, 0, &SIX) }).await.expect("append");
        drop(store);
        subject.settle().await;
        subject.store().append(append(id, fence, 6, &["g"])).await.expect("append");
    }
    let store = subject.store();
    let watch = store.watch(&c);
    store.delete(&c).await.expect("delete");
    store.delete(&c).await.expect("deleting twice is harmless");
    store.delete(&conversation("unheard of")).await.expect("delete");
    assert!(watch.has_changed().expect("open"), "a reader at the tail is woken");
    assert!(store.load(&c, Newest::of(5)).await.expect("load").is_none());
    assert!(all(&*store, &c).await.is_empty());
    for table in [Table::Conversations, Table::Messages, Table::Generations] {
        let query = Query { table: Some(table), limit: 10, ..Query::default() };
        let left = store.list(query).await.expect("list").documents;
        assert!(left.len() == 1 && left[0].conversation == d, "{left:?}");
    }
    assert_eq!(all(&*store, &d).await.len(), 7);
}

pub async fn delete_shuts_out_the_owner(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let fence = write(&*store, &c, 0, &["a"]).await;
    store.delete(&c).await.expect("delete");
    for expected in [0, 1] {
        let answer = store.append(append(&c, fence, expected, &["b"])).await;
        assert!(matches!(answer, Err(AppendError::Fenced { .. })), "{answer:?}");
    }
    assert!(store.claim(&c).await.expect("claim") > fence);
}

pub async fn a_deleted_conversation_can_be_created_again(subject: &mut dyn Subject) {
    let c = conversation("c");
    for round in 0..3 {
        write(&*subject.store(), &c, 0, &SIX[round..]).await;
        assert_eq!(all(&*subject.store(), &c).await.len(), 6 - round);
        if round == 1 {
            subject.settle().await;
        }
        subject.store().delete(&c).await.expect("delete");
        assert!(all(&*subject.store(), &c).await.is_empty());
    }
}

pub async fn deleted_stays_deleted_after_a_restart(subject: &mut dyn Subject) {
    if !subject.durable() {
        return;
    }
    for settled in [false, true] {
        let (c, pin) = (conversation("c"), conversation("pin"));
        write(&*subject.store(), &pin, 0, &["a"]).await;
        let fence = write(&*subject.store(), &c, 0, &SIX).await;
        if settled {
            subject.settle().await;
        }
        subject.store().append(put(&c, fence, 6, vec![head(&c, 6)])).await.expect("append");
        subject.store().delete(&c).await.expect("delete");
        subject.reopen().await;
        assert!(all(&*subject.store(), &c).await.is_empty());
        assert!(subject.store().load(&c, Newest::of(1)).await.expect("load").is_none());
        assert_eq!(all(&*subject.store(), &pin).await, lines(&[(1, "a")]));
        subject.store().delete(&pin).await.expect("delete");
    }
}
