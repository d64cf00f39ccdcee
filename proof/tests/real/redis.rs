//! The server on Redis: both are killed under load, and what was acknowledged is there.

use std::time::Duration;

use outlast_proof::check::unchanged;
use outlast_proof::crash::{Blow, Mix, strike};
use outlast_proof::server::{Options, Server};
use outlast_proof::upstream::Upstream;
use outlast_proof::violation::Findings;
use outlast_store::suite::redis;

/// More of them: `OUTLAST_ROUNDS=10 cargo nextest run -p outlast-proof --test real i1_x2 --no-capture`. After each death
/// the next server waits for the lease of the dead one, so a round takes half a minute.
const ROUNDS: u64 = 1;

fn rounds() -> u64 {
    let wanted = std::env::var("OUTLAST_ROUNDS").ok();
    wanted.map_or(ROUNDS, |wanted| wanted.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_x2_kill_9_of_the_server_and_of_redis_loses_no_acknowledged_event() -> anyhow::Result<()> {
    let mut redis = redis::Server::start();
    let upstream = Upstream::start().await?;
    let options = Options::with(&upstream).toml(&format!("[store]\nurl = \"{}\"", redis.url()));
    let mut server = Server::start(options).await?;
    let mut random = fastrand::Rng::with_seed(10);
    let mix = Mix { generations: 12, readers: 24, millis: 800 };
    let mut findings = Findings::default();
    for round in 0..rounds() {
        let moment = |random: &mut fastrand::Rng| Duration::from_millis(random.u64(0..mix.millis));
        let visitors = mix.visitors(server.api(), &upstream, &mut random);
        let outcome = strike(&mut server, visitors, Blow::Kills(vec![moment(&mut random)])).await?;
        eprintln!("round {round}, server killed: {} events", outcome.findings.events);
        findings.add(outcome.findings);

        let visitors = mix.visitors(server.api(), &upstream, &mut random);
        let wait = moment(&mut random) / 2;
        let killed = async {
            tokio::time::sleep(wait).await; // a random moment is intended here
            let restart = move || {
                redis.kill();
                redis.resume();
                redis
            };
            tokio::task::spawn_blocking(restart).await
        };
        let (outcome, killed) = tokio::join!(strike(&mut server, visitors, Blow::Kills(Vec::new())), killed);
        let outcome = outcome?;
        redis = killed?;
        assert_eq!(outcome.deaths, 0, "the server survives Redis: {}", server.last_errors());
        eprintln!("round {round}, Redis killed: {} events", outcome.findings.events);
        findings.add(outcome.findings);
    }
    findings.add(unchanged(server.api(), &findings.logs).await?);
    assert!(findings.generations >= 2 * rounds() * 12 && findings.events > 100 * rounds());
    findings.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_a_redis_that_does_not_sync_is_refused_unless_the_setting_accepts_it() -> anyhow::Result<()> {
    let redis = redis::Server::with(&["appendfsync everysec"]);
    let upstream = Upstream::start().await?;
    let options = Options::with(&upstream).toml(&format!("[store]\nurl = \"{}\"", redis.url()));
    let said = Server::refused(options.clone()).await?;
    assert!(said.contains("appendfsync") && said.contains("durability.mode"), "{said}");
    let server = Server::start(options.toml("[durability]\nmode = \"boundary\"")).await?;
    let started = server.api().play(&upstream.script(5)).await?;
    server.api().until_ended(&started.generation).await?;
    Ok(())
}
