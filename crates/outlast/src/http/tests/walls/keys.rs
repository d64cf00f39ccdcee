//! What keys end and protect, besides the routes themselves.

use super::*;

#[tokio::test(start_paused = true)]
async fn b5_revoking_a_key_ends_its_streams_within_5_seconds() {
    let server = Server::new();
    let (key, other) = (server.key("bob", &["read"]).await, server.key("bob", &["read"]).await);
    let bob = bob(&server).await;
    let path = format!("/v1/conversations/{}/events", bob.conversation);
    let mut streams = Vec::new();
    for key in [&key, &other] {
        let response = server.send(&format!("Bearer {key}"), "get", &path, String::new()).await;
        assert_eq!(response.status(), StatusCode::OK);
        streams.push(response.into_body().into_data_stream());
    }
    let mut kept = streams.pop().unwrap();
    let mut ended = streams.pop().unwrap();
    let bytes = AtomicU64::new(0);
    let reading = async {
        while let Some(chunk) = ended.next().await {
            bytes.fetch_add(chunk.unwrap().len() as u64, Ordering::Relaxed);
        }
    };
    revoke(&*server.store, &key).await;
    let began = Instant::now();
    tokio::select! {
        () = server.app.auth().watch() => {}
        ended = timeout(2 * STREAMS_END_WITHIN, reading) => ended.expect("the stream ends"),
    }
    assert!(began.elapsed() <= STREAMS_END_WITHIN, "{:?}", began.elapsed());
    assert!(bytes.load(Ordering::Relaxed) > 0, "the snapshot arrived before");
    while let Ok(next) = timeout(2 * STREAMS_END_WITHIN, kept.next()).await {
        assert!(next.is_some(), "another key's stream continues");
    }
    server.engine.stop().await;
}

#[tokio::test]
async fn b4_a_worker_with_a_key_needs_the_lease_of_its_claim() {
    let server = Server::new();
    let person = server.key("bob", &["write"]).await;
    let workers = [server.key("bob", &["produce"]).await, server.key("bob", &["produce"]).await];
    let body = json!({"content": "hi", "producer": "external"});
    let (_, started) = server.json_as(&person, "post", "/v1/generations", body).await;
    let path = |what: &str| format!("/v1/generations/{}/{what}", started["generationId"].as_str().unwrap());
    let (_, old) = server.json_as(&workers[0], "post", &path("claim"), json!({})).await;
    let (_, new) = server.json_as(&workers[1], "post", &path("claim"), json!({})).await;
    let beat = |lease: &Value| json!({"epoch": new["epoch"], "lease": lease});
    for (lease, expected) in
        [(&Value::Null, 422), (&old["lease"], 409), (&json!("x"), 409), (&new["lease"], 200)]
    {
        let (status, reply) = server.json_as(&workers[0], "post", &path("heartbeat"), beat(lease)).await;
        assert_eq!(status, expected, "{lease}: {reply}");
        assert!(reply["lease"].is_null(), "only a claim returns it");
    }
    let decide = path("approvals/tool");
    let (status, reply) = server.json_as(&workers[1], "post", &decide, json!({"decision": "approve"})).await;
    assert_eq!((status, &reply["code"]), (403, &json!("forbidden")), "a worker's key can never approve");
    server.engine.stop().await;
}

/// What needs no key, in full: whatever is added here must be harmless to everybody.
#[test]
fn b5_only_health_and_the_login_need_no_key() {
    let open = walls().into_iter().filter(|route| route.scope.is_none());
    let open: Vec<String> = open.map(|route| format!("{} {}", route.method, route.path)).collect();
    assert_eq!(open, ["delete /v1/session", "get /healthz", "get /readyz", "post /v1/session"]);
}

#[tokio::test]
async fn i13_the_items_of_keys_belong_to_their_user() {
    let server = Server::new();
    server.key("ada", &["read"]).await;
    let query = outlast_store::ItemQuery {
        user: Some(UserId::from("bob")),
        ..outlast_store::ItemQuery::newest("key", 10)
    };
    assert!(server.store.list_items(query).await.unwrap().items.is_empty());
}
