//! Questions to a person: they wait for days, the sandbox sleeps and goes meanwhile, and one decision counts.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::join_all;
use outlast_proof::agent::Agent;
use outlast_proof::agent::deaths::nothing_runs;
use outlast_proof::agent::outcome::Outcome;
use outlast_proof::api::{Answer, Api, Started};
use outlast_proof::server::Server;
use outlast_proof::sse::Frame;
use outlast_proof::stored::Stored;
use outlast_proof::upstream::Upstream;
use outlast_proof::wait::{LONG, until};
use outlast_proof::worker::Worker;
use serde_json::{Value, json};

use crate::runs::changes;
use crate::{both_with, sandbox_of};

const ASKS: &str = "[tools.edit_file]\npolicy = \"ask\"";
const SLEEPS_SOON: &str = "[tools.edit_file]\npolicy = \"ask\"\n[timeouts]\napproval_pause = \"500ms\"";
const GOES_SOON: &str =
    "[tools.edit_file]\npolicy = \"ask\"\n[timeouts]\napproval_pause = \"500ms\"\nsandbox_kill = \"500ms\"";

/// An agent that leaves a counter running in the background and asks before it edits a file.
fn asking(upstream: &Upstream) -> Agent {
    let counter = "while :; do echo x >> ticks; sleep 0.01; done";
    Agent::new(upstream)
        .asks("", &[("bash", json!({"command": counter, "background": true}))])
        .runs("until test -s ticks; do sleep 0.01; done; echo before > kept")
        .asks("May I?", &[edit()])
        .says("Done.")
}

fn edit() -> (&'static str, Value) {
    ("edit_file", json!({"path": "kept", "old": "before", "new": "after"}))
}

/// Waits for the question, and returns it.
async fn asked(api: &Api, started: &Started) -> anyhow::Result<Value> {
    let document = api.until_status(&started.generation, &["awaiting_approval", "paused"]).await?;
    Ok(document["pendingApproval"].clone())
}

pub(crate) async fn decide(
    api: &Api,
    started: &Started,
    question: &Value,
    decision: &str,
) -> anyhow::Result<Answer> {
    let call = question["toolUseId"].as_str().context("a question has a call")?;
    let body = json!({"decision": decision, "hash": question["hash"], "reason": "so said"});
    api.post(&format!("/v1/generations/{}/approvals/{call}", started.generation), &body).await
}

