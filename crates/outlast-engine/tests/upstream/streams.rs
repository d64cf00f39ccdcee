//! Streams of both vendors, and variations on the wire.

use crate::bench::{Bench, KINDS, Kind};
use crate::server::{Act, chunked, document, events};

/// One event of an answer.
pub(crate) fn event(kind: Kind, data: &str) -> String {
    match kind {
        Kind::OpenAi => format!("data: {data}\n\n"),
        Kind::Anthropic => format!("event: x\ndata: {data}\n\n"),
    }
}

/// Some text of an answer, without its end.
pub(crate) fn says(kind: Kind, text: &str) -> String {
    event(
        kind,
        &match kind {
            Kind::OpenAi => format!(r#"{{"choices":[{{"delta":{{"content":"{text}"}}}}]}}"#),
            Kind::Anthropic => {
                format!(
                    r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{text}"}}}}"#
                )
            }
        },
    )
}

/// A tool call, with its arguments in two pieces.
pub(crate) fn calls(kind: Kind) -> String {
    let chunks: [&str; 4] = match kind {
        Kind::OpenAi => [
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"t1","function":{"name":"look","arguments":""}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"at\":"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"é\"}"}}]}}]}"#,
            r#"{"choices":[]}"#,
        ],
        Kind::Anthropic => [
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"look","input":{}}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"at\":"}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"\"é\"}"}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
        ],
    };
    chunks.map(|chunk| event(kind, chunk)).concat()
}

/// The chunk with the finish reason.
pub(crate) fn reason(kind: Kind) -> String {
    match kind {
        Kind::OpenAi => event(kind, r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#),
        Kind::Anthropic => event(kind, r#"{"type":"message_delta","delta":{"stop_reason":"stop"}}"#),
    }
}

/// The end of an answer.
pub(crate) fn ends(kind: Kind) -> String {
    let last = match kind {
        Kind::OpenAi => "[DONE]",
        Kind::Anthropic => r#"{"type":"message_stop"}"#,
    };
    format!("{}{}", reason(kind), event(kind, last))
}

/// A complete answer of text that has a two-byte character.
pub(crate) fn words(kind: Kind) -> String {
    format!("{}{}{}", says(kind, "Hé"), says(kind, "llo"), ends(kind))
}

async fn is_understood(kind: Kind, bytes: Vec<u8>, how: &str) {
    let bench = Bench::new(kind).await;
    for act in [Act::Send(bytes.clone()), Act::Drip(bytes)] {
        let outcome = bench.run(vec![vec![act]]).await;
        assert_eq!(outcome.told(), ("stop", "Héllo", 1), "{kind:?} {how}: {}", outcome.error);
    }
}

#[tokio::test]
async fn every_line_ending_and_every_chunking_is_understood() {
    for kind in KINDS {
        let body = words(kind);
        for (name, ending) in [("LF", "\n"), ("CRLF", "\r\n"), ("CR", "\r")] {
            is_understood(kind, events(&body.replace('\n', ending)), name).await;
        }
        is_understood(kind, events(&body.replace(": ", ":")), "no space after the colon").await;
        is_understood(kind, events(&format!("\u{feff}{body}")), "a byte order mark").await;
        is_understood(kind, chunked(&body, 1), "chunks of one byte").await;
        is_understood(kind, chunked(&body.replace('\n', "\r\n"), 3), "split CRLF").await;
        is_understood(kind, document(200, "content-type: text/event-stream\r\n", &body), "a length").await;
        let comments = format!(": OPENROUTER PROCESSING\n\n{}", body.replace("\n\n", "\n\n: alive\n\n"));
        is_understood(kind, events(&comments), "comments").await;
        is_understood(kind, document(200, "", &body), "no content type").await;
    }
}

#[tokio::test]
async fn a_crlf_split_between_two_packets_is_one_line_end() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let text = words(kind).replace('\n', "\r\n");
        let bytes = events(&text);
        let cut = bytes.windows(4).rposition(|window| window == b"\r\n\r\n").unwrap() + 1;
        let (head, tail) = bytes.split_at(cut);
        let pause = std::time::Duration::from_millis(20);
        let script = vec![Act::Send(head.to_vec()), Act::Wait(pause), Act::Send(tail.to_vec())];
        assert_eq!(bench.run(vec![script]).await.told(), ("stop", "Héllo", 1));
    }
}

#[tokio::test]
async fn text_as_a_list_of_parts_is_understood() {
    let parts = r#"[{"type":"text","text":"Hé"},{"type":"thinking","thinking":[]},{"type":"text","text":"l\u006co"}]"#;
    let said = event(Kind::OpenAi, &format!(r#"{{"choices":[{{"delta":{{"content":{parts}}}}}]}}"#));
    is_understood(Kind::OpenAi, events(&format!("{said}{}", ends(Kind::OpenAi))), "parts").await;
}

#[tokio::test]
async fn an_answer_as_one_document_is_accepted_although_a_stream_was_requested() {
    let bench = Bench::new(Kind::OpenAi).await;
    let body = r#"{"choices":[{"message":{"role":"assistant","content":"Héllo"},"finish_reason":"stop"}]}"#;
    let answer = document(200, "content-type: application/json; charset=utf-8\r\n", body);
    assert_eq!(bench.run(vec![vec![Act::Send(answer)]]).await.told(), ("stop", "Héllo", 1));
}
