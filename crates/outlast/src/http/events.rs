//! Events as a stream (SSE) or as pages of JSON.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use outlast_core::{ConversationId, GenerationId, Seq};
use outlast_engine::{Batch, CommandError, EventStream, Frame, Snapshot};
use serde::Serialize;
use serde_json::value::RawValue;

use super::App;
use super::body::{Id, Params};
use super::error::Problem;
use super::streamed::{StreamedJson, json_pieces};

/// A comment, which clients ignore and proxies take for traffic.
pub(crate) const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");
/// Events on a page by default, and at most. Bytes limit a page too.
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
    let events = app.engine().stream_generation(&app.user(), &id, after).await?;
    Ok(event_stream(frames(events)))
}

pub(crate) async fn of_conversation(
    State(app): State<App>,
    Id(id): Id<ConversationId>,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, Problem> {
    let after = cursor(&headers, &params)?;
    let events = app.engine().stream_conversation(&app.user(), &id, after).await?;
    Ok(event_stream(frames(events)))
}

/// The client's position: `?after=`, or `Last-Event-ID`, which browsers send when they reconnect.
fn cursor(headers: &HeaderMap, params: &Params) -> Result<Option<Seq>, Problem> {
    if let Some(after) = params.number("after")? {
        return Ok(Some(Seq(after)));
    }
    let Some(last) = headers.get("last-event-id") else { return Ok(None) };
    let last = last.to_str().ok().and_then(|text| text.trim().parse().ok());
    last.map(|seq| Some(Seq(seq))).ok_or_else(|| Problem::invalid("Last-Event-ID", "must be a whole number"))
}

/// The events are the bytes of the log, as in every stream.
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
    Ok(StreamedJson(EventsPage { data, next_after: page.after, ended: page.ended }).into_response())
}

/// The frames of a stream in SSE's form, until it is over for whatever reason: the client comes back with its
/// position if it wants more.
fn frames(events: EventStream) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let unsent: VecDeque<Bytes> = VecDeque::new();
    stream::unfold((events, unsent), |(mut events, mut unsent)| async move {
        while unsent.is_empty() {
            match events.next().await.ok()? {
                Frame::Events(batch) => unsent.push_back(batch.wire(encode)),
                Frame::Snapshot(snapshot) => unsent.extend(encode_snapshot(&snapshot)),
                Frame::KeepAlive => unsent.push_back(KEEP_ALIVE),
            }
        }
        unsent.pop_front().map(|bytes| (Ok(bytes), (events, unsent)))
    })
}

fn encode(batch: &Batch) -> Bytes {
    /// More than `id`, `event` and `data` take.
    const FRAMING: usize = 64;
    let size = batch.records().iter().map(|record| record.bytes.len() + FRAMING).sum();
    let mut out = Vec::with_capacity(size);
    for (record, head) in batch.iter() {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(itoa::Buffer::new().format(record.seq.0).as_bytes());
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

fn encode_snapshot(snapshot: &Snapshot) -> Vec<Bytes> {
    let mut pieces = vec![format!("id: {}\nevent: snapshot\ndata: ", snapshot.seq).into()];
    pieces.extend(json_pieces(snapshot));
    pieces.push(Bytes::from_static(b"\n\n"));
    pieces
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
