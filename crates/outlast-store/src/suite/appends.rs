//! Append: atomic, at the expected position, durable.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use outlast_core::Seq;
use tokio::task::JoinSet;

use super::{Subject, all, append, conversation, document, head, lines, put, write};
use crate::contract::{Append, AppendError, Change, Record, Table};

pub async fn records_come_back_byte_for_byte(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let odd: [&[u8]; 5] = [b"{}", "\u{1F980} Grüße".as_bytes(), b"", b"\x00\xff\r\t", &[b'x'; 200_000]];
    let records = odd.iter().zip(1..).map(|(bytes, seq)| record(seq, bytes)).collect::<Vec<_>>();
    let fence = store.claim(&c).await.expect("claim");
    let (first, rest) = records.split_at(2);
    for (expected, records) in [(0, first), (2, rest)] {
        let append = Append { records: records.to_vec(), ..append(&c, fence, expected, &[]) };
        store.append(append).await.expect("append");
    }
    assert_eq!(store.read(&c, Seq::ZERO, usize::MAX).await.expect("read"), records);
    drop(store);
    subject.settle().await;
    assert_eq!(subject.store().read(&c, Seq::ZERO, usize::MAX).await.expect("read"), records);
}

fn record(seq: u64, bytes: &[u8]) -> Record {
    Record { seq: Seq(seq), bytes: Bytes::copy_from_slice(bytes) }
}

pub async fn an_append_may_only_change_documents(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let fence = store.claim(&c).await.expect("claim");
    store.append(put(&c, fence, 0, vec![head(&c, 0)])).await.expect("append");
    assert_eq!(store.get(Table::Conversations, "c").await.expect("get"), Some(head(&c, 0)));
    assert!(all(&*store, &c).await.is_empty());
    let answer = store.append(put(&c, fence, 1, vec![head(&c, 1)])).await;
    assert!(matches!(answer, Err(AppendError::Conflict { last: Seq(0) })), "{answer:?}");
    assert_eq!(store.get(Table::Conversations, "c").await.expect("get"), Some(head(&c, 0)));
}

pub async fn a_refused_append_leaves_nothing_behind(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let old = store.claim(&c).await.expect("claim");
    let kept = document(Table::Messages, "kept", &c, 1);
    let first = Append { changes: vec![Change::Put(kept.clone())], ..append(&c, old, 0, &["a"]) };
    store.append(first).await.expect("append");
    let current = store.claim(&c).await.expect("claim");

    let changes = || {
        vec![
            Change::Put(document(Table::Messages, "new", &c, 2)),
            Change::Remove(Table::Messages, "kept".into()),
        ]
    };
    let fenced = store.append(Append { changes: changes(), ..append(&c, old, 1, &["b"]) }).await;
    assert!(matches!(fenced, Err(AppendError::Fenced { .. })), "{fenced:?}");
    let conflict = store.append(Append { changes: changes(), ..append(&c, current, 7, &["b"]) }).await;
    assert!(matches!(conflict, Err(AppendError::Conflict { last: Seq(1) })), "{conflict:?}");

    assert_eq!(all(&*store, &c).await, lines(&[(1, "a")]));
    assert_eq!(store.get(Table::Messages, "kept").await.expect("get"), Some(kept));
    assert_eq!(store.get(Table::Messages, "new").await.expect("get"), None);
}

pub async fn a_wrong_expected_seq_is_a_conflict(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let fence = write(&*store, &c, 0, &["a", "b", "c"]).await;
    for wrong in [0, 2, 4] {
        let answer = store.append(append(&c, fence, wrong, &["x"])).await;
        assert!(matches!(answer, Err(AppendError::Conflict { last: Seq(3) })), "{answer:?}");
    }
    store.append(append(&c, fence, 3, &["d"])).await.expect("append");
    assert_eq!(all(&*store, &c).await, lines(&[(1, "a"), (2, "b"), (3, "c"), (4, "d")]));
}

pub async fn an_append_cannot_be_written_twice(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let fence = store.claim(&c).await.expect("claim");
    let once = append(&c, fence, 0, &["a"]);
    store.append(once.clone()).await.expect("append");
    let again = store.append(once).await;
    assert!(matches!(again, Err(AppendError::Conflict { last: Seq(1) })), "{again:?}");
    assert_eq!(all(&*store, &c).await, lines(&[(1, "a")]));
}

pub async fn appends_of_many_conversations_run_concurrently(subject: &mut dyn Subject) {
    let mut writers = JoinSet::new();
    for n in 0..50 {
        let store = subject.store();
        writers.spawn(async move {
            let c = conversation(&format!("c{n}"));
            let fence = store.claim(&c).await.expect("claim");
            for seq in 0..20 {
                let line = format!("{n}.{seq}");
                store.append(append(&c, fence, seq, &[&line])).await.expect("append");
            }
        });
    }
    while let Some(done) = writers.join_next().await {
        done.expect("writer");
    }
    subject.settle().await;
    let store = subject.store();
    for n in 0..50 {
        let expected: Vec<_> = (0..20).map(|seq| (seq + 1, format!("{n}.{seq}"))).collect();
        assert_eq!(all(&*store, &conversation(&format!("c{n}"))).await, expected);
    }
}

/// Of many appends at the same position exactly one wins, however they are batched.
pub async fn concurrent_appends_are_each_checked(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let fence = store.claim(&c).await.expect("claim");
    let mut rivals = JoinSet::new();
    for n in 0..20 {
        let store = Arc::clone(&store);
        let append = append(&c, fence, 0, &[&format!("rival {n}")]);
        rivals.spawn(async move { (n, store.append(append).await) });
    }
    let mut winners = BTreeSet::new();
    while let Some(answer) = rivals.join_next().await {
        match answer.expect("rival") {
            (n, Ok(())) => assert!(winners.insert(n)),
            (_, Err(AppendError::Conflict { last })) => assert_eq!(last, Seq(1)),
            (_, Err(other)) => panic!("{other}"),
        }
    }
    assert_eq!(winners.len(), 1);
    let winner = winners.first().expect("one winner");
    assert_eq!(all(&*store, &c).await, vec![(1, format!("rival {winner}"))]);
}

pub async fn what_was_acknowledged_survives_a_restart(subject: &mut dyn Subject) {
    if !subject.durable() {
        return;
    }
    let c = conversation("c");
    let mut expected = Vec::new();
    for round in 0..4 {
        let store = subject.store();
        let fence = store.claim(&c).await.expect("claim");
        for _ in 0..5 {
            let last = expected.len() as u64;
            let line = format!("round {round} after {last}");
            store.append(append(&c, fence, last, &[&line])).await.expect("append");
            expected.push((last + 1, line));
        }
        drop(store);
        if round % 2 == 1 {
            subject.settle().await;
        }
        subject.reopen().await;
        assert_eq!(all(&*subject.store(), &c).await, expected);
    }
}
