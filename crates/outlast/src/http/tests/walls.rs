//! Calls every route of the OpenAPI document with every kind of credential that must be refused.
//!
//! The routes and the scopes they need come from the document, so a new route is tested when it is described.
//! A route with a body needs a valid one in [`body_for`]; until then the test fails.

mod browser;
mod keys;
mod rates;
mod tokens;

use std::sync::atomic::{AtomicU64, Ordering};

use outlast_core::UserId;
use outlast_store::Items;
use tokio::time::{Instant, timeout};

use super::*;
use crate::auth::tests::{key_of, key_with, revoke};

/// Part of everything that Bob writes.
const CANARY: &str = "canary-of-bob";
const SCOPES: [&str; 5] = ["read", "write", "approve", "produce", "admin"];
/// How long a stream may take to notice that its key was revoked.
const STREAMS_END_WITHIN: Duration = Duration::from_secs(5);

/// A route and the scope it needs: `None` if it needs no key, an empty name if any key will do.
struct Route {
    method: String,
    path: String,
    scope: Option<String>,
}

fn walls() -> Vec<Route> {
    let document = document();
    let described = |(method, path): (String, String)| {
        let security = document["paths"][&path][&method]["security"].as_array().unwrap();
        let keys: Vec<&Value> = security.iter().filter_map(|way| way.get("key")).collect();
        let scope = keys.first().map(|scopes| scopes[0].as_str().unwrap_or_default().to_owned());
        Route { method, path, scope }
    };
    routes().into_iter().map(described).collect()
}

/// A body that the route accepts, with a canary if it keeps text.
pub(super) fn body_for(method: &str, path: &str) -> Value {
    match (method, path) {
        ("delete", "/v1/push") => json!({"endpoint": "https://push.example/"}),
        ("get" | "delete", _) => Value::Null,
        ("put", "/v1/conversations/{id}/files/{path}") => json!(CANARY),
        ("post", "/v1/generations") => json!({"content": CANARY}),
        ("post", "/v1/generations/{id}/approvals/{toolUseId}") => json!({"decision": "deny"}),
        ("post", "/e/{key}") => json!({"name": "chat/message.sent", "data": {"content": CANARY}}),
        ("post", "/v1/generations/{id}/claim") => json!({}),
        ("post", "/v1/generations/{id}/heartbeat") => json!({"epoch": 1, "lease": "x"}),
        ("post", "/v1/generations/{id}/events") => json!({
            "epoch": 1, "expectedSeq": 1, "lease": "x",
            "events": [{"type": "chat.delta", "payload": {"text": CANARY}}],
        }),
        ("post", "/v1/generations/{id}/cancel" | "/v1/generations/{id}/resume") => json!({}),
        ("post", "/v1/generations/{id}/dismiss" | "/v1/generations/{id}/retry") => json!({}),
        ("post", "/v1/conversations") | ("patch", "/v1/conversations/{id}") => json!({"title": CANARY}),
        ("post", "/v1/chat/completions") => json!({
            "model": "default", "messages": [{"role": "user", "content": CANARY}], "background": true,
        }),
        ("post", "/v1/jobs/{id}/abort") => json!({}),
        ("post", "/v1/session") => json!({"key": "not a key"}),
        ("post", "/v1/notifications/{id}/read" | "/v1/notifications/read") => json!({}),
        ("post", "/v1/notifications/{id}/approval") => json!({"decision": "deny"}),
        ("post", "/v1/webhooks") => json!({"url": format!("https://{CANARY}.example/")}),
        ("post", "/v1/push") => json!({
            "endpoint": format!("https://{CANARY}.example/"),
            "keys": super::notifications::push_keys(),
        }),
        ("post", "/v1/tickets") => json!({"resource": "/v1/conversations"}),
        _ => panic!("{method} {path} is a new route: say here what a valid body is"),
    }
}

impl Server {
    pub(super) async fn as_key(&self, key: &str, method: &str, path: &str, body: String) -> Response {
        self.send(&format!("Bearer {key}"), method, path, body).await
    }

    async fn ask_as(&self, credential: &str, route: &Route, named: &str) -> Response {
        let path =
            route.path.replace("{id}", named).replace("{toolUseId}", "tool").replace("{key}", "anything");
        let path = path.replace("{path}", "src/main.rs");
        let body = body_for(&route.method, &route.path);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(credential, &route.method, &path, body).await
    }

    async fn send(&self, credential: &str, method: &str, path: &str, body: String) -> Response {
        let method = method.to_uppercase();
        let mut request =
            Request::builder().method(method.as_str()).uri(path).header(header::HOST, "localhost");
        if !credential.is_empty() {
            request = request.header(header::AUTHORIZATION, credential);
        }
        self.router.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap()
    }

    async fn json_as(&self, key: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = self.send(&format!("Bearer {key}"), method, path, body).await;
        (response.status().as_u16(), read(response).await)
    }

    pub(super) async fn key(&self, user: &str, scopes: &[&str]) -> String {
        key_with(&*self.store, user, scopes, None).await
    }
}

