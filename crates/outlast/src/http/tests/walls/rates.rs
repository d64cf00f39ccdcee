//! Limits on how often and how much: each names itself, says when to come back, and concerns nobody else.

use outlast_core::{Context, Piece, TextKind};
use outlast_engine::{Arrived, ModelStream};

use super::*;
use crate::http::per_user::ConnectionUser;

async fn start(server: &Server, key: &str) -> Response {
    let body = json!({"content": "hi"}).to_string();
    server.send(&format!("Bearer {key}"), "post", "/v1/generations", body).await
}

#[tokio::test]
async fn b4_a_user_who_starts_too_much_is_told_which_limit_and_when_to_come_back() {
    let server = Server::new();
    let (one, two) = (server.key("ada", &["write"]).await, server.key("ada", &["write"]).await);
    for _ in 0..5 {
        assert_eq!(start(&server, &one).await.status(), StatusCode::ACCEPTED);
    }
    for (key, limit) in
        [(&one, "limits.starts_per_minute_per_key"), (&two, "limits.starts_per_minute_per_user")]
    {
        let refused = start(&server, key).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        let wait: u64 = refused.headers()[header::RETRY_AFTER].to_str().unwrap().parse().unwrap();
        assert!((1..=13).contains(&wait), "a fifth of a minute: {wait}");
        let problem = read(refused).await;
        assert_eq!((&problem["code"], &problem["limit"]), (&json!("limit_reached"), &json!(limit)));
    }
    let bob = server.key("bob", &["write"]).await;
    assert_eq!(start(&server, &bob).await.status(), StatusCode::ACCEPTED, "somebody else goes on");
    server.engine.stop().await;
}

#[tokio::test]
async fn b4_failed_log_ins_are_limited_and_good_ones_are_not() {
    let server = Server::new();
    let key = server.key("ada", &["read"]).await;
    let attempt = async |key: &str| {
        let response = server.ask("post", "/v1/session", json!({"key": key}).to_string()).await;
        response.status().as_u16()
    };
    for _ in 0..5 {
        assert_eq!(attempt("wrong").await, 401);
    }
    assert_eq!(attempt("wrong").await, 429);
    assert_eq!(attempt(&key).await, 200, "nobody can lock others out");
}

/// Says little and reports 41,000 tokens.
struct Thirsty;

impl Model for Thirsty {
    fn call(&self, _: Context) -> ModelStream {
        let said = Piece::Text { kind: TextKind::Answer, text: "Yes.".to_owned(), chunks: 1 };
        let usage = Piece::Usage { input_tokens: 40_000, output_tokens: 1_000 };
        let end = Arrived::Finished { reason: "stop".to_owned() };
        stream::iter([Ok(Arrived::Piece(said)), Ok(Arrived::Piece(usage)), Ok(end)]).boxed()
    }
}

/// Starts a generation and waits for its end.
async fn finish_one(server: &Server, key: &str) {
    let started = start(server, key).await;
    assert_eq!(started.status(), StatusCode::ACCEPTED);
    let path = format!("/v1/generations/{}/events", read(started).await["generationId"].as_str().unwrap());
    let stream = server.as_key(key, "get", &path, String::new()).await;
    stream.into_body().collect().await.unwrap();
}

/// The limit that refuses a start, its status, and when to come back.
async fn refused(server: &Server, key: &str) -> (u16, String, u64) {
    let refused = start(server, key).await;
    let status = refused.status().as_u16();
    let wait = refused.headers()[header::RETRY_AFTER].to_str().unwrap().parse().unwrap();
    let problem = read(refused).await;
    assert_eq!(problem["code"], "limit_reached", "{problem}");
    (status, problem["limit"].as_str().unwrap().to_owned(), wait)
}

#[tokio::test]
async fn b4_tokens_of_a_day_are_limited_by_key_by_user_and_in_all() {
    let server = Server::with(Thirsty, Settings::default());
    let (one, two) =
        (server.key("ada", &["read", "write"]).await, server.key("ada", &["read", "write"]).await);
    let (bob, cem) =
        (server.key("bob", &["read", "write"]).await, server.key("cem", &["read", "write"]).await);
    finish_one(&server, &one).await;
    finish_one(&server, &one).await;
    let (status, limit, wait) = refused(&server, &one).await;
    assert_eq!((status, limit.as_str()), (429, "limits.tokens_per_day_per_key"));
    assert!((1..=86_401).contains(&wait), "until midnight: {wait}");
    finish_one(&server, &two).await;
    let (status, limit, _) = refused(&server, &two).await;
    assert_eq!((status, limit.as_str()), (429, "limits.tokens_per_day_per_user"));
    finish_one(&server, &bob).await;
    let (status, limit, _) = refused(&server, &cem).await;
    assert_eq!((status, limit.as_str()), (503, "limits.tokens_per_day"));
    server.engine.stop().await;
}

