//! Many conversations that wait for a person, in one store: what they cost a server that starts.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use outlast_core::Seq;
use outlast_store::{Append, Change, Document, Newest, Query, Record, Store, Table};
use reqwest::Method;
use serde_json::json;

use super::Agent;
use crate::api::Started;
use crate::server::{Options, Server};
use crate::stored::Stored;
use crate::upstream::Upstream;
use crate::wait::{LONG, until};

/// Settings under which a waiting question soon loses its sandbox.
const PARKS_AT_ONCE: &str = "[timeouts]\napproval_pause = \"1ms\"\nsandbox_kill = \"1ms\"";
/// Copies written at a time: enough to share commits.
const AT_ONCE: usize = 512;
/// Letters at the end of an id that tell copies apart.
const NUMBER: usize = 8;
/// More than a conversation has that has just asked its first question.
const LOG_BYTES: usize = 1 << 20;

/// What many parked questions cost.
#[derive(Clone, Copy, Debug)]
pub struct Parked {
    pub questions: usize,
    /// From the start of the process to its first line.
    pub ready: Duration,
    pub ready_without: Duration,
    /// Memory of its own, once it is ready.
    pub bytes: u64,
    pub bytes_without: u64,
    /// Conversations that have a task.
    pub owners: u64,
    /// From the decision about one of them to the end of its tool.
    pub decided: Duration,
}

/// Starts a server without and with this many parked questions, and decides about one.
pub async fn measure(upstream: &Upstream, options: &Options, questions: usize) -> anyhow::Result<Parked> {
    let folder = tempfile::TempDir::new()?;
    let options = options.clone().toml("[tools.bash]\npolicy = \"ask\"").data(folder.path());
    let started = park(upstream, &options).await?;
    let (ready_without, bytes_without, mut without) = start(&options).await?;
    without.kill().await?;
    copy(folder.path(), &started, questions).await?;
    let (ready, bytes, server) = start(&options).await?;
    let owners = owners(&server).await?;
    let one = numbered(&started.generation, questions / 2);
    let decided = decide(&server, &one).await?;
    Ok(Parked { questions, ready, ready_without, bytes, bytes_without, owners, decided })
}

/// A real conversation whose first tool waits for a person, and whose sandbox is gone meanwhile.
async fn park(upstream: &Upstream, options: &Options) -> anyhow::Result<Started> {
    let mut server = Server::start(options.clone().toml(PARKS_AT_ONCE)).await?;
    let agent = Agent::new(upstream).runs("echo ran").says("Done.");
    let started = agent.start(server.api()).await?;
    until("the kill of the sandbox", LONG, async || {
        let stored = Stored::read(server.api(), &started.conversation).await?;
        let killed = |frame: &crate::sse::Frame| frame.raw.windows(8).any(|word| word == b"\"killed\"");
        Ok(stored.log.iter().any(killed).then_some(()))
    })
    .await?;
    server.stop().await?;
    Ok(started)
}

async fn start(options: &Options) -> anyhow::Result<(Duration, u64, Server)> {
    let begun = Instant::now();
    let server = Server::start(options.clone()).await?;
    let ready = begun.elapsed();
    let bytes = server.own_bytes()?;
    Ok((ready, bytes, server))
}

async fn owners(server: &Server) -> anyhow::Result<u64> {
    let figures = server.api().request(Method::GET, "/metrics").send().await?.text().await?;
    let owners = figures.lines().find_map(|line| line.strip_prefix("outlast_owners "));
    Ok(owners.context("the figures have the number of owners")?.parse()?)
}

