//! Readers record what arrives, byte for byte, disconnect at random, and reconnect at their position.

use anyhow::anyhow;
use bytes::Bytes;
use reqwest::{Method, Response};
use tokio::time::{Instant, sleep, timeout_at};

use crate::api::{Api, COME_BACK_AFTER};
use crate::sse::{Cutter, Frame};
use crate::violation::{Findings, Kind};

pub struct Reader {
    api: Api,
    path: String,
    /// After how many events it disconnects, on average; `None` for never.
    drops_after: Option<usize>,
    random: fastrand::Rng,
}

/// What a reader saw.
#[derive(Debug, Default)]
pub struct Recording {
    /// The events, in the order of arrival.
    pub frames: Vec<Frame>,
    /// Violations that were noticed while reading.
    pub findings: Findings,
    /// Whether the server ended the stream after an end event.
    pub ended: bool,
    /// The part of an event that arrived before the connection was lost, until the event arrives again.
    torn: Bytes,
}

/// How one connection ended.
enum Over {
    /// The server closed it normally.
    Closed,
    /// It broke, or the reader dropped it.
    Broken,
}

impl Reader {
    /// A reader of a generation that does not disconnect.
    pub fn of_generation(api: &Api, id: &str) -> Reader {
        Reader::of_path(api, format!("/v1/generations/{id}/events"))
    }

    /// A reader of a job that does not disconnect.
    pub fn of_job(api: &Api, id: &str) -> Reader {
        Reader::of_path(api, format!("/v1/jobs/{id}/events"))
    }

    /// A reader of a conversation from its first event that does not disconnect.
    pub fn of_conversation(api: &Api, id: &str) -> Reader {
        Reader::of_path(api, format!("/v1/conversations/{id}/events"))
    }

    fn of_path(api: &Api, path: String) -> Reader {
        Reader { api: api.clone(), path, drops_after: None, random: fastrand::Rng::with_seed(1) }
    }

    /// Makes it disconnect repeatedly, after about this many events.
    pub fn drops_after(mut self, events: usize, seed: u64) -> Reader {
        self.drops_after = Some(events);
        self.random = fastrand::Rng::with_seed(seed);
        self
    }

    /// Records a generation until its end, across every disconnect. Gives up at the deadline.
    pub async fn record(mut self, deadline: Instant) -> Recording {
        let mut recording = Recording::default();
        loop {
            match timeout_at(deadline, self.connect(&recording)).await {
                Err(_) => {
                    recording.gives_up(&self.path);
                    return recording;
                }
                Ok(Ok(response)) => {
                    let over = self.watch(response, &mut recording, deadline).await;
                    if matches!(over, Over::Closed) && recording.has_end() {
                        recording.ended = true;
                        return recording;
                    }
                    recording.findings.reconnects += 1;
                }
                Ok(Err(Turned::Down)) => sleep(COME_BACK_AFTER).await,
                Ok(Err(Turned::Away(why))) => {
                    let seen = recording.frames.last().map_or(0, |frame| frame.seq);
                    recording.findings.broke(Kind::Lost, format!("{} after {seen}: {why}", self.path));
                    return recording;
                }
            }
        }
    }

    /// Records until an event with this seq has arrived, across ends of generations.
    pub async fn record_to(self, seq: u64, deadline: Instant) -> anyhow::Result<Vec<Frame>> {
        let mut cutter = Cutter::default();
        let mut frames: Vec<Frame> = Vec::new();
        let request = self.api.request(Method::GET, &format!("{}?after=0", self.path));
        let mut response = timeout_at(deadline, request.send()).await??.error_for_status()?;
        while frames.last().is_none_or(|last| last.seq < seq) {
            let chunk = timeout_at(deadline, response.chunk()).await??;
            cutter.push(&chunk.ok_or_else(|| anyhow!("{} ended before {seq}", self.path))?);
            frames.extend(cutter.cut_all()?);
        }
        Ok(frames)
    }

    async fn connect(&mut self, recording: &Recording) -> Result<Response, Turned> {
        // Both ways to pass a position are equivalent.
        let request = match recording.frames.last() {
            None => self.api.request(Method::GET, &self.path),
            Some(last) if self.random.bool() => {
                self.api.request(Method::GET, &format!("{}?after={}", self.path, last.seq))
            }
            Some(last) => self.api.request(Method::GET, &self.path).header("last-event-id", last.seq),
        };
        let response = request.send().await.map_err(|_| Turned::Down)?;
        match response.status().as_u16() {
            200 => Ok(response),
            503 => Err(Turned::Down),
            status => {
                let body = response.text().await.unwrap_or_default();
                Err(Turned::Away(format!("{status} {body}")))
            }
        }
    }

    async fn watch(&mut self, mut response: Response, recording: &mut Recording, deadline: Instant) -> Over {
        let mut cutter = Cutter::default();
        let mut left = self.drops_after.map(|events| self.random.usize(0..=2 * events));
        let over = loop {
            if left == Some(0) && !recording.has_end() {
                break Over::Broken;
            }
            match timeout_at(deadline, response.chunk()).await {
                Ok(Ok(Some(bytes))) => cutter.push(&bytes),
                Ok(Ok(None)) => break Over::Closed,
                Ok(Err(_)) | Err(_) => break Over::Broken,
            }
            loop {
                match cutter.cut() {
                    Ok(Some(frame)) => recording.take(frame),
                    Ok(None) => break,
                    Err(error) => {
                        recording.findings.broke(Kind::Lost, format!("{}: {error:#}", self.path));
                        return Over::Broken;
                    }
                }
                // It may also disconnect between two events that arrived together; the second must arrive again.
                left = left.map(|left| left.saturating_sub(1));
                if left == Some(0) && !recording.has_end() {
                    break;
                }
            }
        };
        recording.keep_torn(cutter.torn());
        over
    }
}

/// Why there is no stream.
enum Turned {
    /// The server is down, but will be restarted.
    Down,
    /// The server refused.
    Away(String),
}

impl Recording {
    fn has_end(&self) -> bool {
        self.frames.iter().rev().take(2).any(Frame::is_end)
    }

    fn take(&mut self, frame: Frame) {
        // An incomplete event was already sent, so it was acknowledged and must arrive again unchanged.
        if !frame.raw.starts_with(&self.torn) && frame.kind != "snapshot" {
            let (seq, torn) = (frame.seq, String::from_utf8_lossy(&self.torn).into_owned());
            self.findings
                .broke(Kind::Lost, format!("event {seq} does not start with the incomplete {torn:?}"));
        }
        self.torn = Bytes::new();
        self.frames.push(frame);
    }

    fn keep_torn(&mut self, torn: Bytes) {
        // A complete frame that was left in the buffer on purpose also counts as incomplete.
        let first = torn.windows(2).position(|pair| pair == b"\n\n").map_or(torn.len(), |end| end + 2);
        let torn = torn.slice(..first);
        if torn.len() > self.torn.len() {
            self.torn = torn;
        }
    }

    fn gives_up(&mut self, path: &str) {
        let seen = self.frames.last().map_or(0, |frame| frame.seq);
        self.findings.broke(Kind::WithoutEnd, format!("{path}: a reader waited too long after {seen}"));
    }
}
