//! An MCP server by HTTP that answers as it is told, in a few lines: nothing here knows the library under test.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What the server does with a call of a tool.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    Answer(Value),
    Error(i64, &'static str),
    /// Says how far it is, as often, and answers when it may.
    Progress(usize, Value),
    /// Closes the connection without an answer.
    Die,
    /// Keeps the connection and never answers.
    Hang,
    /// Sends this much of an answer that never ends.
    Endless(usize),
}

#[derive(Clone)]
pub(crate) struct FakeMcp {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
    came: Arc<Notify>,
    /// Lets it answer.
    pub(crate) may_answer: Arc<Notify>,
}

struct State {
    tools: Vec<Value>,
    calls: Behaviour,
    hangs: bool,
    received: Vec<(String, Value)>,
}

pub(crate) fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"},
           "annotations": {"readOnlyHint": true, "idempotentHint": true}})
}

impl FakeMcp {
    pub(crate) async fn start(tools: Vec<Value>) -> FakeMcp {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let calls = Behaviour::Answer(json!({"content": []}));
        let state = State { tools, calls, hangs: false, received: Vec::new() };
        let fake = FakeMcp {
            url,
            state: Arc::new(Mutex::new(state)),
            came: Arc::default(),
            may_answer: Arc::default(),
        };
        let serving = fake.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(connection));
            }
        });
        fake
    }

    pub(crate) fn calls(&self, behaviour: Behaviour) {
        self.state.lock().unwrap().calls = behaviour;
    }

    pub(crate) fn tools(&self, tools: Vec<Value>) {
        self.state.lock().unwrap().tools = tools;
    }

    /// From now on nothing is answered, whatever is asked.
    pub(crate) fn hang(&self) {
        self.state.lock().unwrap().hangs = true;
    }

    /// The parameters of all messages with this method.
    pub(crate) fn received(&self, method: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        let of_method = state.received.iter().filter(|(name, _)| name == method);
        of_method.map(|(_, params)| params.clone()).collect()
    }

    pub(crate) async fn until_received(&self, method: &str) -> Value {
        loop {
            let came = self.came.notified();
            if let Some(params) = self.received(method).pop() {
                return params;
            }
            came.await;
        }
    }

    async fn serve(self, mut connection: TcpStream) {
        let Some(message) = read(&mut connection).await else {
            let refused = "HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n";
            connection.write_all(refused.as_bytes()).await.ok();
            return;
        };
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let (tools, behaviour, hangs) = {
            let mut state = self.state.lock().unwrap();
            state.received.push((method.clone(), message["params"].clone()));
            (state.tools.clone(), state.calls.clone(), state.hangs)
        };
        self.came.notify_waiters();
        if hangs {
            return std::future::pending().await;
        }
        let id = message["id"].clone();
        match method.as_str() {
            "initialize" => {
                let version = message["params"]["protocolVersion"].clone();
                let result = json!({"protocolVersion": version, "capabilities": {"tools": {}},
                                    "serverInfo": {"name": "fake", "version": "1"}});
                answer(&mut connection, &json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
            }
            "tools/list" => {
                answer(&mut connection, &json!({"jsonrpc": "2.0", "id": id, "result": {"tools": tools}}))
                    .await;
            }
            "tools/call" => call(&mut connection, &message, behaviour, &self.may_answer).await,
            _ => {
                connection.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await.ok();
            }
        }
    }
}

async fn call(connection: &mut TcpStream, message: &Value, behaviour: Behaviour, may_answer: &Notify) {
    let id = &message["id"];
    match behaviour {
        Behaviour::Answer(result) => {
            answer(connection, &json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
        }
        Behaviour::Error(code, text) => {
            let error = json!({"code": code, "message": text});
            answer(connection, &json!({"jsonrpc": "2.0", "id": id, "error": error})).await;
        }
        Behaviour::Progress(steps, result) => {
            let begin = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            connection.write_all(begin.as_bytes()).await.ok();
            let token = &message["params"]["_meta"]["progressToken"];
            for step in 1..=steps {
                let params =
                    json!({"progressToken": token, "progress": step, "total": steps, "message": "step"});
                event(
                    connection,
                    &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}),
                )
                .await;
            }
            may_answer.notified().await;
            event(connection, &json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
        }
        Behaviour::Die => {}
        Behaviour::Hang => std::future::pending().await,
        Behaviour::Endless(bytes) => {
            let begin =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: ";
            connection.write_all(begin.as_bytes()).await.ok();
            connection.write_all(&vec![b'x'; bytes]).await.ok();
            std::future::pending().await
        }
    }
}

async fn event(connection: &mut TcpStream, message: &Value) {
    connection.write_all(format!("event: message\ndata: {message}\n\n").as_bytes()).await.ok();
}

async fn answer(connection: &mut TcpStream, message: &Value) {
    let body = message.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).await.ok();
    connection.write_all(body.as_bytes()).await.ok();
}

/// The message of a POST; nothing for any other request.
async fn read(connection: &mut TcpStream) -> Option<Value> {
    let mut request = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let read = connection.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        if !head.starts_with("POST") {
            return None;
        }
        let head = head.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
        if body.len() >= length.parse().ok()? {
            return serde_json::from_str(body).ok();
        }
    }
}
