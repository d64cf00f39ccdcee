//! Three servers on one PostgreSQL: any of them serves anyone, and one that dies is replaced.

use std::collections::BTreeSet;
use std::time::Duration;

use outlast_proof::api::{Api, Started};
use outlast_proof::check::Case;
use outlast_proof::cluster::{Cluster, SHORT_LEASE};
use outlast_proof::reader::{Reader, Recording};
use outlast_proof::server::Options;
use outlast_proof::stored::Stored;
use outlast_proof::upstream::Upstream;
use outlast_proof::wait::{LONG, until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::soon;

const INSTANCES: usize = 3;
const GENERATIONS: usize = 30;
const READERS: usize = 3;
const TOKENS: u64 = 40;

async fn three(toml: &str) -> anyhow::Result<(Cluster, Upstream)> {
    let upstream = Upstream::start().await?;
    let cluster = Cluster::start(Options::with(&upstream).toml(toml), INSTANCES).await?;
    Ok((cluster, upstream))
}

fn in_background(reader: Reader) -> JoinSet<Recording> {
    let mut reading = JoinSet::new();
    reading.spawn(reader.record(soon()));
    reading
}

/// What every instance returns for a conversation must be the same, byte for byte.
async fn same_everywhere(cluster: &Cluster, started: &Started) -> anyhow::Result<()> {
    let mut logs = Vec::new();
    for api in cluster.apis() {
        logs.push(Stored::read(&api, &started.conversation).await?.log);
    }
    assert!(logs.windows(2).all(|pair| pair[0] == pair[1]), "the log of {started:?} differs");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn x2_i2_i6_readers_that_come_back_anywhere_get_the_same_bytes_and_each_upstream_is_called_once()
-> anyhow::Result<()> {
    let (cluster, upstream) = three("").await?;
    let (apis, anywhere) = (cluster.apis(), cluster.in_turn()?);
    let (mut all, mut readers) = (Vec::new(), JoinSet::new());
    for number in 0..GENERATIONS {
        let script = upstream.script(TOKENS).rate(40);
        let started = apis[number % INSTANCES].play(&script).await?;
        for reader in 0..READERS {
            let seed = (number * READERS + reader) as u64;
            let reading = Reader::of_generation(&anywhere, &started.generation).drops_after(12, seed);
            readers.spawn(async move { (number, reading.record(soon()).await) });
        }
        all.push((script, started, Vec::new()));
    }
    while let Some(read) = readers.join_next().await {
        let (number, recording) = read?;
        all[number].2.push(recording);
    }
    for (number, (script, started, recordings)) in all.into_iter().enumerate() {
        assert_eq!(upstream.calls(&script).await?.calls, 1, "one call for {started:?}");
        same_everywhere(&cluster, &started).await?;
        let elsewhere = &apis[(number + 1) % INSTANCES];
        Case::completed(&started, TOKENS, recordings).check(elsewhere).await?.clean()?;
    }
    Ok(())
}

/// Sends starts to the servers in turn, all at once. Returns how many were accepted, and how many generations they made.
async fn at_once(
    apis: &[Api],
    times: usize,
    body: impl Fn(usize) -> Value,
) -> anyhow::Result<(usize, usize)> {
    let mut starts = JoinSet::new();
    for number in 0..times {
        let (api, body) = (apis[number % apis.len()].clone(), body(number));
        starts.spawn(async move { api.post("/v1/generations", &body).await });
    }
    let answers = starts.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
    let ids: BTreeSet<&str> =
        answers.iter().filter_map(|answer| answer.body["generationId"].as_str()).collect();
    for answer in answers.iter().filter(|answer| answer.status != 202) {
        assert_eq!((answer.status, answer.code()), (429, "limit_reached"), "{}", answer.body);
        assert!(answer.retry_after.is_some());
    }
    let accepted = answers.iter().filter(|answer| answer.status == 202).count();
    Ok((accepted, ids.len()))
}

#[tokio::test(flavor = "multi_thread")]
async fn i4_b4_equal_starts_and_a_limit_hold_over_three_instances() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let options = Options::with(&upstream).env("OUTLAST_LIMITS__LIVE_GENERATIONS_PER_USER", "5");
    let cluster = Cluster::start(options, INSTANCES).await?;
    let apis = cluster.apis();

    let script = upstream.script(10);
    let equal = json!({"content": script.to_string(), "requestId": "once"});
    assert_eq!(at_once(&apis, 30, |_| equal.clone()).await?, (30, 1), "30 equal starts");
    let started = apis[1].post("/v1/generations", &equal).await?.started()?;
    apis[2].until_ended(&started.generation).await?;
    assert_eq!(upstream.calls(&script).await?.calls, 1);
    Case::completed(&started, 10, Vec::new()).check(&apis[0]).await?.clean()?;

    let hang = |_| json!({"content": upstream.script(10).fault("hang_after=2").to_string()});
    assert_eq!(at_once(&apis, 30, hang).await?, (5, 5), "a limit of 5");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn i19_g5_commands_given_to_another_instance_have_their_effect_once() -> anyhow::Result<()> {
    let (cluster, upstream) = three("").await?;
    let [owner, other, third] = [0, 1, 2].map(|server| cluster.api(server).clone());
    let mut took = Vec::new();
    for _ in 0..5 {
        let script = upstream.script(10_000).rate(100);
        let started = owner.play(&script).await?;
        let reader = in_background(Reader::of_generation(&third, &started.generation));
        owner.until_chunks(&started.generation, 3).await?;

        let asked = Instant::now();
        let path = format!("/v1/conversations/{}", started.conversation);
        let rename = other.request(Method::PATCH, &path).json(&json!({"title": "Elsewhere"}));
        other.send(rename).await?.expect(200)?;
        took.push(asked.elapsed());
        assert_eq!(third.view(&started.conversation).await?["conversation"]["title"], "Elsewhere");

        let asked = Instant::now();
        let cancels = [&other, &third, &owner].map(|api| api.cancel(&started.generation));
        let cancels = futures_util::future::try_join_all(cancels).await?;
        took.push(asked.elapsed());
        assert_eq!(cancels.iter().filter(|success| **success).count(), 1, "the first cancel wins");
        until("the end of the call", LONG, async || {
            Ok((upstream.calls(&script).await?.live == 0).then_some(()))
        })
        .await?;
        eprintln!("the upstream was closed {:?} after the cancel", asked.elapsed());
        let recordings = reader.join_all().await;
        Case::ended(&started, 10_000, &["cancelled"], recordings).check(&other).await?.clean()?;
        same_everywhere(&cluster, &started).await?;
        assert_eq!(upstream.calls(&script).await?.calls, 1);
    }
    took.sort_unstable();
    eprintln!("commands to another instance took {:?} to {:?}", took[0], took[took.len() - 1]);
    retry_elsewhere(&cluster, &upstream).await
}

async fn retry_elsewhere(cluster: &Cluster, upstream: &Upstream) -> anyhow::Result<()> {
    let failing = upstream.script(20).fault("fail=400 fails=1");
    let started = cluster.api(0).play(&failing).await?;
    cluster.api(1).until_status(&started.generation, &["error"]).await?;
    let path = format!("/v1/generations/{}/retry", started.generation);
    let body = json!({"mode": "retry", "requestId": "again"});
    let mut retried = BTreeSet::new();
    for api in [1, 2, 1].map(|server| cluster.api(server)) {
        retried.insert(api.post(&path, &body).await?.expect(202)?.text("generationId")?);
    }
    assert_eq!(retried.len(), 1, "the same retry, sent to two instances");
    for retried in retried {
        assert_eq!(cluster.api(0).until_ended(&retried).await?["status"], "completed");
    }
    assert_eq!(upstream.calls(&failing).await?.calls, 2);
    Ok(())
}

/// Waits until the answer is longer, as seen by a server.
async fn goes_on(api: &Api, started: &Started, since: Instant, from: u32) -> anyhow::Result<Duration> {
    until("the next text", LONG, async || {
        let document = api.generation(&started.generation).await?;
        let attempt = document["attempt"].as_u64().unwrap_or_default();
        let text = document["contentParts"][0]["text"].as_str().unwrap_or_default();
        Ok((attempt > u64::from(from) && !text.is_empty()).then_some(since.elapsed()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn x2_i10_the_generations_of_a_killed_instance_are_taken_over_after_its_lease() -> anyhow::Result<()> {
    let (mut cluster, upstream) = three(SHORT_LEASE).await?;
    let apis = cluster.apis();
    let started = apis[0].play(&upstream.script(TOKENS).rate(20)).await?;
    let reader = Reader::of_generation(&cluster.in_turn()?, &started.generation).drops_after(10, 3);
    let reader = in_background(reader);
    apis[0].until_chunks(&started.generation, 5).await?;
    cluster.servers[0].kill().await?;
    let took = goes_on(&apis[1], &started, Instant::now(), 1).await?;
    eprintln!("taken over {took:?} after kill -9, with a lease of 3 s");
    let recordings = reader.join_all().await;
    apis[2].until_ended(&started.generation).await?;
    Case::completed(&started, TOKENS, recordings).check(&apis[2]).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn x2_x6_an_instance_that_is_stopped_hands_over_at_once_and_loses_no_attempt() -> anyhow::Result<()> {
    let (mut cluster, upstream) = three("").await?;
    let apis = cluster.apis();
    let script = upstream.script(TOKENS).rate(20);
    let started = apis[0].play(&script).await?;
    let reader = Reader::of_generation(&cluster.in_turn()?, &started.generation).drops_after(10, 4);
    let reader = in_background(reader);
    apis[0].until_chunks(&started.generation, 5).await?;
    let asked = Instant::now();
    cluster.servers[0].terminate()?;
    let took = goes_on(&apis[1], &started, asked, 1).await?;
    eprintln!("the next text came {took:?} after SIGTERM");
    assert!(took < Duration::from_secs(14), "it waited for the lease of 15 s: {took:?}");
    cluster.servers[0].ended(LONG).await?;
    let recordings = reader.join_all().await;
    apis[2].until_ended(&started.generation).await?;
    let stored = Stored::read(&apis[1], &started.conversation).await?;
    let scheduled = stored.log.iter().find(|frame| frame.kind == "retry.scheduled");
    let scheduled = scheduled.map(|frame| frame.event()).transpose()?.unwrap_or_default();
    assert_eq!(scheduled["payload"]["handedOver"], true, "{scheduled}");
    Case::completed(&started, TOKENS, recordings).check(&apis[2]).await?.clean()
}
