//! Tests with streams as the vendors document them. Each is read as a whole, byte by byte, and split at every
//! position, with the same result.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use outlast_core::{DEPTH_MAX, Piece, TextKind};
use serde_json::json;

use super::Arrived;
use super::anthropic::Messages;
use super::client::{Broken, CALL_BYTES_MAX, CALLS_MAX, Dialect, Form, Reading};
use super::openai::Completions;

/// What arrives when the bytes come in these chunks, one line for each item.
fn read<D: Dialect>(dialect: D, form: Form, chunks: Vec<Result<Bytes, Broken>>) -> Vec<String> {
    let reading = Reading::new(stream::iter(chunks).boxed(), form, dialect);
    let arrived: Vec<_> = futures_util::FutureExt::now_or_never(reading.collect()).expect("nothing waits");
    let mut lines: Vec<String> = Vec::new();
    let mut last = None;
    for arrived in arrived {
        match arrived {
            Ok(Arrived::Piece(Piece::Text { kind, text, .. })) => {
                if last == Some(kind) {
                    lines.last_mut().unwrap().push_str(&text);
                    continue;
                }
                last = Some(kind);
                let name = if kind == TextKind::Answer { "says" } else { "thinks" };
                lines.push(format!("{name} {text}"));
                continue;
            }
            Ok(Arrived::Piece(Piece::ToolCall { id, name, input })) => {
                lines.push(format!("calls {id} {name} {input}"))
            }
            Ok(Arrived::Piece(Piece::Signature { signature })) => lines.push(format!("signs {signature}")),
            Ok(Arrived::Piece(Piece::Usage { input_tokens, output_tokens })) => {
                lines.push(format!("usage {input_tokens} {output_tokens}"));
            }
            Ok(Arrived::Piece(other)) => panic!("models do not send {other:?}"),
            Ok(Arrived::Sign | Arrived::Ending) => continue,
            Ok(Arrived::Finished { reason }) => lines.push(format!("finished {reason}")),
            Err(failure) => lines.push(format!("failed {} {}", failure.class.code(), failure.message)),
        }
        last = None;
    }
    lines
}

fn chunks(bytes: &[u8], size: usize) -> Vec<Result<Bytes, Broken>> {
    bytes.chunks(size).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect()
}

/// What a recorded stream contains, however it is split.
fn recorded<D: Dialect + Default>(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let whole = read(D::default(), Form::Events, chunks(bytes, bytes.len()));
    for size in [1, 2, 3, 7, 64] {
        assert_eq!(read(D::default(), Form::Events, chunks(bytes, size)), whole, "in chunks of {size}");
    }
    let returns = text.replace('\n', "\r\n");
    assert_eq!(read(D::default(), Form::Events, chunks(returns.as_bytes(), 5)), whole, "with CRLF");
    for cut in 0..bytes.len() {
        let (head, tail) = (Bytes::copy_from_slice(&bytes[..cut]), Bytes::copy_from_slice(&bytes[cut..]));
        assert_eq!(read(D::default(), Form::Events, vec![Ok(head), Ok(tail)]), whole, "cut at {cut}");
    }
    whole
}

fn openai(text: &str) -> Vec<String> {
    recorded::<Completions>(text)
}

fn anthropic(text: &str) -> Vec<String> {
    recorded::<Messages>(text)
}

/// Chunks of an answer, each with one choice.
fn choices(choices: &[&str]) -> String {
    let chunks = choices.iter().map(|choice| format!("data: {{\"choices\":[{choice}]}}\n\n"));
    chunks.chain(["data: [DONE]\n\n".to_owned()]).collect()
}

#[test]
fn openai_plain_with_usage_in_the_last_chunk() {
    let lines = openai(include_str!("recorded/openai-plain.txt"));
    assert_eq!(lines, ["says Hello, wörld!", "usage 19 10", "finished stop"]);
}

#[test]
fn openai_parallel_tools() {
    let lines = openai(include_str!("recorded/openai-parallel-tools.txt"));
    assert_eq!(
        lines,
        [
            r#"calls call_abc get_weather {"location":"Paris, France"}"#,
            r#"calls call_def get_weather {"location":"Bogotá, Colombia"}"#,
            "usage 82 34",
            "finished tool_calls"
        ]
    );
}

#[test]
fn openai_refusal_is_shown_as_the_answer() {
    let lines = openai(include_str!("recorded/openai-refusal.txt"));
    assert_eq!(lines, ["says I'm sorry, I can't assist with that.", "finished stop"]);
}

