//! OpenAI's chat completions, chunk by chunk.

use axum::http::header;
use outlast_core::{Failure, FailureClass, Rules};
use outlast_engine::{ScriptedModel, Step};

use super::*;

fn say(text: &str) -> Step {
    Step::Say(text.to_owned())
}

fn call(id: &str) -> Step {
    Step::Call { id: id.to_owned(), name: "look".to_owned(), input: json!({"at": id}) }
}

fn fails(class: FailureClass) -> Step {
    Step::Fail(Failure { class, message: "no luck".to_owned(), retry_after: None })
}

fn playing(scripts: Vec<Vec<Step>>) -> Server {
    let rules = Rules { backoff: Duration::from_millis(1), ..Rules::default() };
    Server::with(ScriptedModel::new(scripts), Settings { rules, ..Settings::default() })
}

fn body(more: Value) -> Value {
    let mut body = json!({"model": "default", "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

impl Server {
    /// The lines of a stream, with JSON parsed.
    async fn chunks(&self, body: &Value) -> Vec<Value> {
        let response = self.ask("post", "/v1/chat/completions", body.to_string()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let lines = text.split("\n\n").filter(|line| !line.is_empty()).map(|line| {
            let data = line.strip_prefix("data: ").unwrap();
            serde_json::from_str(data).unwrap_or_else(|_| json!(data))
        });
        lines.collect()
    }
}

fn content(chunks: &[Value]) -> String {
    let deltas = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    deltas.collect()
}

#[tokio::test]
async fn b3_a_stream_is_openais_chunk_by_chunk() {
    let server = playing(vec![vec![say("Hel"), say("lo"), call("a"), call("b"), Step::Finish]]);
    let chunks = server.chunks(&body(json!({"stream": true}))).await;
    let first = &chunks[0];
    assert_eq!(first["object"], "chat.completion.chunk");
    assert_eq!(first["model"], "default");
    assert_eq!(first["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert!(first.get("usage").is_none());
    for chunk in &chunks[..chunks.len() - 1] {
        assert_eq!((&chunk["id"], &chunk["created"]), (&first["id"], &first["created"]));
    }
    assert!(first["id"].as_str().unwrap().starts_with("chatcmpl-gen_"));
    assert!(first["created"].as_i64().unwrap() > 1_700_000_000);
    assert_eq!(content(&chunks), "Hello");
    let calls: Vec<&Value> =
        chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0]).collect();
    let calls: Vec<&Value> = calls.into_iter().filter(|call| !call.is_null()).collect();
    assert_eq!(
        json!(calls),
        json!([
            {"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": "{\"at\":\"a\"}"}},
            {"index": 1, "id": "b", "type": "function", "function": {"name": "look", "arguments": "{\"at\":\"b\"}"}},
        ])
    );
    assert_eq!(chunks[chunks.len() - 2]["choices"][0]["finish_reason"], "stop");
    assert_eq!(chunks[chunks.len() - 1], "[DONE]");
    server.engine.stop().await;
}

#[tokio::test]
async fn b3_usage_is_a_separate_chunk_if_requested() {
    let server = Server::with(DemoModel::with_pace(Duration::from_millis(1)), Settings::default());
    let wishes = json!({"stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "5 words"}]});
    let chunks = server.chunks(&body(wishes)).await;
    assert!(chunks[0]["usage"].is_null() && chunks[0].get("usage").is_some());
    let last = &chunks[chunks.len() - 2];
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"], json!({"prompt_tokens": 2, "completion_tokens": 5, "total_tokens": 7}));
    server.engine.stop().await;
}

#[tokio::test]
async fn b3_without_a_stream_the_answer_is_one_object() {
    let server = playing(vec![vec![say("Hello"), call("a"), Step::Finish], vec![call("b"), Step::Finish]]);
    let response = server.ask("post", "/v1/chat/completions", body(json!({})).to_string()).await;
    let job = response.headers()["outlast-generation-id"].to_str().unwrap().to_owned();
    assert_eq!(response.headers()["outlast-job-events"].to_str().unwrap(), format!("/v1/jobs/{job}/events"));
    assert!(response.headers().contains_key("outlast-conversation-id"));
    let answer = read(response).await;
    assert_eq!(answer["id"], format!("chatcmpl-{job}"));
    assert_eq!(answer["object"], "chat.completion");
    let choice = &answer["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("stop"), &json!("Hello")));
    assert_eq!(choice["message"]["tool_calls"][0]["id"], "a");
    assert_eq!(answer["usage"]["total_tokens"], 0);
    let (_, second) = server.post("/v1/chat/completions", &body(json!({}))).await;
    assert!(second["choices"][0]["message"]["content"].is_null(), "only a call: {second}");
    server.engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn b3_a_retraction_ends_the_stream_with_an_error_and_a_repeated_request_gets_the_whole_answer() {
    let broken = vec![say("Wrong"), Step::Wait(Duration::from_secs(1)), fails(FailureClass::Transient)];
    let server = playing(vec![broken, vec![say("Right"), Step::Finish]]);
    let body = body(json!({"stream": true, "messageId": "answer"}));
    let chunks = server.chunks(&body).await;
    assert_eq!(content(&chunks), "Wrong");
    let error = &chunks.last().unwrap()["error"];
    assert_eq!((&error["code"], &error["type"]), (&json!("attempt_retracted"), &json!("attempt_retracted")));
    let job = error["jobId"].as_str().unwrap();
    assert!(error["message"].as_str().unwrap().contains(&format!("/v1/jobs/{job}/events")));
    let again = server.chunks(&body).await;
    assert_eq!((content(&again).as_str(), again.last()), ("Right", Some(&json!("[DONE]"))));
    assert_eq!(server.chunks(&body).await, again, "even after the end");
    server.engine.stop().await;
}

#[tokio::test]
async fn b3_a_failure_is_an_error_in_the_stream_and_a_status_without_one() {
    for (class, status, code) in [
        (FailureClass::Transient, 502, "upstream_failed"),
        (FailureClass::Refused, 400, "upstream_refused"),
        (FailureClass::Invalid, 400, "upstream_invalid_request"),
    ] {
        let server = playing(vec![vec![fails(class)]]);
        let chunks = server.chunks(&body(json!({"stream": true}))).await;
        let error = &chunks.last().unwrap()["error"];
        assert_eq!((&error["code"], &error["message"]), (&json!(code), &json!("no luck")));
        let response = server.ask("post", "/v1/chat/completions", body(json!({})).to_string()).await;
        assert_eq!(response.headers()["x-should-retry"], "false");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        let problem = read(response).await;
        assert_eq!((&problem["status"], &problem["code"]), (&json!(status), &json!(code)));
        assert_eq!(problem["error"]["code"], code);
        assert_eq!(problem["error"]["jobId"], problem["jobId"]);
        server.engine.stop().await;
    }
}

#[tokio::test]
async fn b3_a_cancel_ends_streaming_and_waiting_requests() {
    let server = Server::new();
    let cancel = async {
        loop {
            let (_, page) = server.get("/v1/generations?status=running").await;
            let running = page["data"].as_array().unwrap().clone();
            if running.len() == 2 {
                for one in running {
                    let path = format!("/v1/jobs/{}/abort", one["id"].as_str().unwrap());
                    assert_eq!(server.post(&path, &json!({})).await, (200, json!({"aborted": true})));
                }
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    let (streaming, waiting) = (body(json!({"stream": true})), body(json!({})));
    let whole = server.post("/v1/chat/completions", &waiting);
    let (chunks, (status, problem), ()) = tokio::join!(server.chunks(&streaming), whole, cancel);
    assert_eq!(chunks.last().unwrap()["error"]["code"], "cancelled");
    assert_eq!((status, &problem["code"], &problem["reason"]), (409, &json!("cancelled"), &json!("user")));
    server.engine.stop().await;
}

#[tokio::test]
async fn b3_a_stopping_server_says_so_in_the_stream() {
    let server = Server::new();
    let body = body(json!({"stream": true})).to_string();
    let response = server.ask("post", "/v1/chat/completions", body).await;
    let (stream, ()) = tokio::join!(response.into_body().collect(), server.engine.stop());
    let stream = stream.unwrap().to_bytes();
    let last = std::str::from_utf8(&stream).unwrap().trim_end().rsplit("data: ").next().unwrap();
    let error = &serde_json::from_str::<Value>(last).unwrap()["error"];
    assert_eq!(error["code"], "draining", "{last}");
    assert!(error["message"].as_str().unwrap().contains("/v1/jobs/gen_"));
}

#[tokio::test]
async fn b3_a_retry_is_suggested_only_where_it_starts_nothing_twice() {
    for (name, worth_repeating) in [(json!({}), false), (json!({"requestId": "r"}), true)] {
        let server = Server::new();
        let begun = async {
            while server.get("/v1/generations?status=running").await.1["data"] == json!([]) {
                tokio::task::yield_now().await;
            }
            server.engine.stop().await;
        };
        let asked = server.ask("post", "/v1/chat/completions", body(name).to_string());
        let (response, ()) = tokio::join!(asked, begun);
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers().contains_key("x-should-retry"), !worth_repeating);
        let job = response.headers()["outlast-generation-id"].to_str().unwrap().to_owned();
        assert!(response.headers().contains_key("outlast-job-events"));
        let problem = read(response).await;
        assert_eq!((&problem["code"], &problem["jobId"]), (&json!("draining"), &json!(job)));
    }
}

#[tokio::test]
async fn b3_problems_have_the_error_object_of_openai() {
    let server = Server::new();
    let response = server.ask("post", "/v1/chat/completions", json!({"messages": []}).to_string()).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(
        read(response).await["error"],
        json!({"message": "model: is missing", "type": "invalid_request_error", "code": "invalid_request",
            "param": "model"})
    );
    let (status, problem) = server.post("/v1/chat/completions", &body(json!({"model": "gpt"}))).await;
    assert_eq!((status, &problem["error"]["param"]), (422, &json!("model")));
    assert!(problem["detail"].as_str().unwrap().contains("default"), "the known models are named: {problem}");
    let (status, code) = server.problem("post", "/v1/chat/completions", "{").await;
    assert_eq!((status, code.as_str()), (400, "invalid_json"));
    server.engine.stop().await;
}

#[tokio::test]
async fn b3_the_last_message_is_added_to_the_transcript_and_the_answer_has_the_chosen_id() {
    let server = playing(vec![vec![say("Hello"), Step::Finish]]);
    let said = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]);
    let body = body(json!({"messages": said, "threadId": "my thread", "messageId": "my-answer"}));
    assert_eq!(server.post("/v1/chat/completions", &body).await.0, 200);
    let (_, view) = server.get("/v1/conversations/my%20thread").await;
    let messages = view["messages"].as_array().unwrap();
    let seen: Vec<_> = messages.iter().map(|message| (&message["role"], &message["content"])).collect();
    assert_eq!(
        seen,
        [(&json!("user"), &json!("hi")), (&json!("assistant"), &json!("Hello"))],
        "instructions are not part of the transcript"
    );
    assert_eq!(messages[1]["id"], "my-answer");
    server.engine.stop().await;
}

#[tokio::test]
async fn b3_json_of_the_wrong_shape_is_json_and_named() {
    let server = Server::new();
    for (messages, field) in [
        (json!([["user", "hi", null, null, 1]]), "messages[0]"),
        (json!([{"role": "user", "content": [["text", "hi", 1]]}]), "messages[0].content"),
        (json!([{"role": "assistant", "tool_calls": [["a", ["n", "{}", 1]]]}]), "messages[0].tool_calls[0]"),
        (json!({"role": "user"}), "messages"),
    ] {
        let (status, problem) =
            server.post("/v1/chat/completions", &body(json!({"messages": messages}))).await;
        assert_eq!((status, &problem["code"]), (400, &json!("invalid_request")), "{messages} {problem}");
        assert!(problem["field"].as_str().unwrap().starts_with(field), "{problem}");
    }
}

#[tokio::test]
async fn i20_a_value_that_is_nested_too_deep_is_a_wrong_field_however_deep_it_is() {
    let server = Server::new();
    for levels in [65, 100, 127, 128, 1_000] {
        let deep = format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        let said = r#""model":"default","messages":[{"role":"user","content":"hi"}]"#;
        for field in ["response_format", "metadata"] {
            let body = format!("{{{said},\"{field}\":{{\"a\":{deep}}}}}");
            let (status, code) = server.problem("post", "/v1/chat/completions", body).await;
            assert_eq!((status, code.as_str()), (400, "invalid_request"), "{field} {levels}");
        }
    }
}
