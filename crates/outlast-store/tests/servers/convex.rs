//! Convex: the real functions on `convex-test`, under the limits of Convex.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use outlast_core::Seq;
use outlast_store::suite::convex::Server;
use outlast_store::suite::{all, append, conversation, document, head, put, write};
use outlast_store::{
    Append, AppendError, Change, ConvexStore, Document, Mail, MailId, Newest, Query, Record, Store,
    StoreError, Table,
};
use tokio::time::timeout;

use crate::Served;

async fn open(url: String) -> Arc<dyn Store> {
    Arc::new(ConvexStore::open(&url).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_convex_passes_the_suite() {
    let server = Server::start();
    let subject = async |_: &str| Served::new(server.url(), |url| Box::pin(open(url))).await;
    outlast_store::conformance_in_order!(subject);
}

/// Nothing tells an instance what others have written, so it has to look.
#[tokio::test]
async fn what_another_instance_writes_wakes_who_waits_for_it() {
    const PATIENCE: Duration = Duration::from_secs(10);
    let server = Server::start();
    let url = server.url();
    let (writer, reader) = (open(url.clone()).await, open(url).await);
    let c = conversation("c");
    let mut written = reader.watch(&c);
    let fence = write(&*writer, &c, 0, &["a", "b"]).await;
    timeout(PATIENCE, written.changed()).await.expect("the append is noticed").unwrap();
    assert_eq!(*written.borrow_and_update(), Seq(2));

    for store in [&writer, &reader] {
        store.renew(PATIENCE).await.unwrap();
    }
    let (mut arrived, mut answered) = (writer.watch_mail(), reader.watch_mail());
    let id = MailId("m".to_owned());
    let body = Bytes::from_static(b"mail");
    reader.send(Mail { id: id.clone(), conversation: c.clone(), body: body.clone() }).await.unwrap();
    timeout(PATIENCE, arrived.changed()).await.expect("the mail is noticed").unwrap();
    assert_eq!(writer.mail_waiting().await.unwrap(), std::slice::from_ref(&c));
    let replies = vec![(id.clone(), body.clone())];
    writer.append(Append { replies, ..append(&c, fence, 2, &["c"]) }).await.unwrap();
    answered.mark_unchanged();
    timeout(PATIENCE, answered.changed()).await.expect("the reply is noticed").unwrap();
    assert_eq!(reader.reply(&id).await.unwrap(), Some(body));

    // A watcher of a deleted conversation learns that it has to look again.
    timeout(PATIENCE, written.wait_for(|last| *last == Seq(3)))
        .await
        .expect("the append is noticed")
        .unwrap();
    writer.delete(&c).await.unwrap();
    timeout(PATIENCE, written.changed()).await.expect("the removal is noticed").unwrap();
}

/// A row of Convex holds 1 MiB, and a transaction reads 16 MiB. Neither shows.
#[tokio::test]
async fn what_is_larger_than_a_row_or_a_transaction_comes_back() {
    let server = Server::start();
    let store = open(server.url()).await;
    let c = conversation("c");
    let fence = store.claim(&c).await.unwrap();
    let large = format!("{{\"text\":\"{}\"}}", "世界🦀\\n".repeat(300_000));
    assert!(large.len() > 3 << 20);
    let conversation = Document { body: large.clone(), state: Some(large.clone()), ..head(&c, 0) };
    store.append(put(&c, fence, 0, vec![conversation.clone()])).await.unwrap();
    let mut messages = Vec::new();
    for n in 1..=6 {
        let message =
            Document { body: large.clone(), ..document(Table::Messages, &format!("m{n}"), &c, n as i64) };
        let records = vec![
            Record { seq: Seq(2 * n - 1), bytes: Bytes::from(large.clone()) },
            Record { seq: Seq(2 * n), bytes: Bytes::from(vec![0xff; 700_000]) },
        ];
        let changes = vec![Change::Put(message.clone())];
        store.append(Append { records, changes, ..append(&c, fence, 2 * n - 2, &[]) }).await.unwrap();
        messages.push(message);
    }
    let loaded = store.load(&c, Newest::of(3)).await.unwrap().unwrap();
    assert_eq!(loaded.conversation, conversation);
    assert_eq!((loaded.records.len(), loaded.last), (12, Seq(12)));
    assert!(loaded.records.iter().step_by(2).all(|record| record.bytes == large));
    assert_eq!((loaded.messages.last(), loaded.more_messages), (messages.last(), true));
    assert_eq!(store.read(&c, Seq::ZERO, usize::MAX).await.unwrap(), loaded.records);
    let query = Query { table: Some(Table::Messages), limit: 9, max_bytes: usize::MAX, ..Query::default() };
    messages.reverse();
    assert_eq!(store.list(query).await.unwrap().documents, messages);

    store.trim(&c, Seq(1), Seq(11)).await.unwrap();
    assert_eq!(all(&*store, &c).await.len(), 1);
    store.delete(&c).await.unwrap();
    assert!(store.load(&c, Newest::of(1)).await.unwrap().is_none());

    // One append is one transaction, so this is where it ends.
    let fence = store.claim(&c).await.unwrap();
    let too_large = vec![Change::Put(Document { body: "x".repeat(13 << 20), ..head(&c, 0) })];
    let refused = store.append(Append { changes: too_large, ..append(&c, fence, 0, &["a"]) }).await;
    assert!(matches!(&refused, Err(AppendError::Broken(why)) if why.contains("at most")), "{refused:?}");
    assert!(all(&*store, &c).await.is_empty());
}

#[tokio::test]
async fn a_deployment_that_is_gone_or_not_ours_is_named() {
    let mut server = Server::start();
    let url = server.url();
    let wrong = url.replace("eyJ2", "other");
    let refused = ConvexStore::open(&wrong).await.map(|_| ()).unwrap_err();
    assert!(matches!(&refused, StoreError::Broken(why) if why.contains("deploy key")), "{refused}");
    assert!(!refused.to_string().contains("other"), "{refused}");

    let store = open(url).await;
    let c = conversation("c");
    let fence = write(&*store, &c, 0, &["a"]).await;
    server.kill();
    let away = store.append(append(&c, fence, 1, &["b"])).await;
    assert!(matches!(away, Err(AppendError::Unavailable(_) | AppendError::Unconfirmed(_))), "{away:?}");
    let away = store.append(append(&c, fence, 1, &["b"])).await;
    assert!(matches!(away, Err(AppendError::Unavailable(_))), "nothing listens any more: {away:?}");
    assert!(matches!(store.read(&c, Seq::ZERO, 100).await, Err(StoreError::Unavailable(_))));
}
