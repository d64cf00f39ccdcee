//! The tools, run as executions.

use std::os::unix::fs::{PermissionsExt, symlink};

use jiff::Timestamp;
use outlast_core::ExecutionId;
use outlast_engine::sandbox::{Offsets, Sandboxes};
use outlast_engine::tools::{Call, INLINE_MAX, Timeouts, Tool, ToolResult, collect};
use serde_json::{Value, json};

use crate::{World, end, within};

fn timeouts() -> Timeouts {
    Timeouts { default: crate::PATIENCE, longest: crate::PATIENCE }
}

impl World {
    async fn tool(&self, tool: Tool, input: Value) -> ToolResult {
        let Ok(Call::Run(run)) = tool.call(&input) else { panic!("{input}") };
        let id = ExecutionId::from(uuid::Uuid::now_v7().to_string());
        let execution = run.execution(id, Timestamp::now(), timeouts());
        self.local.start(&self.id, &execution).await.unwrap();
        self.result(&execution.id).await
    }

    async fn result(&self, execution: &ExecutionId) -> ToolResult {
        let beyond = Offsets { stdout: u64::MAX, stderr: u64::MAX };
        let progress = within(self.local.wait(&self.id, execution, beyond)).await.unwrap();
        let ended = (progress.outcome.unwrap(), progress.written);
        collect(&self.local, &self.id, execution, ended).await.unwrap()
    }
}

fn ok(text: &str) -> ToolResult {
    ToolResult { text: text.to_owned(), exit_code: Some(0), is_error: false }
}

fn error(text: &str) -> ToolResult {
    ToolResult { text: format!("{text}\n[exit code 1]"), exit_code: Some(1), is_error: true }
}

#[tokio::test]
async fn files_are_written_read_and_edited() {
    let world = World::new().await;
    let content = "one\ntwo\nthree\ntwo\n";
    let wrote = world.tool(Tool::WriteFile, json!({"path": "a/b.txt", "content": content})).await;
    assert_eq!(wrote, ok("wrote 18 bytes to a/b.txt\n"));
    assert_eq!(world.tool(Tool::ReadFile, json!({"path": "/workspace/a/b.txt"})).await, ok(content));
    let part = world.tool(Tool::ReadFile, json!({"path": "a/b.txt", "offset": 2, "limit": 2})).await;
    assert_eq!(part, ok("two\nthree\n[lines 2 to 3 of 4; continue with offset 4]\n"));
    let edit = |old: &str, new: &str, all| json!({"path": "a/b.txt", "old": old, "new": new, "all": all});
    let twice = world.tool(Tool::EditFile, edit("two", "2", false)).await;
    assert_eq!(twice, error("`old` occurs 2 times in a/b.txt: add lines around it, or set `all`"));
    assert_eq!(world.tool(Tool::EditFile, edit("one\n", "1\n", false)).await, ok("replaced 1 in a/b.txt\n"));
    assert_eq!(world.tool(Tool::EditFile, edit("two", "2", true)).await, ok("replaced 2 in a/b.txt\n"));
    assert_eq!(
        world.tool(Tool::EditFile, edit("zwei", "2", true)).await,
        error("`old` does not occur in a/b.txt")
    );
    assert_eq!(std::fs::read_to_string(world.workspace().join("a/b.txt")).unwrap(), "1\n2\nthree\n2\n");
}

