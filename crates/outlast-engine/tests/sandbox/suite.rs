//! What every provider promises, whatever its sandboxes are made of.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use outlast_core::{ConversationId, ExecutionId, SandboxId, Timestamp};
use outlast_engine::checkpoints::{Attributes, Checkpoints, Restore, Take};
use outlast_engine::sandbox::{
    Execution, Limit, Local, Offsets, Outcome, Output, Presence, SandboxError, SandboxSettings, Sandboxes,
    Started, TOOL_INSIDE,
};

use crate::{Done, World, all, bash, end, helper, in_seconds, within};

/// Appends a line to a file with every run, and writes output that shows what is missing.
const COUNTED: &str = "echo ran >> /workspace/runs; for i in $(seq 2000); do echo line $i; done; exit 3";
/// A process that writes a growing file, whatever becomes of its parents.
const DAEMON: &str = "setsid bash -c '(while :; do echo tick >> /workspace/ticks; sleep 0.01; done) &' < /dev/null > /dev/null 2>&1";

/// A sandbox, and two servers that use it.
pub(crate) struct Stage {
    pub(crate) one: Arc<dyn Sandboxes>,
    pub(crate) other: Arc<dyn Sandboxes>,
    pub(crate) id: SandboxId,
    /// What has to be cleaned up.
    pub(crate) _world: Option<World>,
}

impl Stage {
    pub(crate) async fn bash(&self, script: &str) -> Done {
        let execution = bash(&uuid::Uuid::now_v7().to_string(), script);
        within(self.one.start(&self.id, &execution)).await.unwrap();
        self.done(&*self.one, &execution.id).await
    }

    async fn start(&self, name: &str, script: &str) -> ExecutionId {
        let execution = bash(name, script);
        within(self.one.start(&self.id, &execution)).await.unwrap();
        execution.id
    }

    pub(crate) async fn done(&self, sandboxes: &dyn Sandboxes, execution: &ExecutionId) -> Done {
        let outcome = end(sandboxes, &self.id, execution).await;
        let [stdout, stderr] = [Output::Stdout, Output::Stderr];
        let stdout = all(sandboxes, &self.id, execution, stdout).await;
        let stderr = all(sandboxes, &self.id, execution, stderr).await;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Done { outcome, stdout: text(stdout), stderr: text(stderr) }
    }

    /// Waits until a program has written something.
    async fn first_output(&self, execution: &ExecutionId) -> String {
        let progress = within(self.one.wait(&self.id, execution, Offsets::default())).await.unwrap();
        assert_eq!(progress.outcome, None);
        String::from_utf8(all(&*self.one, &self.id, execution, Output::Stdout).await).unwrap()
    }

    async fn ticks(&self) -> u64 {
        self.bash("stat -c %s ticks 2>/dev/null || echo 0").await.stdout.trim().parse().unwrap()
    }

    async fn ticking(&self) {
        let before = self.ticks().await;
        within(async { while self.ticks().await == before {} }).await;
    }

    /// Only a daemon that is alive can break this, never one that is dead.
    async fn silent(&self) -> bool {
        let before = self.ticks().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.ticks().await == before
    }
}

pub(crate) async fn runs_with_its_input_its_output_and_its_exit_code(stage: Stage) {
    let mut execution = bash("e1", "cat; echo $GREETING; pwd; echo oops >&2; exit 7");
    execution.stdin = Bytes::from_static(b"from stdin\n");
    execution.env.insert("GREETING".to_owned(), "hello".to_owned());
    stage.one.start(&stage.id, &execution).await.unwrap();
    let done = stage.done(&*stage.one, &execution.id).await;
    assert_eq!(done.code(), 7);
    assert_eq!(done.stdout, "from stdin\nhello\n/workspace\n");
    assert_eq!(done.stderr, "oops\n");
}

pub(crate) async fn files_of_one_execution_are_there_for_the_next(stage: Stage) {
    stage.bash("echo one > /workspace/a; echo two > ~/b; echo three > /tmp/c").await;
    assert_eq!(stage.bash("cat /workspace/a ~/b /tmp/c").await.stdout, "one\ntwo\nthree\n");
}

pub(crate) async fn output_arrives_while_the_program_runs(stage: Stage) {
    let execution = stage.start("e1", "echo first; until [ -e go ]; do sleep 0.01; done; echo second").await;
    assert_eq!(stage.first_output(&execution).await, "first\n");
    stage.bash("touch go; cat /run/outlast/executions/e1/stdout").await;
    assert_eq!(stage.done(&*stage.one, &execution).await.stdout, "first\nsecond\n");
    let shown = stage.bash("cat /run/outlast/executions/e1/stdout").await;
    assert_eq!(shown.stdout, "first\nsecond\n", "later commands can read the output");
}

