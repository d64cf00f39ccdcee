//! Compares the OpenAPI document with its snapshot, and calls every route in it. The submodules test single parts
//! of the API.

mod completions;
mod conversations;
mod files;
mod inngest;
mod jobs;
mod notifications;
mod operation;
mod walls;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::Response;
use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use http_body_util::BodyExt;
use outlast_core::Event;
use outlast_engine::outside::{Names, Outside, Walls};
use outlast_engine::{Clock, DemoModel, Engine, Ids, Model, Models, Parts, Settings, Workshop};
use outlast_store::MemoryStore;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::openapi::DOCUMENT;
use super::{App, AppParts, Hosts, router};
use crate::audit::Audit;
use crate::auth::Auth;

/// The maximum size of a request body in these tests.
const BODY_BYTES: usize = 8192;

/// The maximum number of streams of a user in these tests.
const STREAMS: usize = 3;

/// The maximum number of connections of a user, and what users may use, in these tests.
const CONNECTIONS: usize = 2;
const QUOTAS: super::Quotas = super::Quotas {
    tokens_per_user: NonZeroU64::new(100_000),
    tokens_per_key: NonZeroU64::new(50_000),
    tokens: NonZeroU64::new(150_000),
    disk_per_user: 256 * 1024,
};

/// Every host name is somewhere on the internet.
struct Public;

#[async_trait::async_trait]
impl Names for Public {
    async fn addresses(&self, _: &str) -> std::io::Result<Vec<std::net::IpAddr>> {
        Ok(vec![[93, 184, 216, 34].into()])
    }
}

/// More than any test needs, but for those of the limits.
fn limits() -> super::RateLimits {
    let many = std::num::NonZeroU32::new(1_000).unwrap();
    let few = std::num::NonZeroU32::new(5).unwrap();
    super::RateLimits { starts_per_user: few, starts_per_key: few, starts: many, login_failures: few }
}

struct Server {
    engine: Engine,
    store: Arc<MemoryStore>,
    app: App,
    router: Router,
    folder: tempfile::TempDir,
}

impl Server {
    fn new() -> Server {
        // Slow enough to be still running while a test looks at it.
        Server::with(DemoModel::with_pace(Duration::from_secs(5)), Settings::default())
    }

    fn with(model: impl Model, settings: Settings) -> Server {
        Server::of(model, settings, None)
    }

    fn of(model: impl Model, settings: Settings, jwt: Option<crate::auth::Jwt>) -> Server {
        Server::made(model, settings, jwt, Err("no tools here".to_owned()))
    }

    fn with_workshop(model: impl Model, settings: Settings, workshop: Workshop) -> Server {
        Server::made(model, settings, None, Ok(workshop))
    }

    fn made(
        model: impl Model,
        settings: Settings,
        jwt: Option<crate::auth::Jwt>,
        workshop: Result<Workshop, String>,
    ) -> Server {
        let model: Arc<dyn Model> = Arc::new(model);
        let (store, clock) = (Arc::new(MemoryStore::new()), Clock::simulated(Clock::System.now()));
        let engine = Engine::new(Parts {
            store: store.clone(),
            models: Models::new(BTreeMap::from([("default".to_owned(), model)])),
            workshop,
            settings,
            clock, // a test may pause it
            ids: Ids::Random,
        });
        let folder = tempfile::tempdir().unwrap();
        let auth =
            Auth::open(store.clone(), clock, jwt).now_or_never().expect("memory answers at once").unwrap();
        let app = App::new(AppParts {
            engine: engine.clone(),
            auth,
            rates: limits(),
            connections: TaskTracker::new(),
            body_bytes: BODY_BYTES,
            hosts: Hosts::default(),
            outside: Outside::with_names(Walls::default(), Arc::new(Public)).unwrap(),
            store: "memory".to_owned(),
            insecure: false,
            quotas: QUOTAS,
            streams: super::PerUser::streams(STREAMS),
            user_connections: super::PerUser::connections(CONNECTIONS),
            audit: Audit::new("audit.jsonl".as_ref(), folder.path()),
        });
        Server { router: router(app.clone()), app, store, engine, folder }
    }

    async fn ask(&self, method: &str, path: &str, body: impl Into<Body>) -> Response {
        let method = method.to_uppercase();
        let request = Request::builder().method(method.as_str()).uri(path).header(header::HOST, "localhost");
        self.router.clone().oneshot(request.body(body.into()).unwrap()).await.unwrap()
    }

