//! A paused sandbox stands still; a killed one is gone.

use std::fs::File;
use std::time::{Duration, Instant};

use outlast_core::ExecutionId;
use outlast_engine::sandbox::{Presence, SandboxError, Sandboxes};

use crate::{World, bash, within};

const COUNTER: &str = "while :; do echo tick >> /workspace/ticks; sleep 0.01; done";

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

async fn silent(world: &World) -> bool {
    let before = ticks(world);
    tokio::time::sleep(Duration::from_millis(200)).await;
    ticks(world) == before
}

async fn counting(world: &World) -> ExecutionId {
    let execution = world.start("e1", COUNTER).await;
    ticking(world).await;
    execution
}

#[tokio::test]
async fn s2_a_paused_sandbox_stands_still_and_goes_on_where_it_was() {
    let world = World::new().await;
    let execution = counting(&world).await;
    for _ in 0..3 {
        let began = Instant::now();
        world.local.pause(&world.id).await.unwrap();
        println!("paused in {:?}", began.elapsed());
        assert_eq!(world.local.look(&world.id).await.unwrap(), Presence::Paused);
        assert!(silent(&world).await);
        let refused = world.local.start(&world.id, &bash("e2", "true")).await;
        assert!(matches!(refused, Err(SandboxError::Paused(_))), "{refused:?}");
        world.local.resume(&world.id).await.unwrap();
        assert_eq!(world.local.look(&world.id).await.unwrap(), Presence::Running);
        ticking(&world).await;
    }
    assert_eq!(world.bash("echo runs").await.stdout, "runs\n");
    world.local.stop(&world.id, &execution).await.unwrap();
}

#[tokio::test]
async fn s2_another_server_resumes_what_a_dead_one_paused() {
    let world = World::new().await;
    counting(&world).await;
    world.local.pause(&world.id).await.unwrap();
    let another = world.another().await;
    assert_eq!(another.look(&world.id).await.unwrap(), Presence::Paused);
    another.resume(&world.id).await.unwrap();
    ticking(&world).await;
    another.kill(&world.id).await.unwrap();
}

#[tokio::test]
async fn s2_a_sandbox_can_be_killed_while_it_is_paused() {
    let world = World::new().await;
    counting(&world).await;
    world.local.pause(&world.id).await.unwrap();
    let workspace = world.workspace();
    let began = Instant::now();
    world.local.kill(&world.id).await.unwrap();
    println!("killed a paused sandbox in {:?}", began.elapsed());
    assert!(!workspace.exists());
    assert_eq!(world.local.look(&world.id).await.unwrap(), Presence::Gone);
    let refused = world.local.start(&world.id, &bash("e2", "true")).await;
    assert!(matches!(refused, Err(SandboxError::Gone(_))), "{refused:?}");
    world.local.kill(&world.id).await.unwrap();
}

#[tokio::test]
async fn g5_killing_a_sandbox_takes_its_daemons_and_its_files() {
    let world = World::new().await;
    let daemon = "setsid bash -c '(while :; do echo tick >> /workspace/ticks; sleep 0.01; done) &'";
    world.start("e1", &format!("{daemon}; mkdir -p d/e; chmod 000 d/e d; echo up; sleep 1000")).await;
    ticking(&world).await;
    // Deeper than a path can be long, and than a server has descriptors.
    let script = "import os\nfor i in range(3000): os.mkdir('folder'); os.chdir('folder')\nos.chmod('.', 0)";
    let deep = world.bash(&format!("python3 -c \"{script}\"")).await;
    assert_eq!(deep.code(), 0, "{deep:?}");
    let root = world.folder.path().join(world.id.as_str());
    world.local.kill(&world.id).await.unwrap();
    assert!(!root.exists());
    let killed = std::fs::read_dir(world.folder.path().join(".killed")).unwrap().count();
    let running = std::fs::read_dir(world.folder.path().join(".running")).unwrap().count();
    assert_eq!((killed, running), (0, 0));
}

#[tokio::test]
async fn g5_the_next_server_finishes_a_kill() {
    let world = World::new().await;
    counting(&world).await;
    // As far as a server got that died right after the first step.
    let folder = world.folder.path().join(world.id.as_str());
    let killed = world.folder.path().join(".killed").join(world.id.as_str());
    std::fs::rename(folder, &killed).unwrap();
    let ticks = || std::fs::metadata(killed.join("workspace/ticks")).map(|file| file.len()).ok();
    assert!(ticks().is_some());
    let another = world.another().await;
    assert_eq!(another.look(&world.id).await.unwrap(), Presence::Gone);
    assert_eq!(ticks(), None);
    let running = std::fs::read_dir(world.folder.path().join(".running")).unwrap().count();
    assert_eq!(running, 0);
}

#[tokio::test]
async fn i9_a_kill_ends_a_tool_that_no_marker_names_any_more() {
    let world = World::new().await;
    counting(&world).await;
    let folder = world.folder.path().join(world.id.as_str());
    // Locked until the last process of the tool is gone.
    let alive = File::open(folder.join("executions/e1/alive")).unwrap();
    assert!(alive.try_lock_shared().is_err());
    // Whoever looks at the tool while its folder is renamed takes it for one that never started, and forgets it.
    std::fs::rename(folder, world.folder.path().join(".killed").join(world.id.as_str())).unwrap();
    std::fs::remove_dir_all(world.folder.path().join(".running").join(world.id.as_str())).unwrap();
    world.local.kill(&world.id).await.unwrap();
    assert!(alive.try_lock_shared().is_ok(), "the tool runs on");
}

#[tokio::test]
async fn s2_a_tool_stopped_in_its_sleep_leaves_nothing_frozen_for_the_next() {
    let world = World::new().await;
    let execution = counting(&world).await;
    world.local.pause(&world.id).await.unwrap();
    world.local.stop(&world.id, &execution).await.unwrap();
    world.local.resume(&world.id).await.unwrap();
    assert_eq!(within(world.bash("echo awake")).await.stdout, "awake\n");
}

#[tokio::test]
async fn s2_a_running_tool_is_not_taken_for_awake_in_a_paused_sandbox() {
    let world = World::new().await;
    let execution = counting(&world).await;
    world.local.pause(&world.id).await.unwrap();
    let again = world.local.start(&world.id, &bash("e1", COUNTER)).await;
    assert!(matches!(again, Err(SandboxError::Paused(_))), "{again:?}");
    world.local.resume(&world.id).await.unwrap();
    world.local.start(&world.id, &bash("e1", COUNTER)).await.unwrap();
    ticking(&world).await;
    world.local.stop(&world.id, &execution).await.unwrap();
}

#[tokio::test]
async fn i20_what_cannot_be_removed_keeps_no_server_from_starting() {
    let world = World::new().await;
    std::fs::create_dir(world.folder.path().join(".killed").join("not an id")).unwrap();
    let another = world.another().await;
    another.start(&world.id, &bash("e1", "true")).await.unwrap();
}
