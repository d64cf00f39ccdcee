//! kill -9 in the middle of an answer, and what happens afterwards.

use outlast_proof::api::Started;
use outlast_proof::check::Case;
use outlast_proof::reader::{Reader, Recording};
use outlast_proof::script::count_from_first;
use outlast_proof::server::Server;
use outlast_proof::stored::Stored;
use outlast_proof::upstream::Upstream;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{both, both_with, soon};

/// The text of a generation's document.
fn text(document: &Value) -> String {
    let parts = document["contentParts"].as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

fn watch(server: &Server, started: &Started, readers: u64) -> JoinSet<Recording> {
    let mut watching = JoinSet::new();
    for seed in 0..readers {
        let reader = Reader::of_generation(server.api(), &started.generation).drops_after(15, seed);
        watching.spawn(reader.record(soon()));
    }
    watching
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_i1_i2_i10_a_killed_generation_continues_by_itself_and_readers_resume_exactly()
-> anyhow::Result<()> {
    let (mut server, upstream) = both().await?;
    let script = upstream.script(120).rate(120);
    let started = server.api().play(&script).await?;
    let watching = watch(&server, &started, 10);
    server.api().until_chunks(&started.generation, 40).await?;
    server.crash().await?;
    let document = server.api().until_ended(&started.generation).await?;
    assert_eq!(document["attempt"], 2, "the second call must be a second attempt: {document}");
    let stored = Stored::read(server.api(), &started.conversation).await?;
    let kinds = stored.kinds_of(&started.generation);
    assert_eq!(kinds.iter().filter(|kind| **kind == "attempt.retracted").count(), 1, "{kinds:?}");
    let recordings = watching.join_all().await;
    Case::completed(&started, 120, recordings).check(server.api()).await?.clean()?;
    let calls = upstream.calls(&script).await?;
    assert_eq!((calls.calls, calls.live), (2, 0), "i6");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_i15_a_generation_killed_five_times_is_answered_once() -> anyhow::Result<()> {
    let (mut server, upstream) = both().await?;
    let started = server.api().play(&upstream.script(60).rate(150)).await?;
    let watching = watch(&server, &started, 5);
    for _ in 0..5 {
        server.api().until_chunks(&started.generation, 10).await?;
        server.crash().await?;
    }
    server.api().until_ended(&started.generation).await?;
    let recordings = watching.join_all().await;
    Case::completed(&started, 60, recordings).check(server.api()).await?.clean()
}

/// A generation that was killed in the middle and waits for a person.
async fn interrupted() -> anyhow::Result<(Server, Upstream, Started)> {
    let (mut server, upstream) = both_with("[recovery]\nmode = \"ask\"").await?;
    let started = server.api().play(&upstream.script(80).rate(100)).await?;
    server.api().until_chunks(&started.generation, 20).await?;
    server.crash().await?;
    server.api().until_status(&started.generation, &["interrupted"]).await?;
    Ok((server, upstream, started))
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_p3_in_ask_mode_a_generation_stays_interrupted_until_it_is_resumed() -> anyhow::Result<()> {
    let (mut server, _upstream, started) = interrupted().await?;
    let watching = watch(&server, &started, 3);
    let view = server.api().view(&started.conversation).await?;
    assert_eq!(view["conversation"]["generationStatus"], "interrupted");
    server.crash().await?; // i15: waiting for a person survives any number of restarts
    let document = server.api().until_status(&started.generation, &["interrupted"]).await?;
    assert!(count_from_first(&text(&document)).is_ok_and(|tokens| tokens >= 20), "{document}");
    let path = format!("/v1/generations/{}/resume", started.generation);
    server.api().post(&path, &json!({})).await?.expect(202)?;
    server.api().until_ended(&started.generation).await?;
    let stored = Stored::read(server.api(), &started.conversation).await?;
    let kinds = stored.kinds_of(&started.generation);
    assert_eq!(kinds.iter().filter(|kind| **kind == "chat.interrupted").count(), 1, "{kinds:?}");
    assert!(kinds.contains(&"chat.resumed"), "{kinds:?}");
    let recordings = watching.join_all().await;
    Case::completed(&started, 80, recordings).check(server.api()).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn p3_dismiss_ends_a_generation_as_cancelled_and_keeps_its_text() -> anyhow::Result<()> {
    let (server, _upstream, started) = interrupted().await?;
    let before = text(&server.api().generation(&started.generation).await?);
    let path = format!("/v1/generations/{}", started.generation);
    server.api().post(&format!("{path}/dismiss"), &json!({})).await?.expect(200)?;
    let document = server.api().until_ended(&started.generation).await?;
    assert_eq!((&document["status"], &document["endReason"]), (&json!("cancelled"), &json!("dismissed")));
    assert_eq!(text(&document), before, "g4: the partial answer is kept");
    assert!(count_from_first(&before).is_ok_and(|tokens| tokens >= 20));
    server.api().post(&format!("{path}/dismiss"), &json!({})).await?.problem(409, "already_ended")?;
    server.api().post(&format!("{path}/resume"), &json!({})).await?.problem(409, "already_ended")?;
    Case::ended(&started, 80, &["cancelled"], Vec::new()).check(server.api()).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn p5_if_two_clients_resume_at_once_one_wins() -> anyhow::Result<()> {
    let (server, _upstream, started) = interrupted().await?;
    let path = format!("/v1/generations/{}/resume", started.generation);
    let body = json!({});
    let (one, other) = tokio::join!(server.api().post(&path, &body), server.api().post(&path, &body));
    let (one, other) = (one?, other?);
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 409], "{} {}", one.body, other.body);
    server.api().until_ended(&started.generation).await?;
    Case::completed(&started, 80, Vec::new()).check(server.api()).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_a_generation_that_is_not_interrupted_can_be_neither_resumed_nor_dismissed() -> anyhow::Result<()>
{
    let (server, upstream) = both().await?;
    let started = server.api().play(&upstream.script(50).rate(50)).await?;
    for what in ["resume", "dismiss"] {
        let path = format!("/v1/generations/{}/{what}", started.generation);
        server.api().post(&path, &json!({})).await?.problem(409, "not_interrupted")?;
    }
    assert!(server.api().cancel(&started.generation).await?);
    Ok(())
}
