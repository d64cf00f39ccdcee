//! Sandboxes at E2B, tried against the stand-in, which also misbehaves on command. `proof/e2b/run` starts it.
//!
//! Each test has an API key of its own, so that it shares neither sandboxes nor faults with others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outlast_core::{ConversationId, ExecutionId, SandboxId, Timestamp};
use outlast_engine::Secret;
use outlast_engine::checkpoints::{Checkpoints, Take};
use outlast_engine::sandbox::{E2b, E2bSettings, Outcome, Presence, SandboxError, Sandboxes, Started};
use serde_json::{Value, json};

use crate::suite::{self, Stage};
use crate::{bash, end, helper, within};

const STAND_IN: &str = "OUTLAST_E2B_STAND_IN";

/// A team at the stand-in.
struct Team {
    url: String,
    settings: E2bSettings,
    id: SandboxId,
}

impl Team {
    fn new() -> Team {
        let url = std::env::var(STAND_IN).expect("proof/e2b/run starts the stand-in");
        let key = format!("e2b_{}", uuid::Uuid::now_v7().simple());
        let mut settings = E2bSettings::new(Secret::new(key), helper());
        settings.template = "with-outlast".to_owned();
        settings.api_url = Some(url.clone());
        settings.sandbox_url = Some(url.clone());
        settings.output_bytes = 2_000_000;
        Team { url, settings, id: SandboxId::from(format!("sbx_{}", uuid::Uuid::now_v7().simple())) }
    }

    async fn open(&self) -> E2b {
        E2b::open(self.settings.clone()).await.unwrap()
    }

    /// A server with a sandbox.
    async fn ready(&self) -> E2b {
        let e2b = self.open().await;
        within(e2b.create(&self.id, "")).await.unwrap();
        e2b
    }

    async fn stage(&self) -> Stage {
        let (one, other) = (Arc::new(self.ready().await), Arc::new(self.open().await));
        Stage { one, other, id: self.id.clone(), _world: None }
    }

    async fn call(&self, method: reqwest::Method, path: &str, body: Option<Value>) -> Value {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut request = client.request(method, format!("{}{path}", self.url));
        request = request.header("X-API-Key", self.settings.api_key.expose());
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        request.send().await.unwrap().json().await.unwrap_or_default()
    }

    async fn misbehave(&self, fault: Value) {
        self.call(reqwest::Method::POST, "/_misbehave", Some(fault)).await;
    }

    async fn sandboxes(&self) -> Vec<Value> {
        let listed = self.call(reqwest::Method::GET, "/v2/sandboxes", None).await;
        listed.as_array().cloned().unwrap()
    }

    async fn calls(&self) -> Vec<String> {
        serde_json::from_value(self.call(reqwest::Method::GET, "/_calls", None).await).unwrap()
    }

    async fn lose_sandbox(&self) {
        let id = self.sandboxes().await[0]["sandboxID"].as_str().unwrap().to_owned();
        self.call(reqwest::Method::DELETE, &format!("/sandboxes/{id}"), None).await;
    }
}

async fn stage() -> Stage {
    Team::new().stage().await
}

suite::cases!(stage, ignore = "needs the stand-in: run proof/e2b/run");