pub(crate) async fn x8_many_starts_from_two_servers_run_it_once(stage: Stage) {
    let execution = bash("e1", COUNTED);
    let starts = (0..20).map(|i| {
        let server = if i % 2 == 0 { &stage.one } else { &stage.other };
        server.start(&stage.id, &execution)
    });
    let results = within(futures_util::future::join_all(starts)).await;
    let now = results.iter().filter(|result| matches!(result, Ok(Started::Now))).count();
    let before = results.iter().filter(|result| matches!(result, Ok(Started::Before))).count();
    assert_eq!((now, before), (1, 19), "{results:?}");
    let expected: String = (1..=2000).map(|i| format!("line {i}\n")).collect();
    for server in [&stage.one, &stage.other] {
        let done = stage.done(&**server, &execution.id).await;
        assert_eq!((done.code(), done.stdout), (3, expected.clone()));
    }
    assert_eq!(stage.other.start(&stage.id, &execution).await.unwrap(), Started::Before);
    assert_eq!(stage.bash("cat runs").await.stdout, "ran\n");
}

pub(crate) async fn an_execution_that_nobody_started_is_unknown(stage: Stage) {
    let waited = stage.one.wait(&stage.id, &ExecutionId::from("e1"), Offsets::default()).await;
    assert!(matches!(waited, Err(SandboxError::Unknown(_))), "{waited:?}");
}

pub(crate) async fn ids_that_are_no_file_names_are_refused(stage: Stage) {
    for id in ["", "..", "a/b", "a:b", ".killed", "a\0"] {
        let started = stage.one.start(&stage.id, &bash(id, "true")).await;
        assert!(matches!(started, Err(SandboxError::Refused(_))), "{id:?}: {started:?}");
    }
}

pub(crate) async fn i9_another_server_stops_a_daemon_that_a_dead_one_started(stage: Stage) {
    let execution = stage.start("e1", &format!("{DAEMON}; echo up; sleep 1000")).await;
    stage.first_output(&execution).await;
    stage.ticking().await;
    stage.other.stop(&stage.id, &execution).await.unwrap();
    assert!(stage.silent().await);
    assert_eq!(end(&*stage.one, &stage.id, &execution).await, Outcome::Stopped);
    stage.one.stop(&stage.id, &execution).await.unwrap();
}

pub(crate) async fn i9_what_was_stopped_before_its_start_never_runs(stage: Stage) {
    stage.one.stop(&stage.id, &ExecutionId::from("e1")).await.unwrap();
    let started = stage.other.start(&stage.id, &bash("e1", "echo ran > /workspace/ran")).await.unwrap();
    assert_eq!(started, Started::Before);
    assert_eq!(end(&*stage.one, &stage.id, &ExecutionId::from("e1")).await, Outcome::Stopped);
    assert_eq!(stage.bash("ls /workspace").await.stdout, "");
}

pub(crate) async fn stopping_what_has_ended_keeps_its_exit_code(stage: Stage) {
    let execution = stage.start("e1", "exit 4").await;
    assert_eq!(end(&*stage.one, &stage.id, &execution).await, Outcome::Exited { code: 4 });
    stage.one.stop(&stage.id, &execution).await.unwrap();
    assert_eq!(end(&*stage.one, &stage.id, &execution).await, Outcome::Exited { code: 4 });
}

pub(crate) async fn what_a_command_leaves_behind_ends_with_it(stage: Stage) {
    let done = stage.bash(&format!("{DAEMON}; until [ -s ticks ]; do sleep 0.01; done; exit 5")).await;
    assert_eq!(done.code(), 5);
    assert!(stage.silent().await);
}

pub(crate) async fn a_deadline_ends_an_execution_also_if_another_server_set_it(mut stage: Stage) {
    let mut execution = bash("e1", "echo up; sleep 1000");
    execution.deadline = in_seconds(1);
    stage.one.start(&stage.id, &execution).await.unwrap();
    stage.one = stage.other.clone(); // the one that started it enforces nothing any more
    assert_eq!(
        stage.one.start(&stage.id, &execution).await.unwrap(),
        Started::Before,
        "whoever takes over does this"
    );
    assert_eq!(end(&*stage.one, &stage.id, &execution.id).await, Outcome::TimedOut);
}

pub(crate) async fn too_much_output_ends_an_execution(stage: Stage) {
    let execution = stage.start("e1", "yes").await;
    assert_eq!(end(&*stage.one, &stage.id, &execution).await, Outcome::OverLimit(Limit::Output));
}

