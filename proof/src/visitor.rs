//! A visitor uses the server while it is being killed: sends messages, follows the answers with several readers, may
//! cancel, and retries until it succeeds.

use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::api::{Api, Started};
use crate::check::{Case, Expected};
use crate::reader::{Reader, Recording};
use crate::script::Script;

/// One visitor of one conversation.
pub struct Visitor {
    pub api: Api,
    /// The messages to send, one after another.
    pub scripts: Vec<Script>,
    /// How many readers follow each answer.
    pub readers: usize,
    /// When to cancel the first answer; `None` for never.
    pub cancel_after: Option<Duration>,
    /// Determines the visitor's request ids and seeds its readers.
    pub seed: u64,
    /// When to give up on the server.
    pub deadline: Instant,
}

/// Readers disconnect after about this many events.
const DROPS_AFTER: usize = 12;

impl Visitor {
    /// Sends, follows and waits until everything has ended.
    pub async fn visit(self) -> anyhow::Result<Case> {
        let mut readers: JoinSet<(String, Recording)> = JoinSet::new();
        let mut expected: Vec<Expected> = Vec::new();
        let mut conversation: Option<String> = None;
        for (index, script) in self.scripts.iter().enumerate() {
            let started = self.send(index, script, conversation.as_deref()).await?;
            self.watch(&started, index, &mut readers);
            conversation = Some(started.conversation);
            expected.push(Expected {
                generation: started.generation,
                message: started.message,
                tokens: script.tokens(),
                ends: vec!["completed"],
            });
        }
        if let (Some(after), Some(first)) = (self.cancel_after, expected.first_mut()) {
            sleep(after).await; // a random moment is intended here
            first.ends = self.cancel(&first.generation).await?;
        }
        let conversation = conversation.context("a visitor has at least one message")?;
        Ok(Case { conversation, expected, recordings: readers.join_all().await })
    }

    /// Sends a message until it is accepted. Because the request has an id, it starts one generation.
    async fn send(
        &self,
        index: usize,
        script: &Script,
        conversation: Option<&str>,
    ) -> anyhow::Result<Started> {
        let mut body = json!({
            "content": script.to_string(),
            "requestId": format!("visit-{}-{index}", self.seed),
            "whenBusy": "queue",
        });
        if let Some(conversation) = conversation {
            body["conversationId"] = conversation.into();
        }
        self.api.insist("/v1/generations", &body).await?.started()
    }

    fn watch(&self, started: &Started, index: usize, readers: &mut JoinSet<(String, Recording)>) {
        for number in 0..self.readers {
            let seed = self.seed.wrapping_mul(1_000).wrapping_add((index * 100 + number) as u64);
            let id = started.generation.clone();
            let reader = Reader::of_generation(&self.api, &id).drops_after(DROPS_AFTER, seed);
            let deadline = self.deadline;
            readers.spawn(async move { (id, reader.record(deadline).await) });
        }
    }

    /// Cancels until there is a response, and returns the final status that follows from it.
    async fn cancel(&self, generation: &str) -> anyhow::Result<Vec<&'static str>> {
        let path = format!("/v1/generations/{generation}/cancel");
        let answer = self.api.insist(&path, &json!({})).await?.expect(200)?;
        let status = answer.text("status")?;
        let known = ["completed", "cancelled", "error"].into_iter().find(|known| *known == status);
        Ok(vec![known.with_context(|| format!("a cancel returned the status {status}"))?])
    }
}