/// Bob's data, with the canary in all of it: a conversation in which a worker waits for a decision.
struct Bob {
    conversation: String,
    generation: String,
    notification: String,
    webhook: String,
}

async fn bob(server: &Server) -> Bob {
    let (person, worker) =
        (server.key("bob", &["read", "write", "approve"]).await, server.key("bob", &["produce"]).await);
    let body = json!({"content": CANARY, "producer": "external", "metadata": {"note": CANARY}});
    let (status, started) = server.json_as(&person, "post", "/v1/generations", body).await;
    assert_eq!(status, 202, "{started}");
    let generation = started["generationId"].as_str().unwrap().to_owned();
    let path = |what: &str| format!("/v1/generations/{generation}/{what}");
    let (status, claimed) = server.json_as(&worker, "post", &path("claim"), json!({})).await;
    assert_eq!(status, 200, "{claimed}");
    let tool = json!({"toolUseId": "tool", "toolName": CANARY, "toolInput": {"text": CANARY}});
    let batch = json!({
        "epoch": claimed["epoch"], "expectedSeq": claimed["lastSeq"], "lease": claimed["lease"],
        "events": [
            {"type": "chat.delta", "payload": {"text": CANARY}},
            {"type": "tool.start", "payload": tool},
            {"type": "approval.requested", "payload": tool},
        ],
    });
    let (status, appended) = server.json_as(&worker, "post", &path("events"), batch).await;
    assert_eq!((status, &appended["status"]), (200, &json!("awaiting_approval")), "{appended}");
    let conversation = started["conversationId"].as_str().unwrap().to_owned();
    let (_, webhook) =
        server.json_as(&person, "post", "/v1/webhooks", body_for("post", "/v1/webhooks")).await;
    let webhook = webhook["id"].as_str().unwrap().to_owned();
    Bob { conversation, generation, notification: server.notified(&person, 1).await, webhook }
}

impl Bob {
    fn named_in(&self, path: &str) -> &str {
        match path {
            path if path.contains("/notifications/") => &self.notification,
            path if path.contains("/webhooks/") => &self.webhook,
            path if path.contains("/generations/") || path.contains("/jobs/") => &self.generation,
            _ => &self.conversation,
        }
    }
}

/// The whole body, or what a stream sends in a moment.
async fn text(response: Response) -> String {
    let mut body = response.into_body().into_data_stream();
    let mut text = String::new();
    while let Ok(Some(Ok(bytes))) = timeout(Duration::from_millis(200), body.next()).await {
        text.push_str(&String::from_utf8_lossy(&bytes));
    }
    text
}

#[tokio::test]
async fn b5_i13_nobody_gets_through_a_wall_on_any_route() {
    let server = Server::new();
    let bob = bob(&server).await;
    let revoked = server.key("bob", &SCOPES).await;
    revoke(&*server.store, &revoked).await;
    let expired = key_with(&*server.store, "bob", &SCOPES, Some(0)).await;
    let valid = server.key("bob", &SCOPES).await;
    let refused = [
        ("no key", String::new()),
        ("a revoked key", format!("Bearer {revoked}")),
        ("an expired key", format!("Bearer {expired}")),
        ("an unknown key", format!("Bearer ol_{}_{}", "0".repeat(16), "0".repeat(64))),
        ("a truncated key", format!("Bearer {}", &valid[..valid.len() - 1])),
        ("no key after Bearer", "Bearer ".to_owned()),
        ("another scheme", format!("Basic {valid}")),
        ("a key without a scheme", valid.clone()),
        ("a JWT where none is configured", "Bearer e30.e30.".to_owned()),
    ];
    let mut seen = 0;
    for route in walls() {
        let Route { method, path, scope } = &route;
        let Some(scope) = scope else { continue };
        for (who, credential) in &refused {
            let response = server.ask_as(credential, &route, bob.named_in(path)).await;
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{method} {path} with {who}");
            assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
            let body = text(response).await;
            assert!(body.contains("\"unauthenticated\"") && !body.contains(CANARY), "{body}");
            assert!(!body.contains(&valid), "{body}");
            seen += 1;
        }
        let others: Vec<&str> = SCOPES.into_iter().filter(|other| other != scope).collect();
        let without = server.key("bob", &others).await;
        let response = server.ask_as(&format!("Bearer {without}"), &route, bob.named_in(path)).await;
        let (status, body) = (response.status(), text(response).await);
        if scope.is_empty() {
            assert_eq!(status, StatusCode::OK, "{method} {path} with any key");
        } else {
            assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path} without {scope}");
            assert!(body.contains("\"forbidden\"") && body.contains(scope.as_str()), "{body}");
            assert!(!body.contains(CANARY), "{body}");
        }
        seen += 1;
    }
    assert!(seen > 200, "{seen}");
    server.engine.stop().await;
}

