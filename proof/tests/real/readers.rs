//! Readers that disconnect and reconnect.

use outlast_proof::check::{Case, first_difference};
use outlast_proof::reader::Reader;
use outlast_proof::stored::Stored;
use outlast_proof::wait::{LONG, until};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{both, soon, titled};

#[tokio::test(flavor = "multi_thread")]
async fn g3_i1_i2_i11_forty_readers_that_reconnect_record_the_same_bytes() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let script = upstream.script(250).rate(125);
    let started = server.api().play(&script).await?;
    let mut readers = JoinSet::new();
    for seed in 0..40 {
        let reader = Reader::of_generation(server.api(), &started.generation).drops_after(9, seed);
        readers.spawn(reader.record(soon()));
    }
    let recordings = readers.join_all().await;
    let streams: Vec<Vec<u8>> = recordings
        .iter()
        .map(|one| one.frames.iter().flat_map(|frame| frame.raw.to_vec()).collect())
        .collect();
    assert!(streams.iter().all(|stream| *stream == streams[0]), "two readers saw different bytes");
    let findings = Case::completed(&started, 250, recordings).check(server.api()).await?;
    findings.clean()?;
    assert!(findings.reconnects >= 80, "only {} reconnects", findings.reconnects);
    assert_eq!(upstream.calls(&script).await?.calls, 1, "i6: one call for forty readers");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_a_reader_that_connects_after_the_end_gets_everything_and_the_stream_ends() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let started = server.api().play(&upstream.script(30)).await?;
    server.api().until_ended(&started.generation).await?;
    let late = Reader::of_generation(server.api(), &started.generation).record(soon()).await;
    let last = late.frames.last().map_or(0, |frame| frame.seq);
    Case::completed(&started, 30, vec![late]).check(server.api()).await?.clean()?;

    // Nothing follows the end, so a reader that has it gets an empty stream at once.
    let path = format!("/v1/generations/{}/events?after={last}", started.generation);
    let rest = server.api().request(reqwest::Method::GET, &path).timeout(std::time::Duration::from_secs(10));
    assert_eq!(rest.send().await?.text().await?, "");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_a_position_after_the_end_of_an_older_generation_ends_at_once() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let first = server.api().play(&upstream.script(5)).await?;
    server.api().until_ended(&first.generation).await?;
    let second = server.api().play_in(&first.conversation, &upstream.script(5)).await?;
    let document = server.api().until_ended(&second.generation).await?;
    let path = format!("/v1/generations/{}/events?after={}", first.generation, document["lastSeq"]);
    let rest = server.api().request(reqwest::Method::GET, &path).timeout(std::time::Duration::from_secs(10));
    assert_eq!(rest.send().await?.text().await?, "");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn i2_a_position_past_the_tail_is_refused() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let started = server.api().play(&upstream.script(5)).await?;
    let document = server.api().until_ended(&started.generation).await?;
    let (generation, conversation) = (&started.generation, &started.conversation);
    for path in [format!("/v1/generations/{generation}"), format!("/v1/conversations/{conversation}")] {
        let answer = server.api().get(&format!("{path}/events?after=100000")).await?;
        let answer = answer.problem(409, "cursor_ahead")?;
        assert!(answer.body["lastSeq"].as_u64() >= document["lastSeq"].as_u64());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn o4_a_conversation_is_followed_from_a_snapshot_across_generations() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let first = api.play_in(&titled(&server).await?, &upstream.script(10)).await?;
    api.until_ended(&first.generation).await?;
    // Nobody watched it, so its log ends with a notification.
    until("the notification", LONG, async || {
        let stored = Stored::read(api, &first.conversation).await?;
        Ok(stored.log.last().is_some_and(|last| last.kind == "notification.made").then_some(()))
    })
    .await?;
    let view = api.view(&first.conversation).await?;

    let path = format!("/v1/conversations/{}/events", first.conversation);
    let mut response = api.request(reqwest::Method::GET, &path).send().await?;
    let mut cutter = outlast_proof::sse::Cutter::default();
    let mut frames = Vec::new();
    let second = api.play_in(&first.conversation, &upstream.script(20).rate(200)).await?;
    let whole = async {
        while !frames.iter().any(outlast_proof::sse::Frame::is_end) {
            cutter.push(&response.chunk().await?.unwrap_or_default());
            frames.extend(cutter.cut_all()?);
        }
        anyhow::Ok(())
    };
    outlast_proof::wait::bounded("the second answer", outlast_proof::wait::LONG, whole).await??;

    let snapshot = frames.remove(0);
    assert_eq!(snapshot.kind, "snapshot");
    let shown = &snapshot.event()?["payload"];
    assert_eq!(shown["messages"], view["messages"], "o4: render-ready");
    assert_eq!(shown["lastSeq"], view["lastSeq"]);
    assert_eq!(shown["activeRun"], json!(null));
    let stored = Stored::read(api, &first.conversation).await?;
    let tail: Vec<_> = stored.log.iter().filter(|frame| frame.seq > snapshot.seq).collect();
    assert_eq!(first_difference(&frames, &tail), None, "i11: snapshot and tail must equal the log");
    assert_eq!(frames.last().and_then(|last| last.generation.clone()), Some(second.generation));
    Ok(())
}
