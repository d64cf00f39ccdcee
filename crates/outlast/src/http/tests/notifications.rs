//! Notifications, webhooks, push subscriptions, and links that decide.

use outlast_store::{Item, ItemQuery, Items};
use tokio::time::Instant;

use super::*;

/// The browser's keys in the example of RFC 8291.
pub(super) fn push_keys() -> Value {
    json!({
        "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "auth": "BTBZMqHH6r4Tts7J_aSIgg",
    })
}

impl Server {
    /// Waits until a user has as many notifications, and returns the id of the newest.
    pub(super) async fn notified(&self, key: &str, count: usize) -> String {
        let user = self.app.auth().by_bearer(key).await.ok().map(|principal| principal.user().clone());
        let user = user.unwrap_or_else(|| "local".into());
        let mut bell = self.engine.bell(&user).unwrap();
        loop {
            let inbox = self.engine.notifications(&user).await.unwrap();
            if inbox.notifications.len() >= count {
                return inbox.notifications[0].id.as_str().to_owned();
            }
            bell.rung().await;
        }
    }

    /// A worker of the only user asks for a decision, and nobody watches.
    pub(super) async fn asks(&self) -> (Value, String) {
        let body = json!({"content": "May I?", "producer": "external"});
        let (_, started) = self.post("/v1/generations", &body).await;
        let path =
            |what: &str| format!("/v1/generations/{}/{what}", started["generationId"].as_str().unwrap());
        let (_, claimed) = self.post(&path("claim"), &json!({})).await;
        let tool = json!({"toolUseId": "t1", "toolName": "bash", "toolInput": {"command": "ls"}});
        let batch = json!({
            "epoch": claimed["epoch"], "expectedSeq": claimed["lastSeq"], "lease": claimed["lease"],
            "events": [
                {"type": "tool.start", "payload": tool},
                {"type": "approval.requested", "payload": tool},
            ],
        });
        let (status, reply) = self.post(&path("events"), &batch).await;
        assert_eq!(status, 200, "{reply}");
        let notification = self.notified("", 1).await;
        (started, notification)
    }
}

