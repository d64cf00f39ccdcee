//! Connections that end too early.

use crate::bench::{Bench, KINDS, Kind};
use crate::server::{Act, chunked, document, events};
use crate::streams::{calls, ends, reason, says, words};

/// The answer that is cut: text, a tool call, and the end.
fn answer(kind: Kind) -> String {
    format!("{}{}{}{}", says(kind, "Hé"), says(kind, "llo"), calls(kind), ends(kind))
}

/// Cuts the first attempt after every byte, in the given way. The second is complete. Whatever was shown of the
/// first, the final text has the answer once.
async fn cut_everywhere(kind: Kind, bytes: &[u8], last: Option<Act>, complete_from: usize) {
    let bench = Bench::new(kind).await;
    let whole = vec![Act::Send(bytes.to_vec())];
    for cut in 0..bytes.len() {
        let mut first = vec![Act::Send(bytes[..cut].to_vec())];
        first.extend(last.clone());
        let outcome = bench.run(vec![first, whole.clone()]).await;
        let at = format!("{kind:?} cut at {cut} of {}", bytes.len());
        assert_eq!((outcome.end_reason.as_str(), outcome.text.as_str()), ("stop", "Héllo"), "{at}");
        assert_eq!(outcome.tools, [r#"t1 look {"at":"é"}"#], "{at}");
        assert_eq!(outcome.calls, if cut < complete_from { 2 } else { 1 }, "{at}");
    }
}

fn complete_from(bytes: &[u8], kind: Kind) -> usize {
    let reason = reason(kind);
    let reason = reason.trim_end().as_bytes();
    let found = bytes.windows(reason.len()).position(|window| window == reason);
    found.unwrap() + reason.len() + "\n\n".len()
}

#[tokio::test]
async fn an_early_end_after_every_byte_is_retried() {
    for kind in KINDS {
        let bytes = events(&answer(kind));
        cut_everywhere(kind, &bytes, None, complete_from(&bytes, kind)).await;
    }
}

#[tokio::test]
async fn a_reset_after_every_byte_is_retried() {
    for kind in KINDS {
        let body = answer(kind);
        let whole = vec![Act::Send(chunked(&body, body.len()))];
        let bench = Bench::new(kind).await;
        let bytes = chunked(&body, body.len());
        for cut in 0..bytes.len() {
            // The operating system decides whether the reset overtakes data sent before it. So the number of calls
            // varies, but the final text does not.
            let first = vec![Act::Send(bytes[..cut].to_vec()), Act::Reset];
            let outcome = bench.run(vec![first, whole.clone()]).await;
            let at = format!("{kind:?} reset at {cut} of {}", bytes.len());
            assert_eq!((outcome.end_reason.as_str(), outcome.text.as_str()), ("stop", "Héllo"), "{at}");
            assert_eq!(outcome.tools, [r#"t1 look {"at":"é"}"#], "{at}");
            assert!(outcome.calls <= 2, "{at}");
        }
    }
}

#[tokio::test]
async fn repeated_resets_end_after_three_attempts_and_keep_the_last_text() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let pause = std::time::Duration::from_millis(30);
        let script = vec![Act::Send(events(&says(kind, "Hé"))), Act::Wait(pause), Act::Reset];
        let outcome = bench.run(vec![script]).await;
        assert_eq!(outcome.told(), ("upstream_failed", "Hé", 3), "{}", outcome.error);
        assert_eq!(outcome.retracted, 2, "the text of the first two was withdrawn");
    }
}

/// Every attempt gets this response, and none is complete.
async fn never_complete(bytes: impl Fn(Kind) -> Vec<u8>) {
    for kind in KINDS {
        let outcome = Bench::new(kind).await.run(vec![vec![Act::Send(bytes(kind))]]).await;
        assert_eq!(outcome.told(), ("upstream_failed", "Hé", 3), "{kind:?}: {}", outcome.error);
    }
}

#[tokio::test]
async fn truncated_chunked_encoding_is_retried() {
    never_complete(|kind| {
        let whole = chunked(&says(kind, "Hé"), 7);
        whole[..whole.len() - b"0\r\n\r\n".len()].to_vec()
    })
    .await;
}

#[tokio::test]
async fn broken_chunked_encoding_is_retried() {
    never_complete(|kind| {
        let mut bytes = chunked(&says(kind, "Hé"), 4096);
        bytes.truncate(bytes.len() - b"0\r\n\r\n".len());
        bytes.extend(b"this is not a length\r\n");
        bytes
    })
    .await;
}

#[tokio::test]
async fn a_length_that_is_too_large_is_retried() {
    never_complete(|kind| {
        let body = says(kind, "Hé");
        let length = body.len() + 100;
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n");
        format!("{head}{body}").into_bytes()
    })
    .await;
}

#[tokio::test]
async fn a_length_that_is_too_small_is_retried() {
    never_complete(|kind| {
        let shown = says(kind, "Hé");
        let body = format!("{shown}{}", ends(kind));
        let length = shown.len();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n");
        format!("{head}{body}").into_bytes()
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_closes_without_a_response_is_retried() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let whole = vec![Act::Send(document(200, "", &words(kind)))];
        assert_eq!(bench.run(vec![vec![], vec![Act::Reset], whole]).await.told(), ("stop", "Héllo", 3));
    }
}

#[tokio::test]
async fn an_unreachable_upstream_is_retried() {
    let bench = Bench::new(Kind::OpenAi).await;
    let Bench { engine, upstream } = bench;
    drop(upstream); // its address is free now
    tokio::task::yield_now().await;
    let request = outlast_engine::StartRequest::new(vec![outlast_core::Part::Text { text: "hello".into() }]);
    let started = engine.start(&crate::bench::user(), request).await.unwrap();
    let mut follower =
        engine.follow_generation(&crate::bench::user(), &started.generation, None).await.unwrap();
    while follower.next().await.unwrap().is_some() {}
    let document = engine.generation(&crate::bench::user(), &started.generation).await.unwrap();
    assert_eq!((document.attempt, document.end_reason.as_deref()), (3, Some("upstream_failed")));
    assert_eq!(document.error_message.as_deref(), Some("cannot connect to the upstream"));
}
