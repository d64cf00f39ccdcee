//! Workers: claims, batches, epochs, ends.

use super::*;

struct Worker<'a> {
    server: &'a Server,
    id: String,
}

impl Worker<'_> {
    async fn start(server: &Server) -> Worker<'_> {
        let body = json!({"content": "hi", "producer": "external", "model": "my agent"});
        let (status, started) = server.post("/v1/generations", &body).await;
        assert_eq!(status, 202);
        Worker { server, id: started["generationId"].as_str().unwrap().to_owned() }
    }

    async fn post(&self, what: &str, body: Value) -> (u16, Value) {
        self.server.post(&format!("/v1/generations/{}/{what}", self.id), &body).await
    }

    /// Claims the generation. Returns the epoch and the position.
    async fn claim(&self, keep: bool) -> (u64, u64) {
        let (status, answer) = self.post("claim", json!({"keep": keep})).await;
        assert_eq!((status, &answer["status"]), (200, &json!("running")), "{answer}");
        (answer["epoch"].as_u64().unwrap(), answer["lastSeq"].as_u64().unwrap())
    }

    async fn append(&self, (epoch, seq): (u64, u64), events: Value) -> (u16, Value) {
        self.post("events", json!({"epoch": epoch, "expectedSeq": seq, "events": events})).await
    }

    async fn document(&self) -> Value {
        self.server.get(&format!("/v1/generations/{}", self.id)).await.1
    }
}

fn words(text: &str) -> Value {
    json!({"type": "chat.delta", "payload": {"text": text}})
}

#[tokio::test]
async fn x3_a_worker_claims_appends_and_ends_a_generation() {
    let server = Server::new();
    let worker = Worker::start(&server).await;
    let (epoch, seq) = worker.claim(true).await;
    let thought = json!({"type": "thinking.delta", "payload": {"text": "Hm."}});
    let (status, first) = worker.append((epoch, seq), json!([thought, words("Hel")])).await;
    assert_eq!((status, &first["epoch"]), (200, &json!(epoch)));
    let next = first["lastSeq"].as_u64().unwrap();
    assert!(next > seq);

    // The response was lost. Sending the same batch again is refused with a conflict, so it was recorded.
    let (status, problem) = worker.append((epoch, seq), json!([thought, words("Hel")])).await;
    assert_eq!((status, &problem["code"], &problem["lastSeq"]), (409, &json!("seq_conflict"), &json!(next)));

    let tool = json!({"type": "tool.start",
        "payload": {"toolUseId": "c", "toolName": "read", "toolInput": {"a": 1}}});
    let usage = json!({"type": "usage", "payload": {"inputTokens": 3, "outputTokens": 2}});
    let done = json!({"type": "chat.done", "payload": {"finishReason": "tool_use"}});
    let (status, ended) = worker.append((epoch, next), json!([words("lo"), tool, usage, done])).await;
    assert_eq!((status, &ended["status"]), (200, &json!("completed")));
    let document = worker.document().await;
    assert_eq!(
        document["contentParts"],
        json!([{"type": "thinking", "text": "Hm."}, {"type": "text", "text": "Hello"},
            {"type": "tool_use", "id": "c", "name": "read", "input": {"a": 1}}])
    );
    assert_eq!((&document["outputTokens"], &document["model"]), (&json!(2), &json!("my agent")));
    server.engine.stop().await;
}

#[tokio::test]
async fn x3_a_second_claim_ends_the_first_workers_epoch() {
    let server = Server::new();
    let worker = Worker::start(&server).await;
    let old = worker.claim(true).await;
    let (_, said) = worker.append(old, json!([words("one ")])).await;
    let new = worker.claim(true).await;
    let late = (old.0, said["lastSeq"].as_u64().unwrap());
    let (status, problem) = worker.append(late, json!([words("two ")])).await;
    assert_eq!((status, &problem["code"], &problem["epoch"]), (409, &json!("stale_producer"), &json!(new.0)));
    assert_eq!(worker.post("heartbeat", json!({"epoch": old.0})).await.1["code"], "stale_producer");
    assert_eq!(worker.post("heartbeat", json!({"epoch": new.0})).await.0, 200);
    assert_eq!(worker.document().await["contentParts"], json!([{"type": "text", "text": "one "}]));
    worker.claim(false).await;
    assert_eq!(worker.document().await["contentParts"], json!([]), "the answer starts over");
    server.engine.stop().await;
}