    async fn problem(&self, method: &str, path: &str, body: impl Into<Body>) -> (u16, String) {
        let response = self.ask(method, path, body).await;
        let status = response.status().as_u16();
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json", "{method} {path}");
        let problem = read(response).await;
        assert_eq!(problem["status"], status);
        (status, problem["code"].as_str().unwrap().to_owned())
    }
}

impl Server {
    /// Sends JSON by POST, and returns the status and the JSON of the response.
    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let response = self.ask("post", path, body.to_string()).await;
        (response.status().as_u16(), read(response).await)
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let response = self.ask("get", path, "").await;
        (response.status().as_u16(), read(response).await)
    }

    /// A generation of another user, in a conversation with this name.
    async fn foreign(&self, conversation: &str) -> outlast_engine::Started {
        let said = vec![outlast_core::Part::Text { text: "mine".to_owned() }];
        let request = outlast_engine::StartRequest {
            conversation: Some(conversation.into()),
            create: true,
            brief: outlast_core::Brief { answer_id: Some("theirs".into()), ..Default::default() },
            request: Some("theirs".into()),
            ..outlast_engine::StartRequest::new(said)
        };
        self.engine.start(&"somebody else".into(), request).await.unwrap()
    }
}

async fn read(response: Response) -> Value {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap()
}

fn document() -> Value {
    serde_json::from_str(&DOCUMENT).unwrap()
}

/// Method and path of every route.
fn routes() -> BTreeSet<(String, String)> {
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    let methods = |(path, item): (&String, &Value)| -> Vec<(String, String)> {
        item.as_object().unwrap().keys().map(|method| (method.clone(), path.clone())).collect()
    };
    paths.iter().flat_map(methods).collect()
}

/// Whether the path names something inside of a conversation or generation that those of these tests do not have: a
/// file, or the output of a tool. The tests in `files.rs` have them.
fn is_inside(path: &str) -> bool {
    path.ends_with("/files/{path}") || path.ends_with("/output")
}

/// Calls `look` with every object in the document.
fn walk(value: &Value, look: &mut impl FnMut(&serde_json::Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            look(fields);
            fields.values().for_each(|field| walk(field, look));
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, look)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Makes every change of the API visible in a review. `UPDATE=1 cargo test` updates the file.
#[test]
fn the_document_is_the_one_checked_in() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, DOCUMENT.as_str()).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    let line = kept.lines().zip(DOCUMENT.lines()).position(|(kept, made)| kept != made);
    assert!(
        kept == *DOCUMENT,
        "openapi.json differs from line {line:?} on; run with UPDATE=1 and review the diff"
    );
}

#[tokio::test]
async fn every_route_of_the_document_is_served() {
    let server = Server::new();
    let (started, notification) = server.asks().await;
    let (_, webhook) = server.post("/v1/webhooks", &json!({"url": "https://example.com/"})).await;
    let id = |name: &str| started[name].as_str().unwrap().to_owned();
    // Deleting comes last, because the other routes need what it deletes.
    let (deleting, others): (Vec<_>, Vec<_>) =
        routes().into_iter().partition(|(method, _)| method == "delete");
    for (method, path) in others.iter().chain(&deleting) {
        let named = match path {
            path if path.contains("/generations/") || path.contains("/jobs/") => id("generationId"),
            path if path.contains("/notifications/") => notification.clone(),
            path if path.contains("/webhooks/") => webhook["id"].as_str().unwrap().to_owned(),
            _ => id("conversationId"),
        };
        let response = server.ask(method, &path.replace("{id}", &named), "").await;
        if is_inside(path) {
            continue;
        }
        let missing = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED].contains(&response.status());
        assert!(!missing && response.status() != StatusCode::INTERNAL_SERVER_ERROR, "{method} {path}");
    }
    server.engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_end_times_out() {
    let begun = stream::iter([Ok::<_, std::io::Error>("{")]).chain(stream::pending());
    let answer = Server::new().problem("post", "/v1/generations", Body::from_stream(begun)).await;
    assert_eq!(answer, (400, "invalid_request".to_owned()));
}