pub(crate) async fn s2_another_server_resumes_a_paused_sandbox_and_it_goes_on_where_it_was(stage: Stage) {
    let execution = stage.start("e1", "echo up; until [ -e go ]; do sleep 0.01; done; echo on; exit 6").await;
    stage.first_output(&execution).await;
    for _ in 0..2 {
        stage.one.pause(&stage.id).await.unwrap();
        stage.one.pause(&stage.id).await.unwrap();
        assert_eq!(stage.other.look(&stage.id).await.unwrap(), Presence::Paused);
        let refused = stage.one.start(&stage.id, &bash("e2", "true")).await;
        assert!(matches!(refused, Err(SandboxError::Paused(_))), "{refused:?}");
        stage.other.resume(&stage.id).await.unwrap();
        stage.other.resume(&stage.id).await.unwrap();
        assert_eq!(stage.one.look(&stage.id).await.unwrap(), Presence::Running);
    }
    stage.bash("touch go").await;
    let done = stage.done(&*stage.one, &execution).await;
    assert_eq!((done.code(), done.stdout.as_str()), (6, "up\non\n"));
}

pub(crate) async fn s2_a_sandbox_can_be_killed_while_it_is_paused(stage: Stage) {
    stage.start("e1", "sleep 1000").await;
    stage.one.pause(&stage.id).await.unwrap();
    stage.other.kill(&stage.id).await.unwrap();
    assert_eq!(stage.one.look(&stage.id).await.unwrap(), Presence::Gone);
    let refused = stage.one.start(&stage.id, &bash("e2", "true")).await;
    assert!(matches!(refused, Err(SandboxError::Gone(_))), "{refused:?}");
    let resumed = stage.one.resume(&stage.id).await;
    assert!(matches!(resumed, Err(SandboxError::Gone(_))), "{resumed:?}");
    stage.one.kill(&stage.id).await.unwrap();
    stage.one.create(&stage.id, "").await.unwrap();
    assert_eq!(stage.bash("ls /workspace").await.stdout, "", "a new one under the same id is empty");
    stage.one.kill(&stage.id).await.unwrap();
}

pub(crate) async fn s2_a_tool_stopped_in_its_sleep_leaves_nothing_frozen_for_the_next(stage: Stage) {
    let execution = stage.start("e1", "echo up; sleep 1000").await;
    stage.first_output(&execution).await;
    stage.one.pause(&stage.id).await.unwrap();
    stage.one.stop(&stage.id, &execution).await.unwrap();
    stage.one.resume(&stage.id).await.unwrap();
    assert_eq!(end(&*stage.one, &stage.id, &execution).await, Outcome::Stopped);
    assert_eq!(within(stage.bash("echo awake")).await.stdout, "awake\n");
}

pub(crate) async fn file_tools_run_inside(stage: Stage) {
    let tool = async |name: &str, input: serde_json::Value| {
        let execution = Execution {
            program: [TOOL_INSIDE, "tool", name].map(str::to_owned).into(),
            stdin: input.to_string().into(),
            ..bash(&uuid::Uuid::now_v7().to_string(), "")
        };
        stage.one.start(&stage.id, &execution).await.unwrap();
        stage.done(&*stage.one, &execution.id).await
    };
    let long = "a line of text\n".repeat(20_000);
    let written = tool("write_file", serde_json::json!({"path": "a/b.txt", "content": long})).await;
    assert_eq!(written.code(), 0, "{written:?}");
    let read = tool("read_file", serde_json::json!({"path": "a/b.txt", "limit": 1})).await;
    assert!(read.stdout.starts_with("a line of text\n[lines 1 to 1 of 20000"), "{read:?}");
    assert_ne!(tool("read_file", serde_json::json!({"path": "nothing"})).await.code(), 0);
}

