//! Claim and release: one owner at a time, and increasing fences.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outlast_core::Seq;
use tokio::task::JoinSet;

use super::{Subject, all, append, conversation, lines, write};
use crate::contract::{AppendError, Fence};

pub async fn a_claim_shuts_out_the_previous_owner(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let old = write(&*store, &c, 0, &["a"]).await;
    let new = store.claim(&c).await.expect("claim");
    assert!(new > old);
    let answer = store.append(append(&c, old, 1, &["b"])).await;
    assert!(matches!(answer, Err(AppendError::Fenced { current }) if current == new), "{answer:?}");
    // The fence is checked first: a previous owner must stop, not reload.
    let answer = store.append(append(&c, old, 9, &["b"])).await;
    assert!(matches!(answer, Err(AppendError::Fenced { .. })), "{answer:?}");
    store.append(append(&c, new, 1, &["c"])).await.expect("append");
    assert_eq!(all(&*store, &c).await, lines(&[(1, "a"), (2, "c")]));
}

pub async fn fences_only_grow(subject: &mut dyn Subject) {
    let c = conversation("c");
    let mut largest = Fence(0);
    for round in 0..12 {
        let store = subject.store();
        let fence = store.claim(&c).await.expect("claim");
        assert!(fence > largest, "{fence:?} after {largest:?}");
        largest = fence;
        match round % 4 {
            0 => assert!(!store.release(&c, fence).await.expect("release")),
            1 => store.delete(&c).await.expect("delete"),
            2 => {
                store.append(append(&c, fence, 0, &["a"])).await.expect("append");
                store.delete(&c).await.expect("delete");
            }
            _ => {
                drop(store);
                subject.reopen().await;
            }
        }
    }
}

pub async fn fences_can_be_raised(subject: &mut dyn Subject) {
    let c = conversation("c");
    let store = subject.store();
    let first = store.claim(&c).await.expect("claim");
    let latest = store.raise_fences(Fence(0)).await.expect("ask");
    assert!(latest >= first);
    let high = Fence(latest.0 + (1 << 45));
    assert_eq!(store.raise_fences(high).await.expect("raise"), high);
    assert_eq!(store.raise_fences(latest).await.expect("a lower one changes nothing"), high);
    store.append(append(&c, first, 0, &["a"])).await.expect("the owner stays");
    let next = store.claim(&c).await.expect("claim");
    assert!(next > high);
    drop(store);
    subject.reopen().await;
    assert!(subject.store().claim(&c).await.expect("claim") > next);
}

pub async fn a_released_fence_writes_nothing(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let fence = write(&*store, &c, 0, &["a"]).await;
    store.release(&c, fence).await.expect("release");
    let answer = store.append(append(&c, fence, 1, &["b"])).await;
    assert!(matches!(answer, Err(AppendError::Fenced { .. })), "{answer:?}");
    // Nor does a fence from before a restart.
    let fence = store.claim(&c).await.expect("claim");
    drop(store);
    if subject.durable() {
        subject.reopen().await;
        let answer = subject.store().append(append(&c, fence, 1, &["b"])).await;
        assert!(matches!(answer, Err(AppendError::Fenced { .. })), "{answer:?}");
    }
    assert_eq!(all(&*subject.store(), &c).await, lines(&[(1, "a")]));
}

pub async fn a_stale_release_is_harmless(subject: &mut dyn Subject) {
    let store = subject.store();
    let c = conversation("c");
    let old = store.claim(&c).await.expect("claim");
    let new = store.claim(&c).await.expect("claim");
    store.release(&c, old).await.expect("release");
    store.append(append(&c, new, 0, &["a"])).await.expect("append");
    store.release(&c, new).await.expect("release");
    store.release(&c, new).await.expect("release");
    store.release(&conversation("unheard of"), new).await.expect("release");
}

pub async fn conversations_have_separate_owners(subject: &mut dyn Subject) {
    let store = subject.store();
    let (c, d) = (conversation("c"), conversation("d"));
    let of_c = store.claim(&c).await.expect("claim");
    let of_d = store.claim(&d).await.expect("claim");
    store.append(append(&c, of_c, 0, &["c"])).await.expect("append");
    store.append(append(&d, of_d, 0, &["d"])).await.expect("append");
    assert_eq!(all(&*store, &c).await, lines(&[(1, "c")]));
    assert_eq!(all(&*store, &d).await, lines(&[(1, "d")]));
}

/// Once a claim has returned, only the new owner can change the log, although appends of the previous
/// owner are in flight all the time.
pub async fn a_claim_never_overlaps_an_append(subject: &mut dyn Subject) {
    const CLAIMS: usize = 40;
    let store = subject.store();
    let c = conversation("c");
    let in_force = Arc::new(AtomicU64::new(0));
    let mut former = JoinSet::new();
    for _ in 0..4 {
        let (store, c, in_force) = (Arc::clone(&store), c.clone(), Arc::clone(&in_force));
        former.spawn(async move {
            loop {
                let fence = in_force.load(Ordering::SeqCst);
                if fence == u64::MAX {
                    break;
                }
                // The expected seq is a guess: some appends succeed, and all of them race with the claims.
                let end = store.read(&c, Seq::ZERO, usize::MAX).await.expect("read").len() as u64;
                match store.append(append(&c, Fence(fence), end, &["x"])).await {
                    Ok(()) | Err(AppendError::Fenced { .. } | AppendError::Conflict { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
                tokio::task::yield_now().await;
            }
        });
    }
    for _ in 0..CLAIMS {
        let fence = store.claim(&c).await.expect("claim");
        let seen = all(&*store, &c).await.len();
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        assert_eq!(all(&*store, &c).await.len(), seen, "an append came in after the claim returned");
        in_force.store(fence.0, Ordering::SeqCst);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    in_force.store(u64::MAX, Ordering::SeqCst);
    while let Some(done) = former.join_next().await {
        done.expect("former owner");
    }
}
