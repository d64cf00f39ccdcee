//! Responses that start with a 200 and then go wrong.

use std::collections::BTreeMap;

use outlast_core::Rules;
use outlast_engine::Settings;

use crate::bench::{Bench, KINDS, Kind};
use crate::server::{Act, chunked, events};
use crate::streams::{calls, ends, event, reason, says, words};

fn error(kind: Kind, of: &str) -> String {
    event(kind, &format!(r#"{{"type":"error","error":{of}}}"#))
}

#[tokio::test]
async fn g11_an_error_after_a_200_is_retried_unless_it_says_that_this_is_useless() {
    let cases = [
        (r#"{"code":502,"message":"no"}"#, "upstream_failed", 3),
        (r#"{"type":"overloaded_error","message":"no"}"#, "upstream_failed", 3),
        (r#"{"message":"no"}"#, "upstream_failed", 3),
        (r#""no""#, "upstream_failed", 3),
        (r#"{"code":429,"message":"no"}"#, "upstream_rate_limited", 3),
        (r#"{"type":"rate_limit_error","message":"no"}"#, "upstream_rate_limited", 3),
        (r#"{"code":400,"message":"no"}"#, "upstream_invalid_request", 1),
        (r#"{"type":"invalid_request_error","message":"no"}"#, "upstream_invalid_request", 1),
        (r#"{"code":"content_filter","message":"no"}"#, "upstream_refused", 1),
        (r#"{"code":"context_length_exceeded","message":"no"}"#, "context_too_long", 1),
    ];
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        for (of, code, calls) in cases {
            let body = events(&format!("{}{}", says(kind, "Hé"), error(kind, of)));
            let outcome = bench.run(vec![vec![Act::Send(body)]]).await;
            assert_eq!(outcome.told(), (code, "Hé", calls), "{kind:?} {of}");
            assert_eq!(outcome.error, "upstream failed: no");
        }
    }
}

#[tokio::test]
async fn an_invalid_stream_is_retried() {
    let bad_text = {
        let mut bytes = events(&says(Kind::OpenAi, "H"));
        let place = bytes.windows(2).rposition(|window| window == b"H\"").unwrap();
        bytes[place] = 0xff;
        bytes
    };
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let whole = vec![Act::Send(events(&words(kind)))];
        let broken = |data: &str| events(&format!("{}{}", says(kind, "Hé"), event(kind, data)));
        for bytes in [
            broken("{\"half\":"),
            broken("<html>"),
            broken("[]"),
            broken("7"),
            broken(&"[".repeat(100_000)),
            broken("{\"choices\":7,\"type\":7}"),
            bad_text.clone(),
            b"HTTP/1.1 200 OK\r\n\r\ndata: \xc3\x28\n\n".to_vec(),
        ] {
            let outcome = bench.run(vec![vec![Act::Send(bytes.clone())], whole.clone()]).await;
            assert_eq!(outcome.told(), ("stop", "Héllo", 2), "{:?}", String::from_utf8_lossy(&bytes));
        }
    }
}

#[tokio::test]
async fn a_line_of_64_mib_is_refused_before_it_is_read() {
    const MIB: usize = 1024 * 1024;
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let head = events("data: ");
        let script = vec![Act::Send(head), Act::Repeat(vec![b'x'; MIB / 16], 64 * 16)];
        let outcome = bench.run(vec![script]).await;
        assert_eq!(outcome.told(), ("upstream_failed", "", 3));
        assert!(outcome.error.contains("more than 1048576 bytes"), "{}", outcome.error);
        // Only what fits into the socket buffers is sent; the rest is never read.
        let sent = bench.upstream.sent();
        assert!(sent.iter().all(|sent| *sent < 32 * MIB), "{sent:?}");
    }
}

#[tokio::test]
async fn an_endless_answer_ends_at_its_limit() {
    for kind in KINDS {
        let rules = Rules { answer_bytes: 100_000, ..Rules::default() };
        let bench = Bench::with(kind, Settings { rules, ..Settings::default() }, BTreeMap::new()).await;
        let script =
            vec![Act::Send(events("")), Act::Repeat(says(kind, &"x".repeat(1000)).into_bytes(), 10_000_000)];
        let outcome = bench.run(vec![script]).await;
        assert_eq!((outcome.end_reason.as_str(), outcome.calls), ("answer_too_long", 1));
        assert!((100_000..400_000).contains(&outcome.text.len()), "{} bytes are kept", outcome.text.len());
    }
}

#[tokio::test]
async fn data_after_the_end_is_not_read() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let body = format!("{}{}{}", words(kind), says(kind, "more"), error(kind, "\"late\""));
        assert_eq!(bench.run(vec![vec![Act::Send(chunked(&body, 4096))]]).await.told(), ("stop", "Héllo", 1));
        let hanging = vec![Act::Send(events(&words(kind))), Act::Hang];
        assert_eq!(
            bench.run(vec![hanging]).await.told(),
            ("stop", "Héllo", 1),
            "the engine does not wait for the close"
        );
    }
}

#[tokio::test]
async fn an_answer_without_text_completes() {
    for kind in KINDS {
        let outcome = Bench::new(kind).await.run(vec![vec![Act::Send(events(&ends(kind)))]]).await;
        assert_eq!(outcome.told(), ("stop", "", 1));
    }
}

#[tokio::test]
async fn invalid_data_after_the_finish_reason_is_ignored() {
    const MIB: usize = 1024 * 1024;
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let complete = format!("{}{}", says(kind, "Hé"), reason(kind));
        let broken = |data: &str| vec![Act::Send(events(&format!("{complete}{}", event(kind, data))))];
        for script in [
            broken("{\"half\":"),
            broken("<html>"),
            broken(r#"{"type":"error","error":{"code":502,"message":"late"}}"#),
            vec![
                Act::Send(events(&format!("{complete}data: "))),
                Act::Repeat(vec![b'x'; MIB / 16], 2 * 16),
                Act::Hang,
            ],
        ] {
            let outcome = bench.run(vec![script]).await;
            assert_eq!(outcome.told(), ("stop", "Hé", 1), "{kind:?}: {}", outcome.error);
        }
    }
}

#[tokio::test]
async fn an_endless_stream_that_adds_nothing_is_refused() {
    const MIB: usize = 1024 * 1024;
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let padding = " ".repeat(MIB / 16);
        let comment = format!(":{padding}\n\n");
        let empty = event(kind, &format!(r#"{{"type":"ping","padding":"{padding}"}}"#));
        for (bytes, most, error) in [
            (comment, 32 * MIB, "more than 1048576 bytes without completing an event"),
            (empty, 64 * MIB, "33554432 bytes without adding to the answer"),
        ] {
            let script =
                vec![Act::Send(events(&says(kind, "Hé"))), Act::Repeat(bytes.into_bytes(), 10_000_000)];
            let outcome = bench.run(vec![script]).await;
            assert_eq!(outcome.told(), ("upstream_failed", "Hé", 3), "{}", outcome.error);
            assert!(outcome.error.contains(error), "{}", outcome.error);
            let sent = bench.upstream.sent();
            assert!(sent.iter().all(|sent| *sent < most), "{sent:?}");
        }
    }
}

#[tokio::test]
async fn i20_arguments_nested_too_deep_are_kept_as_text_and_can_be_read() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let nested = format!("{}1{}", r#"{\"a\":"#.repeat(120), "}".repeat(120));
        let call = calls(kind).replacen(r#"{\"at\":"#, &format!(r#"{{\"at\":{nested},\"b\":"#), 1);
        let script = vec![Act::Send(events(&format!("{call}{}", ends(kind))))];
        let outcome = bench.run(vec![script]).await;
        assert_eq!(outcome.told(), ("stop", "", 1), "{}", outcome.error);
        assert!(outcome.tools[0].starts_with(r#"t1 look "{\"at\":{\"a\":"#), "{:?}", outcome.tools);
    }
}

#[tokio::test]
async fn token_counts_of_a_failed_attempt_are_recorded() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let usage = match kind {
            Kind::OpenAi => r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#,
            Kind::Anthropic => {
                r#"{"type":"message_start","message":{"usage":{"input_tokens":3,"output_tokens":2}}}"#
            }
        };
        let cut = vec![Act::Send(events(&format!("{}{}", event(kind, usage), says(kind, "Hé"))))];
        let outcome = bench.run(vec![cut, vec![Act::Send(events(&words(kind)))]]).await;
        assert_eq!((outcome.told(), outcome.tokens), (("stop", "Héllo", 2), (3, 2)));
    }
}
