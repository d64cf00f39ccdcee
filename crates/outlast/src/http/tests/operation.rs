//! What operators read: metrics and the overview.

use super::*;

/// The dashboard that is shipped.
const DASHBOARD: &str = include_str!("../../../../../deploy/grafana/outlast.json");

async fn metrics(server: &Server) -> String {
    let response = server.ask("get", "/metrics", "").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(
        response.headers()[header::CONTENT_TYPE].to_str().unwrap().starts_with("text/plain; version=0.0.4")
    );
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

fn value(metrics: &str, series: &str) -> f64 {
    let line =
        metrics.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("{series} is missing:\n{metrics}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// Runs one generation to its end.
async fn complete_one(server: &Server) -> Value {
    let (status, started) = server.post("/v1/generations", &json!({"content": "canary-content"})).await;
    assert_eq!(status, 202);
    let path = format!("/v1/generations/{}/events", started["generationId"].as_str().unwrap());
    let stream = server.ask("get", &path, "").await;
    stream.into_body().collect().await.unwrap();
    started
}

#[tokio::test]
async fn x6_figures_count_what_happened_and_name_nobody() {
    let server = Server::with(DemoModel::with_pace(Duration::ZERO), Settings::default());
    let started = complete_one(&server).await;
    let text = metrics(&server).await;
    for (series, expected) in [
        ("outlast_generations_started_total", 1.0),
        ("outlast_generations_ended_total{outcome=\"completed\"}", 1.0),
        ("outlast_attempts_total{outcome=\"answered\"}", 1.0),
        ("outlast_generations_live", 0.0),
        ("outlast_followers", 0.0),
        ("outlast_appends_waiting", 0.0),
        ("outlast_approvals_waiting", 0.0),
    ] {
        assert_eq!(value(&text, series), expected, "{series}");
    }
    assert!(value(&text, "outlast_append_seconds_count") > 2.0);
    assert!(value(&text, "outlast_wire_seconds_count") > 0.0);
    let ids = ["generationId", "conversationId", "messageId"]
        .map(|name| started[name].as_str().unwrap().to_owned());
    for secret in ids.iter().map(String::as_str).chain(["local", "canary"]) {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    server.engine.stop().await;
}

#[tokio::test]
async fn x6_every_figure_of_the_dashboard_exists() {
    let server = Server::new();
    let text = metrics(&server).await;
    let exist: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let mut named = BTreeSet::new();
    for word in DASHBOARD.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_') {
        let known = exist.iter().any(|name| {
            word.strip_prefix(name).is_some_and(|end| ["", "_bucket", "_sum", "_count"].contains(&end))
        });
        assert!(!word.starts_with("outlast_") || known, "the dashboard names {word}, which does not exist");
        if known {
            named.insert(word);
        }
    }
    assert!(named.len() > 10, "{named:?}");
    let docs = include_str!("../../../../../docs/operation.md");
    for name in &exist {
        assert!(docs.contains(&format!("`{name}`")), "docs/operation.md does not explain {name}");
    }
}

#[tokio::test]
async fn p7_the_overview_shows_what_runs_of_all_users_and_nothing_they_wrote() {
    let server = Server::new();
    let ada = server.key("ada", &["write"]).await;
    let admin = server.key("eve", &["admin"]).await;
    let body = json!({"content": "canary-content", "metadata": {"note": "canary"}}).to_string();
    let started = server.as_key(&ada, "post", "/v1/generations", body).await;
    let started = read(started).await;
    let overview = read(server.as_key(&admin, "get", "/v1/admin/overview", String::new()).await).await;
    assert_eq!(overview["running"][0]["generationId"], started["generationId"], "{overview}");
    assert_eq!(overview["running"][0]["user"], "ada");
    assert_eq!((&overview["live"], &overview["owners"]), (&json!(1), &json!(1)));
    assert_eq!(overview["resumes"], json!({"interruptions": 0, "resumes": 0, "completed": 0, "failed": 0}));
    assert!(!overview.to_string().contains("canary"), "{overview}");
    server.engine.stop().await;
}

#[tokio::test]
async fn i13_every_change_is_in_the_audit_log_without_its_content() {
    let server = Server::new();
    let ada = server.key("ada\"}{\"forged", &["read", "write"]).await;
    let body = json!({"content": "canary-content"}).to_string();
    let started = read(server.as_key(&ada, "post", "/v1/generations", body.clone()).await).await;
    let cancel = format!("/v1/generations/{}/cancel", started["generationId"].as_str().unwrap());
    server.as_key(&ada, "post", &cancel, String::new()).await;
    server.as_key(&ada, "post", "/v1/generations/x%0Ay/cancel", String::new()).await;
    server.as_key(&ada, "get", "/v1/conversations", String::new()).await;
    server.as_key("ol_bad", "post", "/v1/generations", body.clone()).await;
    let log = std::fs::read_to_string(server.folder.path().join("audit.jsonl")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> =
        lines.iter().map(|line| (line["action"].as_str().unwrap(), line["result"].clone())).collect();
    assert_eq!(
        seen,
        [
            ("POST /v1/generations", json!(202)),
            ("POST /v1/generations/{id}/cancel", json!(200)),
            ("POST /v1/generations/{id}/cancel", json!(404)),
        ],
        "reads and requests without a caller are not in it"
    );
    let hash = crate::auth::hex(&<sha2::Sha256 as sha2::Digest>::digest(&body));
    assert_eq!((&lines[0]["arguments"], &lines[1]["object"]), (&json!(hash), &json!(cancel)));
    assert!(lines[0]["credential"]["key"].is_string(), "{log}");
    assert!(!log.contains("canary") && !log.contains(&ada), "{log}");
    server.engine.stop().await;
}

#[tokio::test]
async fn i14_a_key_in_a_path_is_not_in_the_audit_log() {
    let server = Server::new();
    let ada = server.key("ada", &["write"]).await;
    let body = json!({"name": "chat/message.sent", "data": {"content": "hi"}}).to_string();
    assert_eq!(server.ask("post", &format!("/e/{ada}"), body).await.status(), StatusCode::OK);
    let log = std::fs::read_to_string(server.folder.path().join("audit.jsonl")).unwrap();
    let line: Value = serde_json::from_str(log.trim()).unwrap();
    assert_eq!((&line["action"], &line["object"]), (&json!("POST /e/{key}"), &json!("/e/{key}")));
    assert!(!log.contains(ada.rsplit_once('_').unwrap().1), "{log}");
    server.engine.stop().await;
}

#[tokio::test]
async fn b4_one_stream_too_many_of_a_user_is_429_and_affects_no_other_user() {
    let server = Server::new();
    let (ada, bob) =
        (server.key("ada", &["read", "write"]).await, server.key("bob", &["read", "write"]).await);
    let mut paths = Vec::new();
    for key in [&ada, &bob] {
        let made = server.as_key(key, "post", "/v1/conversations", "{}".to_owned()).await;
        paths.push(format!("/v1/conversations/{}/events", read(made).await["id"].as_str().unwrap()));
    }
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        let stream = server.as_key(&ada, "get", &paths[0], String::new()).await;
        assert_eq!(stream.status(), StatusCode::OK);
        open.push(stream);
    }
    let refused = server.as_key(&ada, "get", &paths[0], String::new()).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers().contains_key(header::RETRY_AFTER));
    assert_eq!(read(refused).await["limit"], "limits.streams_per_user");
    assert_eq!(server.as_key(&bob, "get", &paths[1], String::new()).await.status(), StatusCode::OK);
    open.pop();
    assert_eq!(server.as_key(&ada, "get", &paths[0], String::new()).await.status(), StatusCode::OK);
    server.engine.stop().await;
}
