//! Events of Inngest's SDK.

use super::*;
use crate::auth::tests::key_with;

async fn send(server: &Server, path: &str, seed: Option<&str>, body: Value) -> (u16, Value) {
    let mut request = Request::builder().method("POST").uri(path).header(header::HOST, "localhost");
    if let Some(seed) = seed {
        request = request.header("x-inngest-event-id-seed", seed);
    }
    let response = server.router.clone().oneshot(request.body(Body::from(body.to_string())).unwrap()).await;
    let response = response.unwrap();
    (response.status().as_u16(), read(response).await)
}

fn message(id: Option<&str>) -> Value {
    json!([{"name": "chat/message.sent", "data": {"content": "hi"}, "id": id, "ts": 1, "v": "2", "user": {}}])
}

#[tokio::test]
async fn i4_an_event_that_is_sent_twice_starts_one_generation() {
    let server = Server::new();
    let (status, first) = send(&server, "/e/any", None, message(Some("msg-1"))).await;
    assert_eq!((status, &first["status"]), (200, &json!(200)), "{first}");
    assert_eq!(first["ids"].as_array().unwrap().len(), 1);
    assert_eq!(send(&server, "/e/any", None, message(Some("msg-1"))).await.1, first);
    assert_ne!(send(&server, "/e/any", None, message(Some("msg-2"))).await.1, first);
    let seeded = send(&server, "/e/any", Some("1700000000000,abc"), message(None)).await.1;
    assert_eq!(send(&server, "/e/any", Some("1700000000000,abc"), message(None)).await.1, seeded);
    server.engine.stop().await;
}

#[tokio::test]
async fn the_key_in_the_path_is_checked_like_any_other() {
    let server = Server::new();
    let key = key_with(&*server.store, "ann", &["write"], None).await;
    let read_only = key_with(&*server.store, "ann", &["read"], None).await;
    assert_eq!(send(&server, &format!("/e/{key}"), None, message(None)).await.0, 200);
    assert_eq!(send(&server, &format!("/e/{read_only}"), None, message(None)).await.0, 403);
    assert_eq!(send(&server, "/e/wrong", None, message(None)).await.0, 401);
    server.engine.stop().await;
}

#[tokio::test]
async fn other_events_and_bodies_that_are_not_events_are_refused() {
    let server = Server::new();
    let sent = |data: Value| json!({"name": "chat/message.sent", "data": data});
    for body in [
        json!({"name": "user/created", "data": {}}),
        json!([]),
        json!(7),
        sent(json!({})),
        sent(json!({"content": "hi", "unknown": 1})),
        sent(json!([])),
    ] {
        let (status, problem) = send(&server, "/e/any", None, body.clone()).await;
        assert_eq!(status, 422, "{body}: {problem}");
    }
    let half = json!([sent(json!({"content": "hi"})), {"name": "nope", "data": {}}]);
    assert_eq!(send(&server, "/e/any", None, half).await.0, 422);
    let listed = send_get(&server, "/v1/generations").await;
    assert_eq!(listed["data"], json!([]), "nothing is started if one event is wrong");
    server.engine.stop().await;
}

async fn send_get(server: &Server, path: &str) -> Value {
    let request = Request::builder().uri(path).header(header::HOST, "localhost");
    read(server.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()).await
}
