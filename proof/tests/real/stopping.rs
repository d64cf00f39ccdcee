//! Start-up, SIGTERM, and two servers on one data folder.

use std::time::{Duration, Instant};

use outlast_proof::check::Case;
use outlast_proof::reader::Reader;
use outlast_proof::server::{Options, Server};
use outlast_proof::sse::Cutter;
use outlast_proof::wait::{LONG, bounded};

use crate::{both, soon};

#[tokio::test(flavor = "multi_thread")]
async fn x6_sigterm_closes_streams_and_the_next_start_continues() -> anyhow::Result<()> {
    let (mut server, upstream) = both().await?;
    let api = server.api().clone();
    let started = api.play(&upstream.script(150).rate(100)).await?;
    let faithful = Reader::of_generation(&api, &started.generation).record(soon());
    let stop = async {
        api.until_chunks(&started.generation, 30).await?;
        let path = format!("/v1/generations/{}/events", started.generation);
        let mut response = api.request(reqwest::Method::GET, &path).send().await?;
        let mut cutter = Cutter::default();
        cutter.push(&bounded("the first events", LONG, response.chunk()).await??.unwrap_or_default());
        let begun = Instant::now();
        server.stop().await?;
        assert!(begun.elapsed() < Duration::from_secs(10), "draining took {:?}", begun.elapsed());
        // The stream was closed normally, with complete events and without the end of the generation.
        let mut frames = Vec::new();
        while let Some(bytes) = bounded("the end of the stream", LONG, response.chunk()).await?? {
            cutter.push(&bytes);
        }
        frames.extend(cutter.cut_all()?);
        assert!(cutter.torn().is_empty());
        assert!(!frames.is_empty() && !frames.iter().any(|frame| frame.is_end()));
        server.restart().await
    };
    let (recording, stopped) = tokio::join!(faithful, stop);
    stopped?;
    let document = api.until_ended(&started.generation).await?;
    assert_eq!(document["attempt"], 2);
    Case::completed(&started, 150, vec![recording]).check(&api).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_a_second_server_on_the_same_data_is_refused_and_harms_nothing() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let started = server.api().play(&upstream.script(100).rate(100)).await?;
    let said = Server::refused(Options::with(&upstream).data(&server.data())).await?;
    assert!(said.contains("another") || said.contains("lock") || said.contains("in use"), "{said}");
    let recording = Reader::of_generation(server.api(), &started.generation).record(soon()).await;
    Case::completed(&started, 100, vec![recording]).check(server.api()).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn x6_health_and_readiness_respond() -> anyhow::Result<()> {
    let (server, _upstream) = both().await?;
    for path in ["/healthz", "/readyz", "/openapi.json", "/v1/capabilities", "/v1/models"] {
        server.api().get(path).await?.expect(200)?;
    }
    Ok(())
}