/// How often the counter in the background has counted.
fn ticks(server: &Server, sandbox: &str) -> anyhow::Result<u64> {
    Ok(fs::metadata(server.data().join("sandboxes").join(sandbox).join("workspace/ticks"))?.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn g6_while_a_person_thinks_the_sandbox_is_frozen_and_goes_on_with_the_decision() -> anyhow::Result<()>
{
    let (mut server, upstream) = both_with(SLEEPS_SOON).await?;
    let api = server.api().clone();
    let started = asking(&upstream).start(&api).await?;
    asked(&api, &started).await?;
    server.crash().await?;
    let question = asked(&api, &started).await?;
    let document = api.until_status(&started.generation, &["paused"]).await?;
    assert_eq!((&document["isPaused"], &document["pendingApproval"]), (&json!(true), &question));
    let sandbox = sandbox_of(&api, &started).await?;
    let frozen = ticks(&server, &sandbox)?;
    assert!(frozen > 0);
    server.crash().await?;
    assert_eq!(api.generation(&started.generation).await?["status"], "paused");
    assert_eq!(ticks(&server, &sandbox)?, frozen, "its counter stands still");

    decide(&api, &started, &question, "approve").await?.expect(200)?;
    until("the counter going on", LONG, async || Ok((ticks(&server, &sandbox)? > frozen).then_some(())))
        .await?;
    let document = api.until_ended(&started.generation).await?;
    assert_eq!(document["status"], "completed", "{document}");
    let outcome = Outcome::read(&api, &started, &server.data()).await?;
    assert_eq!(outcome.file("kept"), "after\n");
    let stored = Stored::read(&api, &started.conversation).await?;
    assert_eq!(changes(&stored)?, [json!("created"), json!("paused"), json!("resumed")]);
    Ok(())
}

/// A run whose sandbox has been killed while a person was asked.
async fn killed() -> anyhow::Result<(Server, Upstream, Started, Value)> {
    let (mut server, upstream) = both_with(GOES_SOON).await?;
    let api = server.api().clone();
    let started = asking(&upstream).start(&api).await?;
    let question = asked(&api, &started).await?;
    let sandbox = sandbox_of(&api, &started).await?;
    server.crash().await?;
    until("the kill of the sandbox", LONG, async || {
        let stored = Stored::read(&api, &started.conversation).await?;
        Ok(changes(&stored)?.contains(&json!("killed")).then_some(()))
    })
    .await?;
    assert!(!server.data().join("sandboxes").join(sandbox).exists());
    nothing_runs(&server).await?;
    server.crash().await?;
    assert_eq!(api.generation(&started.generation).await?["status"], "paused", "the question stays");
    Ok((server, upstream, started, question))
}

#[tokio::test(flavor = "multi_thread")]
async fn g6_s6_a_decision_after_the_sandbox_was_killed_restores_its_files_into_a_new_one()
-> anyhow::Result<()> {
    let (server, _upstream, started, question) = killed().await?;
    let api = server.api();
    decide(api, &started, &question, "approve").await?.expect(200)?;
    let document = api.until_ended(&started.generation).await?;
    assert_eq!(document["status"], "completed", "{document}");
    let outcome = Outcome::read(api, &started, &server.data()).await?;
    assert_eq!(outcome.file("kept"), "after\n");
    assert!(outcome.file("ticks").len() > 1, "the checkpoint has what was written before the pause");
    let stored = Stored::read(api, &started.conversation).await?;
    let states = ["created", "paused", "killed", "restored"].map(|state| json!(state));
    assert_eq!(changes(&stored)?, states);
    Ok(())
}

/// Changes the last byte of every file below a folder.
fn damage(folder: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            damage(&path)?;
        } else {
            let mut bytes = fs::read(&path)?;
            bytes.last_mut().into_iter().for_each(|byte| *byte ^= 1);
            fs::write(&path, bytes)?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s6_a_damaged_checkpoint_is_never_restored_and_the_transcript_says_what_was_lost()
-> anyhow::Result<()> {
    let (server, _upstream, started, question) = killed().await?;
    let api = server.api();
    damage(&server.data().join("checkpoints"))?;
    decide(api, &started, &question, "approve").await?.expect(200)?;
    api.until_ended(&started.generation).await?;
    let outcome = Outcome::read(api, &started, &server.data()).await?;
    assert_eq!(outcome.file("kept"), "", "nothing of a damaged checkpoint is in the sandbox");
    let stored = Stored::read(api, &started.conversation).await?;
    let states = ["created", "paused", "killed", "created"].map(|state| json!(state));
    assert_eq!(changes(&stored)?, states);
    assert!(stored.log.iter().any(|frame| frame.kind == "checkpoint.failed"));
    let said = |message: &Value| {
        message["role"] == "system" && message.to_string().contains("its replacement is empty")
    };
    assert!(outcome.transcript.iter().any(said), "{:?}", outcome.transcript);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g6_a_denial_and_its_reason_are_told_to_the_model_and_nothing_runs() -> anyhow::Result<()> {
    let (server, upstream) = both_with(ASKS).await?;
    let api = server.api();
    let agent = Agent::new(&upstream).runs("echo before > kept").asks("", &[edit()]).says("A pity.");
    let started = agent.start(api).await?;
    let question = asked(api, &started).await?;
    decide(api, &started, &question, "deny").await?.expect(200)?;
    decide(api, &started, &question, "approve").await?.problem(409, "already_decided")?;
    api.until_ended(&started.generation).await?;
    let outcome = Outcome::read(api, &started, &server.data()).await?;
    assert_eq!(outcome.file("kept"), "before\n");
    assert_eq!(outcome.result("call_1_0")?, "denied by a person: so said");
    assert_eq!(outcome.began.get("call_1_0"), None);
    let told = upstream.asked(agent.seed_of(0)).await?.to_string();
    assert!(told.contains("denied by a person: so said"), "{told}");
    Ok(())
}

/// What one race ended with.
struct Race {
    approved: u16,
    denied: u16,
    cancelled: bool,
    outcome: Outcome,
    kinds: Vec<String>,
}

async fn race(server: &Server, upstream: &Upstream, number: usize) -> anyhow::Result<Race> {
    let api = server.api();
    let agent = Agent::new(upstream).runs("echo before > kept").asks("", &[edit()]).says("Done.");
    let started = agent.start(api).await?;
    let question = asked(api, &started).await?;
    let late =
        async |place: usize| tokio::time::sleep(Duration::from_millis(((number + place) % 3) as u64)).await;
    let approve = async {
        late(0).await;
        decide(api, &started, &question, "approve").await
    };
    let deny = async {
        late(1).await;
        decide(api, &started, &question, "deny").await
    };
    let cancel = async {
        late(2).await;
        if number.is_multiple_of(2) { api.cancel(&started.generation).await } else { Ok(false) }
    };
    let (approve, deny, cancel) = tokio::join!(approve, deny, cancel);
    api.until_ended(&started.generation).await?;
    let outcome = Outcome::read(api, &started, &server.data()).await?;
    let stored = Stored::read(api, &started.conversation).await?;
    let kinds = stored.kinds_of(&started.generation).into_iter().map(str::to_owned).collect();
    Ok(Race { approved: approve?.status, denied: deny?.status, cancelled: cancel?, outcome, kinds })
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_approve_deny_cancel_and_the_pause_race_and_one_wins() -> anyhow::Result<()> {
    let toml = "[tools.edit_file]\npolicy = \"ask\"\n[timeouts]\napproval_pause = \"1ms\"";
    let (server, upstream) = both_with(toml).await?;
    let mut winners = [0_u32; 3];
    for chunk in 0..6 {
        for race in join_all((0..4).map(|place| race(&server, &upstream, chunk * 4 + place))).await {
            let Race { approved, denied, cancelled, outcome, kinds } = race?;
            let place = |kind: &str| kinds.iter().position(|found| found == kind);
            let count = |kind: &str| kinds.iter().filter(|found| *found == kind).count();
            let decisions = [approved, denied].iter().filter(|status| **status == 200).count();
            assert!(
                decisions <= 1 && count("approval.resolved") == decisions,
                "{approved} {denied} {kinds:?}"
            );
            assert!(decisions == 1 || cancelled, "nobody won: {approved} {denied} {kinds:?}");
            let edited = outcome.file("kept") == "after\n";
            assert!(approved == 200 || !edited, "it ran without an approval: {kinds:?}");
            if let Some(began) =
                kinds.iter().rposition(|kind| kind == "tool.began").filter(|_| count("tool.began") > 1)
            {
                assert!(place("approval.resolved").is_some_and(|decided| decided < began), "{kinds:?}");
            }
            assert_eq!(outcome.status == "cancelled", cancelled, "{kinds:?}");
            winners[if cancelled { 2 } else { usize::from(approved != 200) }] += 1;
        }
    }
    eprintln!("approved, denied, cancelled: {winners:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_a_worker_that_swaps_its_question_races_with_two_decisions_and_a_cancel() -> anyhow::Result<()> {
    let (server, _upstream) = both_with("").await?;
    let api = server.api();
    let mut swapped_first = 0;
    for number in 0..24_u64 {
        let mut worker = Worker::start(api).await?;
        worker.ask("call_1", "ls").await?.expect(200)?;
        let seen = worker.hash_shown().await?;
        let started = worker.started.clone();
        let path = format!("/v1/generations/{}/approvals/call_1", started.generation);
        let late = async |place: u64| tokio::time::sleep(Duration::from_millis((number + place) % 4)).await;
        let decide = async |place: u64, decision: &str| {
            late(place).await;
            api.post(&path, &json!({"decision": decision, "hash": seen})).await
        };
        let cancel = async {
            late(2).await;
            if number.is_multiple_of(3) { api.cancel(&started.generation).await } else { Ok(false) }
        };
        let swap = async {
            late(3).await;
            // It is refused once the generation was cancelled.
            Ok::<bool, anyhow::Error>(
                worker.claim(false).await.is_ok() && worker.ask("call_1", "rm -rf /").await?.status == 200,
            )
        };
        let (approve, deny, cancelled, swapped) =
            tokio::join!(decide(0, "approve"), decide(1, "deny"), cancel, swap);
        let (approve, deny, cancelled, swapped) = (approve?.status, deny?.status, cancelled?, swapped?);
        let decided = [approve, deny].iter().filter(|status| **status == 200).count();
        assert!(decided <= 1 && [approve, deny].iter().all(|status| [200, 404, 409].contains(status)));
        assert!(swapped || cancelled);
        let stored = Stored::read(api, &started.conversation).await?;
        let events: Vec<Value> = stored.log.iter().map(Frame::event).collect::<Result<_, _>>()?;
        let mut shown = Value::Null;
        let mut resolved = 0;
        for event in &events {
            match event["type"].as_str() {
                Some("approval.requested") => shown = event["payload"]["hash"].clone(),
                Some("attempt.retracted") => shown = Value::Null,
                Some("approval.resolved") => {
                    assert_eq!(shown, seen, "the decision is about the question that was seen: {events:?}");
                    resolved += 1;
                }
                _ => {}
            }
        }
        assert_eq!(resolved, decided, "{events:?}");
        if swapped && !cancelled {
            assert_ne!(worker.hash_shown().await?, seen, "the other question still waits");
            swapped_first += u32::from(decided == 0);
            api.cancel(&started.generation).await?;
        }
    }
    eprintln!("the worker was first {swapped_first} times");
    Ok(())
}