#[tokio::test]
async fn b5_a_key_with_just_the_scope_that_a_route_names_may_use_it() {
    let server = Server::new();
    let bob = bob(&server).await;
    // Deleting comes last, because the other routes need what it deletes.
    let (deleting, others): (Vec<_>, Vec<_>) =
        walls().into_iter().partition(|route| route.method == "delete");
    for route in others.iter().chain(&deleting) {
        let Some(scope) = route.scope.as_deref() else { continue };
        let scope = Some(scope).filter(|scope| !scope.is_empty());
        let key = server.key("bob", scope.as_slice()).await;
        let response = server.ask_as(&format!("Bearer {key}"), route, bob.named_in(&route.path)).await;
        let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&response.status());
        let missing = response.status() == StatusCode::NOT_FOUND && !is_inside(&route.path);
        assert!(!refused && !missing, "{} {}", route.method, route.path);
    }
    server.engine.stop().await;
}

#[tokio::test]
async fn b5_i13_what_belongs_to_another_user_looks_like_what_does_not_exist() {
    let server = Server::new();
    let bob = bob(&server).await;
    let ada = format!("Bearer {}", server.key("ada", &SCOPES).await);
    for route in walls() {
        let Route { method, path, .. } = &route;
        let foreign = server.ask_as(&ada, &route, bob.named_in(path)).await;
        let status = foreign.status();
        let foreign = text(foreign).await;
        if !path.contains("{id}") {
            // Her own requests contain the same canary, so only reads are compared.
            assert!(method != "get" || !foreign.contains(CANARY), "{method} {path}: {foreign}");
            continue;
        }
        assert_eq!(status, StatusCode::NOT_FOUND, "{method} {path}");
        let missing = server.ask_as(&ada, &route, "gen_that_does_not_exist").await;
        assert_eq!(foreign, text(missing).await, "{method} {path}");
        assert!(!foreign.contains(CANARY), "{method} {path}: {foreign}");
    }
    server.engine.stop().await;
}

#[tokio::test]
async fn b5_i13_ids_in_queries_and_bodies_open_nothing_of_another_user() {
    let server = Server::new();
    let bob = bob(&server).await;
    let ada = server.key("ada", &SCOPES).await;
    let path = format!("/v1/generations?conversationId={}", bob.conversation);
    assert_eq!(server.json_as(&ada, "get", &path, Value::Null).await.1["data"], json!([]));
    let into_his = json!({"content": "hi", "conversationId": bob.conversation});
    assert_eq!(server.json_as(&ada, "post", "/v1/generations", into_his).await.0, 404);
    let thread = json!({
        "model": "default", "messages": [{"role": "user", "content": "hi"}], "background": true,
        "threadId": bob.conversation, "messageId": "m",
    });
    let (status, job) = server.json_as(&ada, "post", "/v1/chat/completions", thread).await;
    assert_eq!(status, 202, "{job}");
    let own = format!("/v1/jobs/{}", job["jobId"].as_str().unwrap());
    let (_, job) = server.json_as(&ada, "get", &own, Value::Null).await;
    assert_eq!(job["userId"], "ada");
    assert!(!job.to_string().contains(CANARY), "{job}");
    let bobs = server.key("bob", &["read"]).await;
    assert_eq!(server.json_as(&bobs, "get", &own, Value::Null).await.0, 404);
    let (_, view) =
        server.json_as(&bobs, "get", &format!("/v1/conversations/{}", bob.conversation), Value::Null).await;
    assert!(!view.to_string().contains("\"hi\""), "{view}");
    server.engine.stop().await;
}

#[tokio::test]
async fn b5_two_users_may_use_the_same_request_id() {
    let server = Server::new();
    let mut conversations = BTreeSet::new();
    for user in ["ada", "bob"] {
        let key = server.key(user, &["write"]).await;
        let body = json!({"content": format!("from {user}"), "requestId": "same"});
        let (status, started) = server.json_as(&key, "post", "/v1/generations", body).await;
        assert_eq!(status, 202, "{started}");
        conversations.insert(started["conversationId"].to_string());
    }
    assert_eq!(conversations.len(), 2);
    server.engine.stop().await;
}

#[tokio::test]
async fn b5_without_keys_there_is_one_user_and_a_proxy_is_refused() {
    let server = Server::new();
    assert_eq!(server.get("/v1/capabilities").await.1["user"], "local");
    let ignored = server.send("Bearer whatever", "get", "/v1/capabilities", String::new()).await;
    assert_eq!(ignored.status(), StatusCode::OK, "clients that must send a key may send any");
    for header in ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"] {
        let request =
            Request::builder().uri("/v1/capabilities").header("Host", "localhost").header(header, "x");
        let response = server.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{header}");
    }
    let first = key_of(&*server.store, "ada", "read").await;
    assert_eq!(server.ask("get", "/v1/capabilities", "").await.status(), StatusCode::UNAUTHORIZED);
    let (_, offered) = server.json_as(&first, "get", "/v1/capabilities", Value::Null).await;
    assert_eq!(offered["user"], "ada");
    for open in ["/healthz", "/readyz"] {
        assert_eq!(server.ask("get", open, "").await.status(), StatusCode::OK, "{open}");
    }
}
