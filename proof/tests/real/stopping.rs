//! Start-up, SIGTERM, and two servers on one data folder.

use std::time::{Duration, Instant};

use outlast_proof::agent::outcome::Outcome;
use outlast_proof::agent::{Agent, allowed};
use outlast_proof::api::Started;
use outlast_proof::check::{Case, first_difference};
use outlast_proof::reader::Reader;
use outlast_proof::server::{Options, Server};
use outlast_proof::sse::Cutter;
use outlast_proof::stored::Stored;
use outlast_proof::upstream::Upstream;
use outlast_proof::wait::{LONG, bounded, until};

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

/// How many answers are being written, and how many tools run, when the server is told to stop.
const LIVE: usize = 200;
const TOOLS: usize = 20;
const TOKENS: u64 = 120;
/// `server.drain`, and what a busy machine takes besides.
const GONE_WITHIN: Duration = Duration::from_secs(5 + 10);

/// A tool that runs until a file appears in its workspace, and counts how often it was run.
const UNTIL_TOLD: &str = "echo x >> runs; echo began; while [ ! -e go ]; do sleep 0.2; done; echo told";

/// Starts the agents, and returns when all their tools run, with the workspace of each.
async fn running_tools(
    server: &Server,
    upstream: &Upstream,
) -> anyhow::Result<Vec<(Started, std::path::PathBuf)>> {
    let (api, mut all) = (server.api(), Vec::new());
    for _ in 0..TOOLS {
        all.push(Agent::new(upstream).runs(UNTIL_TOLD).says("Done.").start(api).await?);
    }
    let mut running = Vec::new();
    for started in all {
        let sandbox = until("a running tool", LONG, async || {
            let stored = Stored::read(api, &started.conversation).await?;
            let runs = stored.log.iter().any(|frame| frame.kind == "tool.output");
            let sandbox = stored.view["conversation"]["sandboxId"].as_str().map(str::to_owned);
            Ok(sandbox.filter(|_| runs))
        });
        let workspace = server.data().join("sandboxes").join(sandbox.await?).join("workspace");
        running.push((started, workspace));
    }
    Ok(running)
}

#[tokio::test(flavor = "multi_thread")]
async fn x6_x8_sigterm_with_200_live_streams_and_20_tools_ends_in_time_and_every_log_is_exact()
-> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let mut server = Server::start(allowed(&upstream).toml("[server]\ndrain = \"5s\"")).await?;
    let api = server.api().clone();
    let tools = running_tools(&server, &upstream).await?;
    let (mut readers, mut all) = (tokio::task::JoinSet::new(), Vec::new());
    for index in 0..LIVE {
        let started = api.play(&upstream.script(TOKENS).rate(20)).await?;
        let reader = Reader::of_generation(&api, &started.generation);
        readers.spawn(async move { (index, reader.record(soon()).await) });
        all.push(started);
    }
    let mut watchers = tokio::task::JoinSet::new();
    for (index, (started, _)) in tools.iter().enumerate() {
        let reader = Reader::of_generation(&api, &started.generation);
        watchers.spawn(async move { (index, reader.record(soon()).await) });
    }
    for started in &all {
        api.until_chunks(&started.generation, 5).await?;
    }
    let begun = Instant::now();
    server.stop().await?;
    let took = begun.elapsed();
    eprintln!("{LIVE} live streams and {TOOLS} tools: the process ended after {took:?}");
    assert!(took < GONE_WITHIN, "{took:?}");
    server.restart().await?;
    for (_, workspace) in &tools {
        std::fs::write(workspace.join("go"), "")?;
    }
    while let Some(read) = readers.join_next().await {
        let (index, recording) = read?;
        Case::completed(&all[index], TOKENS, vec![recording]).check(&api).await?.clean()?;
    }
    while let Some(read) = watchers.join_next().await {
        let (index, recording) = read?;
        let started = &tools[index].0;
        let outcome = Outcome::read(&api, started, &server.data()).await?;
        assert_eq!((outcome.status.as_str(), outcome.result("call_0_0")?), ("completed", "began\ntold\n"));
        assert_eq!(outcome.file("runs"), "x\n", "it ran once");
        let stored = Stored::read(&api, &started.conversation).await?;
        assert_eq!(first_difference(&recording.frames, &stored.events_of(&started.generation)), None);
        assert!(recording.ended && recording.findings.violations.is_empty(), "{:?}", recording.findings);
    }
    Ok(())
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
