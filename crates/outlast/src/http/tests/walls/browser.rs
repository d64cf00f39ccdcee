//! Sessions and tickets: what a browser has in place of a key.

use super::*;

impl Server {
    /// A request with a cookie instead of a key.
    async fn with_cookie(&self, cookie: &str, method: &str, path: &str) -> Response {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::COOKIE, format!("theme=dark; {cookie}"));
        self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    /// Logs in, and returns the cookie without its attributes.
    async fn log_in(&self, key: &str) -> String {
        let response = self.ask("post", "/v1/session", json!({"key": key}).to_string()).await;
        assert_eq!(response.status(), StatusCode::OK);
        let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
        for attribute in ["__Host-outlast=", "; Path=/;", "; HttpOnly", "; Secure", "; SameSite=Strict"] {
            assert!(cookie.contains(attribute), "{cookie}");
        }
        cookie.split(';').next().unwrap().to_owned()
    }
}

#[tokio::test]
async fn b5_a_browser_logs_in_with_a_key_and_out_again() {
    let server = Server::new();
    let key = server.key("ada", &["read"]).await;
    let refused = server.ask("post", "/v1/session", json!({"key": format!("{key}0")}).to_string()).await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let cookie = server.log_in(&key).await;
    let offered = server.with_cookie(&cookie, "GET", "/v1/capabilities").await;
    assert_eq!(read(offered).await["user"], "ada");
    let twice = format!("{cookie}; {cookie}");
    for wrong in ["__Host-outlast=", "__Host-outlast=x", "outlast=x", &twice] {
        let response = server.with_cookie(wrong, "GET", "/v1/capabilities").await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{wrong}");
    }
    let out = server.with_cookie(&cookie, "DELETE", "/v1/session").await;
    assert_eq!(out.status(), StatusCode::NO_CONTENT);
    assert!(out.headers()[header::SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
    let response = server.with_cookie(&cookie, "GET", "/v1/capabilities").await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "the secret is worth nothing any more");
}

#[tokio::test]
async fn b5_a_session_ends_with_its_key() {
    let server = Server::new();
    let key = server.key("ada", &["read"]).await;
    let cookie = server.log_in(&key).await;
    revoke(&*server.store, &key).await;
    let response = server.with_cookie(&cookie, "GET", "/v1/capabilities").await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn b5_a_ticket_opens_one_path_once_for_30_seconds() {
    let server = Server::new();
    let bob = bob(&server).await;
    let key = server.key("bob", &["read"]).await;
    let resource = format!("/v1/conversations/{}", bob.conversation);
    let ticket = async || {
        let (status, made) = server.json_as(&key, "post", "/v1/tickets", json!({"resource": resource})).await;
        assert_eq!(status, 200, "{made}");
        format!("ticket={}", made["ticket"].as_str().unwrap())
    };
    let status = async |path: String| server.ask("get", &path, "").await.status().as_u16();
    let first = ticket().await;
    assert_eq!(status(format!("{resource}/messages?{first}")).await, 401, "another path");
    assert_eq!(status(format!("{resource}?limit=1&{first}")).await, 200);
    assert_eq!(status(format!("{resource}?{first}")).await, 401, "used");
    let second = ticket().await;
    assert_eq!(server.ask("delete", &format!("{resource}?{second}"), "").await.status(), 401, "reading only");
    tokio::time::advance(Duration::from_secs(31)).await;
    assert_eq!(status(format!("{resource}?{second}")).await, 401, "expired");
    let third = ticket().await;
    revoke(&*server.store, &key).await;
    assert_eq!(status(format!("{resource}?{third}")).await, 401, "its key was revoked");
    server.engine.stop().await;
}
