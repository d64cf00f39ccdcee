//! Limits on how often: each names itself, says when to come back, and concerns nobody else.

use super::*;

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
