//! Upstreams that go silent: before the head, in the middle of a token, in the middle of a character.

use std::time::Instant;

use futures_util::future::join_all;

use crate::bench::{Bench, IDLE, KINDS, Kind};
use crate::server::{Act, events};
use crate::streams::{calls, ends, event, reason, says, words};

#[tokio::test]
async fn silence_is_retried_and_ends_as_timed_out() {
    for kind in KINDS {
        let said = events(&says(kind, "Hé"));
        let in_a_token = said[..said.len() - 10].to_vec();
        let in_a_character = {
            let place = said.windows(2).position(|window| window == "é".as_bytes()).unwrap();
            said[..=place].to_vec()
        };
        let cases = [
            ("before the head", Vec::new(), ""),
            ("in the head", b"HTTP/1.1 200 OK\r\ncontent-ty".to_vec(), ""),
            ("after the head", events(""), ""),
            ("in a token", in_a_token, ""),
            ("in a character", in_a_character, ""),
            ("after a token", said, "Hé"),
            ("in an error", b"HTTP/1.1 500 No\r\ncontent-length: 100\r\n\r\nhalf".to_vec(), ""),
        ];
        let each = cases.map(|(place, bytes, shown)| async move {
            let bench = Bench::impatient(kind).await;
            let began = Instant::now();
            let outcome = bench.run(vec![vec![Act::Send(bytes), Act::Hang]]).await;
            assert_eq!(
                outcome.told(),
                ("upstream_timed_out", shown, 3),
                "{kind:?} {place}: {}",
                outcome.error
            );
            assert!(
                outcome.error.contains("timed out") && outcome.error.contains("600ms"),
                "{}",
                outcome.error
            );
            assert!(began.elapsed() >= 3 * IDLE, "{place}: an attempt ended before its timeout");
        });
        join_all(each).await;
    }
}

#[tokio::test]
async fn a_slow_upstream_within_the_timeout_is_waited_for() {
    for kind in KINDS {
        let bench = Bench::impatient(kind).await;
        let pause = Act::Wait(IDLE / 3);
        let bytes = events(&format!("{}{}", says(kind, "Hé"), says(kind, "llo")));
        let (head, tail) = bytes.split_at(bytes.len() / 2);
        let script = vec![
            pause.clone(),
            Act::Send(head.to_vec()),
            pause.clone(),
            Act::Send(tail.to_vec()),
            pause.clone(),
            Act::Send(b": alive\n\n".to_vec()),
            pause,
            Act::Send(ends(kind).into_bytes()),
        ];
        assert_eq!(
            bench.run(vec![script]).await.told(),
            ("stop", "Héllo", 1),
            "longer than the timeout in total"
        );
    }
}

#[tokio::test]
async fn b4_the_timeout_of_a_model_overrides_the_common_one() {
    // With the common timeout this would hang for an hour.
    let bench = Bench::impatient(Kind::OpenAi).await;
    let outcome = bench.run(vec![vec![Act::Hang], vec![Act::Send(events(&words(Kind::OpenAi)))]]).await;
    assert_eq!(outcome.told(), ("stop", "Héllo", 2));
}

#[tokio::test]
async fn an_upstream_that_hangs_after_its_finish_reason_is_complete() {
    for kind in KINDS {
        let body = events(&format!("{}{}{}", says(kind, "Hé"), calls(kind), reason(kind)));
        let silent = vec![Act::Send(body.clone()), Act::Hang];
        let comments = vec![Act::Send(b": alive\n\n".to_vec()), Act::Wait(IDLE / 6)];
        let alive = [vec![Act::Send(body)], vec![comments; 100].concat()].concat();
        // One has an idle timeout shorter than the wait after a finish reason, the other a longer one.
        let each = [(Bench::impatient(kind).await, silent.clone()), (Bench::new(kind).await, silent)]
            .into_iter()
            .chain([(Bench::new(kind).await, alive)])
            .map(|(bench, script)| async move {
                let began = Instant::now();
                let outcome = bench.run(vec![script]).await;
                assert_eq!(outcome.told(), ("stop", "Hé", 1), "{kind:?}: {}", outcome.error);
                assert_eq!(outcome.tools, [r#"t1 look {"at":"é"}"#]);
                assert_eq!(outcome.retracted, 0);
                assert!(began.elapsed() < 10 * IDLE, "{kind:?} {:?}", began.elapsed());
            });
        join_all(each).await;
    }
}

#[tokio::test]
async fn token_counts_after_the_finish_reason_are_waited_for() {
    for kind in KINDS {
        let bench = Bench::impatient(kind).await;
        let usage = match kind {
            Kind::OpenAi => r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#,
            Kind::Anthropic => r#"{"type":"message_delta","usage":{"input_tokens":3,"output_tokens":2}}"#,
        };
        let script = vec![
            Act::Send(events(&format!("{}{}", says(kind, "Hé"), reason(kind)))),
            Act::Wait(2 * IDLE),
            Act::Send(event(kind, usage).into_bytes()),
            Act::Hang,
        ];
        let outcome = bench.run(vec![script]).await;
        assert_eq!((outcome.told(), outcome.tokens), (("stop", "Hé", 1), (3, 2)));
    }
}
