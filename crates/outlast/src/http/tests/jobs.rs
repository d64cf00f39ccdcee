//! Background jobs: start, repeat, refuse, read, abort.

use axum::http::header;

use super::*;

fn job(more: Value) -> Value {
    let mut body = json!({"model": "default", "messages": [{"role": "user", "content": "hi"}],
        "background": true, "threadId": "thread", "messageId": "answer"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn b3_a_job_starts_at_once_and_only_once() {
    let server = Server::new();
    let (status, begun) = server.post("/v1/chat/completions", &job(json!({}))).await;
    let id = begun["jobId"].as_str().unwrap();
    assert_eq!((status, &begun), (202, &json!({"jobId": id, "status": "streaming"})));
    assert_eq!(server.post("/v1/chat/completions", &job(json!({}))).await, (202, begun.clone()));
    let other = job(json!({"messages": [{"role": "user", "content": "bye"}]}));
    let (status, problem) = server.post("/v1/chat/completions", &other).await;
    assert_eq!((status, &problem["code"]), (409, &json!("idempotency_conflict")));
    assert_eq!(problem["error"]["type"], "idempotency_conflict");
    let (status, problem) = server.post("/v1/chat/completions", &job(json!({"messageId": "next"}))).await;
    assert_eq!((status, &problem["code"]), (409, &json!("conversation_busy")));
    let queued = job(json!({"messageId": "next", "whenBusy": "queue"}));
    assert_eq!(server.post("/v1/chat/completions", &queued).await.1["status"], "streaming");

    let (status, known) = server.get(&format!("/v1/jobs/{id}")).await;
    assert_eq!(status, 200);
    for (field, value) in [
        ("id", json!(id)),
        ("userId", json!("local")),
        ("threadId", json!("thread")),
        ("messageId", json!("answer")),
        ("status", json!("streaming")),
        ("content", json!("")),
        ("chunksReceived", json!(0)),
        ("completedAt", json!(null)),
        ("error", json!(null)),
    ] {
        assert_eq!(known[field], value, "{field}");
    }
    assert!(known["startedAt"].is_string());
    server.engine.stop().await;
}

#[tokio::test]
async fn b3_a_job_is_aborted_once_and_later_aborts_return_false() {
    let server = Server::new();
    let (_, begun) = server.post("/v1/chat/completions", &job(json!({}))).await;
    let path = format!("/v1/jobs/{}", begun["jobId"].as_str().unwrap());
    assert_eq!(server.post(&format!("{path}/abort"), &json!({})).await, (200, json!({"aborted": true})));
    assert_eq!(server.post(&format!("{path}/abort"), &json!({})).await, (200, json!({"aborted": false})));
    let (_, known) = server.get(&path).await;
    assert_eq!(known["status"], "aborted");
    assert!(known["completedAt"].is_string());
    let (status, page) = server.get(&format!("{path}/events?format=json")).await;
    let kinds: Vec<&str> =
        page["data"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((status, kinds.last()), (200, Some(&"chat.cancelled")));
    let (_, repeated) = server.post("/v1/chat/completions", &job(json!({}))).await;
    assert_eq!(repeated, json!({"jobId": begun["jobId"], "status": "aborted"}));
    server.engine.stop().await;
}

#[tokio::test]
async fn b5_another_users_job_and_conversation_are_not_found() {
    let server = Server::new();
    let theirs = server.foreign("theirs").await;
    for id in [theirs.generation.as_str(), "gen_none"] {
        for (method, path) in [("get", ""), ("get", "/events"), ("post", "/abort")] {
            let (status, code) = server.problem(method, &format!("/v1/jobs/{id}{path}"), "").await;
            assert_eq!((status, code.as_str()), (404, "not_found"), "{method} {path}");
        }
        for path in ["claim", "heartbeat"] {
            let body = if path == "claim" { json!({}) } else { json!({"epoch": 1}) };
            let (status, _) = server.post(&format!("/v1/generations/{id}/{path}"), &body).await;
            assert_eq!(status, 404, "{path}");
        }
    }
    // For another user, the same name is another conversation.
    let (status, begun) = server.post("/v1/chat/completions", &job(json!({"threadId": "theirs"}))).await;
    assert_eq!(status, 202);
    let mine = server.get(&format!("/v1/jobs/{}", begun["jobId"].as_str().unwrap())).await.1;
    assert_eq!(mine["threadId"], "theirs");
    let view = server.get("/v1/conversations/theirs").await.1;
    assert_ne!(view["conversation"]["id"], theirs.conversation.as_str());
    assert_eq!(view["messages"].as_array().unwrap().len(), 1);
    server.engine.stop().await;
}

#[tokio::test]
async fn b3_an_id_of_an_existing_message_is_refused() {
    let server = Server::new();
    let (_, begun) = server.post("/v1/chat/completions", &job(json!({}))).await;
    let abort = format!("/v1/jobs/{}/abort", begun["jobId"].as_str().unwrap());
    server.post(&abort, &json!({})).await;
    let (_, view) = server.get("/v1/conversations/thread").await;
    let question = &view["messages"][0]["id"];
    let (status, problem) = server.post("/v1/chat/completions", &job(json!({"messageId": question}))).await;
    assert_eq!((status, &problem["code"]), (409, &json!("message_exists")));
    assert_eq!(&problem["messageId"], question);
    server.engine.stop().await;
}

#[tokio::test]
async fn b4_one_job_too_many_is_refused_with_retry_after() {
    for (settings, expected) in [
        (Settings { live_generations_per_user: 2, ..Settings::default() }, StatusCode::TOO_MANY_REQUESTS),
        (Settings { live_generations: 2, ..Settings::default() }, StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let server = Server::with(DemoModel::with_pace(Duration::from_secs(5)), settings);
        for thread in ["a", "b"] {
            let begun = server.post("/v1/chat/completions", &job(json!({"threadId": thread}))).await;
            assert_eq!(begun.0, 202);
        }
        let body = job(json!({"threadId": "c"})).to_string();
        let response = server.ask("post", "/v1/chat/completions", body).await;
        assert_eq!(response.status(), expected);
        assert!(response.headers().contains_key(header::RETRY_AFTER));
        assert!(!response.headers().contains_key("x-should-retry"), "a retry may succeed");
        let problem = read(response).await;
        assert_eq!(
            (&problem["code"], &problem["error"]["code"]),
            (&json!("limit_reached"), &json!("limit_reached"))
        );
        let again = server.post("/v1/chat/completions", &job(json!({"threadId": "a"}))).await;
        assert_eq!(again.0, 202, "a repeated request starts nothing");
        server.engine.stop().await;
    }
}

#[tokio::test]
async fn b9_the_server_says_what_it_offers() {
    let server = Server::new();
    let (_, offered) = server.get("/v1/capabilities").await;
    for what in ["background", "backgroundJobs", "chatCompletions", "externalProducers"] {
        assert_eq!(offered[what], true, "{what}");
    }
    server.engine.stop().await;
}