#[tokio::test]
async fn x3_a_worker_learns_of_a_cancel() {
    let server = Server::new();
    let worker = Worker::start(&server).await;
    let claimed = worker.claim(true).await;
    assert_eq!(worker.post("cancel", json!({})).await.1["success"], true);
    let (status, problem) = worker.append(claimed, json!([words("more")])).await;
    assert_eq!(
        (status, &problem["code"], &problem["statusWas"]),
        (409, &json!("already_ended"), &json!("cancelled"))
    );
    let (_, problem) = worker.post("heartbeat", json!({"epoch": claimed.0})).await;
    assert_eq!((&problem["code"], &problem["statusWas"]), (&json!("already_ended"), &json!("cancelled")));
    server.engine.stop().await;
}

#[tokio::test]
async fn x3_invalid_batches_are_refused_as_a_whole() {
    let server = Server::new();
    let worker = Worker::start(&server).await;
    let claimed = worker.claim(true).await;
    let done = json!({"type": "chat.done", "payload": {}});
    for events in [
        json!([]),
        json!([words("a"), done, words("b")]),
        json!([words("a"), {"type": "message.added", "payload": {}}]),
        json!([{"type": "chat.delta", "payload": {"text": "a", "messageId": "mine"}}]),
        json!(vec![words("a"); 1_001]),
    ] {
        let (status, problem) = worker.append(claimed, events.clone()).await;
        assert!(matches!(status, 413 | 422), "{status} {problem} for {events}");
    }
    assert_eq!(worker.document().await["contentParts"], json!([]));
    let (_, ours) = server.post("/v1/generations", &json!({"content": "hi"})).await;
    let path = format!("/v1/generations/{}/claim", ours["generationId"].as_str().unwrap());
    assert_eq!(server.post(&path, &json!({})).await.1["code"], "not_external");
    server.engine.stop().await;
}

#[tokio::test]
async fn x3_a_worker_may_fail_with_its_own_code() {
    let server = Server::new();
    let worker = Worker::start(&server).await;
    let claimed = worker.claim(true).await;
    let failed = json!({"type": "chat.error", "payload": {"errorMessage": "no tea", "code": "out_of_tea"}});
    let (status, answer) = worker.append(claimed, json!([words("so"), failed])).await;
    assert_eq!((status, &answer["status"]), (200, &json!("error")));
    let document = worker.document().await;
    assert_eq!((&document["endReason"], &document["errorMessage"]), (&json!("out_of_tea"), &json!("no tea")));
    server.engine.stop().await;
}

/// Documents carry these words, and lists carry documents.
#[tokio::test]
async fn i18_i20_what_goes_into_documents_has_a_size() {
    let server = Server::new();
    let worker = Worker::start(&server).await;
    let at = worker.claim(true).await;
    let long = |bytes: usize| "x".repeat(bytes);
    let ask = |name: &str| {
        json!({"type": "approval.requested",
        "payload": {"toolUseId": "c", "toolName": name, "toolInput": {}}})
    };
    for event in [
        ask(&long(257)),
        ask(""),
        json!({"type": "chat.done", "payload": {"finishReason": long(201)}}),
        json!({"type": "chat.error", "payload": {"errorMessage": long(2049)}}),
        json!({"type": "chat.error", "payload": {"errorMessage": "x", "code": long(201)}}),
    ] {
        let (status, problem) = worker.append(at, json!([event])).await;
        assert_eq!((status, &problem["field"]), (422, &json!("events[0]")), "{problem}");
    }
    assert_eq!(worker.append(at, json!([ask(&long(256))])).await.0, 200);
    let decision = |bytes| json!({"decision": "deny", "reason": long(bytes)});
    let (status, problem) = worker.post("approvals/c", decision(2049)).await;
    assert_eq!((status, &problem["field"]), (422, &json!("reason")));
    for (always, pattern) in
        [(false, json!({"path": "*"})), (true, json!({})), (true, json!({"path": long(4093)}))]
    {
        let decision = json!({"decision": "approve", "always": always, "pattern": pattern});
        let (status, problem) = worker.post("approvals/c", decision).await;
        assert_eq!((status, &problem["field"]), (422, &json!("pattern")), "{problem}");
    }
    let always =
        json!({"decision": "approve", "always": true, "pattern": {"path": "notes/*"}, "reason": long(2048)});
    assert_eq!(worker.post("approvals/c", always).await.0, 200);
    let (_, state) = worker.post("heartbeat", json!({"epoch": at.0})).await;
    assert_eq!(state["approvals"][0]["decided"]["pattern"], json!({"path": "notes/*"}), "{state}");
    let start = json!({"content": "hi", "producer": "external", "model": long(201)});
    let (status, problem) = server.post("/v1/generations", &start).await;
    assert_eq!((status, &problem["field"]), (422, &json!("model")));
    server.engine.stop().await;
}
