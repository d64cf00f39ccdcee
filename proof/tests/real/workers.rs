//! Workers: the example worker, killed and restarted, silenced, cancelled.

use std::path::Path;
use std::process::Stdio;

use anyhow::ensure;
use outlast_proof::api::{Api, Started};
use outlast_proof::check::Case;
use outlast_proof::reader::Reader;
use outlast_proof::server::{Options, Server};
use outlast_proof::stored::Stored;
use outlast_proof::upstream::Upstream;
use outlast_proof::wait::{LONG, bounded, until};
use outlast_proof::worker::Worker;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::{both, soon};

/// An answer of this many words. They look like the upstream's tokens, so that the same comparison notices a
/// missing, repeated or incomplete one.
fn text(words: u64) -> String {
    (0..words).map(|number| format!("<{number}:0> ")).collect()
}

/// The example worker, running for a generation.
fn worker(server: &Server, generation: &str, words: u64, more: &[&str]) -> anyhow::Result<Child> {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/worker.py");
    let server = format!("http://{}", server.address());
    let mut command = Command::new("python3");
    command.arg(example).args(["--server", &server, "--generation", generation]);
    command.args(["--pace", "0.02", "--heartbeat", "0.1", "--text", &text(words)]).args(more);
    Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?)
}

/// Waits for a worker that ends by itself, and returns its output.
async fn ended(worker: Child) -> anyhow::Result<String> {
    let output = bounded("the worker's end", LONG, worker.wait_with_output()).await??;
    let said = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "the worker ended with {}: {said}", output.status);
    Ok(said)
}

async fn start(api: &Api, conversation: Option<&str>) -> anyhow::Result<Started> {
    let body = json!({"content": "count", "producer": "external", "conversationId": conversation});
    api.post("/v1/generations", &body).await?.started()
}

async fn ask(api: &Api, started: &Started, what: &str, body: Value) -> anyhow::Result<(u16, Value)> {
    let answer = api.post(&format!("/v1/generations/{}/{what}", started.generation), &body).await?;
    Ok((answer.status, answer.body))
}

