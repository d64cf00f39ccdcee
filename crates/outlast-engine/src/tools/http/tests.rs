use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::outside::Walls;

/// A server that writes this to every connection and keeps what it was sent.
async fn server(answer: Vec<u8>) -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/do?fixed=1", listener.local_addr().unwrap());
    let heard = Arc::new(Mutex::new(String::new()));
    let hearing = heard.clone();
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let read = connection.read(&mut request).await.unwrap_or(0);
            *hearing.lock().unwrap() = String::from_utf8_lossy(&request[..read]).into_owned();
            connection.write_all(&answer).await.ok();
        }
    });
    (url, heard)
}

fn answer(status: &str, kind: &str, body: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n");
    format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn tool(url: &str, method: HttpMethod, allow_private: bool) -> Result<HttpTool, String> {
    let outside = Outside::new(Walls { allow_private, own_ports: Vec::new() }).unwrap();
    let headers = [("authorization".to_owned(), Secret::new("Bearer canary"))].into();
    let schema = json!({"type": "object"});
    let (name, timeout) = ("weather".to_owned(), Duration::from_secs(5));
    let settings =
        HttpToolSettings { name, description: None, url: url.to_owned(), method, schema, headers, timeout };
    HttpTool::new(outside, settings)
}

async fn ask(url: &str, method: HttpMethod) -> Answer {
    let (execution, input) = ("exec_1".into(), json!({"city": "Graz, AT", "days": 3}));
    let (progress, _nobody) = tokio::sync::mpsc::channel(1);
    tool(url, method, true)
        .unwrap()
        .ask(Asked { execution: &execution, input: &input, progress: &progress })
        .await
}

#[tokio::test]
async fn x4_a_call_carries_its_key_headers_and_arguments() {
    let (url, heard) = server(answer("200 OK", "application/json", r#"{"degrees": 21}"#)).await;
    let said = ask(&url, HttpMethod::Post).await;
    assert_eq!(said, Answer::Said { result: json!({"degrees": 21}), is_error: false });
    let request = heard.lock().unwrap().to_ascii_lowercase();
    for part in
        ["post /do?fixed=1 ", "idempotency-key: exec_1", "authorization: bearer canary", r#""days":3"#]
    {
        assert!(request.contains(part), "{part}: {request}");
    }
    let said = ask(&url, HttpMethod::Get).await;
    assert_eq!(said, Answer::Said { result: json!({"degrees": 21}), is_error: false });
    let request = heard.lock().unwrap().clone();
    assert!(request.starts_with("GET /do?fixed=1&city=Graz%2C+AT&days=3 "), "{request}");
}

#[tokio::test]
async fn x4_text_is_text_and_errors_are_told_to_the_model() {
    let (url, _) = server(answer("200 OK", "text/plain; charset=utf-8", "sunny")).await;
    assert_eq!(ask(&url, HttpMethod::Get).await, Answer::Said { result: json!("sunny"), is_error: false });
    let (url, _) = server(answer("404 Not Found", "text/plain", "no such city")).await;
    let expected = json!("HTTP 404 Not Found\nno such city");
    assert_eq!(ask(&url, HttpMethod::Get).await, Answer::Said { result: expected, is_error: true });
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let (url, _) = server(answer("200 OK", "application/json", &deep)).await;
    let said = ask(&url, HttpMethod::Get).await;
    assert_eq!(said, Answer::Said { result: json!(deep), is_error: false }, "too deep to be stored as JSON");
}

#[tokio::test]
async fn x4_a_private_address_plain_http_and_a_redirect_are_refused() {
    assert!(tool("https://127.0.0.1/", HttpMethod::Post, false).is_err());
    assert!(tool("http://example.com/", HttpMethod::Post, false).is_err());
    let hidden = tool("https://localhost:1/", HttpMethod::Post, false).unwrap();
    let (execution, input) = ("exec_1".into(), json!({}));
    let (progress, _nobody) = tokio::sync::mpsc::channel(1);
    let said = hidden.ask(Asked { execution: &execution, input: &input, progress: &progress }).await;
    assert!(matches!(&said, Answer::NotAsked(why) if why.contains("not allowed")), "{said:?}");
    let moved =
        b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n".to_vec();
    let (url, _) = server(moved).await;
    let Answer::Said { result, is_error: true } = ask(&url, HttpMethod::Post).await else { panic!() };
    assert!(result.as_str().unwrap().contains("redirects are not followed"));
}

#[tokio::test]
async fn x4_an_endless_body_is_cut_off() {
    let endless =
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n{}", "x".repeat(INLINE_MAX + 1));
    let (url, _) = server(endless.into_bytes()).await;
    let Answer::Said { result, is_error: true } = ask(&url, HttpMethod::Post).await else { panic!() };
    assert!(result.as_str().unwrap().contains("longer than"), "{result}");
}

#[tokio::test]
async fn i7_a_server_that_was_not_reached_was_not_asked_and_a_broken_answer_is_unknown() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let said = ask(&format!("http://{free}/"), HttpMethod::Post).await;
    assert!(matches!(said, Answer::NotAsked(_)), "{said:?}");
    let (url, _) =
        server(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\nconnection: close\r\n\r\nhalf".to_vec()).await;
    let said = ask(&url, HttpMethod::Post).await;
    assert!(matches!(said, Answer::Unanswered(_)), "{said:?}");
}
