//! Leases: an instance may take over a conversation only after its holder's lease has expired.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::ConversationId;

use super::{Subject, all, append, conversation, document, head, lines, put, write};
use crate::contract::{AppendError, ClaimError, Document, Fence, Query, Store, Table};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3600);

/// A lease that expires during the test.
const SHORT: Duration = Duration::from_millis(50);

/// How often a claim is retried before the test gives up on the lease expiring.
const TRIES: usize = 1000;

pub async fn b1_a_lease_keeps_other_instances_away(subject: &mut dyn Subject) {
    let (one, Some(two)) = (subject.store(), subject.another().await) else { return };
    assert_ne!(one.instance(), two.instance());
    one.renew(LONG).await.expect("renew");
    two.renew(LONG).await.expect("renew");
    let c = conversation("c");
    let fence = write(&*one, &c, 0, &["a"]).await;
    let claimed = two.claim(&c).await;
    assert!(matches!(&claimed, Err(ClaimError::HeldBy(by)) if by == one.instance()), "{claimed:?}");
    assert!(one.claim(&c).await.expect("its own can be claimed again") > fence);
    let answer = two.append(append(&c, fence, 1, &["b"])).await;
    assert!(matches!(answer, Err(AppendError::Fenced { .. })), "{answer:?}");

    let fence = one.claim(&c).await.expect("claim");
    one.release(&c, fence).await.expect("release");
    let of_two = two.claim(&c).await.expect("given up");
    assert!(of_two > fence);
    two.append(append(&c, of_two, 1, &["c"])).await.expect("append");
    assert_eq!(all(&*one, &c).await, lines(&[(1, "a"), (2, "c")]));
}

pub async fn b8_what_an_expired_instance_held_is_taken_over_and_it_can_write_nothing(
    subject: &mut dyn Subject,
) {
    let (one, Some(two)) = (subject.store(), subject.another().await) else { return };
    two.renew(LONG).await.expect("renew");
    one.renew(SHORT).await.expect("renew");
    let (c, d) = (conversation("c"), conversation("d"));
    let old = write(&*one, &c, 0, &["a"]).await;
    let kept = write(&*one, &d, 0, &["a"]).await;
    let new = taken_over(&two, &c).await;
    assert!(new > old);
    let answer = one.append(append(&c, old, 1, &["stale"])).await;
    assert!(matches!(answer, Err(AppendError::Fenced { .. })), "{answer:?}");
    two.append(append(&c, new, 1, &["b"])).await.expect("append");
    // This one was not taken over, so its owner can still write, and may renew its lease.
    one.append(append(&d, kept, 1, &["b"])).await.expect("append");
    one.renew(LONG).await.expect("renew");
    assert!(matches!(two.claim(&d).await, Err(ClaimError::HeldBy(_))));
    assert!(matches!(one.claim(&c).await, Err(ClaimError::HeldBy(_))));
    assert_eq!(all(&*one, &c).await, lines(&[(1, "a"), (2, "b")]));
}

pub async fn an_instance_that_leaves_gives_everything_up(subject: &mut dyn Subject) {
    let (one, Some(two)) = (subject.store(), subject.another().await) else { return };
    one.renew(LONG).await.expect("renew");
    two.renew(LONG).await.expect("renew");
    let (c, d) = (conversation("c"), conversation("d"));
    let of_c = write(&*one, &c, 0, &["a"]).await;
    write(&*one, &d, 0, &["a"]).await;
    one.leave().await.expect("leave");
    assert!(two.claim(&c).await.expect("given up") > of_c);
    two.claim(&d).await.expect("given up");
    let answer = one.append(append(&c, of_c, 1, &["stale"])).await;
    assert!(matches!(answer, Err(AppendError::Fenced { .. })), "{answer:?}");
}

pub async fn instances_with_a_lease_are_known_to_others(subject: &mut dyn Subject) {
    let one = subject.store();
    one.renew(LONG).await.expect("renew");
    assert_eq!(one.others().await.expect("others"), [], "itself is not another");
    let Some(two) = subject.another().await else { return };
    assert_eq!(one.others().await.expect("others"), [], "it has no lease yet");
    two.renew(LONG).await.expect("renew");
    assert_eq!(one.others().await.expect("others"), [two.instance().clone()]);
    assert_eq!(two.others().await.expect("others"), [one.instance().clone()]);
    two.leave().await.expect("leave");
    assert_eq!(one.others().await.expect("others"), []);
}

pub async fn what_is_due_and_unowned_is_listed(subject: &mut dyn Subject) {
    let store = subject.store();
    store.renew(LONG).await.expect("renew");
    for (id, due) in [("late", 1), ("later", 2), ("future", 9)] {
        let c = conversation(id);
        let fence = store.claim(&c).await.expect("claim");
        let document = Document { due: Some(due), ..head(&c, 0) };
        let generation = document_of(&c, due);
        store.append(put(&c, fence, 0, vec![document, generation])).await.expect("append");
        if id != "later" {
            store.release(&c, fence).await.expect("release");
        }
    }
    assert_eq!(unowned(&*store, Table::Conversations).await, ["late"]);
    assert_eq!(unowned(&*store, Table::Generations).await, ["g of late"]);
    if let Some(two) = subject.another().await {
        assert_eq!(unowned(&*two, Table::Conversations).await, ["late"]);
        store.leave().await.expect("leave");
        assert_eq!(unowned(&*two, Table::Conversations).await, ["late", "later"]);
    }
}

fn document_of(c: &ConversationId, due: i64) -> Document {
    Document { due: Some(due), ..document(Table::Generations, &format!("g of {c}"), c, due) }
}

async fn unowned(store: &dyn Store, table: Table) -> Vec<String> {
    let query = Query { table: Some(table), due_by: Some(5), unowned: true, limit: 1, ..Query::default() };
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(Query { after, ..query.clone() }).await.expect("list");
        found.extend(page.documents.into_iter().map(|document| document.id));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

async fn taken_over(store: &Arc<dyn Store>, c: &ConversationId) -> Fence {
    for _ in 0..TRIES {
        match store.claim(c).await {
            Ok(fence) => return fence,
            Err(ClaimError::HeldBy(_)) => tokio::time::sleep(SHORT / 10).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the lease never expired");
}
