//! Mail: a request to the owner, which replies in the transaction that carries it out.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Subject, all, append, conversation, write};
use crate::contract::{Append, AppendError, Mail, MailId, Store};

const LEASE: Duration = Duration::from_secs(3600);

/// The owner and the sender. They are the same handle if the store allows only one.
async fn both(subject: &mut dyn Subject) -> (Arc<dyn Store>, Arc<dyn Store>) {
    let owner = subject.store();
    let sender = subject.another().await.unwrap_or_else(|| owner.clone());
    owner.renew(LEASE).await.expect("renew");
    sender.renew(LEASE).await.expect("renew");
    (owner, sender)
}

fn letter(id: &str, c: &str) -> Mail {
    Mail {
        id: MailId(id.to_owned()),
        conversation: conversation(c),
        body: Bytes::from(format!("\0body of {id}")),
    }
}

fn replies(id: &str) -> Vec<(MailId, Bytes)> {
    vec![(MailId(id.to_owned()), Bytes::from(format!("\0reply to {id}")))]
}

pub async fn i19_mail_is_answered_in_the_append_that_carries_it_out(subject: &mut dyn Subject) {
    let (owner, sender) = both(subject).await;
    let c = conversation("c");
    let fence = write(&*owner, &c, 0, &["a"]).await;
    let (first, second) = (letter("m1", "c"), letter("m2", "c"));
    sender.send(first.clone()).await.expect("send");
    sender.send(second.clone()).await.expect("send");
    sender.send(letter("m3", "another")).await.expect("send");
    assert_eq!(owner.mail(&c).await.expect("mail"), [first.clone(), second.clone()]);
    assert_eq!(owner.mail_waiting().await.expect("waiting"), vec![c.clone()]);
    assert_eq!(sender.reply(&first.id).await.expect("reply"), None);

    let done = Append { replies: replies("m1"), ..append(&c, fence, 1, &["b"]) };
    owner.append(done).await.expect("append");
    assert_eq!(sender.reply(&first.id).await.expect("reply"), Some(Bytes::from("\0reply to m1")));
    assert_eq!(owner.mail(&c).await.expect("mail"), vec![second.clone()]);
    assert_eq!(all(&*sender, &c).await.len(), 2);

    // A refusal has a reply and no records. The next owner finds only what is unanswered.
    owner.append(Append { replies: replies("m2"), ..append(&c, fence, 2, &[]) }).await.expect("append");
    assert_eq!(sender.reply(&second.id).await.expect("reply"), Some(Bytes::from("\0reply to m2")));
    owner.leave().await.expect("leave");
    sender.claim(&c).await.expect("claim");
    assert!(sender.mail(&c).await.expect("mail").is_empty());
}

pub async fn a_refused_append_leaves_mail_unanswered(subject: &mut dyn Subject) {
    let (owner, sender) = both(subject).await;
    let c = conversation("c");
    let stale = write(&*owner, &c, 0, &["a"]).await;
    let fence = owner.claim(&c).await.expect("claim");
    let mail = letter("m1", "c");
    sender.send(mail.clone()).await.expect("send");
    let answer = owner.append(Append { replies: replies("m1"), ..append(&c, stale, 1, &["b"]) }).await;
    assert!(matches!(answer, Err(AppendError::Fenced { .. })), "{answer:?}");
    let answer = owner.append(Append { replies: replies("m1"), ..append(&c, fence, 7, &["b"]) }).await;
    assert!(matches!(answer, Err(AppendError::Conflict { .. })), "{answer:?}");
    assert_eq!(owner.mail(&c).await.expect("mail"), vec![mail.clone()]);
    assert_eq!(sender.reply(&mail.id).await.expect("reply"), None);
}

pub async fn sending_the_same_mail_again_changes_nothing(subject: &mut dyn Subject) {
    let (owner, sender) = both(subject).await;
    let c = conversation("c");
    let fence = write(&*owner, &c, 0, &["a"]).await;
    let mail = letter("m1", "c");
    for _ in 0..2 {
        sender.send(mail.clone()).await.expect("send");
        assert_eq!(owner.mail(&c).await.expect("mail").len(), 1);
    }
    owner.append(Append { replies: replies("m1"), ..append(&c, fence, 1, &["b"]) }).await.expect("append");
    sender.send(mail.clone()).await.expect("send");
    assert!(owner.mail(&c).await.expect("mail").is_empty());
    assert!(sender.reply(&mail.id).await.expect("reply").is_some());
    sender.forget(&mail.id).await.expect("forget");
    assert_eq!(sender.reply(&mail.id).await.expect("reply"), None);
    // An owner that replies too late still writes its records.
    owner.append(Append { replies: replies("m1"), ..append(&c, fence, 2, &["c"]) }).await.expect("append");
    assert_eq!(all(&*owner, &c).await.len(), 3);
}

pub async fn a_release_says_whether_mail_waits(subject: &mut dyn Subject) {
    let (owner, sender) = both(subject).await;
    let c = conversation("c");
    let fence = owner.claim(&c).await.expect("claim");
    sender.send(letter("m1", "c")).await.expect("send");
    assert!(owner.release(&c, fence).await.expect("release"));
    assert!(owner.mail_waiting().await.expect("waiting").is_empty(), "no instance holds it");
    let fence = owner.claim(&c).await.expect("claim");
    owner.append(Append { replies: replies("m1"), ..append(&c, fence, 0, &["b"]) }).await.expect("append");
    assert!(!owner.release(&c, fence).await.expect("release"));
}

pub async fn mail_of_an_instance_that_left_is_not_delivered(subject: &mut dyn Subject) {
    let (owner, sender) = both(subject).await;
    let c = conversation("c");
    sender.send(letter("m1", "c")).await.expect("send");
    sender.leave().await.expect("leave");
    owner.renew(LEASE).await.expect("renew");
    let fence = owner.claim(&c).await.expect("claim");
    assert!(owner.mail(&c).await.expect("mail").is_empty());
    assert!(!owner.release(&c, fence).await.expect("release"));
}

pub async fn mail_wakes_both_sides(subject: &mut dyn Subject) {
    const PATIENCE: Duration = Duration::from_secs(10);
    let (owner, sender) = both(subject).await;
    let c = conversation("c");
    let fence = owner.claim(&c).await.expect("claim");
    let (mut arrives, mut returns) = (owner.watch_mail(), sender.watch_mail());
    sender.send(letter("m1", "c")).await.expect("send");
    let found = async {
        while owner.mail_waiting().await.expect("waiting").is_empty() {
            arrives.changed().await.expect("the store is open");
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("the owner is woken");
    owner.append(Append { replies: replies("m1"), ..append(&c, fence, 0, &["b"]) }).await.expect("append");
    let answered = async {
        while sender.reply(&MailId("m1".to_owned())).await.expect("reply").is_none() {
            returns.changed().await.expect("the store is open");
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.expect("the sender is woken");
}
