//! An execution runs at most once, and nothing that it wrote is lost.

use std::process::{Command, Stdio};

use outlast_core::ExecutionId;
use outlast_engine::sandbox::{Outcome, Sandboxes, Started};

use crate::{World, all, bash, end, helper, within};

/// Appends a line to a file with every run, and writes output that shows what is missing.
const COUNTED: &str = "echo ran >> /workspace/runs; for i in $(seq 2000); do echo line $i; done; exit 3";

fn expected() -> String {
    (1..=2000).map(|i| format!("line {i}\n")).collect()
}

fn runs(world: &World) -> usize {
    std::fs::read_to_string(world.workspace().join("runs")).unwrap_or_default().lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn x8_fifty_starts_from_two_servers_run_it_once() {
    let world = World::new().await;
    let second = world.another().await;
    let execution = bash("e1", COUNTED);
    let starts = (0..50).map(|i| {
        let local = if i % 2 == 0 { &world.local } else { &second };
        local.start(&world.id, &execution)
    });
    let results = within(futures_util::future::join_all(starts)).await;
    let now = results.iter().filter(|result| matches!(result, Ok(Started::Now))).count();
    let before = results.iter().filter(|result| matches!(result, Ok(Started::Before))).count();
    assert_eq!((now, before), (1, 49), "{results:?}");
    for local in [&world.local, &second] {
        let done = world.done(local, &execution.id).await;
        assert_eq!(done.code(), 3);
        assert_eq!(done.stdout, expected());
    }
    assert_eq!(local_start_again(&world).await, Started::Before);
    assert_eq!(runs(&world), 1);
}

async fn local_start_again(world: &World) -> Started {
    world.local.start(&world.id, &bash("e1", COUNTED)).await.unwrap()
}

#[tokio::test]
async fn x8_a_tool_outlives_the_server_that_started_it_and_another_collects_its_end() {
    let world = World::new().await;
    let script = "echo ran >> runs; echo begun; until [ -e go ]; do sleep 0.01; done; echo ended; exit 9";
    let mut server = Command::new(helper());
    server.arg("start").arg(world.folder.path()).args([world.id.as_str(), "e1", "/bin/bash", "-c", script]);
    assert!(server.status().unwrap().success());
    let execution = ExecutionId::from("e1");
    assert_eq!(world.first_output(&execution).await, "begun\n");
    std::fs::write(world.workspace().join("go"), "").unwrap();
    let done = world.done(&world.local, &execution).await;
    assert_eq!((done.code(), done.stdout.as_str()), (9, "begun\nended\n"));
    assert_eq!(runs(&world), 1);
}

#[cfg(feature = "fault-points")]
#[tokio::test]
async fn i7_a_server_killed_at_any_step_of_a_start_leads_to_exactly_one_run() {
    use std::os::unix::process::ExitStatusExt;
    let mut table = Vec::new();
    for point in outlast_engine::sandbox::FAULT_POINTS {
        let world = World::new().await;
        let mut server = Command::new(helper());
        server.arg("start").arg(world.folder.path());
        server.args([world.id.as_str(), "e1", "/bin/bash", "-c", COUNTED]);
        // The probe at the start passes each point as well.
        let killed =
            server.env("OUTLAST_FAULT", format!("{point}:2")).stderr(Stdio::null()).status().unwrap();
        assert!(killed.signal().is_some(), "{point} was not reached: {killed:?}");
        let started = world.local.start(&world.id, &bash("e1", COUNTED)).await.unwrap();
        let done = world.done(&world.local, &ExecutionId::from("e1")).await;
        assert_eq!(done.code(), 3, "killed at {point}");
        assert_eq!(done.stdout, expected(), "killed at {point}");
        assert_eq!(runs(&world), 1, "killed at {point}");
        table.push(format!("{point:20} {started:?}"));
    }
    println!("{}", table.join("\n"));
}

#[tokio::test]
async fn i7_the_outcome_is_unknown_if_the_machine_went_down() {
    let world = World::new().await;
    let folder = world.folder.path().join(world.id.as_str()).join("executions/e1");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("request"), r#"{"boot":"another","deadline":null,"cgroups":[]}"#).unwrap();
    assert_eq!(world.local.start(&world.id, &bash("e1", COUNTED)).await.unwrap(), Started::Before);
    assert_eq!(end(&world.local, &world.id, &ExecutionId::from("e1")).await, Outcome::Lost);
    assert_eq!(runs(&world), 0);
}

#[tokio::test]
async fn i7_the_outcome_is_unknown_if_the_processes_were_killed_from_outside() {
    let world = World::new().await;
    let execution = world.start("e1", "echo begun; sleep 1000").await;
    world.first_output(&execution).await;
    let folder = world.folder.path().join(world.id.as_str()).join("executions/e1");
    // The one that waits for the end first, so that nobody can write it down.
    let status = std::fs::read_to_string(folder.join("status")).unwrap();
    let init: serde_json::Value = serde_json::from_str(status.lines().next().unwrap()).unwrap();
    let init = init["child-pid"].as_i64().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{init}/stat")).unwrap();
    let monitor = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().to_owned();
    for pid in [monitor, init.to_string()] {
        assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    }
    assert_eq!(end(&world.local, &world.id, &execution).await, Outcome::Lost);
    assert_eq!(world.local.start(&world.id, &bash("e1", "echo again")).await.unwrap(), Started::Before);
    assert_eq!(
        all(&world.local, &world.id, &execution, outlast_engine::sandbox::Output::Stdout).await,
        b"begun\n"
    );
}
