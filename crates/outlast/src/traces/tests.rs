use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use outlast_core::Part;
use outlast_engine::{Clock, DemoModel, Ids, Model, Models, Parts, Settings, StartRequest};
use outlast_store::MemoryStore;
use serde_json::Value;
use tokio::sync::mpsc;

use super::*;

/// A collector that answers 503 once and then accepts. What it accepted follows.
async fn collector() -> (String, mpsc::Receiver<(HeaderMap, Value)>) {
    let (sender, received) = mpsc::channel(16);
    let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let accept = post(async move |headers: HeaderMap, body: String| {
        if tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
            return axum::http::StatusCode::SERVICE_UNAVAILABLE;
        }
        sender.send((headers, serde_json::from_str(&body).unwrap())).await.unwrap();
        axum::http::StatusCode::OK
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/v1/traces", accept)).await });
    (url, received)
}

#[tokio::test]
async fn x6_i14_a_generation_that_ends_becomes_a_trace_without_content() {
    let (url, mut received) = collector().await;
    let model: Arc<dyn Model> = Arc::new(DemoModel::with_pace(Duration::ZERO));
    let engine = Engine::new(Parts {
        store: Arc::new(MemoryStore::new()),
        models: Models::new(BTreeMap::from([("default".to_owned(), model)])),
        workshop: Err("no tools here".to_owned()),
        settings: Settings::default(),
        clock: Clock::System,
        ids: Ids::Random,
    });
    let headers = [(reqwest::header::AUTHORIZATION, "Bearer canary-key".parse().unwrap())];
    let collector = Collector { url, headers: headers.into_iter().collect() };
    let traces = Traces::new(&engine, collector).unwrap().unwrap();
    let counted = traces.counted.clone();
    let said = vec![Part::Text { text: "canary-content".to_owned() }];
    let ada = "canary-of-ada".into();
    let started = engine.start(&ada, StartRequest::new(said)).await.unwrap();
    let mut follower = engine.follow_generation(&ada, &started.generation, None).await.unwrap();
    while follower.next().await.unwrap().is_some() {}
    let run = traces.run();
    let receive = async {
        let accepted = received.recv().await.unwrap();
        engine.stop().await;
        accepted
    };
    let ((), (headers, body)) = tokio::join!(run, receive);

    assert_eq!(
        (&headers["authorization"], &headers["content-type"]),
        (
            &"Bearer canary-key".parse::<reqwest::header::HeaderValue>().unwrap(),
            &"application/json".parse::<reqwest::header::HeaderValue>().unwrap(),
        )
    );
    let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let names: Vec<&str> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["generation", "attempt"], "{body}");
    assert_eq!(
        (spans[0]["traceId"].as_str().unwrap().len(), spans[0]["spanId"].as_str().unwrap().len()),
        (32, 16)
    );
    assert_eq!(spans[1]["parentSpanId"], spans[0]["spanId"]);
    assert!(body.to_string().contains(started.generation.as_str()), "{body}");
    assert!(!body.to_string().contains("canary"), "{body}");
    let number = |at: &Value| at.as_str().unwrap().parse::<u64>().unwrap();
    assert!(number(&spans[0]["endTimeUnixNano"]) >= number(&spans[0]["startTimeUnixNano"]));
    assert_eq!(counted.with_label_values(&["sent"]).get(), 1);
}
