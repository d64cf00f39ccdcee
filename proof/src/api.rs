//! A client of the native API.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use reqwest::header::AUTHORIZATION;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::canary;
use crate::script::Script;
use crate::wait::{LONG, until};

/// The timeout of a plain request, long enough for a busy machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The pause between two attempts to reach a server that is down.
pub(crate) const COME_BACK_AFTER: Duration = Duration::from_millis(15);

/// A client of one server, or of several in turn. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Api {
    client: reqwest::Client,
    bases: Arc<[String]>,
    requests: Arc<AtomicUsize>,
}

/// A response with its body.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub content_type: String,
    pub retry_after: Option<String>,
    /// The body; null if it is empty or not JSON.
    pub body: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    pub generation: String,
    pub conversation: String,
    /// The user's message.
    pub message: String,
}

impl Answer {
    /// The code of a problem document.
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// Fails unless the response has this status.
    pub fn expect(self, status: u16) -> anyhow::Result<Answer> {
        ensure!(self.status == status, "{} instead of {status}: {}", self.status, self.body);
        Ok(self)
    }

    /// Fails unless the response is a problem document with this status and code.
    pub fn problem(self, status: u16, code: &str) -> anyhow::Result<Answer> {
        let answer = self.expect(status)?;
        ensure!(answer.code() == code, "{:?} instead of {code:?}: {}", answer.code(), answer.body);
        ensure!(answer.content_type == "application/problem+json", "a problem as {}", answer.content_type);
        for field in ["type", "title", "detail"] {
            ensure!(answer.body[field].is_string(), "a problem without {field}: {}", answer.body);
        }
        ensure!(answer.body["status"] == status, "status {} in a body", answer.body["status"]);
        Ok(answer)
    }

    /// A string field of the body.
    pub fn text(&self, field: &str) -> anyhow::Result<String> {
        let text = self.body[field].as_str();
        Ok(text.with_context(|| format!("no string {field} in {}", self.body))?.to_owned())
    }

    /// The ids of an accepted start.
    pub fn started(self) -> anyhow::Result<Started> {
        let answer = self.expect(202)?;
        Ok(Started {
            generation: answer.text("generationId")?,
            conversation: answer.text("conversationId")?,
            message: answer.text("messageId")?,
        })
    }
}

impl Api {
    pub fn new(address: SocketAddr) -> anyhow::Result<Api> {
        Api::in_turn(&[address])
    }

    /// Each request goes to the next of these servers, as behind a proxy.
    pub fn in_turn(addresses: &[SocketAddr]) -> anyhow::Result<Api> {
        let client = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?;
        ensure!(!addresses.is_empty(), "a client needs a server");
        let bases = addresses.iter().map(|address| format!("http://{address}")).collect();
        Ok(Api { client, bases, requests: Arc::default() })
    }

    /// The same server, with a key in every request.
    pub fn with_key(&self, key: &str) -> anyhow::Result<Api> {
        let headers = [(AUTHORIZATION, format!("Bearer {key}").parse()?)].into_iter().collect();
        let client =
            reqwest::Client::builder().no_proxy().tcp_nodelay(true).default_headers(headers).build()?;
        Ok(Api { client, ..self.clone() })
    }

    /// A request for the caller to complete.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let turn = self.requests.fetch_add(1, Ordering::Relaxed) % self.bases.len();
        self.client.request(method, format!("{}{path}", self.bases[turn]))
    }

    /// Sends a request and reads the whole response.
    pub async fn send(&self, request: RequestBuilder) -> anyhow::Result<Answer> {
        let response = request.timeout(ANSWER_WITHIN).send().await?;
        let header = |response: &Response, name: &str| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.map(str::to_owned)
        };
        let status = response.status().as_u16();
        let content_type = header(&response, "content-type").unwrap_or_default();
        let retry_after = header(&response, "retry-after");
        let bytes = response.bytes().await?;
        ensure!(!canary::is_in(&bytes), "the key is in a response");
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Ok(Answer { status, content_type, retry_after, body })
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    /// Repeats a POST until there is a response, whatever happens to the server meanwhile. The body must have a
    /// request id, or be harmless to repeat.
    pub async fn insist(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        let deadline = Instant::now() + LONG;
        while Instant::now() < deadline {
            match self.post(path, body).await {
                Ok(answer) if answer.status != 503 => return Ok(answer),
                Ok(_) | Err(_) => sleep(COME_BACK_AFTER).await, // the server is stopping or down; it will be restarted
            }
        }
        bail!("{path} had no response within {LONG:?}")
    }

    /// Plays a script in a new conversation.
    pub async fn play(&self, script: &Script) -> anyhow::Result<Started> {
        self.post("/v1/generations", &json!({"content": script.to_string()})).await?.started()
    }

    /// Plays a script in a conversation.
    pub async fn play_in(&self, conversation: &str, script: &Script) -> anyhow::Result<Started> {
        let body = json!({"content": script.to_string(), "conversationId": conversation});
        self.post("/v1/generations", &body).await?.started()
    }

    /// The generation's document.
    pub async fn generation(&self, id: &str) -> anyhow::Result<Value> {
        Ok(self.get(&format!("/v1/generations/{id}")).await?.expect(200)?.body)
    }

    /// The conversation with all its messages: a view holds about a megabyte, so the rest is read page by page.
    pub async fn view(&self, id: &str) -> anyhow::Result<Value> {
        let mut view = self.get(&format!("/v1/conversations/{id}?limit=1000")).await?.expect(200)?.body;
        while view["hasMore"] == true {
            let before = view["messages"][0]["seq"].as_u64().context("a message has a seq")?;
            let path = format!("/v1/conversations/{id}/messages?limit=1000&before={before}");
            let page = self.get(&path).await?.expect(200)?.body;
            let older = page["data"].as_array().cloned().unwrap_or_default();
            let newer = view["messages"].as_array().cloned().unwrap_or_default();
            view["messages"] = older.into_iter().chain(newer).collect();
            view["hasMore"] = page["hasMore"].clone();
        }
        Ok(view)
    }

    /// Cancels, and returns whether this request ended the generation.
    pub async fn cancel(&self, id: &str) -> anyhow::Result<bool> {
        let answer = self.post(&format!("/v1/generations/{id}/cancel"), &json!({})).await?.expect(200)?;
        answer.body["success"].as_bool().context("the response to a cancel has `success`")
    }

    /// Waits until the generation has one of these statuses, and returns its document.
    pub async fn until_status(&self, id: &str, wanted: &[&str]) -> anyhow::Result<Value> {
        until(&format!("{id} becoming {wanted:?}"), LONG, async || {
            let document = self.generation(id).await?;
            let status = document["status"].as_str().unwrap_or_default();
            Ok(wanted.contains(&status).then_some(document))
        })
        .await
    }

    /// Waits until the generation has ended, and returns its document.
    pub async fn until_ended(&self, id: &str) -> anyhow::Result<Value> {
        self.until_status(id, &["completed", "cancelled", "error"]).await
    }

    /// Waits until this many chunks of the answer have arrived.
    pub async fn until_chunks(&self, id: &str, chunks: u64) -> anyhow::Result<Value> {
        until(&format!("{chunks} chunks of {id}"), LONG, async || {
            let document = self.generation(id).await?;
            match document["status"].as_str() {
                Some("error") => bail!("failed: {}", document["errorMessage"]),
                _ => Ok((document["chunksReceived"].as_u64() >= Some(chunks)).then_some(document)),
            }
        })
        .await
    }
}
