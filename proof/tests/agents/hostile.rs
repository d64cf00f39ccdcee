//! A hostile model against the running server: whatever its tools do, the server stays small and goes on.

use std::time::Duration;

use outlast_proof::agent::Agent;
use outlast_proof::agent::deaths::nothing_runs;
use outlast_proof::agent::outcome::Outcome;
use outlast_proof::api::Started;
use outlast_proof::server::Server;
use outlast_proof::stored::Stored;
use outlast_proof::wait::{LONG, until};
use reqwest::Method;
use serde_json::json;

use crate::{both, both_with};

const MIB: u64 = 1024 * 1024;
/// What one run may write into the log: the streamed part of the output, its result, and the frames around them.
const LOG_BYTES_MAX: usize = 2 * 1024 * 1024;
/// What a run may add to the memory of the server, in a debug build.
const MEMORY_MAX: u64 = 64 * MIB;

/// Runs one command to the end of its run.
async fn run(server: &Server, agent: &Agent) -> anyhow::Result<(Started, Outcome)> {
    let api = server.api();
    let started = agent.start(api).await?;
    let document = api.until_ended(&started.generation).await?;
    assert_eq!(document["status"], "completed", "{document}");
    let outcome = Outcome::read(api, &started, &server.data()).await?;
    Ok((started, outcome))
}

async fn log_bytes(server: &Server, started: &Started) -> anyhow::Result<usize> {
    let stored = Stored::read(server.api(), &started.conversation).await?;
    Ok(stored.log.iter().map(|frame| frame.data.len()).sum())
}

#[tokio::test(flavor = "multi_thread")]
async fn i18_output_of_every_kind_leaves_the_log_and_the_memory_small() -> anyhow::Result<()> {
    let (server, upstream) = both_with("[sandbox]\noutput = \"16MiB\"").await?;
    let commands = [
        ("endless", "yes", true),
        ("huge", "head -c 12000000 /dev/zero | tr '\\0' x", false),
        ("binary", "head -c 3000000 /dev/urandom", false),
        ("tiny writes", "for i in $(seq 60000); do echo $i; done", false),
        ("control", "printf '\\0\\033[2J\\r\\b\\377\\376'; seq 30000 | tr '\\n' '\\r'", false),
        ("one line", "printf 'a%.0s' $(seq 100000); printf 'b%.0s' $(seq 100000) >&2", false),
    ];
    for (name, command, fails) in commands {
        server.forget_peak()?;
        let before = server.resident_bytes()?;
        let (started, outcome) = run(&server, &Agent::new(&upstream).runs(command).says("Done.")).await?;
        let grew = server.peak_bytes()?.saturating_sub(before);
        let logged = log_bytes(&server, &started).await?;
        eprintln!("{name}: {logged} bytes in the log, {} KiB more memory", grew / 1024);
        assert!(logged < LOG_BYTES_MAX, "{name}: {logged} bytes in the log");
        assert!(grew < MEMORY_MAX, "{name}: {grew} bytes more");
        assert_eq!(outcome.result("call_0_0")?.ends_with("[stopped: output limit]"), fails, "{name}");
    }
    nothing_runs(&server).await
}

