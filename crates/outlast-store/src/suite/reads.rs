//! Read, load and watch: durable records only, in order, complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use outlast_core::Seq;
use tokio::task::JoinSet;

use super::{Subject, append, conversation, document, head, lines, put, texts, write};
use crate::contract::{Append, Change, Document, Newest, Record, Table};

pub async fn a_page_is_limited_by_bytes_but_never_empty(subject: &mut dyn Subject) {
    let c = conversation("c");
    write(&*subject.store(), &c, 0, &["aaaa", "bbbb", "cccc", "dddd"]).await;
    for settled in [false, true] {
        if settled {
            subject.settle().await;
        }
        let store = subject.store();
        for too_small in [0, 1, 4] {
            let page = store.read(&c, Seq(1), too_small).await.expect("read");
            assert_eq!(texts(&page), lines(&[(2, "bbbb")]), "max_bytes {too_small}");
        }
        let page = store.read(&c, Seq(0), 9).await.expect("read");
        assert!(page.len() == 2 || page.len() == 3, "about 9 bytes, not {page:?}");
        assert_eq!(store.read(&c, Seq(0), 1 << 20).await.expect("read").len(), 4);
    }
}

pub async fn pages_join_without_holes(subject: &mut dyn Subject) {
    let c = conversation("c");
    let fence = subject.store().claim(&c).await.expect("claim");
    let mut last = 0;
    // Settle after each part, so that pages span settled and unsettled records.
    for part in 0..3 {
        let store = subject.store();
        for n in 1..=40_usize {
            let records: Vec<Record> = (1..=n as u64 % 4)
                .map(|k| Record { seq: Seq(last + k), bytes: Bytes::from(vec![b'a' + part; n * 37]) })
                .collect();
            let append = Append { records, ..append(&c, fence, last, &[]) };
            last += append.records.len() as u64;
            store.append(append).await.expect("append");
        }
        drop(store);
        if part < 2 {
            subject.settle().await;
        }
    }
    let store = subject.store();
    for max_bytes in [1, 999, 10_000, usize::MAX] {
        let mut at = Seq::ZERO;
        loop {
            let page = store.read(&c, at, max_bytes).await.expect("read");
            let Some(end) = page.last() else { break };
            for (record, seq) in page.iter().zip(at.0 + 1..) {
                assert_eq!(record.seq, Seq(seq));
            }
            at = end.seq;
        }
        assert_eq!(at, Seq(last), "pages of {max_bytes}");
    }
}

pub async fn reading_past_the_end_finds_nothing(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    assert!(store.read(&c, Seq(0), 100).await.expect("read").is_empty());
    write(&*store, &c, 0, &["a"]).await;
    for after in [1, 2, 1 << 40, u64::MAX / 2] {
        assert!(store.read(&c, Seq(after), 100).await.expect("read").is_empty());
    }
    assert!(store.read(&conversation("d"), Seq(0), 100).await.expect("read").is_empty());
}

pub async fn load_finds_no_conversation_without_a_document(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    assert!(store.load(&c, Newest::of(5)).await.expect("load").is_none());
    write(&*store, &c, 0, &["a"]).await;
    assert!(store.load(&c, Newest::of(5)).await.expect("load").is_none());
}

pub async fn load_returns_the_records_after_the_document(subject: &mut dyn Subject) {
    let c = conversation("c");
    let store = subject.store();
    let fence = store.claim(&c).await.expect("claim");
    store.append(put(&c, fence, 0, vec![head(&c, 0)])).await.expect("append");
    let loaded = store.load(&c, Newest::of(5)).await.expect("load").expect("known");
    assert_eq!((loaded.records.len(), loaded.last, loaded.messages.len()), (0, Seq(0), 0));

    store.append(append(&c, fence, 0, &["a", "b", "c"])).await.expect("append");
    store.append(put(&c, fence, 3, vec![head(&c, 2)])).await.expect("append");
    drop(store);
    for settled in [false, true] {
        if settled {
            subject.settle().await;
        }
        let loaded = subject.store().load(&c, Newest::of(5)).await.expect("load").expect("known");
        assert_eq!(loaded.conversation, head(&c, 2));
        assert_eq!(texts(&loaded.records), lines(&[(3, "c")]));
        assert_eq!(loaded.last, Seq(3));
    }
    let store = subject.store();
    store.append(put(&c, fence, 3, vec![head(&c, 3)])).await.expect("append");
    let loaded = store.load(&c, Newest::of(5)).await.expect("load").expect("known");
    assert_eq!((loaded.records.len(), loaded.last), (0, Seq(3)));
}

