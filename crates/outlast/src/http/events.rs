//! Events as a stream (SSE) or as pages.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use outlast_core::{ConversationId, ConversationView, Entry, GenerationId, Heads, RequestId, Seq, Timestamp};
use outlast_engine::{CommandError, FollowError, Follower};
use outlast_store::Record;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Interval;
use tokio_util::sync::CancellationToken;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::body::Id;
use super::conversations::MESSAGES_USUAL;
use super::error::Problem;
use super::query::{Query, Whole, limit};

/// A silent stream says at least this often that it is alive.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Events in a page if nothing is said, and at most.
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
    /// Events of a page at most; more than 1000 means 1000.
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
    responses(
        (status = 200, content((Frame = "text/event-stream"), (EventPage = "application/json")),
            description = "The events, as a stream of frames or as one page."),
        (status = 409, description = "`cursor_ahead`."),
        (status = 429, description = "`limit_reached`: too many followers."),
    ))]
pub(crate) async fn of_generation(
    State(app): State<App>,
    Id(id): Id<GenerationId>,
    headers: HeaderMap,
    Query(query): Query<EventsQuery>,
) -> Result<Response, Problem> {
    let after = cursor(&headers, query.after)?;
    let limit = limit(query.limit, EVENTS_USUAL, EVENTS_MOST)?;
    if query.format == Format::Json {
        return page(&app, &id, after, limit).await;
    }
    let user = app.user();
    let follower = app.engine().follow_generation(&user, &id, after).await?;
    follower.check().await?;
    Ok(event_stream(follow(app, follower, Instead::End)))
}

/// Follow a conversation
///
/// Stays open across generations. Without a position, the first event is a `snapshot`.
#[utoipa::path(get, path = "/v1/conversations/{id}/events", operation_id = "followConversation", tag = "Events",
    params(AfterQuery),
    responses(
        (status = 200, body = Frame, content_type = "text/event-stream",
            description = "The events, as a stream of frames."),
        (status = 409, description = "`cursor_ahead`."),
        (status = 429, description = "`limit_reached`: too many followers."),
    ))]
pub(crate) async fn of_conversation(
    State(app): State<App>,
    Id(id): Id<ConversationId>,
    headers: HeaderMap,
    Query(query): Query<AfterQuery>,
) -> Result<Response, Problem> {
    let user = app.user();
    let id = app.engine().thread(&user, id.as_str()).await?;
    if let Some(after) = cursor(&headers, query.after)? {
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
fn cursor(headers: &HeaderMap, after: Option<Whole>) -> Result<Option<Seq>, Problem> {
    let last = headers.get("last-event-id").map(|last| {
        let last = last.to_str().ok().and_then(Whole::read);
        last.ok_or_else(|| Problem::invalid("Last-Event-ID", "is not a position"))
    });
    let last = last.transpose()?;
    Ok(after.or(last).map(|Whole(seq)| Seq(seq)))
}

/// The events are the very bytes of the log, as every other reader gets them.
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

async fn page(app: &App, id: &GenerationId, after: Option<Seq>, limit: usize) -> Result<Response, Problem> {
    let page = app.engine().events(&app.user(), id, after, limit).await?;
    let lines = page.records.iter().map(|record| serde_json::from_slice(&record.bytes));
    let data: Result<Vec<&RawValue>, _> = lines.collect();
    let data = data.map_err(|error| CommandError::Broken(error.to_string()))?;
    Ok(axum::Json(EventPage { data, next_after: page.after, ended: page.ended }).into_response())
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

/// A frame of a stream, as SSE parsers hand it on.
#[derive(ToSchema)]
#[schema(as = EventFrame)]
#[allow(dead_code)] // only its schema is used: `frames` writes the bytes of the log
pub(crate) struct Frame {
    /// The event's seq.
    id: String,
    /// The event's type.
    event: String,
    /// A `StreamEvent`.
    #[schema(content_media_type = "application/json")]
    data: String,
}

/// Records as SSE frames.
pub(crate) fn frames(records: &[Record]) -> Bytes {
    let size = records.iter().map(|record| record.bytes.len() + 64).sum();
    let mut out = Vec::with_capacity(size);
    let mut heads = Heads::default();
    for record in records {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(itoa::Buffer::new().format(record.seq.0).as_bytes());
        // A name that cannot be read leaves the event to those who look at the data.
        if let Ok(head) = heads.of(&record.bytes) {
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
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SnapshotEvent)]
pub(crate) struct Snapshot<'a> {
    seq: Seq,
    ts: Timestamp,
    #[schema(required)]
    generation_id: Option<GenerationId>,
    #[schema(required)]
    request_id: Option<RequestId>,
    #[serde(rename = "type")]
    #[schema(value_type = SnapshotType)]
    kind: &'static str,
    #[schema(value_type = ConversationView)]
    payload: &'a ConversationView,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[allow(dead_code)] // only its schema is used
enum SnapshotType {
    Snapshot,
}

/// What a stream carries: the events of the log, or a snapshot in place of those that it leaves out.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // only its schema is used: the bytes of the log are sent as they are
pub(crate) enum StreamEvent<'a> {
    Event(Box<Entry>),
    Snapshot(Snapshot<'a>),
}

pub(crate) fn snapshot_event(view: &ConversationView) -> serde_json::Value {
    let ts = outlast_engine::Clock::System.now();
    let (seq, payload) = (view.last_seq, view);
    let snapshot = Snapshot { seq, ts, generation_id: None, request_id: None, kind: "snapshot", payload };
    serde_json::to_value(snapshot).expect("a view has string keys")
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
