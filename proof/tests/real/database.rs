//! A database that cannot be reached when the server starts, and one that goes away later.

use outlast_proof::api::Api;
use outlast_proof::check::Case;
use outlast_proof::cluster::{Cluster, Shutdown};
use outlast_proof::reader::Reader;
use outlast_proof::server::{Options, Server};
use outlast_proof::upstream::Upstream;
use outlast_proof::wait::{LONG, until};
use outlast_store::suite::redis;
use serde_json::json;
use tokio::task::spawn_blocking;

use crate::soon;

#[tokio::test(flavor = "multi_thread")]
async fn b1_a_store_that_cannot_be_reached_at_the_start_is_one_line_and_exit_code_2() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    for scheme in ["postgres", "redis"] {
        let url = format!("{scheme}://ann:secret@127.0.0.1:{free}/0");
        let said = Server::refused(Options::with(&upstream).arg("--store").arg(&url)).await?;
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("outlast: ")).collect();
        assert!(matches!(lines[..], [line] if line.contains("store.url")), "{said}");
        assert!(said.contains("refused") && !said.contains("secret"), "{said}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_i10_i17_while_postgres_is_away_requests_are_refused_and_then_everything_goes_on()
-> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let cluster = Cluster::start(Options::with(&upstream), 1).await?;
    let database = cluster.database();
    let stop = async || database.stop(Shutdown::Fast).await;
    outage(cluster.api(0), &upstream, stop, async |()| database.resume().await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_i10_i17_while_redis_is_away_requests_are_refused_and_then_everything_goes_on()
-> anyhow::Result<()> {
    let mut redis = spawn_blocking(redis::Server::start).await?;
    let upstream = Upstream::start().await?;
    let options = Options::with(&upstream).toml(&format!("[store]\nurl = \"{}\"", redis.url()));
    let server = Server::start(options).await?;
    let stop = async move || {
        let kill = move || {
            redis.kill();
            redis
        };
        Ok(spawn_blocking(kill).await?)
    };
    let resume = async |mut redis: redis::Server| {
        let resume = move || {
            redis.resume();
            redis
        };
        Ok(spawn_blocking(resume).await?)
    };
    outage(server.api(), &upstream, stop, resume).await
}

/// The store goes away in the middle of an answer that somebody reads, and comes back. It runs until the end of this.
async fn outage<Stopped, Running>(
    api: &Api,
    upstream: &Upstream,
    stop: impl AsyncFnOnce() -> anyhow::Result<Stopped>,
    resume: impl AsyncFnOnce(Stopped) -> anyhow::Result<Running>,
) -> anyhow::Result<()> {
    let started = api.play(&upstream.script(60).rate(20)).await?;
    api.until_chunks(&started.generation, 5).await?;
    let reading = Reader::of_generation(api, &started.generation).record(soon());
    let away = async {
        let stopped = stop().await?;
        let body = json!({"content": upstream.script(5).to_string()});
        let refused = api.post("/v1/generations", &body).await?.problem(503, "store_unavailable")?;
        assert!(refused.retry_after.is_some());
        api.get("/healthz").await?.expect(200)?;
        api.get("/readyz").await?.expect(503)?;

        let running = resume(stopped).await?;
        until("the return of the database", LONG, async || {
            Ok((api.get("/readyz").await?.status == 200).then_some(()))
        })
        .await?;
        let again = api.insist("/v1/generations", &body).await?.started()?;
        api.until_ended(&again.generation).await?;
        anyhow::Ok(running)
    };
    let (recording, running) = tokio::join!(reading, away);
    let _running = running?;
    api.until_ended(&started.generation).await?;
    Case::completed(&started, 60, vec![recording]).check(api).await?.clean()
}
