//! What a program in a sandbox tries, and what becomes of it.

use crate::World;

#[tokio::test]
async fn a_program_sees_no_environment_of_the_server() {
    let world = World::new().await;
    let done = world.bash("env | sort; tr '\\0' '\\n' < /proc/1/environ").await;
    for line in done.stdout.lines() {
        let name = line.split('=').next().unwrap();
        let known = ["HOME", "LANG", "PATH", "PWD", "SHLVL", "TERM", "TMPDIR", "USER", "_"];
        assert!(known.contains(&name), "{line}");
    }
}
