//! Limits of an append, checked in its transaction.

use std::sync::Arc;

use outlast_core::{ConversationId, UserId};
use tokio::task::JoinSet;

use super::{Subject, all, append, conversation, document, put};
use crate::contract::{Append, AppendError, Change, Document, Fence, Limit, Table};

/// At most two live generations for this user, and at most three in total.
fn limits(user: &str) -> Vec<Limit> {
    let limit = |user, at_most| Limit {
        table: Table::Generations,
        user,
        statuses: vec!["queued".to_owned(), "running".to_owned()],
        at_most,
    };
    vec![limit(Some(UserId::from(user)), 2), limit(None, 3)]
}

fn generation(c: &ConversationId, user: &str, status: &str) -> Document {
    let document = document(Table::Generations, &format!("g of {c}"), c, 1);
    Document { user: UserId::from(user), status: status.to_owned(), ..document }
}

fn start(c: &ConversationId, fence: Fence, user: &str) -> Append {
    let changes = vec![Change::Put(generation(c, user, "running"))];
    Append { changes, limits: limits(user), ..append(c, fence, 0, &["started"]) }
}

pub async fn b4_an_append_over_a_limit_writes_nothing(subject: &mut dyn Subject) {
    let store = subject.store();
    let mut answers = Vec::new();
    for (n, user) in ["ann", "ann", "ann", "bob", "bob"].into_iter().enumerate() {
        let c = conversation(&format!("c{n}"));
        let fence = store.claim(&c).await.expect("claim");
        let answer = store.append(start(&c, fence, user)).await;
        let written = all(&*store, &c).await.len();
        assert_eq!(written, usize::from(answer.is_ok()), "{answer:?}");
        answers.push(match answer {
            Ok(()) => None,
            Err(AppendError::OverLimit { limit }) => Some(limit),
            Err(error) => panic!("{error}"),
        });
    }
    assert_eq!(answers, [None, None, Some(0), None, Some(1)]);
    assert_eq!(store.get(Table::Generations, "g of c2").await.expect("get"), None);

    // One ends, and another starts in the same append.
    let c = conversation("c0");
    let fence = store.claim(&c).await.expect("claim");
    let next = Document { id: "next".to_owned(), ..generation(&c, "ann", "running") };
    let swap = put(&c, fence, 1, vec![generation(&c, "ann", "done"), next]);
    store.append(Append { limits: limits("ann"), ..swap }).await.expect("as many as before");
}

pub async fn b4_starts_at_once_never_pass_a_limit_together(subject: &mut dyn Subject) {
    const STARTS: usize = 30;
    let mut stores = vec![subject.store()];
    stores.extend(subject.another().await);
    let mut starts = JoinSet::new();
    for n in 0..STARTS {
        let store = Arc::clone(&stores[n % stores.len()]);
        starts.spawn(async move {
            let c = conversation(&format!("c{n}"));
            let fence = store.claim(&c).await.expect("claim");
            store.append(start(&c, fence, "ann")).await
        });
    }
    let mut written = 0;
    while let Some(answer) = starts.join_next().await {
        match answer.expect("start") {
            Ok(()) => written += 1,
            Err(AppendError::OverLimit { limit: 0 }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(written, 2);
}
