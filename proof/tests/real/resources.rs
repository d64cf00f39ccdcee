//! Conversations and lists: create, change, page, delete.

use std::collections::BTreeSet;

use outlast_proof::server::Server;
use outlast_proof::wait::{LONG, bounded};
use reqwest::Method;
use serde_json::{Value, json};

use crate::both;

/// Pages through a list and returns the ids in order.
async fn all_ids(api: &outlast_proof::api::Api, path: &str) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = match &cursor {
            Some(cursor) => api.get(&format!("{path}&cursor={cursor}")).await?.expect(200)?.body,
            None => api.get(path).await?.expect(200)?.body,
        };
        let data = page["data"].as_array().cloned().unwrap_or_default();
        ids.extend(data.iter().filter_map(|entry| entry["id"].as_str().map(str::to_owned)));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return Ok(ids),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g8_lists_are_paged_newest_first_without_gaps_or_duplicates() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let mut begun = Vec::new();
    for _ in 0..7 {
        let started = api.play(&upstream.script(3)).await?;
        api.until_ended(&started.generation).await?;
        begun.push(started);
    }
    begun.reverse();
    let conversations: Vec<_> = begun.iter().map(|started| started.conversation.clone()).collect();
    let generations: Vec<_> = begun.iter().map(|started| started.generation.clone()).collect();
    for limit in [1, 2, 3, 7, 50] {
        let found = all_ids(api, &format!("/v1/conversations?limit={limit}")).await?;
        assert_eq!(found, conversations, "limit {limit}");
        let found = all_ids(api, &format!("/v1/generations?limit={limit}&status=completed")).await?;
        assert_eq!(found, generations, "limit {limit}");
    }
    let one = format!("/v1/generations?conversationId={}", conversations[2]);
    assert_eq!(all_ids(api, &one).await?, [generations[2].clone()]);
    assert!(all_ids(api, "/v1/generations?status=running").await?.is_empty());
    api.get("/v1/generations?status=tired").await?.problem(422, "invalid_request")?;
    api.get("/v1/conversations?cursor=tea").await?.problem(422, "invalid_request")?;
    api.get("/v1/conversations?limit=0").await?.problem(422, "invalid_request")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_messages_are_paged_ascending() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let first = api.play(&upstream.script(2)).await?;
    api.until_ended(&first.generation).await?;
    for _ in 0..4 {
        let next = api.play_in(&first.conversation, &upstream.script(2)).await?;
        api.until_ended(&next.generation).await?;
    }
    let view = api.view(&first.conversation).await?;
    let whole = view["messages"].as_array().cloned().unwrap_or_default();
    assert_eq!(whole.len(), 10);
    let path = format!("/v1/conversations/{}/messages?limit=3", first.conversation);
    let mut paged: Vec<Value> = Vec::new();
    let mut before = String::new();
    loop {
        let page = api.get(&format!("{path}{before}")).await?.expect(200)?.body;
        let data = page["data"].as_array().cloned().unwrap_or_default();
        before = format!("&before={}", data[0]["seq"]);
        paged.splice(0..0, data);
        if page["hasMore"] == false {
            break;
        }
    }
    assert_eq!(paged, whole);
    let short = api.get(&format!("/v1/conversations/{}?limit=4", first.conversation)).await?.body;
    assert_eq!(short["messages"].as_array().map(Vec::as_slice), Some(&whole[6..]), "the newest, ascending");
    assert_eq!(short["hasMore"], true);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_title_and_metadata_are_set_and_survive_a_kill() -> anyhow::Result<()> {
    let (mut server, upstream) = both().await?;
    let made = server.api().post("/v1/conversations", &json!({"title": "Tea"})).await?.expect(201)?;
    let (id, path) = (made.text("id")?, format!("/v1/conversations/{}", made.text("id")?));
    assert_eq!(made.body["generationStatus"], "idle");
    let change = json!({"title": "Green tea", "metadata": {"shapeId": "s", "deep": [1, null]}});
    let request = server.api().request(Method::PATCH, &path).json(&change);
    let changed = server.api().send(request).await?.expect(200)?.body;
    assert_eq!((&changed["title"], &changed["metadata"]), (&change["title"], &change["metadata"]));
    server.crash().await?;
    let view = server.api().view(&id).await?;
    assert_eq!(view["conversation"], changed, "i1: an acknowledged change is kept");
    let started = server.api().play_in(&id, &upstream.script(3)).await?;
    server.api().until_ended(&started.generation).await?;
    let view = server.api().view(&id).await?;
    assert_eq!(view["conversation"]["title"], "Green tea", "s5: a title that was set is kept");
    assert_eq!(view["conversation"]["generationStatus"], "complete");
    assert_eq!(view["conversation"]["currentGenerationId"], started.generation.as_str());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn o5_i4_a_repeated_request_creates_a_conversation_once_and_a_different_one_is_a_conflict()
-> anyhow::Result<()> {
    let (mut server, _upstream) = both().await?;
    let post = async |server: &Server, body: Value| server.api().post("/v1/conversations", &body).await;
    let tea = json!({"requestId": "a", "title": "Tea", "metadata": {"cups": 2}});
    let made = post(&server, tea.clone()).await?.expect(201)?.text("id")?;
    let empty = post(&server, json!({"requestId": "b"})).await?.expect(201)?.text("id")?;
    assert_ne!(made, empty);
    for id in [&made, &empty] {
        let request = server.api().request(Method::PATCH, &format!("/v1/conversations/{id}"));
        server.api().send(request.json(&json!({"title": "Later"}))).await?.expect(200)?;
    }
    server.crash().await?;
    assert_eq!(post(&server, tea).await?.expect(201)?.text("id")?, made);
    assert_eq!(post(&server, json!({"requestId": "b"})).await?.expect(201)?.text("id")?, empty);
    for (other, id) in [
        (json!({"requestId": "a", "title": "Coffee", "metadata": {"cups": 2}}), &made),
        (json!({"requestId": "a"}), &made),
        (json!({"requestId": "b", "title": "Later"}), &empty),
    ] {
        let problem = post(&server, other).await?.problem(409, "idempotency_conflict")?;
        assert_eq!(problem.text("conversationId")?, *id);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_a_deleted_conversation_is_gone_even_while_it_runs_and_after_a_kill() -> anyhow::Result<()> {
    let (mut server, upstream) = both().await?;
    let api = server.api().clone();
    let kept = api.play(&upstream.script(4)).await?;
    let script = upstream.script(10_000).rate(200);
    let started = api.play(&script).await?;
    let events = format!("/v1/generations/{}/events", started.generation);
    let mut watching = api.request(Method::GET, &events).send().await?;
    api.until_chunks(&started.generation, 10).await?;
    let path = format!("/v1/conversations/{}", started.conversation);
    api.send(api.request(Method::DELETE, &path)).await?.expect(204)?;

    let gone = [path.clone(), format!("{path}/messages"), format!("{path}/events"), events]
        .into_iter()
        .chain([format!("/v1/generations/{}", started.generation)]);
    let gone: Vec<String> = gone.collect();
    for path in &gone {
        api.get(path).await?.problem(404, "not_found")?;
    }
    let over = async { while let Ok(Some(_)) = watching.chunk().await {} };
    bounded("the end of a deleted stream", LONG, over).await?;
    outlast_proof::wait::until("closing the call", LONG, async || {
        Ok((upstream.calls(&script).await?.live == 0).then_some(()))
    })
    .await?;
    server.crash().await?;
    for path in &gone {
        api.get(path).await?.problem(404, "not_found")?;
    }
    assert_eq!(upstream.calls(&script).await?.calls, 1, "it is not resumed");
    let left: BTreeSet<String> = all_ids(&api, "/v1/conversations?limit=10").await?.into_iter().collect();
    assert_eq!(left, BTreeSet::from([kept.conversation.clone()]));
    api.until_ended(&kept.generation).await?;
    Ok(())
}
