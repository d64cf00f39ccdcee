//! A cancel kills the tool with everything it started, also if the server dies right after it said so.

use std::fs;
use std::time::{Duration, Instant};

use outlast_proof::agent::Agent;
use outlast_proof::agent::deaths::nothing_runs;
use outlast_proof::api::{Api, Started};
use outlast_proof::stored::Stored;
use outlast_proof::upstream::Upstream;
use outlast_proof::wait::{LONG, until};
use reqwest::Method;
use serde_json::json;

use crate::{both_with, sandbox_of};

/// The promise is a second; a machine that builds something else meanwhile may need more.
const GONE_WITHIN: Duration = Duration::from_secs(30);
const FEW_PROCESSES: &str = "[sandbox]\nprocesses = 48";

/// How many processes of this machine have this word in their arguments.
fn alive(word: &str) -> anyhow::Result<usize> {
    let mut found = 0;
    for entry in fs::read_dir("/proc")? {
        // A process may end while we look.
        let arguments = fs::read(entry?.path().join("cmdline")).unwrap_or_default();
        found += usize::from(memchr::memmem::find(&arguments, word.as_bytes()).is_some());
    }
    Ok(found)
}

/// A tool that leaves a daemon, then forks without end. Its processes can be told by the word. Neither the daemon nor the
/// tool itself starts processes once the bomb has gone off: they would fail and end by themselves.
fn bomb(upstream: &Upstream, word: &str) -> Agent {
    let daemon = format!("setsid bash -c 'exec -a {word} sleep 3600' </dev/null >/dev/null 2>&1 &");
    let command = format!(
        "{daemon} bomb() {{ bomb | bomb & }}; bomb 2>/dev/null; echo started; exec -a {word} sleep 3600 # {word}"
    );
    Agent::new(upstream).runs(&command).says("Never.")
}

async fn until_running(api: &Api, started: &Started, word: &str) -> anyhow::Result<()> {
    until("the tool running", LONG, async || {
        let stored = Stored::read(api, &started.conversation).await?;
        let writes = stored.log.iter().any(|frame| frame.kind == "tool.output");
        Ok((writes && alive(word)? > 3).then_some(()))
    })
    .await
}

async fn until_recorded(api: &Api, started: &Started) -> anyhow::Result<()> {
    until("the record of the kill", LONG, async || {
        let stored = Stored::read(api, &started.conversation).await?;
        Ok(stored.log.iter().any(|frame| frame.kind == "tool.stopped").then_some(()))
    })
    .await
}

async fn until_gone(word: &str) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    until("the end of every process", GONE_WITHIN, async || Ok((alive(word)? == 0).then_some(()))).await?;
    Ok(begun.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn g5_i9_a_cancel_kills_a_daemon_and_a_fork_bomb() -> anyhow::Result<()> {
    let (server, upstream) = both_with(FEW_PROCESSES).await?;
    let api = server.api();
    let started = bomb(&upstream, "outlast_cancelled_bomb").start(api).await?;
    until_running(api, &started, "outlast_cancelled_bomb").await?;
    assert!(api.cancel(&started.generation).await?);
    eprintln!("gone {:?} after the response", until_gone("outlast_cancelled_bomb").await?);
    nothing_runs(&server).await?;
    until_recorded(api, &started).await?;
    let stored = Stored::read(api, &started.conversation).await?;
    let kinds: Vec<&str> = stored.log.iter().map(|frame| frame.kind.as_str()).collect();
    let end = kinds.iter().position(|kind| *kind == "chat.cancelled").unwrap_or_default();
    // The conversation goes on: its files are saved, and a person is told.
    let of_conversation = |kind: &&&str| kind.starts_with("checkpoint.") || kind.starts_with("notification.");
    let after: Vec<&&str> = kinds[end + 1..].iter().filter(|kind| !of_conversation(kind)).collect();
    assert_eq!(after, [&"tool.stopped"], "nothing of the generation follows its end");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_x5_the_next_start_finishes_a_kill_that_the_server_did_not_live_to_see() -> anyhow::Result<()> {
    let (mut server, upstream) = both_with(FEW_PROCESSES).await?;
    let api = server.api().clone();
    let started = bomb(&upstream, "outlast_orphaned_bomb").start(&api).await?;
    until_running(&api, &started, "outlast_orphaned_bomb").await?;
    let cancelled = api.cancel(&started.generation).await?;
    server.kill().await?;
    assert!(cancelled);
    server.restart().await?;
    eprintln!("gone {:?} after the restart", until_gone("outlast_orphaned_bomb").await?);
    nothing_runs(&server).await?;
    until_recorded(&api, &started).await?;
    assert_eq!(api.generation(&started.generation).await?["status"], "cancelled");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_i9_a_conversation_deleted_while_a_tool_runs_takes_it_along() -> anyhow::Result<()> {
    let (server, upstream) = both_with(FEW_PROCESSES).await?;
    let api = server.api();
    let started = bomb(&upstream, "outlast_deleted_bomb").start(api).await?;
    until_running(api, &started, "outlast_deleted_bomb").await?;
    let sandbox = sandbox_of(api, &started).await?;
    let path = format!("/v1/conversations/{}", started.conversation);
    api.send(api.request(Method::DELETE, &path)).await?.expect(204)?;
    // Nothing is left to be done after the response. Only the kernel's list of processes may lag behind.
    assert!(fs::read_dir(server.data().join("sandboxes/.running"))?.next().is_none());
    until_gone("outlast_deleted_bomb").await?;
    assert!(!server.data().join("sandboxes").join(&sandbox).exists());
    assert!(fs::read_dir(server.data().join("sandboxes/.killed"))?.next().is_none());
    api.get(&path).await?.problem(404, "not_found")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g5_a_run_that_waits_for_a_person_beside_a_sleeping_sandbox_is_cancelled_at_once()
-> anyhow::Result<()> {
    let toml = "[tools.edit_file]\npolicy = \"ask\"\n[timeouts]\napproval_pause = \"200ms\"";
    let (server, upstream) = both_with(toml).await?;
    let api = server.api();
    let agent = Agent::new(&upstream)
        .runs("echo before > kept")
        .asks("", &[("edit_file", json!({"path": "kept", "old": "before", "new": "after"}))])
        .says("Never.");
    let started = agent.start(api).await?;
    api.until_status(&started.generation, &["paused"]).await?;
    assert!(api.cancel(&started.generation).await?);
    assert!(!api.cancel(&started.generation).await?);
    let path = format!("/v1/generations/{}", started.generation);
    api.post(&format!("{path}/resume"), &json!({})).await?.problem(409, "already_ended")?;
    let late = api.post(&format!("{path}/approvals/call_1_0"), &json!({"decision": "approve"})).await?;
    assert!(matches!(late.status, 404 | 409), "{}", late.body);
    let next =
        Agent::new(&upstream).runs("cat kept").says("Read.").start_in(api, &started.conversation).await?;
    api.until_ended(&next.generation).await?;
    let outcome = outlast_proof::agent::outcome::Outcome::read(api, &next, &server.data()).await?;
    assert_eq!(outcome.result("call_0_0")?, "before\n", "the next run wakes the same sandbox");
    Ok(())
}
