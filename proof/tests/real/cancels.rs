//! Cancels that race with other cancels, with completion and with crashes.

use std::time::Duration;

use outlast_proof::check::Case;
use outlast_proof::reader::Reader;
use outlast_proof::script::Script;
use outlast_proof::stored::Stored;
use outlast_proof::upstream::Upstream;
use outlast_proof::wait::until;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::{both, both_with, soon};

/// Waits until the upstream has no running call of a script, at most as long as I9 allows.
pub(crate) async fn upstream_is_closed(upstream: &Upstream, script: &Script) -> anyhow::Result<()> {
    until("closing the call to the upstream", Duration::from_secs(1), async || {
        Ok((upstream.calls(script).await?.live == 0).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn g5_i9_one_of_ten_concurrent_cancels_succeeds_and_the_upstream_is_closed() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let script = upstream.script(10_000).rate(100);
    let started = api.play(&script).await?;
    let reader = Reader::of_generation(api, &started.generation).record(soon());
    let cancels = async {
        api.until_chunks(&started.generation, 20).await?;
        let mut cancels = JoinSet::new();
        for _ in 0..10 {
            let (api, id) = (api.clone(), started.generation.clone());
            cancels.spawn(async move { api.cancel(&id).await });
        }
        let answers: Vec<bool> = cancels.join_all().await.into_iter().collect::<Result<_, _>>()?;
        upstream_is_closed(&upstream, &script).await?;
        anyhow::Ok(answers.iter().filter(|success| **success).count())
    };
    let (recording, successes) = tokio::join!(reader, cancels);
    assert_eq!(successes?, 1, "the first cancel wins");
    let calls = upstream.calls(&script).await?;
    assert_eq!((calls.calls, calls.closed_early), (1, 1), "closed by the server, not by the script");
    let document = api.generation(&started.generation).await?;
    assert_eq!(document["endReason"], "user");
    assert!(document["chunksReceived"].as_u64() >= Some(20));
    Case::ended(&started, 10_000, &["cancelled"], vec![recording]).check(api).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_after_an_acknowledged_cancel_only_the_end_follows() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    for _ in 0..10 {
        let started = api.play(&upstream.script(100_000)).await?; // long enough that there is always more to come
        api.until_chunks(&started.generation, 1).await?;
        assert!(api.cancel(&started.generation).await?);
        let stored = Stored::read(api, &started.conversation).await?; // read after the response
        // A notification that nobody watched is the conversation's, not the generation's.
        let of_it = stored.log.iter().filter(|frame| !frame.kind.starts_with("notification."));
        assert_eq!(of_it.last().map(|frame| frame.kind.as_str()), Some("chat.cancelled"));
        Case::ended(&started, 100_000, &["cancelled"], Vec::new()).check(api).await?.clean()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn i3_cancel_and_completion_racing_a_hundred_times_end_each_generation_once() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let mut races = Vec::new();
    for number in 0..100_u64 {
        // One in ten cannot end by itself and one in ten has ended; the rest race, each
        // cancelled at a different moment of an answer of four chunks.
        let script = match number % 10 {
            0 => upstream.script(4).fault("hang_after=2"),
            _ => upstream.script(4).rate(200),
        };
        races.push(async move {
            let started = api.play(&script).await?;
            let reader = Reader::of_generation(api, &started.generation).record(soon());
            let cancel = async {
                match number % 10 {
                    9 => drop(api.until_ended(&started.generation).await?),
                    chunks @ 5..9 => drop(api.until_chunks(&started.generation, chunks - 4).await?),
                    _ => sleep(Duration::from_micros(number * 200)).await,
                }
                api.cancel(&started.generation).await
            };
            let (recording, success) = tokio::join!(reader, cancel);
            let success = success?;
            let ends: &[&str] = if success { &["cancelled"] } else { &["completed"] };
            let findings = Case::ended(&started, 4, ends, vec![recording]).check(api).await?;
            anyhow::Ok((number, success, findings))
        });
    }
    for race in futures_util::future::join_all(races).await {
        let (number, success, findings) = race?;
        findings.clean()?;
        match number % 10 {
            0 => assert!(success, "a generation that hung was not cancelled"),
            9 => assert!(!success, "a generation that had ended was cancelled"),
            _ => {}
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn x5_an_acknowledged_cancel_wins_against_a_kill_right_after_it() -> anyhow::Result<()> {
    let (mut server, upstream) = both().await?;
    for _ in 0..5 {
        let script = upstream.script(10_000).rate(200);
        let started = server.api().play(&script).await?;
        server.api().until_chunks(&started.generation, 5).await?;
        assert!(server.api().cancel(&started.generation).await?);
        server.crash().await?;
        let document = server.api().generation(&started.generation).await?;
        assert_eq!(document["status"], "cancelled");
        Case::ended(&started, 10_000, &["cancelled"], Vec::new()).check(server.api()).await?.clean()?;
        assert_eq!(upstream.calls(&script).await?.calls, 1, "recovery must not call again");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_a_disconnect_is_never_a_cancel() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let started = server.api().play(&upstream.script(60).rate(100)).await?;
    let path = format!("/v1/generations/{}/events", started.generation);
    let mut response = server.api().request(reqwest::Method::GET, &path).send().await?;
    response.chunk().await?;
    drop(response);
    server.api().until_ended(&started.generation).await?;
    Case::completed(&started, 60, Vec::new()).check(server.api()).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn g5_cancel_reaches_an_upstream_that_hangs_and_a_retry_that_waits() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let hangs = upstream.script(50).fault("hang_after=3");
    let waits = upstream.script(50).fault("fail=429 retry_after=60");
    for script in [hangs, waits] {
        let started = api.play(&script).await?;
        until("the call", Duration::from_secs(20), async || {
            Ok((upstream.calls(&script).await?.calls > 0).then_some(()))
        })
        .await?;
        let asked = Instant::now();
        assert!(api.cancel(&started.generation).await?);
        upstream_is_closed(&upstream, &script).await?;
        assert!(asked.elapsed() < Duration::from_secs(2), "a cancel must not wait");
        assert!(!api.cancel(&started.generation).await?, "the second cancel must fail");
        let second = api.post(&format!("/v1/generations/{}/cancel", started.generation), &json!({})).await?;
        assert_eq!(second.body["status"], "cancelled");
        Case::ended(&started, 50, &["cancelled"], Vec::new()).check(api).await?.clean()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_a_generation_without_followers_is_cancelled_and_a_followed_one_is_not() -> anyhow::Result<()> {
    let (server, upstream) = both_with("[timeouts]\nunwatched = \"600ms\"").await?;
    let api = server.api();
    let watched = api.play(&upstream.script(200).rate(100)).await?;
    let reader = Reader::of_generation(api, &watched.generation).record(soon());
    let unwatched = async {
        let script = upstream.script(10_000).rate(100);
        let started = api.play(&script).await?;
        let document = api.until_ended(&started.generation).await?;
        assert_eq!((&document["status"], &document["endReason"]), (&json!("cancelled"), &json!("abandoned")));
        upstream_is_closed(&upstream, &script).await?;
        Case::ended(&started, 10_000, &["cancelled"], Vec::new()).check(api).await?.clean()
    };
    let (recording, abandoned) = tokio::join!(reader, unwatched);
    abandoned?;
    Case::completed(&watched, 200, vec![recording]).check(api).await?.clean()
}
