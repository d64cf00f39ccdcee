//! The settings that trade safety for fewer writes (G10): all readers still see everything live.

use outlast_proof::api::Started;
use outlast_proof::check::{Case, first_difference};
use outlast_proof::reader::Reader;
use outlast_proof::server::Server;
use outlast_proof::stored::Stored;
use outlast_proof::violation::Kind;
use outlast_proof::wait::{LONG, until};

use crate::{both_with, soon};

fn setting(mode: &str) -> String {
    format!("[durability]\nmode = \"{mode}\"")
}

/// Reads live until this many tokens were shown, and returns the last seq.
async fn see_live(server: &Server, started: &Started, tokens: usize) -> anyhow::Result<u64> {
    let path = format!("/v1/generations/{}/events", started.generation);
    let mut response = server.api().request(reqwest::Method::GET, &path).send().await?;
    let (mut seen, mut text) = (0, String::new());
    let mut cutter = outlast_proof::sse::Cutter::default();
    let whole = async {
        while text.matches('<').count() < tokens {
            cutter.push(&response.chunk().await?.unwrap_or_default());
            while let Some(frame) = cutter.cut()? {
                seen = frame.seq;
                text.push_str(frame.event()?["payload"]["text"].as_str().unwrap_or_default());
            }
        }
        anyhow::Ok(())
    };
    outlast_proof::wait::bounded("live text", LONG, whole).await??;
    Ok(seen)
}

async fn everybody_sees_everything(mode: &str) -> anyhow::Result<()> {
    let (server, upstream) = both_with(&setting(mode)).await?;
    let api = server.api();
    let started = api.play(&upstream.script(150).rate(100)).await?;
    let mut readers = tokio::task::JoinSet::new();
    for seed in 0..10 {
        let reader = Reader::of_generation(api, &started.generation).drops_after(9, seed);
        readers.spawn(reader.record(soon()));
    }
    // Live means before the generation has ended.
    let seen = see_live(&server, &started, 30).await?;
    assert!(api.generation(&started.generation).await?["status"] == "running", "{seen} was not live");
    let recordings = readers.join_all().await;
    Case::completed(&started, 150, recordings).check(api).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_debounce_shows_everything_live_and_the_same_to_all_readers() -> anyhow::Result<()> {
    everybody_sees_everything("debounce").await
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_boundary_shows_everything_live_and_the_same_to_all_readers() -> anyhow::Result<()> {
    everybody_sees_everything("boundary").await
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_a_clean_stop_saves_what_was_shown() -> anyhow::Result<()> {
    for mode in ["debounce", "boundary"] {
        let (mut server, upstream) = both_with(&setting(mode)).await?;
        let started = server.api().play(&upstream.script(100).rate(100)).await?;
        let watching = Reader::of_generation(server.api(), &started.generation).record(soon());
        let restart = async {
            see_live(&server, &started, 20).await?;
            server.stop().await?;
            server.restart().await
        };
        // The reader stays across the stop. Everything it saw before must be in the log it resumes from.
        let (recording, restarted) = tokio::join!(watching, restart);
        restarted?;
        server.api().until_ended(&started.generation).await?;
        Case::completed(&started, 100, vec![recording]).check(server.api()).await?.clean()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_after_a_kill_the_log_is_consistent_and_the_generation_continues() -> anyhow::Result<()> {
    for mode in ["debounce", "boundary"] {
        let (mut server, upstream) = both_with(&setting(mode)).await?;
        let started = server.api().play(&upstream.script(80).rate(100)).await?;
        let seen = see_live(&server, &started, 20).await?;
        server.crash().await?;
        // Text that was shown but not saved is lost, which this setting accepts. A reader that reconnects with such a
        // position is refused, or gets the current log, in which the position may mean something else. The protocol
        // says that in these modes readers reconnect without a position.
        let path = format!("/v1/generations/{}/events?format=json&after={seen}", started.generation);
        let answer = server.api().get(&path).await?;
        assert!([200, 409].contains(&answer.status), "{mode}: {} {}", answer.status, answer.body);
        server.api().until_ended(&started.generation).await?;
        let late = Reader::of_generation(server.api(), &started.generation).record(soon()).await;
        let stored = Stored::read(server.api(), &started.conversation).await?;
        assert_eq!(first_difference(&late.frames, &stored.events_of(&started.generation)), None);
        Case::completed(&started, 80, vec![late]).check(server.api()).await?.clean()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_debounce_saves_within_two_seconds() -> anyhow::Result<()> {
    let (mut server, upstream) = both_with(&setting("debounce")).await?;
    let started = server.api().play(&upstream.script(600).rate(50)).await?;
    see_live(&server, &started, 10).await?;
    // Polling reads saved data, so text must be there long before the end.
    until("saving", std::time::Duration::from_secs(10), async || {
        let document = server.api().generation(&started.generation).await?;
        Ok((document["chunksReceived"].as_u64() >= Some(10)).then_some(()))
    })
    .await?;
    server.kill().await?;
    server.restart().await?;
    assert!(server.api().cancel(&started.generation).await?);
    Case::ended(&started, 600, &["cancelled"], Vec::new()).check(server.api()).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_comparison_notices_what_a_weaker_setting_loses() -> anyhow::Result<()> {
    // A test of the comparison itself: `boundary` loses by design exactly what `commit` must never lose, so the
    // comparison must find something here.
    let (mut server, upstream) = both_with(&setting("boundary")).await?;
    let started = server.api().play(&upstream.script(80).rate(100)).await?;
    let watching = Reader::of_generation(server.api(), &started.generation).record(soon());
    let crash = async {
        see_live(&server, &started, 20).await?;
        server.crash().await
    };
    let (recording, crashed) = tokio::join!(watching, crash);
    crashed?;
    server.api().until_ended(&started.generation).await?;
    let findings = Case::completed(&started, 80, vec![recording]).check(server.api()).await?;
    let lost = findings.violations.iter().filter(|violation| violation.kind == Kind::Lost).count();
    assert!(lost > 0, "lost events were not noticed: {findings}");
    Ok(())
}
