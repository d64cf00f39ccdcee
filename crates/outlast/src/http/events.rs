//! Events as a stream (SSE) or as pages of JSON.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use outlast_core::{ConversationId, ConversationView, Entry, GenerationId, RequestId, Seq, Timestamp};
use outlast_engine::{Batch, EventStream, Frame, Snapshot};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::body::Id;
use super::caller::{Caller, Read};
use super::error::Problem;
use super::per_user::Open;
use super::query::{Query, Whole, limit};
use super::streamed::{StreamedJson, json_pieces};

/// A comment, which clients ignore and proxies take for traffic.
pub(crate) const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");
/// The default and the maximum number of events on a page. Its size is limited too.
const EVENTS_USUAL: usize = 100;
const EVENTS_MOST: usize = 1_000;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(of_generation)).routes(routes!(of_conversation))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// Only events after this position. Wins over `Last-Event-ID`.
    #[param(value_type = Option<u64>)]
    after: Option<Whole>,
    /// A stream (`sse`), or one page of it (`json`).
    #[serde(default)]
    #[param(default = "sse", required = false)]
    format: Format,
    /// The maximum number of events on a page; more than 1000 means 1000.
    #[param(value_type = Option<u64>, minimum = 1, default = 100)]
    limit: Option<Whole>,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = EventFormat)]
pub(crate) enum Format {
    #[default]
    Sse,
    Json,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AfterQuery {
    /// Only events after this position. Wins over `Last-Event-ID`.
    #[param(value_type = Option<u64>)]
    after: Option<Whole>,
}

/// Follow a generation
///
/// From its first event, or after the given position; ends with the generation.
#[utoipa::path(get, path = "/v1/generations/{id}/events", operation_id = "followGeneration", tag = "Events",
    params(EventsQuery),
    security(("key" = ["read"])),
    responses(
        (status = 200, content((FrameSchema = "text/event-stream"), (EventPage = "application/json")),
            description = "The events, as a stream of frames or as one page."),
        (status = 409, description = "`cursor_ahead`."),
        (status = 429, description = "`limit_reached`: too many followers."),
    ))]
pub(crate) async fn of_generation(
    caller: Caller<Read>,
    Id(id): Id<GenerationId>,
    headers: HeaderMap,
    Query(query): Query<EventsQuery>,
) -> Result<Response, Problem> {
    let after = cursor(&headers, query.after)?;
    let limit = limit(query.limit, EVENTS_USUAL, EVENTS_MOST)?;
    if query.format == Format::Json {
        return page(&caller, &id, after, limit).await;
    }
    let events = caller.engine().stream_generation(caller.user(), &id, after).await?;
    Ok(event_stream(frames(events, &caller, caller.open_stream()?)))
}

/// Follow a conversation
///
/// Stays open across generations. Without a position, the first event is a `snapshot`.
#[utoipa::path(get, path = "/v1/conversations/{id}/events", operation_id = "followConversation", tag = "Events",
    params(AfterQuery),
    security(("key" = ["read"])),
    responses(
        (status = 200, body = FrameSchema, content_type = "text/event-stream",
            description = "The events, as a stream of frames."),
        (status = 409, description = "`cursor_ahead`."),
        (status = 429, description = "`limit_reached`: too many followers."),
    ))]
pub(crate) async fn of_conversation(
    caller: Caller<Read>,
    Id(id): Id<ConversationId>,
    headers: HeaderMap,
    Query(query): Query<AfterQuery>,
) -> Result<Response, Problem> {
    let id = caller.engine().thread(caller.user(), id.as_str()).await?;
    let after = cursor(&headers, query.after)?;
    let events = caller.engine().stream_conversation(caller.user(), &id, after).await?;
    Ok(event_stream(frames(events, &caller, caller.open_stream()?)))
}