async fn decide(server: &Server, generation: &str) -> anyhow::Result<Duration> {
    let api = server.api();
    let document = api.generation(generation).await?;
    ensure!(document["status"] == "paused", "a copy is {}", document["status"]);
    let hash = &document["pendingApproval"]["hash"];
    let begun = Instant::now();
    let path = format!("/v1/generations/{generation}/approvals/call_0_0");
    api.post(&path, &json!({"decision": "approve", "hash": hash})).await?.expect(200)?;
    let events = format!("/v1/generations/{generation}/events?format=json&limit=1000");
    until("the end of the tool", LONG, async || {
        let page = api.get(&events).await?.expect(200)?.body;
        let ended = page["data"].as_array().into_iter().flatten().any(|event| event["type"] == "tool.end");
        Ok(ended.then_some(()))
    })
    .await?;
    Ok(begun.elapsed())
}

/// The id of a copy.
fn numbered(id: &str, number: usize) -> String {
    format!("{}{number:0NUMBER$x}", &id[..id.len() - NUMBER])
}

/// Everything that a store has of one conversation.
struct Original {
    ids: Vec<String>,
    records: Vec<Record>,
    documents: Vec<Document>,
}

/// Writes the conversation again and again under other ids, through the store.
async fn copy(data: &Path, started: &Started, copies: usize) -> anyhow::Result<()> {
    let opened = outlast_store::open("sqlite:", data, outlast_store::Durable::AtOnce).await?;
    let original = Original::read(&*opened.store, started).await?;
    let written = stream::iter(1..=copies).map(|number| original.write(&*opened.store, number));
    written.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(())
}

impl Original {
    async fn read(store: &dyn Store, started: &Started) -> anyhow::Result<Original> {
        let id = started.conversation.as_str().into();
        let loaded = store.load(&id, Newest::of(100)).await?.context("the conversation is stored")?;
        let records = store.read(&id, Seq::ZERO, LOG_BYTES).await?;
        ensure!(records.len() as u64 == loaded.last.0, "the log was not read in one piece");
        let runs =
            Query { table: Some(Table::Generations), conversation: Some(id), limit: 10, ..Query::default() };
        let runs = store.list(runs).await?.documents;
        let documents: Vec<Document> =
            [loaded.conversation].into_iter().chain(loaded.messages).chain(runs).collect();
        let mut ids = vec![started.conversation.clone(), started.generation.clone()];
        for record in &records {
            ids.extend(ids_in(&String::from_utf8_lossy(&record.bytes)));
        }
        ids.sort();
        ids.dedup();
        Ok(Original { ids, records, documents })
    }

    async fn write(&self, store: &dyn Store, number: usize) -> anyhow::Result<()> {
        let renamed = |text: &str| {
            let rename = |text: String, id: &String| text.replace(id.as_str(), &numbered(id, number));
            self.ids.iter().fold(text.to_owned(), rename)
        };
        let conversation = renamed(self.documents[0].conversation.as_str()).as_str().into();
        let records = self.records.iter().map(|record| {
            let text = String::from_utf8_lossy(&record.bytes);
            Record { seq: record.seq, bytes: Bytes::from(renamed(&text)) }
        });
        let changes = self.documents.iter().map(|document| {
            Change::Put(Document {
                id: renamed(&document.id),
                conversation: renamed(document.conversation.as_str()).as_str().into(),
                request: renamed(&document.request),
                body: renamed(&document.body),
                state: document.state.as_deref().map(renamed),
                ..document.clone()
            })
        });
        let fence = store.claim(&conversation).await?;
        let append = Append {
            conversation: conversation.clone(),
            fence,
            expected: Seq::ZERO,
            records: records.collect(),
            changes: changes.collect(),
            replies: Vec::new(),
            limits: Vec::new(),
        };
        store.append(append).await?;
        store.release(&conversation, fence).await?;
        Ok(())
    }
}

/// The ids of messages and sandboxes in an event.
fn ids_in(text: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for prefix in ["\"msg_", "\"sbx_"] {
        for (place, _) in text.match_indices(prefix) {
            let rest = &text[place + 1..];
            ids.extend(rest.find('"').map(|end| rest[..end].to_owned()));
        }
    }
    ids
}
