//! Keys go to the upstream and nowhere else, even if it repeats them.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};

use outlast_engine::{Secret, Settings};

use crate::bench::{Bench, KINDS, Kind};
use crate::server::{Act, document, events};
use crate::streams::{event, says};

/// The API key of every bench.
pub(crate) const KEY: &str = "sk-canary-7f3a9c5e1b";
/// A second one, in a header.
const HEADER: &str = "canary-header-2d8b6f";

/// Everything that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Ways in which an upstream can repeat a key.
fn echoes(kind: Kind, key: &str) -> Vec<Vec<u8>> {
    let far = "x".repeat(490);
    let named = match kind {
        Kind::OpenAi => format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"{key}"}}]}}"#),
        Kind::Anthropic => format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{key}"}}}}"#),
    };
    let error = |message: &str| {
        event(kind, &format!(r#"{{"type":"error","error":{{"code":400,"message":"{message}"}}}}"#))
    };
    vec![
        document(401, "", &format!(r#"{{"error":{{"message":"Incorrect API key provided: {key}."}}}}"#)),
        document(401, "", &format!("<p>{key}</p>")),
        document(503, "", &format!(r#"{{"error":"{far}{key}"}}"#)),
        document(429, &format!("x-key: {key}\r\nretry-after: {key}\r\n"), key),
        document(302, &format!("location: http://127.0.0.1:1/?key={key}\r\n"), ""),
        document(200, &format!("content-encoding: {key}\r\n"), ""),
        events(&error(&format!("bad key {key}"))),
        events(&format!("{}{}", says(kind, "Hé"), error(&format!("{far}{key}")))),
        events(&event(kind, &format!("{key} is not JSON"))),
        events(&event(kind, &named)),
        format!("HTTP/1.1 200 {key}\r\n{key}\r\n\r\n").into_bytes(),
    ]
}

#[tokio::test]
async fn i14_a_key_that_the_upstream_repeats_is_in_no_event_error_or_log_line() {
    let log = Log::default();
    let written = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || written.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    tracing::info!("logging works");
    for kind in KINDS {
        let headers = BTreeMap::from([("x-team".to_owned(), Secret::new(format!("Token {HEADER}")))]);
        let bench = Bench::with(kind, Settings::default(), headers).await;
        for key in [KEY, HEADER] {
            for echo in echoes(kind, key) {
                let outcome = bench.run(vec![vec![Act::Send(echo.clone())]]).await;
                let sent = bench.upstream.requests().concat();
                assert!(sent.contains(KEY) && sent.contains(HEADER), "both are sent to the upstream");
                let told = format!("{outcome:?}");
                let encoded: Vec<u8> = outcome.entries.iter().flat_map(outlast_core::encode).collect();
                for text in [told, String::from_utf8(encoded).unwrap()] {
                    assert!(!text.contains("canary"), "{}:\n{text}", String::from_utf8_lossy(&echo));
                }
            }
        }
    }
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("logging works") && !logged.contains("canary"), "{logged}");
}

#[tokio::test]
async fn b2_each_vendor_is_called_at_its_path_with_its_headers() {
    for (kind, path, header) in [
        (Kind::OpenAi, "POST /chat/completions HTTP/1.1", format!("authorization: Bearer {KEY}")),
        (Kind::Anthropic, "POST /v1/messages HTTP/1.1", format!("x-api-key: {KEY}")),
    ] {
        let headers = BTreeMap::from([("X-Title".to_owned(), Secret::new("Tea"))]);
        let bench = Bench::with(kind, Settings::default(), headers).await;
        bench.run(vec![vec![Act::Send(events(&crate::streams::words(kind)))]]).await;
        let request = bench.upstream.requests().remove(0);
        assert!(request.starts_with(path), "{request}");
        for wanted in [header.as_str(), "x-title: Tea", "accept: text/event-stream"] {
            assert!(request.contains(wanted), "{wanted} is not in {request}");
        }
        let version = request.contains("anthropic-version: 2023-06-01");
        assert_eq!(version, kind == Kind::Anthropic);
    }
}
