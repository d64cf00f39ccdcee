//! Events as a stream (SSE) or as pages.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use outlast_core::{ConversationId, ConversationView, GenerationId, Seq};
use outlast_engine::{Batch, CommandError, FollowError, Follower};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Interval;
use tokio_util::sync::CancellationToken;

use super::App;
use super::body::{Id, Params};
use super::conversations::MESSAGES_USUAL;
use super::error::Problem;

/// A silent stream says at least this often that it is alive.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Events in a page if nothing is said, and at most.
const EVENTS_USUAL: usize = 100;
const EVENTS_MOST: usize = 1_000;

pub(crate) async fn of_generation(
    State(app): State<App>,
    Id(id): Id<GenerationId>,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, Problem> {
    let after = cursor(&headers, &params)?;
    match params.text("format") {
        Some("json") => return page(&app, &id, after, &params).await,
        Some("sse") | None => {}
        Some(other) => return Err(Problem::invalid("format", format!("{other:?} is not sse or json"))),
    }
    let user = app.user();
    let follower = app.engine().follow_generation(&user, &id, after).await?;
    follower.check().await?;
    Ok(event_stream(follow(app, follower, Instead::End)))
}

pub(crate) async fn of_conversation(
    State(app): State<App>,
    Id(id): Id<ConversationId>,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, Problem> {
    let user = app.user();
    if let Some(after) = cursor(&headers, &params)? {
        let follower = app.engine().follow_conversation(&user, &id, after).await?;
        follower.check().await?;
        return Ok(event_stream(follow(app, follower, Instead::GoOn)));
    }
    let view = app.engine().view(&user, &id, MESSAGES_USUAL).await?;
    let follower = app.engine().follow_conversation(&user, &id, view.last_seq).await?;
    let first = stream::iter([Ok(snapshot_frame(&view))]);
    Ok(event_stream(first.chain(follow(app, follower, Instead::GoOn))))
}

/// Where the reader stands: `?after=`, or what a browser repeats in `Last-Event-ID`.
fn cursor(headers: &HeaderMap, params: &Params) -> Result<Option<Seq>, Problem> {
    if let Some(after) = params.number("after")? {
        return Ok(Some(Seq(after)));
    }
    let Some(last) = headers.get("last-event-id") else { return Ok(None) };
    let last = last.to_str().ok().and_then(|text| text.trim().parse().ok());
    last.map(|seq| Some(Seq(seq))).ok_or_else(|| Problem::invalid("Last-Event-ID", "is not a position"))
}

/// The events are the very bytes of the log, as every other reader gets them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventsPage<'a> {
    data: Vec<&'a RawValue>,
    next_after: Seq,
    ended: bool,
}

async fn page(
    app: &App,
    id: &GenerationId,
    after: Option<Seq>,
    params: &Params,
) -> Result<Response, Problem> {
    let limit = params.limit(EVENTS_USUAL, EVENTS_MOST)?;
    let page = app.engine().events(&app.user(), id, after, limit).await?;
    let lines = page.records.iter().map(|record| serde_json::from_slice(&record.bytes));
    let data: Result<Vec<&RawValue>, _> = lines.collect();
    let data = data.map_err(|error| CommandError::Broken(error.to_string()))?;
    Ok(axum::Json(EventsPage { data, next_after: page.after, ended: page.ended }).into_response())
}

/// What a reader gets in place of events that are no longer kept.
#[derive(Clone, Copy)]
enum Instead {
    /// The messages, and that is all: the generation is long over.
    End,
    /// The messages, and then what happens from there.
    GoOn,
}

struct Following {
    app: App,
    conversation: ConversationId,
    follower: Option<Follower>,
    instead: Instead,
    keep_alive: Interval,
    stopping: CancellationToken,
}

fn follow(app: App, follower: Follower, instead: Instead) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let conversation = follower.conversation().clone();
    let stopping = app.engine().stopping();
    let start = tokio::time::Instant::now() + KEEP_ALIVE;
    let keep_alive = tokio::time::interval_at(start, KEEP_ALIVE);
    let following = Following { app, conversation, follower: Some(follower), instead, keep_alive, stopping };
    stream::unfold(following, |mut following| async move {
        let frame = following.next().await?;
        Some((Ok(frame), following))
    })
}

impl Following {
    async fn next(&mut self) -> Option<Bytes> {
        let follower = self.follower.as_mut()?;
        let next = tokio::select! {
            biased;
            next = follower.next() => next,
            _ = self.keep_alive.tick() => return Some(Bytes::from_static(b": keep-alive\n\n")),
            // The reader comes back to whoever serves then; the events are not over.
            () = self.stopping.cancelled() => return None,
        };
        match next {
            Ok(Some(batch)) => Some(batch.wire(frames)),
            Ok(None) => None,
            Err(FollowError::Trimmed { .. } | FollowError::Ahead { .. }) => self.snapshot().await,
            Err(FollowError::Store(error)) => {
                tracing::warn!(%error, "a reader is dropped: the log cannot be read");
                None
            }
        }
    }

    async fn snapshot(&mut self) -> Option<Bytes> {
        self.follower = None;
        let user = self.app.user();
        let view = self.app.engine().view(&user, &self.conversation, MESSAGES_USUAL).await.ok()?;
        if let Instead::GoOn = self.instead {
            let follower =
                self.app.engine().follow_conversation(&user, &self.conversation, view.last_seq).await;
            self.follower = Some(follower.ok()?);
        }
        Some(snapshot_frame(&view))
    }
}

/// Records as SSE frames.
pub(crate) fn frames(batch: &Batch) -> Bytes {
    let size = batch.records().iter().map(|record| record.bytes.len() + 64).sum();
    let mut out = Vec::with_capacity(size);
    for (record, head) in batch.iter() {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(itoa::Buffer::new().format(record.seq.0).as_bytes());
        // A name that cannot be read leaves the event to those who look at the data.
        if !head.kind.is_empty() {
            out.extend_from_slice(b"\nevent: ");
            out.extend_from_slice(head.kind.as_bytes());
        }
        out.extend_from_slice(b"\ndata: ");
        out.extend_from_slice(&record.bytes);
        out.extend_from_slice(b"\n\n");
    }
    out.into()
}

/// A view as an event. It is no event of the log: it stands for all of them up to its seq.
pub(crate) fn snapshot_event(view: &ConversationView) -> serde_json::Value {
    json!({
        "seq": view.last_seq,
        "ts": outlast_engine::Clock::System.now(),
        "generationId": null,
        "requestId": null,
        "type": "snapshot",
        "payload": view,
    })
}

fn snapshot_frame(view: &ConversationView) -> Bytes {
    format!("id: {}\nevent: snapshot\ndata: {}\n\n", view.last_seq, snapshot_event(view)).into()
}

pub(crate) fn event_stream(
    stream: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
) -> Response {
    let mut response = Body::from_stream(stream).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
