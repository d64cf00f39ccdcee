//! Background jobs and chat completions, as clients of OpenAI's API use them.

use anyhow::{Context, ensure};
use outlast_proof::api::{Answer, Api, Started};
use outlast_proof::check::Case;
use outlast_proof::reader::Reader;
use outlast_proof::script::{Script, count_from_first};
use outlast_proof::server::{Options, Server};
use outlast_proof::upstream::Upstream;
use outlast_proof::wait::{LONG, until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cancels::upstream_is_closed;
use crate::{both, soon};

/// A job that plays a script in a thread. The answer's id is derived from the thread's name.
fn job(script: &Script, thread: &str) -> Value {
    json!({
        "model": "default", "messages": [{"role": "user", "content": script.to_string()}],
        "background": true, "threadId": thread, "messageId": format!("answer-{thread}"),
    })
}

async fn complete(api: &Api, body: &Value) -> anyhow::Result<Answer> {
    api.post("/v1/chat/completions", body).await
}

async fn begin(api: &Api, body: &Value) -> anyhow::Result<String> {
    let answer = complete(api, body).await?.expect(202)?;
    ensure!(answer.body["status"] == "streaming", "a new job is {}", answer.body);
    answer.text("jobId")
}

async fn look(api: &Api, id: &str) -> anyhow::Result<Value> {
    Ok(api.get(&format!("/v1/jobs/{id}")).await?.expect(200)?.body)
}

async fn until_job(api: &Api, id: &str, what: &str, holds: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
    until(&format!("{id}: {what}"), LONG, async || {
        let job = look(api, id).await?;
        Ok(holds(&job).then_some(job))
    })
    .await
}

async fn until_chunks(api: &Api, id: &str, chunks: u64) -> anyhow::Result<Value> {
    until_job(api, id, "chunks", |job| job["chunksReceived"].as_u64() >= Some(chunks)).await
}

async fn started(api: &Api, id: &str) -> anyhow::Result<Started> {
    let document = api.generation(id).await?;
    let text = |field: &str| document[field].as_str().map(str::to_owned).context("an id");
    Ok(Started {
        generation: id.to_owned(),
        conversation: text("conversationId")?,
        message: text("messageId")?,
    })
}

/// The lines of a stream of chunks that the server has closed.
async fn chunks(api: &Api, body: &Value) -> anyhow::Result<Vec<Value>> {
    let response = api.request(Method::POST, "/v1/chat/completions").json(body).send().await?;
    Ok(lines(&response.error_for_status()?.text().await?))
}

fn lines(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| json!(data))).collect()
}

fn content(chunks: &[Value]) -> String {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
}