/// Waits until a worker has claimed the generation in this epoch.
async fn claimed(api: &Api, started: &Started, epoch: u64) -> anyhow::Result<()> {
    until("the claim", LONG, async || {
        Ok((api.generation(&started.generation).await?["attempt"] == epoch).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn x3_i1_i2_a_worker_killed_in_the_middle_continues_where_the_log_ends() -> anyhow::Result<()> {
    let (server, _upstream) = both().await?;
    let api = server.api();
    let started = start(api, Some(&crate::titled(&server).await?)).await?;
    let mut watching = tokio::task::JoinSet::new();
    for seed in 0..5 {
        let reader = Reader::of_generation(api, &started.generation).drops_after(10, seed);
        watching.spawn(reader.record(soon()));
    }
    for chunks in [20, 40] {
        let mut killed = worker(&server, &started.generation, 60, &[])?;
        api.until_chunks(&started.generation, chunks).await?;
        killed.kill().await?;
    }
    let said = ended(worker(&server, &started.generation, 60, &[])?).await?;
    assert!(said.ends_with("done\n"), "{said}");
    let recordings = watching.join_all().await;
    for recording in &recordings {
        let seqs: Vec<u64> = recording.frames.iter().map(|frame| frame.seq).collect();
        let dense: Vec<u64> = (seqs[0]..).take(seqs.len()).collect();
        assert_eq!(seqs, dense, "no gaps, no duplicates");
    }
    let stored = Stored::read(api, &started.conversation).await?;
    let kinds = stored.kinds_of(&started.generation);
    assert!(!kinds.contains(&"attempt.retracted"), "the text must be kept: {kinds:?}");
    let document = api.generation(&started.generation).await?;
    assert_eq!(document["contentParts"], json!([{"type": "text", "text": text(60)}]), "the exact text");
    Case::completed(&started, 60, recordings).check(api).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn x3_a_worker_survives_a_kill_of_the_server() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    // Long enough that a restart of the server does not count as silence.
    let options = Options::with(&upstream).env("OUTLAST_TIMEOUTS__WORKER_SILENCE", "60s");
    let mut server = Server::start(options).await?;
    let started = start(server.api(), None).await?;
    let reader = Reader::of_generation(server.api(), &started.generation).record(soon());
    let working = worker(&server, &started.generation, 60, &[])?;
    let crashes = async {
        for chunks in [10, 25, 40] {
            server.api().until_chunks(&started.generation, chunks).await?;
            server.crash().await?;
        }
        ended(working).await
    };
    let (recording, said) = tokio::join!(reader, crashes);
    assert!(said?.ends_with("done\n"));
    let document = server.api().generation(&started.generation).await?;
    assert_eq!(document["contentParts"], json!([{"type": "text", "text": text(60)}]));
    Case::completed(&started, 60, vec![recording]).check(server.api()).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn x3_i5_an_append_of_the_old_epoch_is_refused() -> anyhow::Result<()> {
    let (server, _upstream) = both().await?;
    let api = server.api();
    let started = start(api, None).await?;
    let (_, old) = ask(api, &started, "claim", json!({})).await?;
    let events = json!([{"type": "chat.delta", "payload": {"text": "late"}}]);
    let batch = json!({"epoch": old["epoch"], "expectedSeq": old["lastSeq"], "events": events});
    let mut idle = worker(&server, &started.generation, 5, &["--pace", "100"])?;
    claimed(api, &started, 3).await?;
    let (status, problem) = ask(api, &started, "events", batch).await?;
    assert_eq!((status, &problem["code"], &problem["epoch"]), (409, &json!("stale_producer"), &json!(3)));
    idle.kill().await?;
    assert!(ended(worker(&server, &started.generation, 5, &[])?).await?.ends_with("done\n"));
    Case::completed(&started, 5, Vec::new()).check(api).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn x3_silence_interrupts_and_the_next_worker_continues() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let options = Options::with(&upstream).env("OUTLAST_TIMEOUTS__WORKER_SILENCE", "2s");
    let server = Server::start(options).await?;
    let api = server.api();
    let started = start(api, None).await?;
    let reader = Reader::of_generation(api, &started.generation).record(soon());
    let work = async {
        // Slower than the limit, but it sends heartbeats.
        let mut silenced = worker(&server, &started.generation, 30, &["--pace", "2.5"])?;
        let document = api.until_chunks(&started.generation, 1).await?;
        assert_eq!(document["status"], "running", "heartbeats count");
        silenced.kill().await?;
        api.until_status(&started.generation, &["interrupted"]).await?;
        let (_, problem) = ask(api, &started, "heartbeat", json!({"epoch": document["attempt"]})).await?;
        assert_eq!(
            (&problem["code"], &problem["statusIs"]),
            (&json!("stale_producer"), &json!("interrupted"))
        );
        let (status, problem) = ask(api, &started, "resume", json!({})).await?;
        assert_eq!(
            (status, &problem["code"]),
            (409, &json!("external_producer")),
            "only a worker can continue it"
        );
        ended(worker(&server, &started.generation, 30, &[])?).await
    };
    let (recording, said) = tokio::join!(reader, work);
    assert!(said?.ends_with("done\n"));
    let stored = Stored::read(api, &started.conversation).await?;
    let kinds = stored.kinds_of(&started.generation);
    assert_eq!(kinds.iter().filter(|kind| **kind == "chat.interrupted").count(), 1, "{kinds:?}");
    Case::completed(&started, 30, vec![recording]).check(api).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn x3_i9_a_cancel_reaches_the_worker() -> anyhow::Result<()> {
    let (server, _upstream) = both().await?;
    let api = server.api();
    // One is in the middle of its text; the other has nothing to send and still learns of the cancel.
    for pace in ["0.02", "100"] {
        let started = start(api, None).await?;
        let working = worker(&server, &started.generation, 10_000, &["--pace", pace])?;
        claimed(api, &started, 2).await?;
        assert!(api.cancel(&started.generation).await?);
        let said = ended(working).await?;
        assert!(said.contains("stopped") || said.contains("already_ended"), "{said}");
        Case::ended(&started, 10_000, &["cancelled"], Vec::new()).check(api).await?.clean()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_g6_a_worker_asks_a_person_decides_and_the_worker_reads_the_decision() -> anyhow::Result<()> {
    let (mut server, _upstream) = both().await?;
    let started = start(server.api(), None).await?;
    let (_, worker) = ask(server.api(), &started, "claim", json!({})).await?;
    let asked = |command: &str| {
        let payload = json!({"toolUseId": "call_1", "toolName": "bash", "toolInput": {"command": command}});
        json!([{"type": "approval.requested", "payload": payload}])
    };
    let batch = |at: &Value, events: Value| json!({"epoch": at["epoch"], "expectedSeq": at["lastSeq"], "events": events});
    let (status, waiting) = ask(server.api(), &started, "events", batch(&worker, asked("ls"))).await?;
    assert_eq!((status, &waiting["status"]), (200, &json!("awaiting_approval")), "{waiting}");

    // The question survives a crash, and no other question can replace it.
    server.crash().await?;
    let api = server.api();
    let (status, problem) = ask(api, &started, "events", batch(&waiting, asked("rm -rf /"))).await?;
    assert_eq!((status, &problem["code"]), (409, &json!("already_asked")), "{problem}");
    let document = api.generation(&started.generation).await?;
    assert_eq!(document["pendingApproval"]["toolInput"], json!({"command": "ls"}), "{document}");

    let decide = |decision: &str| json!({"decision": decision, "reason": "I looked"});
    let (status, answer) = ask(api, &started, "approvals/call_1", decide("approve")).await?;
    assert_eq!((status, &answer["status"]), (200, &json!("running")), "{answer}");
    let (status, problem) = ask(api, &started, "approvals/call_1", decide("deny")).await?;
    assert_eq!((status, &problem["code"]), (409, &json!("already_decided")), "{problem}");
    assert_eq!((&problem["decision"], &problem["by"]), (&json!("approve"), &json!("local")));

    server.crash().await?;
    let api = server.api();
    let (_, told) = ask(api, &started, "heartbeat", json!({"epoch": worker["epoch"]})).await?;
    let decided = json!({"decision": "approve", "by": "local", "reason": "I looked", "always": false});
    assert_eq!(told["approvals"][0]["decided"], decided, "{told}");
    let done = json!([{"type": "chat.done", "payload": {}}]);
    let (status, _) = ask(api, &started, "events", batch(&told, done)).await?;
    assert_eq!(status, 200);
    let stored = Stored::read(api, &started.conversation).await?;
    let kinds = stored.kinds_of(&started.generation);
    let of = |kind: &str| kinds.iter().filter(|known| **known == kind).count();
    assert_eq!((of("approval.requested"), of("approval.resolved")), (1, 1), "{kinds:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_a_decision_does_not_apply_to_a_swapped_question() -> anyhow::Result<()> {
    let (mut server, _upstream) = both().await?;
    let mut worker = Worker::start(server.api()).await?;
    worker.ask("call_1", "ls").await?.expect(200)?;
    let seen = worker.hash_shown().await?;
    let click = json!({"decision": "approve", "hash": seen});
    worker.claim(false).await?; // withdraws the question
    worker.decide("call_1", &click).await?.problem(404, "not_found")?;
    worker.ask("call_1", "rm -rf ~").await?.expect(200)?;
    let shown = worker.hash_shown().await?;
    assert_ne!(shown, seen);
    worker.decide("call_1", &click).await?.problem(409, "approval_changed")?;

    // Even the same text is not the same question, because the person saw that of an earlier attempt.
    worker.claim(false).await?;
    worker.ask("call_1", "ls").await?.expect(200)?;
    server.crash().await?;
    worker.decide("call_1", &click).await?.problem(409, "approval_changed")?;
    let document = server.api().generation(&worker.started.generation).await?;
    assert_eq!(document["status"], "awaiting_approval", "no decision may count: {document}");
    let told = worker.heartbeat().await?.expect(200)?;
    assert_eq!(told.body["approvals"][0].get("decided"), None, "{}", told.body);

    let click = json!({"decision": "approve", "hash": worker.hash_shown().await?});
    worker.decide("call_1", &click).await?.expect(200)?;
    let stored = Stored::read(server.api(), &worker.started.conversation).await?;
    let kinds = stored.kinds_of(&worker.started.generation);
    assert_eq!(kinds.iter().filter(|kind| **kind == "approval.resolved").count(), 1, "{kinds:?}");
    Ok(())
}
