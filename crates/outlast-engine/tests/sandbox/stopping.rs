//! Stopping takes everything that an execution started, within a second.

use std::time::{Duration, Instant};

use outlast_core::ExecutionId;
use outlast_engine::sandbox::{Limit, Outcome, SandboxSettings, Sandboxes, Started};

use crate::{World, bash, end, in_seconds, within};

/// What cancelling promises.
const STOP_MAX: Duration = Duration::from_secs(1);

/// A process that writes a growing file, whatever becomes of its parents.
const DAEMON: &str = "setsid bash -c '(while :; do echo tick >> /workspace/ticks; sleep 0.01; done) &' < /dev/null > /dev/null 2>&1";

fn ticks(world: &World) -> u64 {
    std::fs::metadata(world.workspace().join("ticks")).map_or(0, |file| file.len())
}

async fn ticking(world: &World) {
    let before = ticks(world);
    within(async {
        while ticks(world) == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Whether nothing writes any more. Only a daemon that is alive can break this, never one that is dead.
async fn silent(world: &World) -> bool {
    let before = ticks(world);
    tokio::time::sleep(Duration::from_millis(200)).await;
    ticks(world) == before
}

#[tokio::test]
async fn i9_stop_takes_a_daemon_within_a_second() {
    let world = World::new().await;
    let execution = world.start("e1", &format!("{DAEMON}; echo up; sleep 1000")).await;
    world.first_output(&execution).await;
    ticking(&world).await;
    let began = Instant::now();
    world.local.stop(&world.id, &execution).await.unwrap();
    println!("stopped a daemon in {:?}", began.elapsed());
    assert!(began.elapsed() < STOP_MAX, "{:?}", began.elapsed());
    assert!(silent(&world).await);
    assert_eq!(end(&world.local, &world.id, &execution).await, Outcome::Stopped);
    world.local.stop(&world.id, &execution).await.unwrap();
}

#[tokio::test]
async fn g5_stop_takes_a_fork_bomb_within_a_second() {
    let world = World::new().await;
    let execution = world.start("e1", "echo up; bomb() { bomb | bomb & }; bomb; sleep 1000").await;
    world.first_output(&execution).await;
    tokio::time::sleep(Duration::from_millis(300)).await; // the bomb goes off
    let began = Instant::now();
    world.local.stop(&world.id, &execution).await.unwrap();
    println!("stopped a fork bomb in {:?}", began.elapsed());
    assert!(began.elapsed() < STOP_MAX, "{:?}", began.elapsed());
    assert_eq!(end(&world.local, &world.id, &execution).await, Outcome::Stopped);
    assert_eq!(world.bash("echo fine").await.stdout, "fine\n");
}

#[tokio::test]
async fn i9_another_server_stops_what_a_dead_one_started() {
    let world = World::new().await;
    let execution = world.start("e1", &format!("{DAEMON}; echo up; sleep 1000")).await;
    world.first_output(&execution).await;
    let another = world.another().await;
    another.stop(&world.id, &execution).await.unwrap();
    assert!(silent(&world).await);
    assert_eq!(end(&world.local, &world.id, &execution).await, Outcome::Stopped);
}

#[tokio::test]
async fn i9_what_was_stopped_before_its_start_never_runs() {
    let world = World::new().await;
    world.local.stop(&world.id, &ExecutionId::from("e1")).await.unwrap();
    let started = world.local.start(&world.id, &bash("e1", "echo ran > /workspace/ran")).await.unwrap();
    assert_eq!(started, Started::Before);
    assert_eq!(end(&world.local, &world.id, &ExecutionId::from("e1")).await, Outcome::Stopped);
    assert!(!world.workspace().join("ran").exists());
}

#[tokio::test]
async fn stopping_what_has_ended_keeps_its_exit_code() {
    let world = World::new().await;
    let execution = world.start("e1", "exit 4").await;
    assert_eq!(end(&world.local, &world.id, &execution).await, Outcome::Exited { code: 4 });
    world.local.stop(&world.id, &execution).await.unwrap();
    assert_eq!(end(&world.local, &world.id, &execution).await, Outcome::Exited { code: 4 });
}

#[tokio::test]
async fn what_a_command_leaves_behind_ends_with_it() {
    let world = World::new().await;
    let done = world.bash(&format!("{DAEMON}; until [ -s ticks ]; do sleep 0.01; done; exit 5")).await;
    assert_eq!(done.code(), 5);
    assert!(silent(&world).await);
}

#[tokio::test]
async fn a_deadline_ends_an_execution_also_if_another_server_set_it() {
    let mut world = World::new().await;
    let mut execution = bash("e1", "echo up; sleep 1000");
    execution.deadline = in_seconds(1);
    world.local.start(&world.id, &execution).await.unwrap();
    world.local = world.another().await; // the one that started it enforces nothing any more
    assert_eq!(end(&world.local, &world.id, &execution.id).await, Outcome::TimedOut);
}

#[tokio::test]
async fn too_much_output_ends_an_execution() {
    let world = World::with(SandboxSettings { output_bytes: 100_000, ..SandboxSettings::default() }).await;
    let execution = world.start("e1", "yes").await;
    assert_eq!(end(&world.local, &world.id, &execution).await, Outcome::OverLimit(Limit::Output));
}