#[tokio::test]
async fn an_edit_keeps_permissions_and_links() {
    let world = World::new().await;
    let script = world.workspace().join("run.sh");
    std::fs::write(&script, "echo old\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    symlink("run.sh", world.workspace().join("link")).unwrap();
    let edit = json!({"path": "link", "old": "old", "new": "new"});
    assert!(!world.tool(Tool::EditFile, edit).await.is_error);
    assert_eq!(world.bash("./run.sh; readlink link; ls -A").await.stdout, "new\nrun.sh\nlink\nrun.sh\n");
}

#[tokio::test]
async fn files_whose_names_are_not_utf_8_are_listed_found_and_read() {
    let world = World::new().await;
    world.bash(r"printf 'needle\n' > $'caf\xe9'; mkdir $'d\xff'; printf 'needle\n' > $'d\xff/in'").await;
    let listed = world.tool(Tool::ListFiles, json!({})).await;
    assert_eq!(listed, ok("caf\\xe9\nd\\xff/\nd\\xff/in\n"));
    let found = world.tool(Tool::SearchFiles, json!({"pattern": "needle"})).await;
    assert_eq!(found, ok("caf\\xe9:1: needle\nd\\xff/in:1: needle\n"));
    let edit = json!({"path": r"caf\xe9", "old": "needle", "new": "thread"});
    assert_eq!(world.tool(Tool::EditFile, edit).await, ok("replaced 1 in caf\\xe9\n"));
    assert_eq!(world.tool(Tool::ReadFile, json!({"path": r"caf\xe9"})).await, ok("thread\n"));
    assert_eq!(world.bash("ls | wc -l").await.stdout, "2\n");
}

#[tokio::test]
async fn files_are_listed_and_searched_without_what_is_ignored() {
    let world = World::new().await;
    let script = "mkdir -p src/deep node_modules .git; echo 'fn main() {}' > src/main.rs; echo 'fn deep() {}' > src/deep/a.rs; \
         echo 'fn no() {}' > node_modules/x.rs; echo node_modules > .gitignore; echo 'fn no' > .git/config; \
         echo 'fn text' > notes.txt; head -c 100 /dev/urandom > src/binary";
    world.bash(script).await;
    let listed = world.tool(Tool::ListFiles, json!({})).await;
    assert_eq!(listed, ok(".gitignore\nnotes.txt\nsrc/\nsrc/binary\nsrc/deep/\nsrc/main.rs\n"));
    let found = world.tool(Tool::SearchFiles, json!({"pattern": "^fn (main|deep)", "glob": "*.rs"})).await;
    assert_eq!(found, ok("src/deep/a.rs:1: fn deep() {}\nsrc/main.rs:1: fn main() {}\n"));
    let found = world.tool(Tool::SearchFiles, json!({"pattern": "fn text", "path": "/workspace"})).await;
    assert_eq!(found, ok("/workspace/notes.txt:1: fn text\n"));
    let invalid = world.tool(Tool::SearchFiles, json!({"pattern": "("})).await;
    assert!(invalid.is_error && invalid.text.starts_with("invalid pattern"), "{invalid:?}");
    let missing = world.tool(Tool::ListFiles, json!({"path": "nowhere"})).await;
    assert_eq!(missing, error("nowhere does not exist"));
}

#[tokio::test]
async fn file_tools_follow_a_link_no_further_than_the_sandbox() {
    let world = World::new().await;
    let secret = world.folder.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    symlink(&secret, world.workspace().join("link")).unwrap();
    symlink(world.folder.path(), world.workspace().join("folder")).unwrap();
    symlink("/etc/shadow", world.workspace().join("shadow")).unwrap();
    let shadow = std::fs::read("/etc/shadow").ok();
    for path in [
        "link",
        "folder/secret",
        "shadow",
        "../../../../etc/shadow",
        &format!("/proc/1/{}/etc/shadow", "root"),
    ] {
        let read = world.tool(Tool::ReadFile, json!({"path": path})).await;
        assert!(read.is_error && !read.text.contains("secret\n"), "{path}: {read:?}");
        // A link that leads nowhere may be replaced by a file: that stays in the workspace.
        world.tool(Tool::WriteFile, json!({"path": path, "content": "x"})).await;
    }
    assert_eq!(std::fs::read_to_string(secret).unwrap(), "secret");
    assert_eq!(std::fs::read("/etc/shadow").ok(), shadow);
}

#[tokio::test]
async fn large_output_is_cut_in_the_middle_and_whole_in_its_file() {
    let world = World::new().await;
    let command = "for i in $(seq 100000); do echo \"$i €\"; done";
    let result = world.tool(Tool::Bash, json!({"command": command})).await;
    assert!(result.text.len() < INLINE_MAX + 200, "{}", result.text.len());
    assert!(result.text.starts_with("1 €\n2 €\n") && result.text.ends_with("100000 €\n"));
    assert!(!result.text.contains('\u{FFFD}'));
    let line = result.text.lines().find(|line| line.contains("bytes left out")).unwrap();
    let path = line.rsplit(' ').next().unwrap().trim_end_matches(']');
    assert_eq!(world.bash(&format!("wc -l < {path}")).await.stdout, "100000\n");
}

#[tokio::test]
async fn a_background_command_is_read_by_others_and_stopped_by_its_id() {
    let world = World::new().await;
    let Ok(Call::Run(run)) = Tool::Bash.call(&json!({"command": "echo up; sleep 1000", "background": true}))
    else {
        panic!("it is a command")
    };
    let execution = run.execution("exec_1".into(), Timestamp::now(), timeouts());
    assert!(run.background && execution.deadline.is_none());
    world.local.start(&world.id, &execution).await.unwrap();
    world.first_output(&execution.id).await;
    let read = world
        .bash("cat /run/outlast/executions/exec_1/stdout; echo x > /run/outlast/executions/exec_1/stdout")
        .await;
    assert_eq!(read.stdout, "up\n");
    assert_eq!(read.code(), 1, "others cannot write it");
    let Ok(Call::Stop(stop)) = Tool::Bash.call(&json!({"stop": "exec_1"})) else { panic!("it is a stop") };
    world.local.stop(&world.id, &stop).await.unwrap();
    end(&world.local, &world.id, &stop).await;
    assert_eq!(world.result(&stop).await.text, "up\n[stopped]");
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_stopped_and_says_so() {
    let world = World::new().await;
    let result = world.tool(Tool::Bash, json!({"command": "echo up; sleep 1000", "timeout": 1})).await;
    let expected = ToolResult { text: "up\n[stopped: timeout]".to_owned(), exit_code: None, is_error: true };
    assert_eq!(result, expected);
}
