//! Events are removed after a while; messages are kept (G13).

use anyhow::Context;
use outlast_proof::api::Api;
use outlast_proof::server::Server;
use outlast_proof::sse::{Cutter, Frame};
use outlast_proof::wait::{LONG, bounded, until};
use serde_json::Value;

use crate::{both_with, titled};

/// Waits until retention has removed the events of a generation, which happens at every start and then every hour.
async fn trimmed(server: &mut Server, generation: &str) -> anyhow::Result<()> {
    let api = server.api().clone();
    until("removing old events", LONG, async || {
        server.crash().await?;
        let page = api.get(&format!("/v1/generations/{generation}/events?format=json")).await?;
        let gone = page.status != 200 || page.body["data"].as_array().is_none_or(Vec::is_empty);
        Ok(gone.then_some(()))
    })
    .await
}

/// The whole stream of a generation, which ends by itself.
async fn stream_of(api: &Api, generation: &str, position: &str) -> anyhow::Result<Vec<Frame>> {
    let path = format!("/v1/generations/{generation}/events{position}");
    let request = api.request(reqwest::Method::GET, &path).timeout(LONG);
    let body = request.send().await?.error_for_status()?.bytes().await?;
    let mut cutter = Cutter::default();
    cutter.push(&body);
    cutter.cut_all()
}

fn of_generation(messages: &Value, generation: &str) -> Vec<Value> {
    let messages = messages.as_array().into_iter().flatten();
    messages.filter(|message| message["generationId"] == generation).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn g13_old_events_are_removed_messages_are_kept_and_a_reader_gets_a_snapshot() -> anyhow::Result<()> {
    let (mut server, upstream) = both_with("[retention]\ncompleted = \"1s\"\nerror = \"1h\"").await?;
    let api = server.api().clone();
    let done = api.play_in(&titled(&server).await?, &upstream.script(30)).await?;
    api.until_ended(&done.generation).await?;
    let failed = api.play(&upstream.script(9).fault("fail=400")).await?;
    api.until_ended(&failed.generation).await?;
    let before = api.view(&done.conversation).await?;
    trimmed(&mut server, &done.generation).await?;

    let after = api.view(&done.conversation).await?;
    assert_eq!(after, before, "messages are never removed");
    assert_eq!(api.generation(&done.generation).await?["status"], "completed");
    for position in ["", "?after=2", "?after=5"] {
        let frames = stream_of(&api, &done.generation, position).await?;
        assert_eq!(frames.len(), 1, "{position:?}");
        assert_eq!(frames[0].kind, "snapshot", "{position:?}");
        assert_eq!(frames[0].event()?["payload"]["messages"], before["messages"]);
    }
    let kept = api.get(&format!("/v1/generations/{}/events?format=json", failed.generation)).await?;
    assert!(kept.body["data"].as_array().is_some_and(|events| !events.is_empty()), "errors are kept longer");

    // The conversation continues as if nothing had been removed.
    let next = api.play_in(&done.conversation, &upstream.script(5)).await?;
    let document = api.until_ended(&next.generation).await?;
    assert_eq!(document["firstSeq"].as_u64(), before["lastSeq"].as_u64().map(|seq| seq + 1));
    let view = api.view(&done.conversation).await?;
    assert_eq!(view["messages"].as_array().map(Vec::len), Some(4));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g13_the_stream_of_a_trimmed_generation_has_its_own_messages_and_its_end() -> anyhow::Result<()> {
    let (mut server, upstream) = both_with("[retention]\ncompleted = \"1s\"").await?;
    let api = server.api().clone();
    let conversation = titled(&server).await?;
    let mut generations = Vec::new();
    for _ in 0..3 {
        let started = api.play_in(&conversation, &upstream.script(5)).await?;
        api.until_ended(&started.generation).await?;
        generations.push(started.generation);
    }
    for generation in &generations {
        trimmed(&mut server, generation).await?;
    }
    let view = api.view(&conversation).await?;
    for generation in &generations {
        let frames = stream_of(&api, generation, "").await?;
        assert_eq!(frames.len(), 1);
        let snapshot = frames[0].event()?;
        let own = of_generation(&view["messages"], generation);
        assert_eq!(own.len(), 2, "a question and its answer");
        assert_eq!(snapshot["payload"]["messages"].as_array(), Some(&own));
        assert_eq!(snapshot["payload"]["lastEnd"]["generationId"], generation.as_str());
        assert_eq!(snapshot["payload"]["lastEnd"]["status"], "completed");
        let rest = stream_of(&api, generation, &format!("?after={}", frames[0].seq)).await?;
        assert_eq!(rest, [], "nothing follows");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g13_a_conversation_read_from_a_trimmed_position_starts_with_a_snapshot_and_continues()
-> anyhow::Result<()> {
    let (mut server, upstream) = both_with("[retention]\ncompleted = \"1s\"").await?;
    let api = server.api().clone();
    let conversation = titled(&server).await?;
    let first = api.play_in(&conversation, &upstream.script(5)).await?;
    api.until_ended(&first.generation).await?;
    trimmed(&mut server, &first.generation).await?;
    let view = api.view(&conversation).await?;

    let path = format!("/v1/conversations/{conversation}/events?after=3");
    let mut response = api.request(reqwest::Method::GET, &path).send().await?.error_for_status()?;
    let second = api.play_in(&conversation, &upstream.script(5)).await?;
    let (mut cutter, mut frames) = (Cutter::default(), Vec::new());
    let whole = async {
        while !frames.iter().any(Frame::is_end) {
            cutter.push(&response.chunk().await?.context("the stream stays open")?);
            frames.extend(cutter.cut_all()?);
        }
        anyhow::Ok(())
    };
    bounded("the second answer", LONG, whole).await??;
    assert_eq!(frames[0].kind, "snapshot");
    let shown = frames[0].event()?;
    let old = of_generation(&shown["payload"]["messages"], &first.generation);
    assert_eq!(old, of_generation(&view["messages"], &first.generation));
    let seqs: Vec<u64> = frames.iter().map(|frame| frame.seq).collect();
    assert_eq!(seqs, (seqs[0]..).take(seqs.len()).collect::<Vec<_>>(), "no duplicates, no gaps");
    assert_eq!(frames.last().and_then(|last| last.generation.clone()), Some(second.generation));
    Ok(())
}