#[test]
fn openrouter_comments_reasoning_and_usage() {
    let lines = openai(include_str!("recorded/openrouter-reasoning.txt"));
    assert_eq!(lines, ["thinks Nine is odd.", "says No, 9 is odd.", "usage 14 21", "finished stop"]);
}

#[test]
fn openrouter_error_in_the_middle() {
    let lines = openai(include_str!("recorded/openrouter-error.txt"));
    assert_eq!(lines, ["says The tallest", "failed upstream_failed upstream failed: Provider disconnected"]);
    let limited = openai("data: {\"error\":{\"code\":429,\"message\":\"slow down\"},\"choices\":[]}\n\n");
    assert_eq!(limited, ["failed upstream_rate_limited upstream failed: slow down"]);
    let wrong = openai("data: {\"error\":{\"code\":400,\"message\":\"bad\"}}\n\n");
    assert_eq!(wrong, ["failed upstream_invalid_request upstream failed: bad"]);
    let silent = openai(&choices(&[r#"{"delta":{},"finish_reason":"error"}"#]));
    assert_eq!(silent, ["failed upstream_failed upstream failed: no reason given"]);
}

#[test]
fn deepseek_reasoning_content_and_usage_in_every_chunk() {
    let lines = openai(include_str!("recorded/deepseek-reasoning.txt"));
    assert_eq!(lines, ["thinks Let me see.", "says 42", "usage 7 5", "finished stop"]);
}

#[test]
fn interleaved_calls_are_assembled_by_index() {
    let lines = openai(include_str!("recorded/openai-interleaved-tools.txt"));
    assert_eq!(
        lines,
        [
            "says Looking.",
            r#"calls call_1a read {"path":"a"}"#,
            r#"calls call_2b read {"path":"b"}"#,
            "finished tool_calls"
        ]
    );
}

#[test]
fn calls_without_distinct_indexes_are_distinguished_by_their_ids() {
    for index in ["", r#""index":0,"#] {
        let call = |id: &str, path: &str| {
            format!(
                r#"{{"delta":{{"tool_calls":[{{{index}"id":"{id}","function":{{"name":"read","arguments":"{{\"path\":\"{path}\"}}"}}}}]}}}}"#
            )
        };
        let (a, b) = (call("a", "x"), call("b", "y"));
        let lines = openai(&choices(&[&a, &b, r#"{"delta":{},"finish_reason":"tool_calls"}"#]));
        let expected =
            [r#"calls a read {"path":"x"}"#, r#"calls b read {"path":"y"}"#, "finished tool_calls"];
        assert_eq!(lines, expected, "index {index:?}");
    }
}

#[test]
fn a_call_without_an_id_is_numbered_and_missing_arguments_are_empty() {
    let lines = openai(&choices(&[
        r#"{"delta":{"tool_calls":[{"index":0,"function":{"name":"now"}}]}}"#,
        r#"{"delta":{"tool_calls":[{"index":1,"id":null,"function":{"name":"say","arguments":"not { json"}}]}}"#,
        r#"{"delta":{"tool_calls":[{"index":2,"function":{"name":"add","arguments":{"a":1}}}]}}"#,
        r#"{"delta":{},"finish_reason":"tool_calls"}"#,
    ]));
    assert_eq!(
        lines,
        [
            "calls call_1 now {}",
            r#"calls call_2 say "not { json""#,
            r#"calls call_3 add {"a":1}"#,
            "finished tool_calls"
        ]
    );
    let nameless = openai(&choices(&[
        r#"{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}"#,
        r#"{"delta":{},"finish_reason":"tool_calls"}"#,
    ]));
    assert_eq!(nameless, ["failed upstream_failed upstream sent a tool call without a name"]);
}

#[test]
fn i20_arguments_that_are_nested_too_deep_are_kept_as_text() {
    let nested = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    for (levels, is_text) in [(DEPTH_MAX, false), (DEPTH_MAX + 1, true), (127, true), (10_000, true)] {
        let arguments = nested(levels);
        let chunk = json!({"delta": {"tool_calls": [
            {"index": 0, "id": "a", "function": {"name": "t", "arguments": arguments}}]}});
        let text = choices(&[&chunk.to_string(), r#"{"delta":{},"finish_reason":"tool_calls"}"#]);
        let chunks = chunks(text.as_bytes(), 65_536);
        let lines = read(Completions::default(), Form::Events, chunks);
        let shown = if is_text { json!(arguments).to_string() } else { arguments };
        assert_eq!(
            lines,
            [format!("calls a t {shown}"), "finished tool_calls".to_owned()],
            "{levels} levels"
        );
    }
}

#[test]
fn an_id_that_cannot_be_used_in_a_path_is_replaced() {
    for id in [".", "..", "a\u{7f}", &"x".repeat(257)] {
        let chunk = json!({"delta": {"tool_calls": [{"index": 0, "id": id, "function": {"name": "t"}}]},
            "finish_reason": "tool_calls"});
        assert_eq!(openai(&choices(&[&chunk.to_string()]))[0], "calls call_1 t {}", "{id:?}");
    }
}

#[test]
fn alternating_thinking_and_text_are_passed_on_in_small_batches() {
    let pair = r#"{"delta":{"reasoning":"r","content":"c"}}"#;
    let text = choices(&vec![pair; 10_000]);
    let chunks = stream::iter([Ok(Bytes::from(text))]).boxed();
    let mut reading = Reading::new(chunks, Form::Events, Completions::default());
    let arrived = futures_util::FutureExt::now_or_never(reading.next()).unwrap().unwrap().unwrap();
    assert!(matches!(arrived, Arrived::Piece(Piece::Text { chunks: 1, .. })), "{arrived:?}");
    assert!(reading.ready() < 300, "{} pieces are ready at once", reading.ready());
}

#[test]
fn a_call_is_passed_on_when_the_next_begins() {
    let begin = |index: u64, arguments: &str| {
        format!(
            r#"data: {{"choices":[{{"delta":{{"tool_calls":[{{"index":{index},"id":"c{index}","function":{{"name":"t","arguments":"{arguments}"}}}}]}}}}]}}"#
        )
    };
    let cut = format!("{}\n\n{}\n\n", begin(0, "{}"), begin(1, "{"));
    let lines = openai(&cut);
    assert_eq!(lines, ["calls c0 t {}", "failed upstream_failed upstream response ended too early"]);
}

#[test]
fn endless_arguments_and_endless_calls_are_refused_in_bounded_memory() {
    let piece = "x".repeat(64 * 1024);
    let endless = |count: usize, chunk: &dyn Fn(usize) -> String| {
        let bytes = (0..count).map(|n| Ok(Bytes::from(format!("data: {}\n\n", chunk(n))))).collect();
        read(Completions::default(), Form::Events, bytes)
    };
    let arguments = |_| {
        format!(
            r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,"id":"a","function":{{"name":"t","arguments":"{piece}"}}}}]}}}}]}}"#
        )
    };
    let message = format!("failed answer_too_long a tool call has more than {CALL_BYTES_MAX} bytes");
    assert_eq!(endless(1024, &arguments), [message]);
    let call = |n| {
        format!(
            r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":{n},"id":"c{n}","function":{{"name":"t","arguments":"{{}}"}}}}]}}}}]}}"#
        )
    };
    let lines = endless(10_000, &call);
    assert_eq!(lines.len(), CALLS_MAX + 1);
    assert!(lines[CALLS_MAX].starts_with("failed answer_too_long"), "{}", lines[CALLS_MAX]);
}

