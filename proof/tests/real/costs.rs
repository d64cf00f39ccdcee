//! Proportional cost (I18): bytes written, memory and start-up time do not grow with the length of an answer or with
//! the number of generations that wait.

use std::time::{Duration, Instant};

use anyhow::ensure;
use futures_util::{StreamExt, TryStreamExt, stream};
use outlast_proof::server::{Options, Server};
use outlast_proof::upstream::Upstream;
use outlast_proof::wait::{LONG, until};
use outlast_proof::worker::Worker;
use serde_json::{Value, json};

use crate::both;

const MIB: u64 = 1 << 20;
/// How many workers set up waiting generations concurrently: enough to share commits.
const WORKERS: usize = 32;
/// Memory that varies from start to start, mostly because of page caches.
const START_SLACK: u64 = 8_000_000;
/// What a waiting generation may add, like any conversation written recently: its rows in the index of recent events,
/// which has its own limit, and its pages in the caches. Ended generations cost the same.
const WAITING_BYTES: u64 = 1_500;

fn wal_bytes(server: &Server) -> anyhow::Result<u64> {
    Ok(std::fs::metadata(server.data().join("outlast.db-wal"))?.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn i18_240_tool_calls_of_4_kb_write_at_most_40_times_what_was_sent() -> anyhow::Result<()> {
    let (server, _upstream) = both().await?;
    let mut worker = Worker::start(server.api()).await?;
    let text = "x".repeat(4_000);
    let (disk_before, calls_before) = server.written_bytes()?;
    let sent_before = worker.sent;
    let (mut wal_most, mut halfway) = (0, 0);
    for call in 0..240 {
        let id = format!("call_{call}");
        let start = json!({"toolUseId": id, "toolName": "bash", "toolInput": {"command": text}});
        let end = json!({"toolUseId": id, "result": text});
        for (kind, payload) in [("tool.start", start), ("tool.end", end)] {
            worker.append(json!([{"type": kind, "payload": payload}])).await?.expect(200)?;
            wal_most = wal_most.max(wal_bytes(&server)?);
        }
        if call == 119 {
            halfway = server.written_bytes()?.0 - disk_before;
        }
    }
    let (disk, calls) = server.written_bytes()?;
    let (disk, calls, sent) = (disk - disk_before, calls - calls_before, worker.sent - sent_before);
    // An in-memory file system never writes to a disk, so there the bytes passed to `write` count.
    let written = if disk == 0 { calls } else { disk };
    let sent = u64::try_from(sent)?;
    eprintln!(
        "sent {sent} bytes, wrote {disk} to disk ({halfway} in the first half) and {calls} by calls: {:.1} times; \
         WAL at most {:.1} MiB",
        written as f64 / sent as f64,
        wal_most as f64 / MIB as f64
    );
    assert!(written <= 40 * sent, "{written} bytes were written for {sent}");
    assert!(wal_most < 64 * MIB, "the WAL grew to {wal_most} bytes");
    worker.append(json!([{"type": "chat.done", "payload": {}}])).await?.expect(200)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn i18_an_answer_of_200_000_alternating_parts_costs_less_than_80_mb() -> anyhow::Result<()> {
    let (server, _upstream) = both().await?;
    let mut worker = Worker::start(server.api()).await?;
    let before = server.resident_bytes()?;
    server.forget_peak()?;
    let pieces: Vec<Value> = (0..1_000)
        .map(|place| if place % 2 == 0 { "thinking.delta" } else { "chat.delta" })
        .map(|kind| json!({"type": kind, "payload": {"text": "a"}}))
        .collect();
    let mut accepted = 0;
    while accepted < 200_000 {
        let answer = worker.append(Value::from(pieces.clone())).await?;
        ensure!(answer.status == 200, "{} after {accepted} parts: {}", answer.status, answer.body);
        accepted += pieces.len();
        if answer.body["status"] == "error" {
            break;
        }
    }
    let document = server.api().generation(&worker.started.generation).await?;
    let parts = document["contentParts"].as_array().map_or(0, Vec::len);
    server.api().view(&worker.started.conversation).await?;
    let (after, peak) = (server.resident_bytes()?, server.peak_bytes()?);
    eprintln!(
        "{accepted} parts appended, {parts} kept, status {}, reason {}; {:.1} MB before, {:.1} MB after, {:.1} MB at most",
        document["status"],
        document["endReason"],
        before as f64 / 1e6,
        after as f64 / 1e6,
        peak as f64 / 1e6
    );
    if accepted < 200_000 {
        assert_eq!(document["endReason"], "answer_too_long", "nothing else may end it");
    }
    assert!(peak - before < 80_000_000, "the memory grew by {} bytes", peak - before);
    Ok(())
}

/// How many generations wait in the start-up test.
fn waiting() -> anyhow::Result<usize> {
    Ok(std::env::var("OUTLAST_WAITING").unwrap_or_else(|_| "1000".to_owned()).parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn i10_i18_a_server_with_many_generations_that_wait_for_a_person_starts_at_once() -> anyhow::Result<()>
{
    let waiting = waiting()?;
    let upstream = Upstream::start().await?;
    let options = Options::with(&upstream);
    let mut server =
        Server::start(options.env("OUTLAST_LIMITS__LIVE_GENERATIONS_PER_USER", &waiting.to_string())).await?;
    let without = server.own_bytes()?;
    let limit = without + START_SLACK + WAITING_BYTES * u64::try_from(waiting)?;
    let begun = Instant::now();
    let parked = stream::iter(0..waiting).map(async |_| {
        let mut worker = Worker::start(server.api()).await?;
        let answer = worker.ask("call_1", "ls").await?.expect(200)?;
        ensure!(answer.body["status"] == "awaiting_approval", "{}", answer.body);
        anyhow::Ok(worker)
    });
    let mut parked: Vec<Worker> = parked.buffer_unordered(WORKERS).try_collect().await?;
    let (set_up, asked) = (begun.elapsed(), server.own_bytes()?);
    // A question that nobody watches also makes a notification, which is still work to do.
    until("every notification is made", LONG, async || {
        let owners = server.api().get("/v1/admin/overview").await?.expect(200)?.body["owners"].as_u64();
        Ok((owners == Some(0)).then_some(()))
    })
    .await?;
    server.kill().await?;
    let begun = Instant::now();
    server.restart().await?;
    let (ready, with) = (begun.elapsed(), server.own_bytes()?);
    eprintln!(
        "{waiting} wait: asked in {set_up:.1?}, ready {ready:.0?} after a kill; {:.1} MB of memory before the first, \
         {:.1} MB after the last, {:.1} MB after the start",
        without as f64 / 1e6,
        asked as f64 / 1e6,
        with as f64 / 1e6
    );
    assert!(ready < Duration::from_secs(2), "it took {ready:?} to start");
    assert!(with < limit, "{with} bytes with waiting generations, {without} without");
    assert!(!server.last_errors().contains("resumed unfinished"), "{}", server.last_errors());

    let mut one = parked.swap_remove(waiting / 2);
    let approve = json!({"decision": "approve", "hash": one.hash_shown().await?});
    let answer = one.decide("call_1", &approve).await?.expect(200)?;
    assert_eq!(answer.body["status"], "running");
    let told = one.heartbeat().await?.expect(200)?;
    assert_eq!(told.body["approvals"][0]["decided"]["decision"], "approve", "{}", told.body);
    one.append(json!([{"type": "chat.done", "payload": {}}])).await?.expect(200)?;
    server.api().until_status(&one.started.generation, &["completed"]).await?;
    let other = server.api().generation(&parked[0].started.generation).await?;
    assert_eq!(other["status"], "awaiting_approval", "there was no decision about this one");
    let later = server.own_bytes()?;
    eprintln!("{:.1} MB after one continued", later as f64 / 1e6);
    assert!(later < limit, "{later} bytes with waiting generations, {without} without");
    Ok(())
}
