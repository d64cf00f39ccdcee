//! Stopping takes everything that an execution started. It takes milliseconds, which the tests print.

use std::time::{Duration, Instant};

use outlast_engine::sandbox::{Outcome, Sandboxes};

use crate::{World, end, within};

/// Cancelling promises a second; a machine that builds something else meanwhile may need more.
const STOP_MAX: Duration = Duration::from_secs(30);

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
async fn i9_stop_takes_a_daemon() {
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
async fn g5_stop_takes_a_fork_bomb() {
    let world = World::new().await;
    let bomb = "echo up; bomb() { echo tick >> ticks; bomb | bomb & }; bomb; exec sleep 1000";
    let execution = world.start("e1", bomb).await;
    world.first_output(&execution).await;
    within(async {
        while ticks(&world) < 50 * "tick\n".len() as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let began = Instant::now();
    world.local.stop(&world.id, &execution).await.unwrap();
    println!("stopped a fork bomb in {:?}", began.elapsed());
    assert!(began.elapsed() < STOP_MAX, "{:?}", began.elapsed());
    assert_eq!(end(&world.local, &world.id, &execution).await, Outcome::Stopped);
    assert_eq!(world.bash("echo fine").await.stdout, "fine\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn i7_a_sandbox_with_the_same_id_in_another_folder_is_neither_paused_nor_killed() {
    let waits =
        |file: &str, code: u8| format!("echo up; until [ -e {file} ]; do sleep 0.01; done; exit {code}");
    let one = World::new().await;
    let mut other = World::new().await;
    other.id = one.id.clone();
    other.local.create(&other.id, "test").await.unwrap();
    one.first_output(&one.start("e1", "echo up; sleep 1000").await).await;
    let paused = other.start("e1", &waits("go", 3)).await;
    let killed = other.start("e2", &waits("on", 4)).await;
    other.first_output(&paused).await;
    other.first_output(&killed).await;

    one.local.pause(&one.id).await.unwrap();
    std::fs::write(other.workspace().join("go"), "").unwrap();
    assert_eq!(end(&other.local, &other.id, &paused).await, Outcome::Exited { code: 3 });
    one.local.kill(&one.id).await.unwrap();
    std::fs::write(other.workspace().join("on"), "").unwrap();
    assert_eq!(end(&other.local, &other.id, &killed).await, Outcome::Exited { code: 4 });
}