#[test]
fn a_tool_call_has_a_limit_before_its_arguments_begin() {
    let message = format!("failed answer_too_long a tool call has more than {CALL_BYTES_MAX} bytes");
    let long = "x".repeat(CALL_BYTES_MAX / 4);
    let block = |n: usize| {
        format!(
            "data: {{\"type\":\"content_block_start\",\"index\":{n},\"content_block\":{{\"type\":\"tool_use\",\"id\":\"{long}\",\"name\":\"t\"}}}}\n\n"
        )
    };
    let text: String = (0..5).map(block).collect();
    assert_eq!(read(Messages::default(), Form::Events, chunks(text.as_bytes(), 65_536)), [message]);
}

#[test]
fn an_answer_that_is_one_document_is_accepted() {
    let document = include_str!("recorded/openai-whole.json");
    let lines = read(Completions::default(), Form::Document, chunks(document.as_bytes(), 9));
    assert_eq!(
        lines,
        ["says Looking.", r#"calls call_abc read {"path":"a"}"#, "usage 19 10", "finished tool_calls"]
    );
    let error = br#"{"error":{"code":502,"message":"no provider"}}"#;
    let lines = read(Completions::default(), Form::Document, chunks(error, 9));
    assert_eq!(lines, ["failed upstream_failed upstream failed: no provider"]);
    let cut = vec![Ok(Bytes::from_static(b"{\"choices\":")), Err(Broken::Connection)];
    let lines = read(Completions::default(), Form::Document, cut);
    assert_eq!(lines, ["failed upstream_failed the connection to the upstream broke"]);
    let lines = read(Messages::default(), Form::Document, chunks(b"{}", 9));
    let message = "upstream responded with a single document instead of a stream";
    assert_eq!(lines, [format!("failed upstream_invalid_request {message}")]);
}

#[test]
fn only_the_first_choice_is_read_and_odd_fields_are_tolerated() {
    let lines = openai(&choices(&[
        r#"{"index":1,"delta":{"content":"other"}}"#,
        r#"{"index":0,"delta":{"role":"assistant","content":null,"annotations":[],"audio":{"x":[1]}},"logprobs":null}"#,
        r#"{"index":0,"delta":{"content":"one"},"finish_reason":""}"#,
        r#"{"index":0,"delta":null,"finish_reason":"stop","native_finish_reason":"STOP"}"#,
    ]));
    assert_eq!(lines, ["says one", "finished stop"]);
    let odd = "data: {\"choices\":null,\"usage\":{\"prompt_tokens\":null,\"completion_tokens\":-1}}\n\n";
    let odd = format!("{odd}{}", choices(&[r#"{"finish_reason":"stop"}"#]));
    assert_eq!(openai(&odd), ["usage 0 0", "finished stop"]);
}

#[test]
fn an_answer_with_a_finish_reason_is_complete_however_the_body_ends() {
    let finish = Bytes::from_static(
        b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n",
    );
    let broke = vec![Ok(finish), Err(Broken::Connection)];
    assert_eq!(read(Completions::default(), Form::Events, broke), ["says a", "finished stop"]);
    let done = openai("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n");
    assert_eq!(done, ["says a", "failed upstream_failed upstream response ended without a finish reason"]);
}

#[test]
fn anthropic_plain_with_ping_and_cached_tokens() {
    let lines = anthropic(include_str!("recorded/anthropic-plain.txt"));
    assert_eq!(lines, ["says Hello, wörld!", "usage 125 15", "finished end_turn"]);
}

#[test]
fn anthropic_thinking_then_tools() {
    let lines = anthropic(include_str!("recorded/anthropic-thinking-tools.txt"));
    assert_eq!(
        lines,
        [
            "thinks I should look up both.",
            "signs EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds",
            "says Let me check.",
            r#"calls toolu_01 get_weather {"location":"San Francisco, CA"}"#,
            "calls toolu_02 now {}",
            "usage 472 89",
            "finished tool_use"
        ]
    );
}

#[test]
fn anthropic_calls_are_passed_on_when_their_block_ends() {
    let whole = include_str!("recorded/anthropic-thinking-tools.txt");
    let first = whole.match_indices("event: content_block_start").nth(3).unwrap().0;
    let lines = anthropic(&whole[..first]);
    assert_eq!(
        lines[3..],
        [
            r#"calls toolu_01 get_weather {"location":"San Francisco, CA"}"#,
            "usage 472 2",
            "failed upstream_failed upstream response ended too early"
        ]
    );
}

#[test]
fn anthropic_overloaded_in_the_middle() {
    let lines = anthropic(include_str!("recorded/anthropic-overloaded.txt"));
    assert_eq!(lines, ["says Hel", "usage 25 1", "failed upstream_failed upstream failed: Overloaded"]);
    let error = |kind: &str| {
        anthropic(&format!(
            "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"m\"}}}}\n\n"
        ))
    };
    assert_eq!(error("rate_limit_error"), ["failed upstream_rate_limited upstream failed: m"]);
    assert_eq!(error("invalid_request_error"), ["failed upstream_invalid_request upstream failed: m"]);
    assert_eq!(error("api_error"), ["failed upstream_failed upstream failed: m"]);
}

#[test]
fn anthropic_unknown_events_blocks_and_deltas_are_ignored() {
    let lines = anthropic(include_str!("recorded/anthropic-unknown.txt"));
    // Thinking that the provider does not show is known: it goes back as it came.
    let hidden = "signs redacted:EmwKAhgBEgy3va3pzix";
    assert_eq!(lines, [hidden, "says Found it.", "usage 30 12", "finished refusal"]);
}

#[test]
fn anthropic_without_a_stop_reason_is_incomplete() {
    let whole = include_str!("recorded/anthropic-plain.txt");
    let cut = &whole[..whole.find("event: message_delta").unwrap()];
    let broke = "failed upstream_failed upstream response ended too early";
    assert_eq!(anthropic(cut), ["says Hello, wörld!", "usage 125 1", broke], "token counts are reported");
    let stopped = format!("{cut}event: message_stop\ndata: {{\"type\":\"message_stop\"}}\n\n");
    let lines = anthropic(&stopped);
    assert_eq!(lines.last().unwrap(), "failed upstream_failed upstream response ended without a stop reason");
}
