//! Connections are kept between calls, and reused only while they are open.

use std::time::Duration;

use crate::bench::{Bench, KINDS, Kind};
use crate::server::{Act, kept};
use crate::streams::words;

fn refused() -> Act {
    Act::Send(b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno".to_vec())
}

#[tokio::test]
async fn the_next_call_opens_no_connection() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let whole = vec![Act::Send(kept(&words(kind))), Act::Keep];
        for _ in 0..5 {
            assert_eq!(bench.run(vec![whole.clone()]).await.told(), ("stop", "Héllo", 1));
        }
        let outcome = bench.run(vec![vec![refused(), Act::Keep], whole]).await;
        assert_eq!(outcome.told(), ("stop", "Héllo", 2), "a refusal is read to its end too");
        assert_eq!(bench.upstream.connections(), 1);
    }
}

#[tokio::test]
async fn a_connection_whose_body_ends_late_is_kept_too() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let mut bytes = kept(&words(kind));
        let end = bytes.split_off(bytes.len() - b"0\r\n\r\n".len());
        let script = vec![Act::Send(bytes), Act::Wait(Duration::from_millis(10)), Act::Send(end), Act::Keep];
        for _ in 0..3 {
            assert_eq!(bench.run(vec![script.clone()]).await.told(), ("stop", "Héllo", 1));
        }
        assert_eq!(bench.upstream.connections(), 1);
    }
}

#[tokio::test]
async fn a_connection_that_the_upstream_has_closed_is_not_reused() {
    let bench = Bench::new(Kind::OpenAi).await;
    for calls in 1..4 {
        let script = vec![Act::Send(kept(&words(Kind::OpenAi))), Act::HangUp];
        assert_eq!(bench.run(vec![script]).await.told(), ("stop", "Héllo", 1));
        bench.upstream.left().await;
        assert_eq!(bench.upstream.connections(), calls);
    }
}
