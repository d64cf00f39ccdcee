//! The same start, sent repeatedly.

use std::collections::BTreeSet;

use outlast_proof::api::{Api, Started};
use outlast_proof::check::Case;
use outlast_proof::stored::Stored;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::both;

/// Sends a body this many times at once, and returns the distinct ids in the responses.
async fn send_at_once(api: &Api, body: &Value, times: usize) -> anyhow::Result<Vec<Started>> {
    let mut starts = JoinSet::new();
    for _ in 0..times {
        let (api, body) = (api.clone(), body.clone());
        starts.spawn(async move { api.post("/v1/generations", &body).await?.started() });
    }
    let answers: Vec<Started> = starts.join_all().await.into_iter().collect::<Result<_, _>>()?;
    let distinct: BTreeSet<String> = answers.iter().map(|started| format!("{started:?}")).collect();
    assert_eq!((answers.len(), distinct.len()), (times, 1), "{distinct:?}");
    Ok(answers)
}

#[tokio::test(flavor = "multi_thread")]
async fn o5_i4_fifty_identical_starts_at_once_start_one_generation() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let script = upstream.script(20).rate(100);
    let body = json!({"content": script.to_string(), "requestId": "once"});
    let started = send_at_once(api, &body, 50).await?.remove(0);
    api.until_ended(&started.generation).await?;
    assert_eq!(upstream.calls(&script).await?.calls, 1);
    Case::completed(&started, 20, Vec::new()).check(api).await?.clean()?;

    let listed = api.get("/v1/conversations").await?.expect(200)?;
    assert_eq!(listed.body["data"].as_array().map(Vec::len), Some(1), "{}", listed.body);
    let repeated = api.post("/v1/generations", &body).await?.started()?;
    assert_eq!(repeated, started, "o5: even after the end");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn o5_i4_fifty_identical_starts_at_once_in_a_conversation_start_one_generation() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let conversation = api.post("/v1/conversations", &json!({})).await?.expect(201)?.text("id")?;
    let script = upstream.script(20).rate(100);
    let body = json!({"content": script.to_string(), "requestId": "once", "conversationId": conversation});
    let started = send_at_once(api, &body, 50).await?.remove(0);
    assert_eq!(started.conversation, conversation);
    api.until_ended(&started.generation).await?;
    assert_eq!(upstream.calls(&script).await?.calls, 1);
    Case::completed(&started, 20, Vec::new()).check(api).await?.clean()?;
    let stored = Stored::read(api, &conversation).await?;
    assert_eq!(stored.log.iter().filter(|frame| frame.kind == "message.added").count(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn o5_the_same_request_with_another_body_is_a_conflict() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let body = json!({"content": upstream.script(3).to_string(), "requestId": "r"});
    let started = api.post("/v1/generations", &body).await?.started()?;
    let other = json!({"content": upstream.script(4).to_string(), "requestId": "r"});
    let refused = api.post("/v1/generations", &other).await?.problem(409, "idempotency_conflict")?;
    assert_eq!(refused.body["generationId"], started.generation.as_str());
    api.until_ended(&started.generation).await?;
    api.post("/v1/generations", &other).await?.problem(409, "idempotency_conflict")?;
    Case::completed(&started, 3, Vec::new()).check(api).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn o5_the_header_idempotency_key_means_the_same_as_request_id() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let content = upstream.script(3).to_string();
    let with_header = |content: &str| {
        let request = api.request(Method::POST, "/v1/generations").header("idempotency-key", "k");
        api.send(request.json(&json!({"content": content})))
    };
    let started = with_header(&content).await?.started()?;
    assert_eq!(with_header(&content).await?.started()?, started);
    let named = json!({"content": content, "requestId": "k"});
    assert_eq!(api.post("/v1/generations", &named).await?.started()?, started);
    with_header("something else").await?.problem(409, "idempotency_conflict")?;
    let document = api.until_ended(&started.generation).await?;
    assert_eq!(document["requestId"], "k");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_an_acknowledged_start_survives_an_immediate_kill() -> anyhow::Result<()> {
    let (mut server, upstream) = both().await?;
    for _ in 0..5 {
        let started = server.api().play(&upstream.script(10)).await?;
        server.crash().await?;
        server.api().until_ended(&started.generation).await?;
        Case::completed(&started, 10, Vec::new()).check(server.api()).await?.clean()?;
    }
    Ok(())
}