pub async fn load_returns_the_newest_messages_in_order(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let fence = store.claim(&c).await.expect("claim");
    let other = conversation("other");
    let mut documents: Vec<Document> =
        (1..=5).map(|n| document(Table::Messages, &format!("m{n}"), &c, n)).collect();
    documents.push(document(Table::Messages, "m9", &other, 9));
    documents.push(head(&c, 0));
    store.append(put(&c, fence, 0, documents)).await.expect("append");
    for (wanted, ids, more) in [
        (0, vec![], true),
        (2, vec!["m4", "m5"], true),
        (5, vec!["m1", "m2", "m3", "m4", "m5"], false),
        (9, vec!["m1", "m2", "m3", "m4", "m5"], false),
    ] {
        let loaded = store.load(&c, Newest::of(wanted)).await.expect("load").expect("known");
        let found: Vec<_> = loaded.messages.iter().map(|message| message.id.as_str()).collect();
        assert_eq!((found, loaded.more_messages), (ids, more));
    }
}

pub async fn load_limits_messages_by_bytes(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let fence = store.claim(&c).await.expect("claim");
    let body = |n: usize| format!(r#"{{"text":"{}"}}"#, "x".repeat(n * 1000));
    let message =
        |n: usize| Document { body: body(n), ..document(Table::Messages, &format!("m{n}"), &c, n as i64) };
    let documents = (1..=5).map(message).chain([head(&c, 0)]).collect();
    store.append(put(&c, fence, 0, documents)).await.expect("append");
    for (max_bytes, ids, more) in [
        (0, vec!["m5"], true),
        (9_500, vec!["m4", "m5"], true),
        (12_500, vec!["m3", "m4", "m5"], true),
        (1 << 20, vec!["m1", "m2", "m3", "m4", "m5"], false),
    ] {
        let newest = Newest { messages: 9, max_bytes };
        let loaded = store.load(&c, newest).await.expect("load").expect("known");
        let found: Vec<_> = loaded.messages.iter().map(|message| message.id.as_str()).collect();
        assert_eq!((found, loaded.more_messages), (ids, more), "{max_bytes} bytes");
    }
}

/// The document's body says how long the log is, so a load that mixes two moments would be noticed.
pub async fn load_is_one_consistent_snapshot(subject: &mut dyn Subject) {
    const APPENDS: u64 = 300;
    let c = conversation("c");
    let store = subject.store();
    let fence = store.claim(&c).await.expect("claim");
    let filled = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let (store, c, filled) = (Arc::clone(&store), c.clone(), Arc::clone(&filled));
        tasks.spawn(async move {
            while !filled.load(Ordering::SeqCst) {
                let Some(loaded) = store.load(&c, Newest::of(3)).await.expect("load") else { continue };
                assert_eq!(loaded.conversation.body, format!(r#"{{"last":{}}}"#, loaded.last));
                let seqs: Vec<u64> = loaded.records.iter().map(|record| record.seq.0).collect();
                let expected: Vec<u64> = (loaded.conversation.seq.0 + 1..=loaded.last.0).collect();
                assert_eq!(seqs, expected);
                let newest = loaded.messages.last().expect("a message for every append");
                assert_eq!(newest.order as u64, loaded.last.0);
                tokio::task::yield_now().await;
            }
        });
    }
    for last in 0..APPENDS {
        let next = last + 1;
        // Now and then the document catches up with the log.
        let reflected = Document { body: format!(r#"{{"last":{next}}}"#), ..head(&c, next - next % 20) };
        let message = document(Table::Messages, &format!("m{next}"), &c, next as i64);
        let changes = vec![Change::Put(reflected), Change::Put(message)];
        let filling = "x".repeat(2_000);
        store.append(Append { changes, ..append(&c, fence, last, &[&filling]) }).await.expect("append");
    }
    filled.store(true, Ordering::SeqCst);
    while let Some(done) = tasks.join_next().await {
        done.expect("reader");
    }
}

pub async fn watchers_are_woken(subject: &mut dyn Subject) {
    let store = subject.store();
    let (c, d) = (conversation("c"), conversation("d"));
    let fence = write(&*store, &c, 0, &["a"]).await;
    let (mut first, mut second, other) = (store.watch(&c), store.watch(&c), store.watch(&d));
    assert!(!first.has_changed().expect("open"));
    store.append(append(&c, fence, 1, &["b", "c"])).await.expect("append");
    first.changed().await.expect("open");
    second.changed().await.expect("open");
    assert_eq!((*first.borrow_and_update(), *second.borrow_and_update()), (Seq(3), Seq(3)));
    // The announced record can be read.
    assert_eq!(store.read(&c, Seq(2), 100).await.expect("read").len(), 1);

    // Wake-ups are merged, but not lost.
    store.append(append(&c, fence, 3, &["d"])).await.expect("append");
    store.append(append(&c, fence, 4, &["e"])).await.expect("append");
    first.changed().await.expect("open");
    assert_eq!(*first.borrow_and_update(), Seq(5));
    drop(store);
    assert!(!other.has_changed().expect("open"));
}