fn why(result: Result<(), SandboxError>) -> String {
    match result {
        Err(SandboxError::Unavailable(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
#[ignore = "needs the stand-in: run proof/e2b/run"]
async fn s6_a_limit_or_no_room_is_retried_and_then_told_as_something_to_act_on() {
    for (status, told) in [(429, "no more sandboxes"), (503, "no room"), (504, "no room")] {
        let team = Team::new();
        let e2b = team.open().await;
        team.misbehave(json!({"at": "create", "status": status, "message": "as asked", "retryAfter": "1"}))
            .await;
        within(e2b.create(&team.id, "")).await.unwrap();
        assert_eq!(team.sandboxes().await.len(), 1);
        e2b.kill(&team.id).await.unwrap();

        team.misbehave(json!({"at": "create", "status": status, "retryAfter": "30", "times": 99})).await;
        let why = why(within(e2b.create(&team.id, "")).await);
        assert!(why.contains(told) && why.to_lowercase().contains("retry"), "{why}");
        assert_eq!(team.sandboxes().await.len(), 0);
    }
}

#[tokio::test]
#[ignore = "needs the stand-in: run proof/e2b/run"]
async fn a_wrong_key_is_found_at_the_start_and_not_shown() {
    let team = Team::new();
    team.misbehave(json!({"at": "list", "status": 401, "message": team.settings.api_key.expose()})).await;
    let opened = E2b::open(team.settings.clone()).await.map(drop);
    let why = why(opened);
    assert!(
        why.contains("does not accept the key") && !why.contains(team.settings.api_key.expose()),
        "{why}"
    );
}

#[tokio::test]
#[ignore = "needs the stand-in: run proof/e2b/run"]
async fn a_sandbox_whose_creation_was_not_heard_of_is_found_and_not_made_twice() {
    let mut team = Team::new();
    team.settings.patience = Duration::from_secs(5);
    let e2b = team.open().await;
    team.misbehave(json!({"at": "created", "hang": true})).await;
    within(e2b.create(&team.id, "")).await.unwrap();
    assert_eq!(team.sandboxes().await.len(), 1);
}

#[tokio::test]
#[ignore = "needs the stand-in: run proof/e2b/run"]
async fn the_second_version_of_the_api_is_used_where_the_first_is_gone() {
    let team = Team::new();
    for at in ["create.v1", "connect.v1"] {
        team.misbehave(json!({"at": at, "status": 404, "message": "no such route", "times": 99})).await;
    }
    let stage = team.stage().await;
    stage.one.pause(&stage.id).await.unwrap();
    stage.other.resume(&stage.id).await.unwrap();
    assert_eq!(stage.bash("echo works").await.stdout, "works\n");
    assert!(team.calls().await.contains(&"POST /v2/sandboxes".to_owned()));
}

#[tokio::test]
#[ignore = "needs the stand-in: run proof/e2b/run"]
async fn i7_a_sandbox_that_is_gone_in_the_middle_of_a_tool_is_gone_for_all_calls() {
    let team = Team::new();
    let e2b = team.ready().await;
    e2b.start(&team.id, &bash("e1", "sleep 1000")).await.unwrap();
    let execution = ExecutionId::from("e1");
    let waiting = e2b.wait(&team.id, &execution, Default::default());
    let (waited, ()) = tokio::join!(within(waiting), team.lose_sandbox());
    assert!(matches!(waited, Err(SandboxError::Gone(_))), "{waited:?}");
    assert_eq!(e2b.look(&team.id).await.unwrap(), Presence::Gone);
    e2b.kill(&team.id).await.unwrap();
}

#[tokio::test]
#[ignore = "needs the stand-in: run proof/e2b/run"]
async fn g6_files_that_are_missing_after_a_resume_are_noticed() {
    let team = Team::new();
    let stage = team.stage().await;
    stage.bash("echo kept > kept; echo lost > lost").await;
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::in_folder(folder.path()).unwrap();
    let conversation = ConversationId::from("c");
    let workspace = stage.one.workspace(&stage.id).unwrap();
    let take = Take {
        conversation: conversation.clone(),
        id: "one".into(),
        workspace,
        git: None,
        now: Timestamp(1),
    };
    checkpoints.take(&take).await.unwrap();
    for lose in [json!([]), json!(["workspace/lost"])] {
        team.misbehave(json!({"at": "resume", "lose": lose})).await;
        stage.one.pause(&stage.id).await.unwrap();
        stage.one.resume(&stage.id).await.unwrap();
        let workspace = stage.one.workspace(&stage.id).unwrap();
        let missing = checkpoints.first_missing(&conversation, "one", workspace).await.unwrap();
        let expected = lose[0].as_str().map(|_| std::path::PathBuf::from("lost"));
        assert_eq!(missing, expected);
    }
    assert!(!stage.one.keeps_files_asleep());
}

#[tokio::test]
#[ignore = "needs the stand-in: run proof/e2b/run"]
async fn a_connect_that_hangs_is_given_up_and_repeated() {
    let mut team = Team::new();
    team.settings.patience = Duration::from_secs(2);
    let e2b = team.ready().await;
    e2b.pause(&team.id).await.unwrap();
    team.misbehave(json!({"at": "connect", "hang": true})).await;
    within(e2b.resume(&team.id)).await.unwrap();
    e2b.pause(&team.id).await.unwrap();
    team.misbehave(json!({"at": "connect", "hang": true, "times": 99})).await;
    let began = Instant::now();
    let resumed = within(e2b.resume(&team.id)).await;
    assert!(matches!(resumed, Err(SandboxError::Io { .. })), "{resumed:?}");
    assert!(began.elapsed() < Duration::from_secs(50));
}

#[tokio::test]
#[ignore = "needs the stand-in: run proof/e2b/run"]
async fn x8_output_that_the_sandbox_drops_is_neither_lost_nor_made_twice() {
    let team = Team::new();
    let stage = team.stage().await;
    for _ in 0..3 {
        team.misbehave(json!({"at": "envd Start", "drop": true})).await;
        let name = uuid::Uuid::now_v7().to_string();
        let script = "echo ran >> runs; for i in $(seq 500); do echo line $i; done; exit 3";
        let started = within(stage.one.start(&stage.id, &bash(&name, script))).await.unwrap();
        assert_eq!(started, Started::Now, "the second question found the name of the first");
        team.misbehave(json!({"at": "envd Start", "drop": true})).await;
        let done = stage.done(&*stage.one, &ExecutionId::from(name.as_str())).await;
        assert_eq!((done.code(), done.stdout.lines().count()), (3, 500));
    }
    assert_eq!(stage.bash("wc -l < runs").await.stdout.trim(), "3");
}

#[tokio::test]
#[ignore = "needs the stand-in: run proof/e2b/run"]
async fn errors_of_the_server_inside_are_retried() {
    let team = Team::new();
    let stage = team.stage().await;
    for status in [429, 500, 502, 503, 504] {
        team.misbehave(json!({"at": "envd Start", "status": status})).await;
        team.misbehave(json!({"at": "envd files", "status": status})).await;
        assert_eq!(stage.bash("echo fine").await.stdout, "fine\n", "{status}");
    }
}

#[tokio::test]
#[ignore = "needs the stand-in: run proof/e2b/run"]
async fn s2_the_timeout_is_pushed_while_a_tool_runs_and_pauses_the_sandbox_if_no_server_is_there() {
    let mut team = Team::new();
    team.settings.lifetime = Duration::from_secs(6);
    let e2b = team.ready().await;
    e2b.start(&team.id, &bash("e1", "sleep 9; exit 5")).await.unwrap();
    let execution = ExecutionId::from("e1");
    assert_eq!(end(&e2b, &team.id, &execution).await, Outcome::Exited { code: 5 });
    within(async {
        while e2b.look(&team.id).await.unwrap() != Presence::Paused {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await;
    let refused = e2b.start(&team.id, &bash("e2", "true")).await;
    assert!(matches!(refused, Err(SandboxError::Paused(_))), "{refused:?}");
    e2b.resume(&team.id).await.unwrap();
    e2b.start(&team.id, &bash("e2", "true")).await.unwrap();
    e2b.kill(&team.id).await.unwrap();
}

#[tokio::test]
#[ignore = "needs the stand-in: run proof/e2b/run"]
async fn the_program_is_uploaded_to_a_template_that_lacks_it_or_the_operator_is_told() {
    let mut team = Team::new();
    team.settings.template = "base".to_owned();
    let stage = team.stage().await;
    assert_eq!(stage.bash("echo works").await.stdout, "works\n");
    stage.one.kill(&stage.id).await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    team.settings.program = folder.path().join("outlast");
    std::fs::write(&team.settings.program, "not a program").unwrap();
    let why = why(team.open().await.create(&team.id, "").await);
    assert!(why.contains("does not run in the sandbox") && why.contains("e2b.program"), "{why}");
    assert_eq!(team.sandboxes().await.len(), 0);

    team.settings.template = "unheard".to_owned();
    let why = crate::e2b::why(team.open().await.create(&team.id, "").await);
    assert!(why.contains("e2b.template"), "{why}");
}