pub(crate) async fn x9_a_checkpoint_of_one_sandbox_is_restored_in_another(stage: Stage) {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::in_folder(folder.path()).unwrap();
    let make = "mkdir -p a/b; echo one > a/b/one; echo '#!/bin/sh' > run; chmod 755 run; ln -s a/b/one link; \
                head -c 9000000 /dev/urandom > large; : > empty; touch -d @1000000000 a/b/one";
    assert_eq!(stage.bash(make).await.code(), 0);
    let picture = "find . -printf '%p %y %m %l\\n' | sort; stat -c %Y a/b/one; sha256sum large";
    let before = stage.bash(picture).await.stdout;
    let conversation = ConversationId::from("c");
    let take = |id: &str| Take {
        conversation: conversation.clone(),
        id: id.to_owned(),
        workspace: stage.one.workspace(&stage.id).unwrap(),
        git: None,
        now: Timestamp(1),
    };
    let taken = within(checkpoints.take(&take("one"))).await.unwrap();
    assert_eq!((taken.files, taken.bytes), (5, 9_000_014));
    let again = within(checkpoints.take(&take("two"))).await.unwrap();
    assert_eq!(again.new_blobs, 0, "nothing has changed");
    let missing = async || {
        let workspace = stage.one.workspace(&stage.id).unwrap();
        within(checkpoints.first_missing(&conversation, "two", workspace)).await.unwrap()
    };
    assert_eq!(missing().await, None);
    stage.bash("rm a/b/one").await;
    assert_eq!(missing().await.as_deref(), Some(Path::new("a/b/one")));

    stage.one.kill(&stage.id).await.unwrap();
    stage.one.create(&stage.id, "").await.unwrap();
    let workspace = stage.one.workspace(&stage.id).unwrap();
    let restore = Restore { conversation: conversation.clone(), id: "two".to_owned(), workspace };
    assert_eq!(within(checkpoints.restore(&restore)).await.unwrap().files, 5);
    assert_eq!(stage.bash(picture).await.stdout, before);
    stage.one.kill(&stage.id).await.unwrap();
}

pub(crate) async fn x9_files_are_put_and_removed_from_outside(stage: Stage) {
    let workspace = stage.one.workspace(&stage.id).unwrap();
    let work = move || {
        assert!(!workspace.put_file(Path::new("new/file"), b"one").unwrap());
        assert!(workspace.put_file(Path::new("new/file"), b"two").unwrap());
        workspace.put_file(Path::new("gone"), b"").unwrap();
        workspace.remove_file(Path::new("gone")).unwrap();
        let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
        assert_eq!(kind(workspace.remove_file(Path::new("gone"))), std::io::ErrorKind::NotFound);
        assert_eq!(kind(workspace.remove_file(Path::new("new"))), std::io::ErrorKind::IsADirectory);
        let mut made = workspace.make_file(Path::new("made")).unwrap();
        made.write_all(b"three").unwrap();
        made.finish(Attributes { mode: 0o640, modified: 0 }).unwrap();
    };
    tokio::task::spawn_blocking(work).await.unwrap();
    assert_eq!(stage.bash("cat new/file made; stat -c %a made; ls").await.stdout, "twothree640\nmade\nnew\n");
}

/// One test for each case. The attribute says when they run.
macro_rules! cases {
    ($stage:path, $attribute:meta) => {
        $crate::suite::cases! { $stage, $attribute:
            runs_with_its_input_its_output_and_its_exit_code
            files_of_one_execution_are_there_for_the_next
            output_arrives_while_the_program_runs
            x8_many_starts_from_two_servers_run_it_once
            an_execution_that_nobody_started_is_unknown
            ids_that_are_no_file_names_are_refused
            i9_another_server_stops_a_daemon_that_a_dead_one_started
            i9_what_was_stopped_before_its_start_never_runs
            stopping_what_has_ended_keeps_its_exit_code
            what_a_command_leaves_behind_ends_with_it
            a_deadline_ends_an_execution_also_if_another_server_set_it
            too_much_output_ends_an_execution
            s2_another_server_resumes_a_paused_sandbox_and_it_goes_on_where_it_was
            s2_a_sandbox_can_be_killed_while_it_is_paused
            s2_a_tool_stopped_in_its_sleep_leaves_nothing_frozen_for_the_next
            file_tools_run_inside
            x9_a_checkpoint_of_one_sandbox_is_restored_in_another
            x9_files_are_put_and_removed_from_outside
        }
    };
    ($stage:path, $attribute:meta: $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            #[$attribute]
            async fn $case() {
                $crate::suite::$case($stage().await).await;
            }
        )*
    };
}
pub(crate) use cases;

mod local {
    use super::{Stage, local_stage};

    async fn stage() -> Stage {
        local_stage().await
    }

    crate::suite::cases!(stage, cfg(target_os = "linux"));
}

async fn local_stage() -> Stage {
    // Two megabytes of output are far more than any case writes that is to end well.
    let settings = SandboxSettings { output_bytes: 2_000_000, ..SandboxSettings::default() };
    let world = World::with(settings.clone()).await;
    let open = || Local::open(world.folder.path(), settings.clone(), helper());
    let (one, other, id) = (open().await.unwrap(), open().await.unwrap(), world.id.clone());
    Stage { one: Arc::new(one), other: Arc::new(other), id, _world: Some(world) }
}