#[tokio::test(start_paused = true)]
async fn b6_an_end_that_nobody_watched_is_listed_and_can_be_read() {
    let server = Server::with(DemoModel::with_pace(Duration::ZERO), Settings::default());
    let (_, started) = server.post("/v1/generations", &json!({"content": "Hello"})).await;
    let id = server.notified("", 1).await;
    let (_, list) = server.get("/v1/notifications").await;
    let one = &list["data"][0];
    assert_eq!((&list["unread"], &one["kind"], &one["id"]), (&json!(1), &json!("completed"), &json!(id)));
    assert_eq!(one["conversationId"], started["conversationId"]);
    assert_eq!(one["generationId"], started["generationId"]);
    assert_eq!((&one["title"], &one["readAt"]), (&json!("Hello"), &Value::Null));
    let (status, read) = server.post(&format!("/v1/notifications/{id}/read"), &json!({})).await;
    assert_eq!((status, read["readAt"].is_string()), (200, true));
    assert_eq!(server.get("/v1/notifications").await.1["unread"], 0);
    assert_eq!(server.post("/v1/notifications/read", &json!({})).await.1, json!({"read": 0}));
    server.engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn b6_the_stream_tells_the_count_and_then_what_arrives() {
    let server = Server::with(DemoModel::with_pace(Duration::ZERO), Settings::default());
    let response = server.ask("get", "/v1/notifications/events", "").await;
    let mut frames = response.into_body().into_data_stream();
    let mut next = async || loop {
        let frame = String::from_utf8(frames.next().await.unwrap().unwrap().to_vec()).unwrap();
        if !frame.starts_with(':') {
            return frame;
        }
    };
    assert_eq!(next().await, "event: unread\ndata: {\"unread\":0}\n\n");
    server.post("/v1/generations", &json!({"content": "Hello"})).await;
    let arrived = next().await;
    assert!(arrived.starts_with("event: notification\n") && arrived.contains("\"completed\""), "{arrived}");
    assert_eq!(next().await, "event: unread\ndata: {\"unread\":1}\n\n");
    server.post("/v1/notifications/read", &json!({})).await;
    assert_eq!(next().await, "event: unread\ndata: {\"unread\":0}\n\n");
    // Another instance makes one, and later marks it as read: here no bell rings.
    let made = server.store.list_items(ItemQuery::newest("notification", 1)).await.unwrap().items.remove(0);
    let body = made.body.replace(&made.id, "ntf_elsewhere");
    let unread = body.split_once(",\"readAt\":\"").unwrap().0.to_owned() + ",\"readAt\":null}";
    let elsewhere =
        Item { id: "ntf_elsewhere".to_owned(), order: made.order + 1, version: 0, body: unread, ..made };
    let version = server.store.put_item(elsewhere.clone()).await.unwrap();
    let began = Instant::now();
    assert!(next().await.contains("ntf_elsewhere"));
    assert!(began.elapsed() <= Duration::from_secs(6), "{:?}", began.elapsed());
    assert_eq!(next().await, "event: unread\ndata: {\"unread\":1}\n\n");
    server.store.put_item(Item { version, body, ..elsewhere }).await.unwrap();
    let began = Instant::now();
    assert_eq!(next().await, "event: unread\ndata: {\"unread\":0}\n\n");
    assert!(began.elapsed() <= Duration::from_secs(31), "{:?}", began.elapsed());
    server.engine.stop().await;
}

#[tokio::test]
async fn b6_a_link_shows_its_question_and_decides_once() {
    let server = Server::new();
    let (started, id) = server.asks().await;
    let path = format!("/v1/notifications/{id}/approval");
    let (_, question) = server.get(&path).await;
    assert_eq!((&question["open"], &question["toolName"]), (&json!(true), &json!("bash")));
    assert_eq!(question["toolInput"], json!({"command": "ls"}));
    let generation = format!("/v1/generations/{}", started["generationId"].as_str().unwrap());
    assert_eq!(server.get(&generation).await.1["status"], "awaiting_approval", "reading decides nothing");
    let (status, outcome) = server.post(&path, &json!({"decision": "approve"})).await;
    assert_eq!((status, &outcome["success"]), (200, &json!(true)), "{outcome}");
    let (status, again) = server.post(&path, &json!({"decision": "deny"})).await;
    assert_eq!((status, &again["code"]), (409, &json!("link_used")));
    assert_eq!(server.get(&path).await.1["open"], false);
    server.engine.stop().await;
}

#[tokio::test]
async fn b6_a_link_is_worth_nothing_once_somebody_decided_or_it_is_old() {
    let server = Server::new();
    let (started, id) = server.asks().await;
    let link = format!("/v1/notifications/{id}/approval");
    let decide = format!("/v1/generations/{}/approvals/t1", started["generationId"].as_str().unwrap());
    assert_eq!(server.post(&decide, &json!({"decision": "deny"})).await.0, 200);
    let (status, late) = server.post(&link, &json!({"decision": "approve"})).await;
    assert_eq!((status, &late["code"], &late["decision"]), (409, &json!("already_decided"), &json!("deny")));
    server.engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn b6_an_old_link_does_not_decide() {
    let server = Server::new();
    let (_, id) = server.asks().await;
    tokio::time::advance(Duration::from_secs(8 * 24 * 60 * 60)).await;
    let link = format!("/v1/notifications/{id}/approval");
    assert_eq!(server.get(&link).await.1["open"], false);
    let (status, old) = server.post(&link, &json!({"decision": "approve"})).await;
    assert_eq!((status, &old["code"]), (409, &json!("link_expired")));
    server.engine.stop().await;
}

#[tokio::test]
async fn b6_a_webhooks_secret_is_shown_once_and_bad_urls_are_refused() {
    let server = Server::new();
    let (status, added) = server
        .post("/v1/webhooks", &json!({"url": "https://example.com/hook", "events": ["approval"]}))
        .await;
    assert_eq!(status, 201, "{added}");
    assert!(added["secret"].as_str().unwrap().starts_with("whsec_"));
    let (_, list) = server.get("/v1/webhooks").await;
    assert_eq!(list["data"][0]["id"], added["id"]);
    assert!(!list.to_string().contains("secret"), "{list}");
    for url in
        ["http://example.com/", "https://127.0.0.1/", "https://169.254.169.254/", "https://[::1]/", "no"]
    {
        let (status, refused) = server.post("/v1/webhooks", &json!({"url": url})).await;
        assert_eq!((status, &refused["field"]), (422, &json!("url")), "{url}: {refused}");
    }
    assert_eq!(
        server.post("/v1/webhooks", &json!({"url": "https://example.com/", "events": []})).await.0,
        422
    );
    let path = format!("/v1/webhooks/{}", added["id"].as_str().unwrap());
    let none = json!({"data": [], "nextCursor": null});
    assert_eq!(server.get(&format!("{path}/deliveries?state=dead")).await.1, none);
    assert_eq!(server.get(&format!("{path}/deliveries?cursor=bad")).await.0, 422);
    assert_eq!(server.ask("delete", &path, "").await.status(), StatusCode::NO_CONTENT);
    assert_eq!(server.ask("delete", &path, "").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(server.get("/v1/webhooks").await.1, json!({"data": []}));
    for _ in 0..10 {
        assert_eq!(server.post("/v1/webhooks", &json!({"url": "https://example.com/"})).await.0, 201);
    }
    let (status, full) = server.post("/v1/webhooks", &json!({"url": "https://example.com/"})).await;
    assert_eq!((status, &full["limit"]), (429, &json!("limits.webhooks_per_user")));
}

#[tokio::test]
async fn b4_webhooks_added_at_the_same_time_are_limited_too() {
    let server = Server::new();
    let body = json!({"url": "https://example.com/"});
    let added = stream::iter(0..40).map(|_| server.post("/v1/webhooks", &body)).buffer_unordered(40);
    let statuses: Vec<u16> = added.map(|(status, _)| status).collect().await;
    let (_, list) = server.get("/v1/webhooks").await;
    let kept = list["data"].as_array().unwrap().len();
    assert!(kept <= 10 && statuses.iter().filter(|status| **status == 201).count() == kept, "{statuses:?}");
    assert!(statuses.iter().all(|status| [201, 429].contains(status)), "{statuses:?}");
}

#[tokio::test]
async fn b6_a_browser_subscribes_with_the_key_of_this_server_and_only_once() {
    let server = Server::new();
    let (_, key) = server.get("/v1/push").await;
    assert_eq!(key["publicKey"].as_str().map(str::len), Some(87));
    assert_eq!(server.get("/v1/push").await.1, key, "it is made once");
    let body = walls::body_for("post", "/v1/push");
    let (status, first) = server.post("/v1/push", &body).await;
    assert_eq!(status, 201, "{first}");
    assert_eq!(server.post("/v1/push", &body).await.1, first);
    let mut bad = body.clone();
    bad["keys"]["auth"] = json!("short");
    assert_eq!(server.post("/v1/push", &bad).await.0, 422);
    let endpoint = json!({"endpoint": body["endpoint"]}).to_string();
    assert_eq!(server.ask("delete", "/v1/push", endpoint).await.status(), StatusCode::NO_CONTENT);
    let stored = server.store.list_items(ItemQuery::newest("push", 10)).await.unwrap();
    assert!(stored.items.iter().all(|item| item.body.contains("\"removed\":true")));
}
