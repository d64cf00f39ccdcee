//! What a server does with a tool whose outcome nobody knows, and with a sandbox that cannot be had.

use std::fs;

use anyhow::Context;
use outlast_proof::agent::outcome::Outcome;
use outlast_proof::agent::{Agent, project};
use outlast_proof::api::{Api, Started};
use outlast_proof::server::Server;
use outlast_proof::stored::Stored;
use outlast_proof::upstream::Upstream;
use outlast_proof::wait::{LONG, until};
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::runs::changes;
use crate::{both, both_with, sandbox_of};

/// A run that saved a file, and then a tool that never ends.
fn endless(upstream: &Upstream) -> Agent {
    Agent::new(upstream)
        .runs("echo saved > kept")
        .runs("echo x >> runs; echo began; sleep 3600")
        .asks("", &[("bash", json!({"command": "ls"}))])
        .says("Done.")
}

/// Runs it until its endless tool has begun.
async fn begun(server: &Server, upstream: &Upstream) -> anyhow::Result<(Started, String)> {
    let api = server.api();
    let started = endless(upstream).start(api).await?;
    until("the beginning of the tool", LONG, async || {
        let stored = Stored::read(api, &started.conversation).await?;
        Ok(stored.log.iter().any(|frame| frame.kind == "tool.output").then_some(()))
    })
    .await?;
    let sandbox = sandbox_of(api, &started).await?;
    Ok((started, sandbox))
}

/// Destroys a sandbox behind the server's back, with everything in it.
fn destroy(server: &Server, sandbox: &str) -> anyhow::Result<()> {
    let root = server.data().join("sandboxes");
    for execution in fs::read_dir(root.join(sandbox).join("executions"))? {
        // bubblewrap writes the pid of the first process inside; the rest die with it.
        let status = fs::read_to_string(execution?.path().join("status"))?;
        let first = status.lines().next().unwrap_or_default();
        let told: Value = serde_json::from_str(first).with_context(|| status.clone())?;
        let pid = told["child-pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if !status.contains("exit-code") {
            kill_process(pid.context("a running tool has a pid")?, Signal::KILL)?;
        }
    }
    fs::remove_dir_all(root.join(sandbox))?;
    Ok(())
}

/// The server comes back without the sandbox.
async fn lost(toml: &str) -> anyhow::Result<(Server, Upstream, Started)> {
    let (mut server, upstream) = both_with(toml).await?;
    let (started, sandbox) = begun(&server, &upstream).await?;
    server.kill().await?;
    destroy(&server, &sandbox)?;
    server.restart().await?;
    Ok((server, upstream, started))
}

async fn resume(api: &Api, started: &Started) -> anyhow::Result<outlast_proof::api::Answer> {
    api.post(&format!("/v1/generations/{}/resume", started.generation), &json!({})).await
}