#[tokio::test]
async fn requests_that_cannot_be_served_get_a_problem_document() {
    let server = Server::new();
    for (method, path, body, expected) in [
        ("get", "/v1/nowhere", String::new(), (404, "not_found")),
        ("get", "/v1/generations/gen_none", String::new(), (404, "not_found")),
        ("get", "/v1/generations/%ff", String::new(), (404, "not_found")),
        ("delete", "/healthz", String::new(), (405, "method_not_allowed")),
        ("post", "/v1/generations", "{".to_owned(), (400, "invalid_json")),
        ("post", "/v1/generations", "{}x".to_owned(), (400, "invalid_json")),
        ("post", "/v1/generations", "{\"content\":1} {".to_owned(), (400, "invalid_json")),
        ("post", "/v1/generations", "{}".to_owned(), (422, "invalid_request")),
        ("post", "/v1/conversations", "[null, null]".to_owned(), (422, "invalid_request")),
        ("post", "/v1/generations", "x".repeat(BODY_BYTES + 1), (413, "too_large")),
        ("get", "/v1/generations?limit=0", String::new(), (422, "invalid_request")),
        ("get", "/v1/conversations?cursor=x", String::new(), (422, "invalid_request")),
    ] {
        let (status, code) = server.problem(method, path, body).await;
        assert_eq!((status, code.as_str()), expected, "{method} {path}");
    }
    server.engine.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_body_is_named_and_nothing_of_the_code_is() {
    let server = Server::new();
    for (body, field) in [
        ("{}", "content"),
        (r#"{"content": "a", "content": "b"}"#, "content"),
        (r#"{"content": "a", "unknown": 1}"#, "unknown"),
        ("null", ""),
        ("1", ""),
        (r#""text""#, ""),
    ] {
        let problem = read(server.ask("post", "/v1/generations", body).await).await;
        assert_eq!((&problem["status"], &problem["field"]), (&json!(422), &json!(field)), "{body}");
        assert!(!problem["detail"].as_str().unwrap().contains("StartBody"), "{problem}");
    }
}

#[tokio::test]
async fn every_post_may_have_a_request_id() {
    let server = Server::new();
    let posts = routes().into_iter().filter(|(method, _)| method == "post");
    for (method, path) in posts {
        let mut body = walls::body_for(&method, &path);
        body["requestId"] = json!("r");
        let response = server.ask(&method, &path.replace("{id}", "none"), body.to_string()).await;
        assert_ne!(response.status(), StatusCode::UNPROCESSABLE_ENTITY, "{path}");
    }
    server.engine.stop().await;
}

#[test]
fn the_document_describes_every_kind_of_event() {
    let document = document();
    let variants = document["components"]["schemas"]["Event"]["oneOf"].as_array().unwrap();
    let kind = |variant: &Value| variant["properties"]["type"]["enum"][0].as_str().unwrap().to_owned();
    let kinds: BTreeSet<String> = variants.iter().map(kind).collect();
    assert_eq!(kinds, Event::KINDS.iter().map(|kind| (*kind).to_owned()).collect());
}

/// The schemas are derived from Rust types, and the fixtures are bytes of real logs. Both must have the same fields.
#[test]
fn the_document_describes_every_event_of_the_fixtures() {
    let document = document();
    let variants = document["components"]["schemas"]["Event"]["oneOf"].as_array().unwrap();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut seen = BTreeSet::new();
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "jsonl")) {
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            let kind = &event["type"];
            let variant = variants.iter().find(|variant| variant["properties"]["type"]["enum"][0] == *kind);
            let payload = &variant.unwrap()["properties"]["payload"];
            let (known, required) = fields(&document, payload);
            let found: BTreeSet<String> = event["payload"].as_object().unwrap().keys().cloned().collect();
            assert!(found.is_subset(&known) && required.is_subset(&found), "{line}\n{known:?}");
            seen.insert(kind.to_string());
        }
    }
    assert!(seen.len() > 15, "{seen:?}");
}

/// The optional and the required fields of an object.
fn fields(document: &Value, schema: &Value) -> (BTreeSet<String>, BTreeSet<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        return fields(document, document.pointer(reference.trim_start_matches('#')).unwrap());
    }
    let names =
        |value: &Value| value.as_object().into_iter().flat_map(|object| object.keys().cloned()).collect();
    let required = schema["required"].as_array().into_iter().flatten();
    let own: (BTreeSet<String>, BTreeSet<String>) =
        (names(&schema["properties"]), required.map(|name| name.as_str().unwrap().to_owned()).collect());
    let all = schema["allOf"].as_array().into_iter().flatten();
    all.map(|part| fields(document, part)).fold(own, |(mut known, mut required), part| {
        known.extend(part.0);
        required.extend(part.1);
        (known, required)
    })
}

#[test]
fn every_reference_in_the_document_resolves() {
    let document = document();
    let mut count = 0;
    walk(&document, &mut |fields| {
        if let Some(Value::String(reference)) = fields.get("$ref") {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
            count += 1;
        }
    });
    assert!(count > 50);
}
