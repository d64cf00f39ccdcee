//! Reads a conversation's log and documents from the server, in every way the API offers.

use anyhow::{Context, ensure};
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::api::Api;
use crate::reader::Reader;
use crate::sse::Frame;
use crate::wait::LONG;

/// A stored conversation.
#[derive(Debug)]
pub struct Stored {
    pub conversation: String,
    pub log: Vec<Frame>,
    pub view: Value,
}

impl Stored {
    /// Reads the log from its first event to the view's last.
    pub async fn read(api: &Api, conversation: &str) -> anyhow::Result<Stored> {
        let view = api.view(conversation).await?;
        let last = view["lastSeq"].as_u64().context("a view has a lastSeq")?;
        let log = match last {
            0 => Vec::new(),
            last => Reader::of_conversation(api, conversation).record_to(last, Instant::now() + LONG).await?,
        };
        Ok(Stored { conversation: conversation.to_owned(), log, view })
    }

    /// The events of one generation.
    pub fn events_of(&self, generation: &str) -> Vec<&Frame> {
        self.log.iter().filter(|frame| frame.generation.as_deref() == Some(generation)).collect()
    }

    /// The types of one generation's events, for tests of their order.
    pub fn kinds_of(&self, generation: &str) -> Vec<&str> {
        self.events_of(generation).into_iter().map(|frame| frame.kind.as_str()).collect()
    }
}

/// All events of a generation by polling, page by page, as raw bytes.
pub async fn poll_all(api: &Api, generation: &str, limit: usize) -> anyhow::Result<Vec<String>> {
    let path = format!("/v1/generations/{generation}/events?format=json&limit={limit}");
    let mut events = Vec::new();
    let mut after: Option<u64> = None;
    loop {
        let position = after.map(|after| format!("&after={after}")).unwrap_or_default();
        let request = api.request(Method::GET, &format!("{path}{position}"));
        let text = request.timeout(LONG).send().await?.error_for_status()?.text().await?;
        let page: Page<'_> = serde_json::from_str(&text)?;
        ensure!(page.data.len() <= limit, "a page of {} with limit {limit}", page.data.len());
        events.extend(page.data.iter().map(|event| event.get().to_owned()));
        if page.ended {
            return Ok(events);
        }
        ensure!(after.is_none_or(|after| page.next_after > after), "polling makes no progress: {text}");
        after = Some(page.next_after);
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    #[serde(borrow)]
    data: Vec<&'a RawValue>,
    next_after: u64,
    ended: bool,
}
