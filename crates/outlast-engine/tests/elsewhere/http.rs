//! HTTP tools, with a real HTTP server: what it is asked when the server of Outlast dies between request and response.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outlast_core::{GenerationId, GenerationStatus, Part, Place, Policy, Recovery, Rules, ToolRule, UserId};
use outlast_engine::outside::{Outside, Walls};
use outlast_engine::tools::{HttpMethod, HttpTool, HttpToolSettings, Toolbox};
use outlast_engine::{Clock, Engine, Ids, Model, Models, Parts, ScriptedModel, Settings, StartRequest, Step};
use outlast_store::{MemoryStore, Store};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

/// A tool that answers only when it may, and says under which key it was asked.
struct FakeTool {
    address: SocketAddr,
    asked: mpsc::Receiver<String>,
    may_answer: watch::Sender<bool>,
    closed: mpsc::Receiver<()>,
}

impl FakeTool {
    async fn start() -> FakeTool {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asks, asked) = mpsc::channel(16);
        let (closes, closed) = mpsc::channel(16);
        let (may_answer, waits) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let (asks, closes, mut waits) = (asks.clone(), closes.clone(), waits.clone());
                tokio::spawn(async move {
                    let mut request = vec![0; 8192];
                    let read = connection.read(&mut request).await.unwrap_or(0);
                    let text = String::from_utf8_lossy(&request[..read]).to_ascii_lowercase();
                    let key = text.lines().find_map(|line| line.strip_prefix("idempotency-key: "));
                    asks.send(key.unwrap_or_default().to_owned()).await.unwrap();
                    tokio::select! {
                        () = async { drop(waits.wait_for(|may| *may).await) } => {
                            let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\npaid";
                            connection.write_all(answer.as_bytes()).await.ok();
                        }
                        _ = connection.read(&mut request) => closes.send(()).await.unwrap(),
                    }
                });
            }
        });
        FakeTool { address, asked, may_answer, closed }
    }
}

/// A server of Outlast on a runtime of its own, so that it can be killed with everything it has under way.
struct Server {
    runtime: Runtime,
    engine: Engine,
}

impl Server {
    fn start(store: &Arc<MemoryStore>, tool: SocketAddr, idempotent: bool, turns: Vec<Vec<Step>>) -> Server {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let rule = ToolRule {
            place: Place::Elsewhere,
            read_only: false,
            idempotent,
            policy: Policy::Allow,
            rules: Vec::new(),
            shell_argument: None,
        };
        let outside = Outside::new(Walls { allow_private: true, own_ports: Vec::new() }).unwrap();
        let described = HttpToolSettings {
            name: "pay".to_owned(),
            description: None,
            url: format!("http://{tool}/pay"),
            method: HttpMethod::Post,
            schema: json!({"type": "object"}),
            headers: BTreeMap::new(),
            timeout: Duration::from_secs(600),
        };
        let mut toolbox = Toolbox::default();
        toolbox.add(Arc::new(HttpTool::new(outside, described).unwrap()));
        let tools = [("pay".to_owned(), rule)].into();
        let rules = Rules { tools, recovery: Recovery::Safe, ..Rules::default() };
        let model: Arc<dyn Model> = Arc::new(ScriptedModel::new(turns));
        let engine = Engine::new(Parts {
            store: store.clone(),
            models: Models::new(BTreeMap::from([("default".to_owned(), model)])),
            workshop: Err("no sandboxes here".to_owned()),
            settings: Settings { rules, toolbox, ..Settings::default() },
            clock: Clock::System,
            ids: Ids::Counting(AtomicU64::new(NEXT.fetch_add(1_000, Ordering::SeqCst))),
        });
        Server { runtime, engine }
    }