fn in_foreground(body: &Value) -> Value {
    let mut body = body.clone();
    body["background"] = json!(false);
    body["stream"] = json!(true);
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn b3_a_job_survives_a_kill_in_the_middle_and_is_complete() -> anyhow::Result<()> {
    let (mut server, upstream) = both().await?;
    let body = job(&upstream.script(120).rate(80), "tea");
    let id = begin(server.api(), &body).await?;
    let mut watching = JoinSet::new();
    watching.spawn(Reader::of_job(server.api(), &id).drops_after(15, 7).record(soon()));
    let first = until_chunks(server.api(), &id, 20).await?;
    let seen = first["chunksReceived"].as_u64().context("a count")?;
    let second = until_chunks(server.api(), &id, seen + 1).await?;
    let text = |job: &Value| job["content"].as_str().unwrap_or_default().to_owned();
    assert!(text(&second).starts_with(&text(&first)), "the content grows while the job runs");
    assert!(count_from_first(&text(&first)).is_ok_and(|tokens| tokens >= 20), "{first}");

    server.crash().await?;
    let api = server.api();
    let ended = until_job(api, &id, "its end", |job| job["status"] != "streaming").await?;
    assert_eq!((&ended["status"], &ended["error"]), (&json!("complete"), &json!(null)));
    assert_eq!((&ended["threadId"], &ended["messageId"]), (&json!("tea"), &json!("answer-tea")));
    assert_eq!(count_from_first(&text(&ended)), Ok(120));
    let view = api.view("tea").await?;
    assert_eq!(view["messages"][1]["id"], "answer-tea", "the message has the chosen id: {view}");
    assert_eq!(begin_again(api, &body).await?, (id.clone(), "complete".to_owned()));
    let whole = chunks(api, &in_foreground(&body)).await?;
    assert_eq!(content(&whole), text(&ended), "a repeated request in the foreground gets the whole answer");
    Case::completed(&started(api, &id).await?, 120, watching.join_all().await).check(api).await?.clean()
}

async fn begin_again(api: &Api, body: &Value) -> anyhow::Result<(String, String)> {
    let answer = complete(api, body).await?.expect(202)?;
    Ok((answer.text("jobId")?, answer.text("status")?))
}

#[tokio::test(flavor = "multi_thread")]
async fn b3_p2_in_ask_mode_a_killed_job_waits_and_continues_when_it_is_resumed() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let options = Options::with(&upstream).env("OUTLAST_RECOVERY__MODE", "ask");
    let mut server = Server::start(options).await?;
    let body = job(&upstream.script(80).rate(100), "tea");
    let id = begin(server.api(), &body).await?;
    until_chunks(server.api(), &id, 20).await?;
    server.crash().await?;
    let api = server.api();
    let waiting = until_job(api, &id, "interrupted", |job| job["status"] != "streaming").await?;
    assert_eq!(waiting["status"], "interrupted");
    let told = chunks(api, &in_foreground(&body)).await?;
    assert_eq!(told.last().map(|last| &last["error"]["code"]), Some(&json!("interrupted")), "{told:?}");
    let mut whole = in_foreground(&body);
    whole["stream"] = json!(false);
    complete(api, &whole).await?.problem(409, "interrupted")?;

    api.post(&format!("/v1/generations/{id}/resume"), &json!({})).await?.expect(202)?;
    until_job(api, &id, "complete", |job| job["status"] == "complete").await?;
    let answer = complete(api, &whole).await?.expect(200)?;
    let text = answer.body["choices"][0]["message"]["content"].as_str().context("words")?;
    assert_eq!(count_from_first(text), Ok(80));
    Case::completed(&started(api, &id).await?, 80, Vec::new()).check(api).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn b8_i9_an_abort_from_another_connection_stops_the_upstream_within_a_second() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let script = upstream.script(10_000).rate(100);
    let body = job(&script, "tea");
    let id = begin(api, &body).await?;
    until_chunks(api, &id, 10).await?;
    let mut response =
        api.request(Method::POST, "/v1/chat/completions").json(&in_foreground(&body)).send().await?;
    let first = response.chunk().await?.context("a stream starts at once")?;
    let other = Api::new(server.address())?;
    let path = format!("/v1/jobs/{id}/abort");
    assert_eq!(other.post(&path, &json!({})).await?.expect(200)?.body, json!({"aborted": true}));
    upstream_is_closed(&upstream, &script).await?;
    assert_eq!(other.post(&path, &json!({})).await?.expect(200)?.body, json!({"aborted": false}));
    let aborted = look(api, &id).await?;
    assert_eq!(aborted["status"], "aborted");
    assert!(
        count_from_first(aborted["content"].as_str().unwrap_or_default()).is_ok_and(|tokens| tokens >= 10)
    );
    let told = [&first[..], &response.bytes().await?].concat();
    assert_eq!(lines(&String::from_utf8(told)?).last().context("an end")?["error"]["code"], "cancelled");
    assert_eq!(upstream.calls(&script).await?.closed_early, 1);
    Case::ended(&started(api, &id).await?, 10_000, &["cancelled"], Vec::new()).check(api).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn b4_the_twenty_first_live_job_is_refused_with_retry_after() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let options = Options::with(&upstream).env("OUTLAST_LIMITS__LIVE_GENERATIONS_PER_USER", "20");
    let server = Server::start(options).await?;
    let api = server.api();
    let hangs = |upstream: &Upstream| upstream.script(50).fault("hang_after=1");
    let mut first = None;
    for number in 0..20 {
        let body = job(&hangs(&upstream), &number.to_string());
        let id = begin(api, &body).await?;
        first.get_or_insert((id, body));
    }
    let one_more = job(&upstream.script(3), "one more");
    let refused = complete(api, &one_more).await?.problem(429, "limit_reached")?;
    let seconds: u64 = refused.retry_after.context("a refusal has Retry-After")?.parse()?;
    assert!((1..60).contains(&seconds));
    assert_eq!(refused.body["error"]["type"], "rate_limit_error");
    let (id, body) = first.context("a first job")?;
    assert_eq!(begin(api, &body).await?, id, "a repeated request is not another job");
    api.post(&format!("/v1/jobs/{id}/abort"), &json!({})).await?.expect(200)?;
    let id = begin(api, &one_more).await?;
    until_job(api, &id, "complete", |job| job["status"] == "complete").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn b3_i4_fifty_identical_jobs_at_once_are_one_and_another_body_is_a_conflict() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let script = upstream.script(20).rate(100);
    let body = job(&script, "tea");
    let mut asking = JoinSet::new();
    for _ in 0..50 {
        let (api, body) = (api.clone(), body.clone());
        asking.spawn(async move { complete(&api, &body).await?.expect(202)?.text("jobId") });
    }
    let ids: Vec<String> = asking.join_all().await.into_iter().collect::<Result<_, _>>()?;
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    until_job(api, &ids[0], "complete", |job| job["status"] == "complete").await?;
    assert_eq!(upstream.calls(&script).await?.calls, 1);
    let mut other = body.clone();
    other["temperature"] = json!(0.5);
    complete(api, &other).await?.problem(409, "idempotency_conflict")?;
    Case::completed(&started(api, &ids[0]).await?, 20, Vec::new()).check(api).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn b3_b5_missing_and_unknown_fields_are_refused_and_named() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    for field in ["model", "messages", "threadId", "messageId"] {
        let mut body = job(&upstream.script(1), "tea");
        body.as_object_mut().context("an object")?.remove(field);
        let refused = complete(api, &body).await?.problem(400, "invalid_request")?;
        assert_eq!((&refused.body["field"], &refused.body["error"]["param"]), (&json!(field), &json!(field)));
    }
    for path in ["/v1/jobs/gen_none", "/v1/jobs/gen_none/events"] {
        api.get(path).await?.problem(404, "not_found")?;
    }
    api.post("/v1/jobs/gen_none/abort", &json!({})).await?.problem(404, "not_found")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn b3_g2_a_client_that_disconnects_finds_the_answer_as_a_job() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let mut body = in_foreground(&job(&upstream.script(60).rate(100), "tea"));
    body["stream_options"] = json!({"include_usage": true});
    let mut response = api.request(Method::POST, "/v1/chat/completions").json(&body).send().await?;
    let events = response.headers()["outlast-job-events"].to_str()?.to_owned();
    let id = response.headers()["outlast-generation-id"].to_str()?.to_owned();
    let conversation = response.headers()["outlast-conversation-id"].to_str()?.to_owned();
    assert_eq!(
        api.view("tea").await?["conversation"]["id"],
        json!(conversation),
        "it can be found by the thread's name too"
    );
    assert_eq!(events, format!("/v1/jobs/{id}/events"));
    response.chunk().await?;
    drop(response);
    let recording = Reader::of_job(api, &id).record(soon()).await;
    let again = chunks(api, &body).await?;
    assert_eq!(count_from_first(&content(&again)), Ok(60));
    let usage = again.iter().find(|chunk| chunk["usage"].is_object()).context("usage was requested")?;
    assert_eq!(usage["usage"], json!({"prompt_tokens": 9, "completion_tokens": 60, "total_tokens": 69}));
    Case::completed(&started(api, &id).await?, 60, vec![recording]).check(api).await?.clean()
}
