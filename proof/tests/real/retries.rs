//! Failing upstreams: what is retried, what is shown, what is kept.

use outlast_proof::check::Case;
use outlast_proof::reader::Reader;
use outlast_proof::script::{count_from_first, markers};
use outlast_proof::sse::Frame;
use outlast_proof::stored::Stored;
use serde_json::{Value, json};

use crate::{both, both_with, soon};

/// Every transient fault, in the upstream's notation.
const PASSING: [&str; 5] =
    ["reset_after=7", "end_after=7", "error_after=7", "fail=503", "fail=429 retry_after=1"];

fn text_of(document: &Value) -> String {
    let parts = document["contentParts"].as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

fn payloads(stored: &Stored, kind: &str) -> anyhow::Result<Vec<Value>> {
    let wanted = stored.log.iter().filter(|frame| frame.kind == kind);
    wanted.map(|frame: &Frame| Ok(frame.event()?["payload"].clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_a_transient_failure_is_retried_and_the_text_is_shown_once() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    for fault in PASSING {
        let script = upstream.script(30).rate(1_000).fault(&format!("{fault} fails=2"));
        let started = api.play(&script).await?;
        let recording = Reader::of_generation(api, &started.generation).record(soon()).await;
        let document = api.generation(&started.generation).await?;
        assert_eq!(document["attempt"], 3, "{fault}: {document}");
        assert_eq!(upstream.calls(&script).await?.calls, 3, "{fault}");
        let stored = Stored::read(api, &started.conversation).await?;
        let waits = payloads(&stored, "retry.scheduled")?;
        assert_eq!(waits.len(), 2, "{fault}: each attempt is recorded");
        let asked_for = if fault.contains("retry_after") { 1_000 } else { 0 };
        assert!(waits.iter().all(|wait| wait["delayMs"].as_u64() >= Some(asked_for)), "{waits:?}");
        let shown = if fault.starts_with("fail=") { 0 } else { 2 };
        assert_eq!(payloads(&stored, "attempt.retracted")?.len(), shown, "{fault}");
        let attempts = payloads(&stored, "chat.started")?;
        let attempts: Vec<_> = attempts.iter().map(|started| started["attempt"].as_u64()).collect();
        assert_eq!(attempts, [Some(1), Some(2), Some(3)]);
        Case::completed(&started, 30, vec![recording]).check(api).await?.clean()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_i6_the_third_failure_is_the_end_and_the_partial_answer_is_kept() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    for fault in ["reset_after=7", "end_after=7", "error_after=7", "fail=503"] {
        let script = upstream.script(30).rate(1_000).fault(fault);
        let started = api.play(&script).await?;
        let recording = Reader::of_generation(api, &started.generation).record(soon()).await;
        let document = api.generation(&started.generation).await?;
        assert_eq!(document["status"], "error", "{fault}");
        assert!(document["errorMessage"].as_str().is_some_and(|message| !message.is_empty()));
        assert_eq!(upstream.calls(&script).await?.calls, 3, "1 + 2 calls at most");
        let kept = count_from_first(&text_of(&document)).map_err(anyhow::Error::msg)?;
        assert_eq!(kept, if fault == "fail=503" { 0 } else { 7 }, "{fault}");
        Case::ended(&started, 30, &["error"], vec![recording]).check(api).await?.clean()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_a_wrong_request_is_not_retried() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    for status in [400, 401, 404] {
        let script = upstream.script(30).fault(&format!("fail={status}"));
        let started = api.play(&script).await?;
        let document = api.until_ended(&started.generation).await?;
        assert_eq!((&document["status"], &document["attempt"]), (&json!("error"), &json!(1)));
        assert_eq!(upstream.calls(&script).await?.calls, 1);
        Case::ended(&started, 30, &["error"], Vec::new()).check(api).await?.clean()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn b4_a_silent_upstream_ends_as_timed_out() -> anyhow::Result<()> {
    let (server, upstream) = both_with("[timeouts]\nupstream_idle = \"400ms\"").await?;
    let script = upstream.script(30).rate(1_000).fault("hang_after=5");
    let started = server.api().play(&script).await?;
    let document = server.api().until_ended(&started.generation).await?;
    assert_eq!(document["endReason"], "upstream_timed_out");
    assert!(document["errorMessage"].as_str().is_some_and(|message| message.contains("timed out")));
    let calls = upstream.calls(&script).await?;
    assert_eq!((calls.calls, calls.live), (3, 0));
    Case::ended(&started, 30, &["error"], Vec::new()).check(server.api()).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn g7_a_failed_generation_is_retried_without_its_partial_answer() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let script = upstream.script(30).rate(1_000).fault("reset_after=7 fails=3");
    let failed = api.play(&script).await?;
    assert_eq!(api.until_ended(&failed.generation).await?["status"], "error");
    let path = format!("/v1/generations/{}/retry", failed.generation);
    let body = json!({"mode": "retry", "requestId": "again"});
    let again = api.post(&path, &body).await?.started()?;
    assert_eq!((&again.conversation, &again.message), (&failed.conversation, &failed.message));
    assert_eq!(api.post(&path, &body).await?.started()?, again, "o5: a retry has a request id too");
    assert_eq!(api.until_ended(&again.generation).await?["status"], "completed");
    let view = api.view(&failed.conversation).await?;
    let messages = view["messages"].as_array().cloned().unwrap_or_default();
    assert_eq!(messages.len(), 2, "one question and one answer: {messages:?}");
    Case::completed(&again, 30, Vec::new()).check(api).await?.clean()?;
    api.post(&path, &json!({"mode": "retry"})).await?.problem(409, "not_retryable")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g7_a_failed_generation_is_continued_after_its_partial_answer() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let script = upstream.script(30).rate(1_000).fault("reset_after=7 fails=3");
    let failed = api.play(&script).await?;
    assert_eq!(api.until_ended(&failed.generation).await?["status"], "error");
    let path = format!("/v1/generations/{}/retry", failed.generation);
    let more = api.post(&path, &json!({"mode": "continue"})).await?.started()?;
    assert_eq!(api.until_ended(&more.generation).await?["status"], "completed");
    let view = api.view(&failed.conversation).await?;
    let messages = view["messages"].as_array().cloned().unwrap_or_default();
    let contents: Vec<&str> = messages.iter().filter_map(|message| message["content"].as_str()).collect();
    assert_eq!(contents.len(), 3, "the question, the partial answer, the rest: {messages:?}");
    assert_eq!(count_from_first(contents[1]), Ok(7), "the partial answer is kept");
    assert!(!markers(contents[2]).map_err(anyhow::Error::msg)?.is_empty());
    Ok(())
}