/// The client's position: `?after=`, or `Last-Event-ID`, which browsers send when they reconnect.
fn cursor(headers: &HeaderMap, after: Option<Whole>) -> Result<Option<Seq>, Problem> {
    let last = headers.get("last-event-id").map(|last| {
        let last = last.to_str().ok().and_then(Whole::read);
        last.ok_or_else(|| Problem::invalid("Last-Event-ID", "must be a whole number"))
    });
    let last = last.transpose()?;
    Ok(after.or(last).map(|Whole(seq)| Seq(seq)))
}

/// The events have the same bytes as in the log and in every stream.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventPage<'a> {
    #[schema(value_type = Vec<Entry>)]
    data: Vec<&'a RawValue>,
    /// Pass this as `after` to get the next page.
    next_after: Seq,
    /// Whether the end of the generation is in this page or before it.
    ended: bool,
}

async fn page(
    caller: &Caller<Read>,
    id: &GenerationId,
    after: Option<Seq>,
    limit: usize,
) -> Result<Response, Problem> {
    let page = caller.engine().events(caller.user(), id, after, limit).await?;
    let mut data: Vec<&RawValue> = Vec::with_capacity(page.records.len());
    for record in &page.records {
        match serde_json::from_slice(&record.bytes) {
            Ok(line) => data.push(line),
            Err(error) => {
                tracing::error!(generation = %id, seq = record.seq.0, %error, "skipped an unreadable event");
            }
        }
    }
    Ok(StreamedJson(EventPage { data, next_after: page.after, ended: page.ended }).into_response())
}

/// Encodes the frames of a stream as SSE until it ends. Whatever the reason, the client can reconnect with its
/// position. A credential that is no longer valid is one reason.
fn frames(
    events: EventStream,
    caller: &Caller<Read>,
    open: Open,
) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
    let (unsent, caller): (VecDeque<Bytes>, _) = (VecDeque::new(), (caller.clone(), open));
    stream::unfold((events, caller, unsent), |(mut events, (caller, open), mut unsent)| async move {
        let principal = caller.principal();
        if principal.has_ended() {
            return None;
        }
        while unsent.is_empty() {
            let next = tokio::select! {
                biased;
                () = principal.ended() => return None,
                next = events.next() => next,
            };
            match next.ok()? {
                Frame::Events(batch) => {
                    if let Some(age) = batch.age() {
                        caller.app().figures().wire_seconds.observe(age.as_secs_f64());
                    }
                    unsent.push_back(batch.wire(encode));
                }
                Frame::Snapshot(snapshot) => unsent.extend(encode_snapshot(&snapshot)),
                Frame::KeepAlive => unsent.push_back(KEEP_ALIVE),
            }
        }
        unsent.pop_front().map(|bytes| (Ok(bytes), (events, (caller, open), unsent)))
    })
}

/// A frame of a stream, as SSE parsers return it.
#[derive(ToSchema)]
#[schema(as = EventFrame)]
#[allow(dead_code)] // only its schema is used; `encode` writes the bytes of the log
pub(crate) struct FrameSchema {
    /// The event's seq.
    id: String,
    /// The event's type.
    event: String,
    /// A `StreamEvent`.
    #[schema(content_media_type = "application/json")]
    data: String,
}

fn encode(batch: &Batch) -> Bytes {
    /// More than `id:`, `event:`, `data:` and the line ends of a frame need.
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

/// A view in the form of an event. It is not in the log; it replaces all events up to its seq.
#[derive(ToSchema)]
#[schema(as = SnapshotEvent, rename_all = "camelCase")]
#[allow(dead_code)] // only its schema is used; the engine has the struct that is sent
pub(crate) struct SnapshotSchema {
    seq: Seq,
    ts: Timestamp,
    #[schema(required)]
    generation_id: Option<GenerationId>,
    #[schema(required)]
    request_id: Option<RequestId>,
    #[schema(rename = "type")]
    kind: SnapshotType,
    payload: ConversationView,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[allow(dead_code)] // only its schema is used
enum SnapshotType {
    Snapshot,
}

/// What a stream contains: the events of the log, or a snapshot that replaces some of them.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // only its schema is used; the bytes of the log are sent unchanged
pub(crate) enum StreamEvent {
    Event(Box<Entry>),
    Snapshot(Box<SnapshotSchema>),
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
