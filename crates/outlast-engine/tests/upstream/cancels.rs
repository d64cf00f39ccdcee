//! A generation that is cancelled closes its connection.

use std::time::{Duration, Instant};

use crate::bench::{Bench, KINDS, user};
use crate::server::{Act, events};
use crate::streams::says;

#[tokio::test]
async fn i9_a_cancel_closes_the_connection_within_a_second() {
    for kind in KINDS {
        let before_the_head = vec![Act::Hang];
        let in_the_middle = vec![Act::Send(events(&says(kind, "Hé"))), Act::Hang];
        for (script, shown) in [(before_the_head, ""), (in_the_middle, "Hé")] {
            let bench = Bench::new(kind).await;
            let started = bench.start(vec![script]).await;
            while bench.upstream.requests().is_empty() || bench.said(&started).await != shown {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let cancelled = Instant::now();
            bench.engine.cancel(&user(), &started.generation).await.unwrap();
            let left = tokio::time::timeout(Duration::from_secs(5), bench.upstream.left()).await.unwrap();
            assert!(left - cancelled < Duration::from_secs(1), "{:?}", left - cancelled);
            let outcome = bench.outcome(&started).await;
            assert_eq!((outcome.end_reason.as_str(), outcome.calls), ("user", 1));
        }
    }
}