#[tokio::test(flavor = "multi_thread")]
async fn i18_half_a_character_that_never_ends_costs_nothing() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let agent = Agent::new(&upstream).runs("printf 'caf\\303'; sleep 4; printf '\\251\\n'").says("Done.");
    let before = server.cpu_time()?;
    let (_, outcome) = run(&server, &agent).await?;
    let spent = server.cpu_time()? - before;
    assert_eq!(outcome.stream("call_0_0", "stdout"), "café\n");
    eprintln!("{spent:?} of processor time in four seconds");
    assert!(spent < Duration::from_millis(1_500), "{spent:?} of processor time while a tool slept");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s4_x9_files_of_every_kind_are_saved_summarized_and_restored() -> anyhow::Result<()> {
    let (server, upstream) =
        both_with("[timeouts]\nsandbox_idle_pause = \"300ms\"\nsandbox_kill = \"300ms\"").await?;
    let api = server.api();
    let hostile = "mkdir many; for i in $(seq 2000); do echo $i > many/$i; done; \
        d=.; for i in $(seq 60); do d=$d/deep; mkdir $d; done; echo bottom > $d/file; \
        touch -- \"$(printf 'line\\nbreak: x')\" '- dash' ' space ' '<files_summary>'; \
        ln -s /etc/passwd out; ln -s . loop; ln -s missing dangling; mkfifo pipe; \
        echo secret > shut; chmod 000 shut; mkdir closed; echo in > closed/in; chmod 000 closed; \
        truncate -s 64M sparse";
    let agent = Agent::new(&upstream).runs(hostile).says("Done.");
    let (started, outcome) = run(&server, &agent).await?;
    assert!(outcome.last_text().contains("files_summary"), "{}", outcome.last_text());
    assert!(outcome.last_text().len() < 128 * 1024);
    let view = api.view(&started.conversation).await?;
    assert!(view["conversation"]["files"].as_array().is_some_and(|files| files.len() <= 500));
    until("the kill of the sandbox", LONG, async || {
        let stored = Stored::read(api, &started.conversation).await?;
        Ok(crate::runs::changes(&stored)?.contains(&json!("killed")).then_some(()))
    })
    .await?;
    let look = "ls many | wc -l; cat $(find . -name file 2>/dev/null); test -L out || test -p pipe || echo left out; test -L loop && echo link; ls | wc -l";
    let again = Agent::new(&upstream).runs(look).says("Looked.");
    let next = again.start_in(api, &started.conversation).await?;
    let document = api.until_ended(&next.generation).await?;
    assert_eq!(document["status"], "completed", "{document}");
    let outcome = Outcome::read(api, &next, &server.data()).await?;
    assert_eq!(outcome.result("call_0_0")?, "2000\nbottom\nleft out\nlink\n12\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn i16_a_tool_that_destroys_its_workspace_or_never_ends_harms_only_itself() -> anyhow::Result<()> {
    let (server, upstream) = both_with("[sandbox]\ndisk = \"8MiB\"\nprocesses = 64").await?;
    let api = server.api();
    // Only what has to run into its timeout has a short one: the others end by themselves, on a busy machine later.
    let (soon, patient) = (2, 60);
    let commands = [
        (
            patient,
            "rm -rf /workspace /workspace/.* ~ /tmp; mv /workspace /tmp/w; rmdir /workspace; ls -a",
            "",
            "",
        ),
        (soon, "sleep 3600", "[stopped: timeout]", ""),
        (patient, "head -c 30000000 /dev/zero > one || echo too large", "", "too large"),
        (
            patient,
            "for i in $(seq 40); do head -c 1000000 /dev/zero > f$i; sleep 0.05; done; sleep 3600",
            "[stopped: disk limit]",
            "",
        ),
        (soon, "for i in $(seq 500); do sleep 3600 & done; echo piled", "", ""),
        (patient, "kill -9 -1; kill -9 1; kill -9 $PPID; echo alive", "", ""),
        (patient, "exec >&- 2>&-; sleep 1", "", ""),
    ];
    let started = Agent::new(&upstream).runs("echo first > kept").says("Done.").start(api).await?;
    api.until_ended(&started.generation).await?;
    for (timeout, command, end, part) in commands {
        let clean = "rm -rf one f*; true";
        let call = ("bash", json!({"command": command, "timeout": timeout}));
        let agent = Agent::new(&upstream).asks("", &[call]).runs(clean).says("Done.");
        let next = agent.start_in(api, &started.conversation).await?;
        let document = api.until_ended(&next.generation).await?;
        assert_eq!(document["status"], "completed", "{command}: {document}");
        let outcome = Outcome::read(api, &next, &server.data()).await?;
        let result = outcome.result("call_0_0")?;
        assert!(result.ends_with(end) && result.contains(part), "{command}: {result}");
    }
    nothing_runs(&server).await
}

#[tokio::test(flavor = "multi_thread")]
async fn i16_processes_in_the_background_end_with_their_conversation() -> anyhow::Result<()> {
    let (server, upstream) = both_with("[sandbox]\nprocesses = 64").await?;
    let api = server.api();
    let piles = (0..5)
        .map(|_| ("bash", json!({"command": "sleep 3600 & sleep 3600 & sleep 3600", "background": true})));
    let agent =
        Agent::new(&upstream).asks("", &piles.collect::<Vec<_>>()).runs("echo still here").says("Done.");
    let (started, outcome) = run(&server, &agent).await?;
    assert_eq!(outcome.result("call_1_0")?, "still here\n");
    let path = format!("/v1/conversations/{}", started.conversation);
    api.send(api.request(Method::DELETE, &path)).await?.expect(204)?;
    nothing_runs(&server).await
}

#[tokio::test(flavor = "multi_thread")]
async fn o1_commands_of_every_kind_while_a_tool_runs_leave_it_alone() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let agent = Agent::new(&upstream).runs("until test -e go; do sleep 0.05; done; echo ended").says("Done.");
    let started = agent.start(api).await?;
    until("the beginning of the tool", LONG, async || {
        let stored = Stored::read(api, &started.conversation).await?;
        Ok(stored.log.iter().any(|frame| frame.kind == "tool.began").then_some(()))
    })
    .await?;
    let path = format!("/v1/conversations/{}", started.conversation);
    for number in 0..20 {
        let change = json!({"title": format!("title {number}"), "metadata": {"number": number}});
        api.send(api.request(Method::PATCH, &path).json(&change)).await?.expect(200)?;
    }
    let busy = agent.start_in(api, &started.conversation).await;
    assert!(busy.is_err(), "a second message is refused while a tool runs");
    for what in ["resume", "dismiss"] {
        let path = format!("/v1/generations/{}/{what}", started.generation);
        api.post(&path, &json!({})).await?.problem(409, "not_interrupted")?;
    }
    let sandbox = crate::sandbox_of(api, &started).await?;
    std::fs::write(server.data().join("sandboxes").join(sandbox).join("workspace/go"), "")?;
    api.until_ended(&started.generation).await?;
    let outcome = Outcome::read(api, &started, &server.data()).await?;
    assert_eq!(outcome.result("call_0_0")?, "ended\n");
    assert_eq!(api.view(&started.conversation).await?["conversation"]["title"], "title 19");
    Ok(())
}
