//! A worker for tests: it appends what a test wants, with the epoch and the position that the server expects.

use anyhow::Context;
use serde_json::{Value, json};

use crate::api::{Answer, Api, Started};

/// A worker that has claimed a generation.
pub struct Worker {
    api: Api,
    pub started: Started,
    epoch: Value,
    last_seq: Value,
    /// Total size of all request bodies so far.
    pub sent: usize,
}

impl Worker {
    /// Starts a generation in a new conversation and claims it.
    pub async fn start(api: &Api) -> anyhow::Result<Worker> {
        let body = json!({"content": "work", "producer": "external"});
        let started = api.post("/v1/generations", &body).await?.started()?;
        let mut worker =
            Worker { api: api.clone(), started, epoch: Value::Null, last_seq: Value::Null, sent: 0 };
        worker.claim(true).await?;
        Ok(worker)
    }

    /// Claims the generation again, and keeps or withdraws its text.
    pub async fn claim(&mut self, keep: bool) -> anyhow::Result<()> {
        self.post("claim", &json!({"keep": keep})).await?.expect(200)?;
        Ok(())
    }

    /// Appends events in one request.
    pub async fn append(&mut self, events: Value) -> anyhow::Result<Answer> {
        let body = json!({"epoch": self.epoch, "expectedSeq": self.last_seq, "events": events});
        self.post("events", &body).await
    }

    pub async fn heartbeat(&mut self) -> anyhow::Result<Answer> {
        let body = json!({"epoch": self.epoch});
        self.post("heartbeat", &body).await
    }

    /// Asks a person whether a command may run.
    pub async fn ask(&mut self, tool_use_id: &str, command: &str) -> anyhow::Result<Answer> {
        let payload =
            json!({"toolUseId": tool_use_id, "toolName": "bash", "toolInput": {"command": command}});
        self.append(json!([{"type": "approval.requested", "payload": payload}])).await
    }

    /// The hash of the question that a person sees now.
    pub async fn hash_shown(&self) -> anyhow::Result<String> {
        let document = self.api.generation(&self.started.generation).await?;
        let hash = document["pendingApproval"]["hash"].as_str();
        Ok(hash.with_context(|| format!("there is no hash: {document}"))?.to_owned())
    }

    /// A person's decision.
    pub async fn decide(&self, tool_use_id: &str, decision: &Value) -> anyhow::Result<Answer> {
        let path = format!("/v1/generations/{}/approvals/{tool_use_id}", self.started.generation);
        self.api.post(&path, decision).await
    }

    async fn post(&mut self, what: &str, body: &Value) -> anyhow::Result<Answer> {
        self.sent += body.to_string().len();
        let answer =
            self.api.post(&format!("/v1/generations/{}/{what}", self.started.generation), body).await?;
        if answer.status == 200 {
            self.epoch = answer.body["epoch"].clone();
            self.last_seq = answer.body["lastSeq"].clone();
        }
        Ok(answer)
    }
}
