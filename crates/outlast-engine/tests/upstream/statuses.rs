//! Error statuses, redirects, and how long to wait.

use outlast_core::{Entry, Event};

use crate::bench::{Bench, KINDS, Kind, user};
use crate::server::{Act, document, events};
use crate::streams::words;

fn refusal(kind: Kind, status: u16, headers: &str, error: &str) -> Act {
    let body = match kind {
        Kind::OpenAi => format!(r#"{{"error":{{"message":"{error}","type":null,"code":null}}}}"#),
        Kind::Anthropic => format!(r#"{{"type":"error","error":{{"type":"x","message":"{error}"}}}}"#),
    };
    Act::Send(document(status, &format!("content-type: application/json\r\n{headers}"), &body))
}

#[tokio::test]
async fn g11_transient_statuses_are_retried() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let whole = vec![Act::Send(events(&words(kind)))];
        for status in [408, 425, 429, 500, 502, 503, 504, 529] {
            let failing = vec![refusal(kind, status, "", "later")];
            let outcome = bench.run(vec![failing.clone(), failing.clone(), whole.clone()]).await;
            assert_eq!(outcome.told(), ("stop", "Héllo", 3), "{kind:?} {status}");
            let outcome = bench.run(vec![failing]).await;
            let code = if status == 429 { "upstream_rate_limited" } else { "upstream_failed" };
            assert_eq!(outcome.told(), (code, "", 3), "{kind:?} {status}");
            assert_eq!(outcome.error, format!("upstream responded with {status}: later"));
        }
    }
}

#[tokio::test]
async fn g11_permanent_statuses_are_not_retried() {
    let cases = [
        (400, "bad temperature", "upstream_invalid_request"),
        (401, "no such key", "upstream_invalid_request"),
        (404, "no such model", "upstream_invalid_request"),
        (409, "conflict", "upstream_invalid_request"),
        (400, "blocked by content_filter", "upstream_refused"),
        (400, "prompt is too long: 9 tokens > 8 maximum", "context_too_long"),
        (413, "too large", "context_too_long"),
    ];
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        for (status, error, code) in cases {
            let outcome = bench.run(vec![vec![refusal(kind, status, "", error)]]).await;
            assert_eq!(outcome.told(), (code, "", 1), "{kind:?} {status}");
        }
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    for kind in KINDS {
        let other = Bench::new(kind).await;
        other.upstream.play(vec![vec![Act::Send(events(&words(kind)))]]);
        let bench = Bench::new(kind).await;
        for status in [301, 302, 303, 307, 308] {
            let to = format!("location: {}/elsewhere\r\n", other.upstream.base_url);
            let outcome = bench.run(vec![vec![Act::Send(document(status, &to, ""))]]).await;
            assert_eq!(outcome.told(), ("upstream_invalid_request", "", 1));
        }
        assert!(other.upstream.requests().is_empty(), "the key would have been sent to another host");
    }
}

#[tokio::test]
async fn an_unreadable_response_is_not_retried() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let cases = [
            (
                "content-encoding: gzip\r\ncontent-type: text/event-stream\r\n",
                "upstream compressed its response with gzip",
            ),
            ("content-type: text/html\r\n", "upstream responded with a web page"),
        ];
        for (headers, error) in cases {
            let outcome = bench.run(vec![vec![Act::Send(document(200, headers, "\u{1f}whatever"))]]).await;
            assert_eq!(outcome.told(), ("upstream_invalid_request", "", 1));
            assert!(outcome.error.contains(error), "{}", outcome.error);
        }
        assert!(
            !bench.upstream.requests()[0].to_lowercase().contains("accept-encoding"),
            "no compression was requested"
        );
    }
}

#[tokio::test]
async fn a_response_that_is_not_http_is_retried() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let huge = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(2 * 1024 * 1024));
        for bytes in [b"SSH-2.0-OpenSSH_9\r\n".to_vec(), b"HTTP/1.1 abc\r\n\r\n".to_vec(), huge.into_bytes()]
        {
            assert_eq!(bench.run(vec![vec![Act::Send(bytes)]]).await.told(), ("upstream_failed", "", 3));
        }
    }
}

/// How long the first retry waits when the response has this header.
async fn wait_ms(header: &str) -> u64 {
    let bench = Bench::new(Kind::OpenAi).await;
    let started = bench.start(vec![vec![refusal(Kind::OpenAi, 429, header, "slow down")]]).await;
    let mut follower = bench.engine.follow_generation(&user(), &started.generation, None).await.unwrap();
    loop {
        let batch = follower.next().await.unwrap().unwrap();
        let entries = batch.records().iter().map(|record| outlast_core::decode(&record.bytes).unwrap());
        let delay = |entry: Entry| match entry.event {
            Event::RetryScheduled { delay_ms, .. } => Some(delay_ms),
            _ => None,
        };
        if let Some(delay) = entries.into_iter().find_map(delay) {
            bench.engine.cancel(&user(), &started.generation).await.unwrap();
            return delay;
        }
    }
}

#[tokio::test]
async fn g11_every_form_of_retry_after_is_honoured_up_to_five_minutes() {
    assert_eq!(wait_ms("retry-after: 7\r\n").await, 7_000);
    assert_eq!(wait_ms("Retry-After: 0.5\r\n").await, 500);
    assert_eq!(wait_ms("retry-after-ms: 1234\r\nretry-after: 99\r\n").await, 1_234);
    let date = jiff_date(60);
    let wait = wait_ms(&format!("retry-after: {date}\r\n")).await;
    assert!((55_000..=60_000).contains(&wait), "{date}: {wait}");
    for endless in ["99999999", "18446744073709551616", "Fri, 01 Jan 2100 00:00:00 GMT"] {
        assert_eq!(wait_ms(&format!("retry-after: {endless}\r\n")).await, 300_000, "{endless}");
    }
    for nothing in ["-5", "soon", "", "NaN", "Thu, 01 Jan 1970 00:00:00 GMT"] {
        let wait = wait_ms(&format!("retry-after: {nothing}\r\n")).await;
        assert!(wait <= 1, "{nothing:?}: the usual wait, which is short here, not {wait}");
    }
}

/// The date this many seconds from now, in HTTP's format.
fn jiff_date(seconds: i64) -> String {
    let then = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
    jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&then).unwrap()
}