async fn system_messages(api: &Api, started: &Started) -> anyhow::Result<Vec<String>> {
    let view = api.view(&started.conversation).await?;
    let messages = view["messages"].as_array().cloned().unwrap_or_default();
    let system = messages.iter().filter(|message| message["role"] == "system");
    Ok(system.filter_map(|message| message["content"].as_str().map(str::to_owned)).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_p3_p5_i7_in_safe_mode_a_tool_of_unknown_outcome_waits_for_resume_and_is_not_repeated()
-> anyhow::Result<()> {
    let (mut server, _upstream, started) = lost("").await?;
    let api = server.api().clone();
    api.until_status(&started.generation, &["interrupted"]).await?;
    server.crash().await?;
    api.until_status(&started.generation, &["interrupted"]).await?;
    let (one, other) = tokio::join!(resume(&api, &started), resume(&api, &started));
    let mut statuses = [one?.status, other?.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 409], "two tabs press Resume and one wins");
    let document = api.until_ended(&started.generation).await?;
    assert_eq!(document["status"], "completed", "{document}");
    let outcome = Outcome::read(&api, &started, &server.data()).await?;
    assert_eq!(outcome.began.get("call_1_0"), Some(&1), "it began once");
    assert!(outcome.result("call_1_0")?.starts_with("outcome unknown"), "{}", outcome.result("call_1_0")?);
    assert_eq!(
        outcome.result("call_2_0")?,
        "kept\n",
        "the checkpoint is restored, the work of the lost tool is not"
    );
    let said = system_messages(&api, &started).await?;
    assert_eq!(said.len(), 1, "{said:?}");
    for part in ["[SESSION_RESUMED]", "round 2", "Outcome unknown: call_1_0", "kept"] {
        assert!(said[0].contains(part), "no {part:?} in {}", said[0]);
    }
    let stored = Stored::read(&api, &started.conversation).await?;
    assert_eq!(changes(&stored)?, [json!("created"), json!("lost"), json!("restored")]);
    let count = |kind: &str| stored.log.iter().filter(|frame| frame.kind == kind).count();
    assert_eq!(
        (count("chat.interrupted"), count("chat.resumed")),
        (1, 1),
        "p7: what the figures are counted from"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_in_auto_mode_the_run_goes_on_and_the_transcript_says_what_was_lost() -> anyhow::Result<()> {
    let (server, _upstream, started) = lost("[recovery]\nmode = \"auto\"").await?;
    let api = server.api();
    let document = api.until_ended(&started.generation).await?;
    assert_eq!(document["status"], "completed", "{document}");
    let outcome = Outcome::read(api, &started, &server.data()).await?;
    assert_eq!(outcome.began.get("call_1_0"), Some(&1));
    let said = system_messages(api, &started).await?;
    assert!(said.iter().any(|text| text.contains("The sandbox was lost")), "s6: {said:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_in_ask_mode_a_person_is_asked_even_though_the_tool_runs_on() -> anyhow::Result<()> {
    let (mut server, upstream) = both_with("[recovery]\nmode = \"ask\"").await?;
    let api = server.api().clone();
    let agent = Agent::new(&upstream)
        .runs("echo x >> runs; until test -e go; do sleep 0.05; done; echo ended")
        .says("Done.");
    let started = agent.start(&api).await?;
    until("the beginning of the tool", LONG, async || {
        let stored = Stored::read(&api, &started.conversation).await?;
        Ok(stored.log.iter().any(|frame| frame.kind == "tool.began").then_some(()))
    })
    .await?;
    server.crash().await?;
    api.until_status(&started.generation, &["interrupted"]).await?;
    let sandbox = sandbox_of(&api, &started).await?;
    fs::write(server.data().join("sandboxes").join(sandbox).join("workspace/go"), "")?;
    resume(&api, &started).await?.expect(202)?;
    let document = api.until_ended(&started.generation).await?;
    assert_eq!(document["status"], "completed", "{document}");
    let outcome = Outcome::read(&api, &started, &server.data()).await?;
    assert_eq!(outcome.file("runs"), "x\n");
    assert_eq!(outcome.result("call_0_0")?, "ended\n", "the tool was picked up again");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn p5_an_old_checkpoint_of_a_dead_sandbox_is_not_restored() -> anyhow::Result<()> {
    let (server, _upstream, started) = lost("[timeouts]\ncheckpoint_age = \"1ms\"").await?;
    let api = server.api();
    api.until_status(&started.generation, &["interrupted"]).await?;
    resume(api, &started).await?.expect(202)?;
    api.until_ended(&started.generation).await?;
    let outcome = Outcome::read(api, &started, &server.data()).await?;
    assert_eq!(outcome.result("call_2_0")?, "", "it starts fresh");
    let said = system_messages(api, &started).await?;
    assert!(said.iter().any(|text| text.contains("sandbox expired")), "{said:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn p5_a_checkpoint_of_another_branch_is_discarded() -> anyhow::Result<()> {
    let (server, _upstream, started) = lost("").await?;
    let api = server.api();
    api.until_status(&started.generation, &["interrupted"]).await?;
    let path = format!("/v1/conversations/{}", started.conversation);
    let change = json!({"metadata": {"branch": "other"}});
    api.send(api.request(Method::PATCH, &path).json(&change)).await?.expect(200)?;
    resume(api, &started).await?.expect(202)?;
    api.until_ended(&started.generation).await?;
    let outcome = Outcome::read(api, &started, &server.data()).await?;
    assert_eq!(outcome.result("call_2_0")?, "");
    let said = system_messages(api, &started).await?;
    assert!(said.iter().any(|text| text.contains("the branch has changed")), "{said:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn p5_a_cancelled_run_is_not_offered_to_be_resumed() -> anyhow::Result<()> {
    let (mut server, upstream) = both().await?;
    let api = server.api().clone();
    let (started, _) = begun(&server, &upstream).await?;
    assert!(api.cancel(&started.generation).await?);
    server.crash().await?;
    let document = api.generation(&started.generation).await?;
    assert_eq!(document["status"], "cancelled");
    resume(&api, &started).await?.problem(409, "already_ended")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s6_g7_without_a_sandbox_the_run_fails_without_a_message_and_can_be_retried() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let (root, away) = (server.data().join("sandboxes"), server.data().join("away"));
    fs::rename(&root, &away)?;
    fs::write(&root, "")?;
    // The model is told that its call had no result, and asks again.
    let agent = Agent::new(&upstream).runs("echo never >> runs").runs("echo x >> runs").says("Done.");
    let started = agent.start(api).await?;
    let document = api.until_ended(&started.generation).await?;
    assert_eq!(document["status"], "error", "{document}");
    let view = api.view(&started.conversation).await?;
    let messages = view["messages"].as_array().cloned().unwrap_or_default();
    assert!(messages.iter().all(|message| message["role"] != "assistant"), "{messages:?}");
    fs::remove_file(&root)?;
    fs::rename(&away, &root)?;
    let retried = retry(api, &started, "continue").await?;
    assert_eq!(api.until_ended(&retried.generation).await?["status"], "completed");
    let outcome = Outcome::read(api, &retried, &server.data()).await?;
    assert_eq!(outcome.file("runs"), "x\n");
    assert_eq!(upstream.calls_of(agent.seed_of(0)).await?.calls, 1, "the settled answer is kept");
    Ok(())
}

async fn retry(api: &Api, started: &Started, mode: &str) -> anyhow::Result<Started> {
    let path = format!("/v1/generations/{}/retry", started.generation);
    let answer = api.post(&path, &json!({"mode": mode})).await?.expect(202)?;
    Ok(Started { generation: answer.text("generationId")?, ..started.clone() })
}

#[tokio::test(flavor = "multi_thread")]
async fn g7_retry_and_continue_keep_settled_rounds() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    for mode in ["retry", "continue"] {
        let agent = Agent::new(&upstream)
            .runs("echo x >> runs")
            .round(json!({"text": "lost", "fail": 400, "fails": 1}))
            .round(json!({"text": "unreachable"}));
        let started = agent.start(api).await?;
        assert_eq!(api.until_ended(&started.generation).await?["status"], "error");
        let retried = retry(api, &started, mode).await?;
        assert_eq!(api.until_ended(&retried.generation).await?["status"], "completed");
        let outcome = Outcome::read(api, &retried, &server.data()).await?;
        assert_eq!(outcome.file("runs"), "x\n", "{mode}: the tool is not run again");
        assert_eq!(
            upstream.calls_of(agent.seed_of(0)).await?.calls,
            1,
            "{mode}: nor is the model asked again"
        );
        let view = api.view(&started.conversation).await?;
        let tools =
            view["messages"].as_array().into_iter().flatten().filter(|message| message["role"] == "tool");
        assert_eq!(tools.count(), 1, "{mode}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn x8_i1_readers_of_a_killed_run_get_the_same_events_as_those_who_come_later() -> anyhow::Result<()> {
    let (mut server, upstream) = both().await?;
    let api = server.api().clone();
    let started = project(&upstream).start(&api).await?;
    let reader = outlast_proof::reader::Reader::of_generation(&api, &started.generation).drops_after(9, 7);
    let mut watching = JoinSet::new();
    watching.spawn(reader.record(Instant::now() + 5 * LONG));
    for _ in 0..3 {
        let before = api.generation(&started.generation).await?["lastSeq"].as_u64().unwrap_or_default();
        until("progress", LONG, async || {
            let document = api.generation(&started.generation).await?;
            let ended = document["status"] == "completed";
            Ok((ended || document["lastSeq"].as_u64() > Some(before + 5)).then_some(()))
        })
        .await?;
        server.crash().await?;
    }
    api.until_ended(&started.generation).await?;
    let recording = watching.join_next().await.context("a reader was watching")??;
    let stored = Stored::read(&api, &started.conversation).await?;
    let log: Vec<_> = stored.events_of(&started.generation).into_iter().cloned().collect();
    let recorded: Vec<_> =
        recording.frames.iter().filter(|frame| frame.generation.is_some()).cloned().collect();
    assert_eq!(recorded, log);
    Ok(())
}
