//! A whole run: a project is written, tested and mended.

use outlast_proof::agent::outcome::Outcome;
use outlast_proof::agent::{Agent, SLOW_LINES, project};
use outlast_proof::stored::Stored;
use serde_json::{Value, json};

use crate::both;

#[tokio::test(flavor = "multi_thread")]
async fn s4_s5_o2_an_agent_writes_a_project_tests_it_and_fixes_the_bug() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let started = project(&upstream).start(api).await?;
    let document = api.until_ended(&started.generation).await?;
    assert_eq!(document["status"], "completed", "{document}");
    let outcome = Outcome::read(api, &started, &server.data()).await?;

    let roles: Vec<&str> = outcome.transcript.iter().filter_map(|message| message["role"].as_str()).collect();
    let (a, t) = ("assistant", "tool");
    assert_eq!(
        roles,
        ["user", a, t, t, a, t, a, t, t, a, t, a, t, a],
        "segments and tools in the order of the log"
    );
    assert!(outcome.result("call_1_0")?.starts_with("failed\n"), "the tests fail first");
    assert_eq!(outcome.result("call_2_0")?, "echo $(($1 - $2))\n");
    let lines: String = (1..=SLOW_LINES).map(|line| format!("line {line} äöü\n")).collect();
    assert_eq!(outcome.stream("call_4_0", "stdout"), format!("{lines}passed\n"));
    let complaints: String = (1..=SLOW_LINES).map(|line| format!("oops {line}\n")).collect();
    assert_eq!(outcome.stream("call_4_0", "stderr"), complaints);
    assert_eq!(outcome.result("call_4_0")?, format!("{lines}passed\n{complaints}"));

    assert_eq!(outcome.file("sum.sh"), "echo $(($1 + $2))\n");
    assert_eq!(outcome.file("runs"), "a\nb\n");
    let summary =
        "<files_summary>\n- runs: added\n- sum.sh: Adds two numbers\n- test.sh: added\n</files_summary>";
    assert!(outcome.last_text().ends_with(summary), "{}", outcome.last_text());
    let added = |path: &str| json!({"path": path, "change": "added"});
    assert_eq!(outcome.listed, json!([added("runs"), added("sum.sh"), added("test.sh")]));
    assert!(outcome.began.values().all(|began| *began == 1), "{:?}", outcome.began);

    let stored = Stored::read(api, &started.conversation).await?;
    let count = |kind: &str| stored.log.iter().filter(|frame| frame.kind == kind).count();
    assert_eq!((count("round.ended"), count("tool.began"), count("tool.end")), (6, 7, 7));
    assert_eq!(count("sandbox.changed"), 1);
    assert!(stored.view["conversation"]["title"].as_str().is_some_and(|title| !title.is_empty()));
    for message in stored.view["messages"].as_array().into_iter().flatten() {
        assert_eq!(message["status"], "complete", "{message}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_s3_the_next_generation_reuses_the_sandbox_and_reads_the_summary() -> anyhow::Result<()> {
    let (mut server, upstream) = both().await?;
    let api = server.api().clone();
    let first = Agent::new(&upstream).runs("echo one > kept").says("Done.").start(&api).await?;
    api.until_ended(&first.generation).await?;
    server.crash().await?;
    let second = Agent::new(&upstream).runs("cat kept").says("Read.");
    let started = second.start_in(&api, &first.conversation).await?;
    api.until_ended(&started.generation).await?;
    let outcome = Outcome::read(&api, &started, &server.data()).await?;
    assert_eq!(outcome.result("call_0_0")?, "one\n");
    assert!(!outcome.last_text().contains("files_summary"), "nothing changed: {}", outcome.last_text());
    let stored = Stored::read(&api, &first.conversation).await?;
    let sandboxes: Vec<Value> = changes(&stored)?;
    assert_eq!(sandboxes, [json!("created")], "one sandbox for both");
    let asked = upstream.asked(second.seed_of(0)).await?.to_string();
    assert!(asked.contains("<files_summary>\\n- kept: added\\n</files_summary>"), "{asked}");
    Ok(())
}

/// The states that the sandbox went through.
pub(crate) fn changes(stored: &Stored) -> anyhow::Result<Vec<Value>> {
    let changed = stored.log.iter().filter(|frame| frame.kind == "sandbox.changed");
    changed.map(|frame| Ok(frame.event()?["payload"]["state"].clone())).collect()
}