    /// Carries this out on the server's runtime.
    async fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        self.runtime.spawn(task).await.unwrap()
    }

    async fn begin(&self) -> GenerationId {
        let engine = self.engine.clone();
        let request = StartRequest::new(vec![Part::Text { text: "pay".into() }]);
        self.run(async move { engine.start(&user(), request).await.unwrap().generation }).await
    }

    async fn until(&self, id: &GenerationId, status: GenerationStatus) {
        let (engine, id) = (self.engine.clone(), id.clone());
        let reached = async move {
            while engine.generation(&user(), &id).await.unwrap().status != status {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        self.run(reached).await;
    }

    /// The result of the call, as the model reads it.
    async fn result(&self, id: &GenerationId) -> String {
        let (engine, id) = (self.engine.clone(), id.clone());
        let document = self.run(async move { engine.generation(&user(), &id).await.unwrap() }).await;
        let results = document.parts().iter().find_map(|part| match part {
            Part::ToolResult { content, .. } => Some(content.as_str().unwrap_or_default().to_owned()),
            _ => None,
        });
        results.unwrap_or_default()
    }

    fn kill(self) {
        drop(self.engine);
        self.runtime.shutdown_background();
    }
}

/// So that ids of two servers on one store differ.
static NEXT: AtomicU64 = AtomicU64::new(0);

fn user() -> UserId {
    "ann".into()
}

fn pays() -> Vec<Step> {
    vec![Step::Call { id: "c1".into(), name: "pay".into(), input: json!({"euros": 7}) }, Step::Finish]
}

fn thanks() -> Vec<Step> {
    vec![Step::Say("Paid.".into()), Step::Finish]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn i7_killed_between_request_and_response_an_idempotent_tool_is_asked_again_with_the_same_key() {
    let store = Arc::new(MemoryStore::new());
    let mut tool = FakeTool::start().await;
    let first = Server::start(&store, tool.address, true, vec![pays(), thanks()]);
    let id = first.begin().await;
    let key = tool.asked.recv().await.unwrap();
    assert!(key.starts_with("exec_"), "{key}");
    first.kill();
    tool.may_answer.send(true).unwrap();
    store.leave().await.unwrap(); // nothing is held by a process that is gone
    let second = Server::start(&store, tool.address, true, vec![thanks()]);
    let engine = second.engine.clone();
    second.run(async move { engine.take_up().await.unwrap() }).await;
    assert_eq!(tool.asked.recv().await.unwrap(), key);
    second.until(&id, GenerationStatus::Completed).await;
    assert_eq!(second.result(&id).await, "paid");
    second.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn i7_killed_between_request_and_response_any_other_tool_is_left_to_a_person() {
    let store = Arc::new(MemoryStore::new());
    let mut tool = FakeTool::start().await;
    let first = Server::start(&store, tool.address, false, vec![pays(), thanks()]);
    let id = first.begin().await;
    tool.asked.recv().await.unwrap();
    first.kill();
    tool.may_answer.send(true).unwrap();
    store.leave().await.unwrap(); // nothing is held by a process that is gone
    let second = Server::start(&store, tool.address, false, vec![thanks()]);
    let engine = second.engine.clone();
    second.run(async move { engine.take_up().await.unwrap() }).await;
    second.until(&id, GenerationStatus::Interrupted).await;
    assert!(second.result(&id).await.starts_with("outcome unknown"));
    let (engine, resumed) = (second.engine.clone(), id.clone());
    second.run(async move { engine.resume(&user(), &resumed).await.unwrap() }).await;
    second.until(&id, GenerationStatus::Completed).await;
    assert!(tool.asked.try_recv().is_err(), "nobody asked again");
    second.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn i9_a_cancel_closes_the_connection_to_the_tool() {
    let store = Arc::new(MemoryStore::new());
    let mut tool = FakeTool::start().await;
    let server = Server::start(&store, tool.address, false, vec![pays(), thanks()]);
    let id = server.begin().await;
    tool.asked.recv().await.unwrap();
    let (engine, cancelled) = (server.engine.clone(), id.clone());
    server.run(async move { engine.cancel(&user(), &cancelled).await.unwrap() }).await;
    tokio::time::timeout(Duration::from_secs(10), tool.closed.recv()).await.unwrap().unwrap();
    server.until(&id, GenerationStatus::Cancelled).await;
    server.kill();
}
