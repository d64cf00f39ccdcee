//! The WebSocket of a conversation: the same events as in every stream one way, commands the other way.

use std::collections::VecDeque;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use futures_util::SinkExt;
use outlast_core::{ConversationId, Decided, Decision, GenerationId, Seq};
use outlast_engine::{EngineError, EventStream, Frame as EventFrame, Snapshot, StreamEnd, ToolDecision};
use outlast_store::Record;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::body::{Id, RequestName, parse};
use super::error::Problem;
use super::free::{Sentences, Short};
use super::generations::{Outcome, StartBody, StartedGeneration};

/// A client must send `hello` within this time, or the connection is closed.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that takes nothing for this long is dropped. It can come back with its position.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// What a client may send.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Frame {
    #[serde(rename = "type")]
    kind: String,
    request_id: Option<String>,
    payload: Option<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Hello {
    last_seq: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Cancel {
    generation_id: GenerationId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Submit {
    generation_id: GenerationId,
    tool_use_id: String,
    decision: Decision,
    reason: Option<Sentences>,
    #[serde(default)]
    always: bool,
    hash: Option<String>,
}

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(connect))
}

/// Connect by WebSocket
///
/// The same events as everywhere, and commands in return. PROTOCOL.md describes the frames.
#[utoipa::path(get, path = "/v1/conversations/{id}/ws", operation_id = "connectConversation", tag = "Events",
    responses(
        (status = 101, description = "Speaks WebSocket from here on."),
        (status = 400, description = "`invalid_request`: not a WebSocket handshake."),
    ))]
async fn connect(
    State(app): State<App>,
    Id(id): Id<ConversationId>,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let upgrade = upgrade.map_err(|_| Problem::broken_off("this path takes a WebSocket"))?;
    let id = app.engine().thread(&app.user(), id.as_str()).await?;
    app.engine().view(&app.user(), &id, 0).await?;
    let upgrade = upgrade.max_message_size(app.0.body_bytes).max_frame_size(app.0.body_bytes);
    // The server waits for sessions when it stops, like for every other connection.
    let counted = app.0.connections.token();
    let session = move |socket| async move {
        let mut session = Session { app, id, socket };
        // Whatever ends the session, the client comes back with its last position.
        if let Err(Gone::Stopping) = session.serve().await {
            session.say_goodbye().await;
        }
        drop(counted);
    };
    Ok(upgrade.on_upgrade(session).into_response())
}

struct Session {
    app: App,
    id: ConversationId,
    socket: WebSocket,
}

/// Why a session is over.
enum Gone {
    /// The client went away, stalled, or broke the protocol; or the conversation cannot be read.
    Client,
    /// The server is stopping.
    Stopping,
}