#[tokio::test]
async fn b4_empty_conversations_and_changes_fill_the_disk_too() {
    let server = Server::new();
    let ada = server.key("ada", &["read", "write"]).await;
    let mut made = Vec::new();
    for _ in 0..200 {
        let response = server.as_key(&ada, "post", "/v1/conversations", "{}".to_owned()).await;
        assert_eq!(response.status(), StatusCode::CREATED);
        made.push(read(response).await["id"].as_str().unwrap().to_owned());
    }
    let path = format!("/v1/conversations/{}", made[0]);
    let mut changes = 0;
    while server
        .as_key(&ada, "patch", &path, json!({"title": changes.to_string()}).to_string())
        .await
        .status()
        == StatusCode::OK
    {
        changes += 1;
        assert!(changes < 100, "the limit is never reached");
    }
    let full = server.as_key(&ada, "post", "/v1/conversations", "{}".to_owned()).await;
    assert_eq!(read(full).await["limit"], "limits.disk_per_user");
    server.engine.stop().await;
}

#[tokio::test]
async fn b4_a_user_whose_disk_is_full_can_only_delete() {
    let server = Server::new();
    let (ada, bob) =
        (server.key("ada", &["read", "write"]).await, server.key("bob", &["read", "write"]).await);
    let body = json!({"metadata": {"note": "x".repeat(BODY_BYTES - 100)}}).to_string();
    let mut made = Vec::new();
    let full = loop {
        let response = server.as_key(&ada, "post", "/v1/conversations", body.clone()).await;
        if response.status() != StatusCode::CREATED {
            break response;
        }
        made.push(read(response).await["id"].as_str().unwrap().to_owned());
        assert!(made.len() < 50, "the limit is never reached");
    };
    assert_eq!(full.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(full.headers()[header::RETRY_AFTER], "3601");
    assert_eq!(read(full).await["limit"], "limits.disk_per_user");
    assert_eq!(made.len(), 29, "about 256 KiB");
    assert_eq!(refused(&server, &ada).await.1, "limits.disk_per_user");
    let path = format!("/v1/conversations/{}", made[0]);
    let patched = server.as_key(&ada, "patch", &path, body.clone()).await;
    assert_eq!(patched.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(start(&server, &bob).await.status(), StatusCode::ACCEPTED, "somebody else goes on");
    for id in &made[..2] {
        let path = format!("/v1/conversations/{id}");
        let deleted = server.as_key(&ada, "delete", &path, String::new()).await;
        assert_eq!(deleted.status(), StatusCode::NO_CONTENT);
    }
    assert_eq!(start(&server, &ada).await.status(), StatusCode::ACCEPTED);
    server.engine.stop().await;
}

#[tokio::test]
async fn b4_one_connection_too_many_of_a_user_is_429_and_closed() {
    let server = Server::new();
    let (ada, bob) = (server.key("ada", &["read"]).await, server.key("bob", &["read"]).await);
    let ask = async |connection: &ConnectionUser, key: &str| {
        let request = Request::builder().uri("/v1/conversations").header(header::HOST, "localhost");
        let request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(connection.clone());
        server.router.clone().oneshot(request).await.unwrap()
    };
    let connections: Vec<ConnectionUser> = (0..=CONNECTIONS).map(|_| ConnectionUser::default()).collect();
    for connection in &connections[..CONNECTIONS] {
        for _ in 0..3 {
            assert_eq!(ask(connection, &ada).await.status(), StatusCode::OK, "requests are not counted");
        }
    }
    let refused = ask(&connections[CONNECTIONS], &ada).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()[header::CONNECTION], "close");
    assert!(refused.headers().contains_key(header::RETRY_AFTER));
    assert_eq!(read(refused).await["limit"], "limits.connections_per_user");
    assert_eq!(ask(&connections[CONNECTIONS], &bob).await.status(), StatusCode::OK, "somebody else goes on");
    // A proxy's connection now serves somebody else.
    assert_eq!(ask(&connections[0], &bob).await.status(), StatusCode::OK);
    assert_eq!(ask(&ConnectionUser::default(), &ada).await.status(), StatusCode::OK);
    drop(connections);
    assert_eq!(ask(&ConnectionUser::default(), &ada).await.status(), StatusCode::OK);
}