impl Session {
    async fn serve(&mut self) -> Result<(), Gone> {
        let stopping = self.app.engine().stopping();
        let mut events = self.greet().await?;
        let mut unsent: VecDeque<Record> = VecDeque::new();
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => return Err(Gone::Stopping),
                received = self.socket.recv() => match received {
                    Some(Ok(message)) => self.receive(message).await?,
                    Some(Err(_)) | None => return Err(Gone::Client),
                },
                // One by one: a cancel must not wait behind a page of events on a slow line.
                Some(record) = async { unsent.pop_front() } => self.pass_on(record, unsent.is_empty()).await?,
                next = events.next() => match next {
                    Ok(EventFrame::Events(batch)) => unsent.extend(batch.records().iter().cloned()),
                    Ok(EventFrame::Snapshot(snapshot)) => self.send_snapshot(snapshot).await?,
                    Ok(EventFrame::KeepAlive) => self.send_message(Message::Ping(Vec::new().into())).await?,
                    Err(StreamEnd::Stopping) => return Err(Gone::Stopping),
                    Err(StreamEnd::Complete | StreamEnd::Failed(_)) => return Err(Gone::Client),
                },
            }
        }
    }

    /// Sends an event as the log has it. The socket is flushed with the last one of a batch.
    async fn pass_on(&mut self, record: Record, last: bool) -> Result<(), Gone> {
        let text = Utf8Bytes::try_from(record.bytes).map_err(|_| Gone::Client)?;
        if last {
            return self.send_message(Message::Text(text)).await;
        }
        in_time(self.socket.feed(Message::Text(text))).await
    }

    /// Tells the client that it may come back soon.
    async fn say_goodbye(&mut self) {
        let goodbye =
            CloseFrame { code: close_code::AWAY, reason: "the server is stopping; reconnect".into() };
        self.send_message(Message::Close(Some(goodbye))).await.ok();
    }

    /// Waits for `hello`, which has the client's position, and starts the stream there.
    async fn greet(&mut self) -> Result<EventStream, Gone> {
        let deadline = Instant::now() + HELLO_TIMEOUT;
        let stopping = self.app.engine().stopping();
        loop {
            let first = tokio::select! {
                first = timeout_at(deadline, self.socket.recv()) => first.map_err(|_| Gone::Client)?,
                () = stopping.cancelled() => return Err(Gone::Stopping),
            };
            let text = match first {
                Some(Ok(Message::Text(text))) => text,
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                _ => return Err(Gone::Client),
            };
            let hello = match parse::<Frame>(text.as_bytes()) {
                Ok(frame) if frame.kind == "hello" => payload::<Hello>(frame.payload.as_deref(), true),
                Ok(_) => Err(Problem::invalid("type", "send hello first")),
                Err(problem) => Err(problem),
            };
            match hello {
                Ok(Hello { last_seq }) => return self.follow(last_seq.map(Seq)).await,
                Err(problem) => self.refuse(None, &problem).await?,
            }
        }
    }

    /// The events after a position. One after the end of the log gets a snapshot, as if none had been given.
    async fn follow(&mut self, after: Option<Seq>) -> Result<EventStream, Gone> {
        let (engine, user) = (self.app.engine(), self.app.user());
        let mut events = engine.stream_conversation(&user, &self.id, after).await;
        if let Err(EngineError::CursorAhead { .. }) = events {
            events = engine.stream_conversation(&user, &self.id, None).await;
        }
        events.map_err(|_| Gone::Client)
    }

    async fn send_snapshot(&mut self, snapshot: Box<Snapshot>) -> Result<(), Gone> {
        let text = serde_json::to_string(&snapshot).map_err(|_| Gone::Client)?;
        drop(snapshot); // a slow client holds the text alone
        self.send(text).await
    }

    async fn receive(&mut self, message: Message) -> Result<(), Gone> {
        let text = match message {
            Message::Text(text) => text,
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
            Message::Binary(_) | Message::Close(_) => return Err(Gone::Client),
        };
        let (request, reply) = match parse::<Frame>(text.as_bytes()) {
            Ok(frame) => (frame.request_id.clone(), self.obey(frame).await),
            Err(problem) => (None, Err(problem)),
        };
        match reply {
            Ok(reply) => self.send(reply.to_string()).await,
            Err(problem) => self.refuse(request, &problem).await,
        }
    }

    async fn obey(&mut self, frame: Frame) -> Result<Value, Problem> {
        let user = self.app.user();
        let raw = frame.payload.as_deref();
        match frame.kind.as_str() {
            "chat.send" => {
                let body: StartBody = payload(raw, false)?;
                let request = frame.request_id.clone().map(RequestName::new).transpose()?;
                let body = body.in_conversation(self.id.clone(), request);
                let started = self.app.engine().start(&user, body.into_request(&HeaderMap::new())?).await?;
                Ok(json!({
                    "type": "chat.accepted",
                    "requestId": frame.request_id,
                    "generationId": started.generation,
                    "payload": StartedGeneration::from(started.clone()),
                }))
            }
            "chat.cancel" => {
                let Cancel { generation_id } = payload(raw, false)?;
                let cancelled = self.app.engine().cancel(&user, &generation_id).await?;
                Ok(json!({
                    "type": "chat.cancel.answer",
                    "requestId": frame.request_id,
                    "generationId": generation_id,
                    "payload": Outcome::from(cancelled),
                }))
            }
            // Scripts in a browser never see the protocol's own pings; they can use this one.
            "ping" => Ok(json!({"type": "pong", "requestId": frame.request_id})),
            "hello" => Err(Problem::invalid("type", "hello was already received; reconnect to send another")),
            "approval.submit" => {
                let Submit { generation_id, tool_use_id, decision, reason, always, hash } =
                    payload(raw, false)?;
                let reason = reason.map(|Short(reason)| reason);
                let decided = Decided { decision, by: user.as_str().to_owned(), reason, always };
                let decision = ToolDecision { tool_use_id, hash, decided };
                let status = self.app.engine().decide(&user, &generation_id, decision).await?;
                Ok(json!({
                    "type": "approval.submit.answer",
                    "requestId": frame.request_id,
                    "generationId": generation_id,
                    "payload": Outcome::from(status),
                }))
            }
            other => Err(Problem::invalid("type", format!("{other:?} is not a known type"))),
        }
    }

    async fn refuse(&mut self, request: Option<String>, problem: &Problem) -> Result<(), Gone> {
        let reply = json!({"type": "error", "requestId": request, "payload": problem.to_json()});
        self.send(reply.to_string()).await
    }

    async fn send(&mut self, text: String) -> Result<(), Gone> {
        self.send_message(Message::Text(text.into())).await
    }

    async fn send_message(&mut self, message: Message) -> Result<(), Gone> {
        in_time(self.socket.send(message)).await
    }
}

async fn in_time(sending: impl Future<Output = Result<(), axum::Error>>) -> Result<(), Gone> {
    match timeout(STALL_TIMEOUT, sending).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Gone::Client),
    }
}

fn payload<T: serde::de::DeserializeOwned>(raw: Option<&RawValue>, optional: bool) -> Result<T, Problem> {
    match raw {
        Some(raw) => parse(raw.get().as_bytes()),
        None if optional => parse(b"{}"),
        None => Err(Problem::invalid("payload", "is missing")),
    }
}
