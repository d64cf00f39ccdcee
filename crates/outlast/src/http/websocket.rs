//! The WebSocket of a conversation: the same events as in every stream, and commands from the client.

use std::collections::VecDeque;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use futures_util::SinkExt;
use outlast_core::{ConversationId, Decision, GenerationId, Seq};
use outlast_engine::{EngineError, EventStream, Frame as EventFrame, Snapshot, StreamEnd, ToolDecision};
use outlast_store::Record;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, timeout, timeout_at};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::audit::Action;
use crate::auth::{Scope, hex};

use super::App;
use super::approvals::decided;
use super::body::{Id, RequestName, parse};
use super::caller::{Caller, Read};
use super::error::Problem;
use super::free::{ArgumentPatterns, Sentences};
use super::generations::{Outcome, StartBody, StartedGeneration};

/// A client must send `hello` within this time, or the connection is closed.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that reads nothing for this long is dropped. It can reconnect with its position.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The commands that change something.
const COMMANDS: [&str; 3] = ["chat.send", "chat.cancel", "approval.submit"];

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
    pattern: Option<ArgumentPatterns>,
    hash: Option<String>,
}

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(connect))
}

/// Connect by WebSocket
///
/// The same events as in the other streams, and commands from the client. PROTOCOL.md describes the frames.
#[utoipa::path(get, path = "/v1/conversations/{id}/ws", operation_id = "connectConversation", tag = "Events",
    security(("key" = ["read"])),
    responses(
        (status = 101, description = "Switching to the WebSocket protocol."),
        (status = 400, description = "`invalid_request`: not a WebSocket handshake."),
    ))]
async fn connect(
    caller: Caller<Read>,
    Id(id): Id<ConversationId>,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let id = caller.engine().thread(caller.user(), id.as_str()).await?;
    caller.engine().view(caller.user(), &id, 0).await?;
    let upgrade = upgrade.map_err(|_| Problem::broken_off("this path needs a WebSocket handshake"))?;
    let limit = caller.app().0.body_bytes;
    let upgrade = upgrade.max_message_size(limit).max_frame_size(limit);
    // When the server stops, it waits for sessions as for every other connection.
    let counted = (caller.app().0.connections.token(), caller.open_stream()?);
    let session = move |socket| async move {
        let mut session = Session { caller, id, socket };
        // Whatever ends the session, the client can reconnect with its last position.
        match session.serve().await {
            Err(Gone::Stopping) => {
                session.say_goodbye(close_code::AWAY, "the server is stopping; reconnect").await;
            }
            Err(Gone::Revoked) => {
                session.say_goodbye(close_code::POLICY, "the API key is no longer valid").await;
            }
            Ok(()) | Err(Gone::Client) => {}
        }
        drop(counted);
    };
    Ok(upgrade.on_upgrade(session).into_response())
}

struct Session {
    caller: Caller<Read>,
    id: ConversationId,
    socket: WebSocket,
}

/// Why a session ended.
enum Gone {
    /// The client disconnected, stalled, or violated the protocol; or the conversation cannot be read.
    Client,
    /// The server is stopping.
    Stopping,
    /// The credential that opened it is no longer valid.
    Revoked,
}

impl Session {
    async fn serve(&mut self) -> Result<(), Gone> {
        let (stopping, caller) = (self.caller.engine().stopping(), self.caller.clone());
        let mut events = self.greet().await?;
        let mut unsent: VecDeque<Record> = VecDeque::new();
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => return Err(Gone::Stopping),
                () = caller.principal().ended() => return Err(Gone::Revoked),
                received = self.socket.recv() => match received {
                    Some(Ok(message)) => self.receive(message).await?,
                    Some(Err(_)) | None => return Err(Gone::Client),
                },
                // One by one, so that a cancel need not wait behind a page of events on a slow connection.
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

    /// Sends an event with the bytes of the log. The socket is flushed after the last one of a batch.
    async fn pass_on(&mut self, record: Record, last: bool) -> Result<(), Gone> {
        let text = Utf8Bytes::try_from(record.bytes).map_err(|_| Gone::Client)?;
        if last {
            return self.send_message(Message::Text(text)).await;
        }
        in_time(self.socket.feed(Message::Text(text))).await
    }

    /// Tells the client why, and whether it may come back soon.
    async fn say_goodbye(&mut self, code: u16, reason: &'static str) {
        let goodbye = CloseFrame { code, reason: reason.into() };
        self.send_message(Message::Close(Some(goodbye))).await.ok();
    }

    /// Waits for `hello`, which has the client's position, and starts the stream there.
    async fn greet(&mut self) -> Result<EventStream, Gone> {
        let deadline = Instant::now() + HELLO_TIMEOUT;
        let stopping = self.caller.engine().stopping();
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

    /// The events after a position. A position after the end of the log is treated like none: it gets a snapshot.
    async fn follow(&mut self, after: Option<Seq>) -> Result<EventStream, Gone> {
        let (engine, user) = (self.caller.engine(), self.caller.user());
        let mut events = engine.stream_conversation(user, &self.id, after).await;
        if let Err(EngineError::CursorAhead { .. }) = events {
            events = engine.stream_conversation(user, &self.id, None).await;
        }
        events.map_err(|_| Gone::Client)
    }

    async fn send_snapshot(&mut self, snapshot: Box<Snapshot>) -> Result<(), Gone> {
        let text = serde_json::to_string(&snapshot).map_err(|_| Gone::Client)?;
        drop(snapshot); // for a slow client, only the encoded text stays in memory
        self.send(text).await
    }

    async fn receive(&mut self, message: Message) -> Result<(), Gone> {
        let text = match message {
            Message::Text(text) => text,
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
            Message::Binary(_) | Message::Close(_) => return Err(Gone::Client),
        };
        let (request, reply) = match parse::<Frame>(text.as_bytes()) {
            Ok(frame) => {
                let (request, command) = (frame.request_id.clone(), frame.kind.clone());
                let reply = self.obey(frame).await;
                self.audit(&command, text.as_bytes(), &reply);
                (request, reply)
            }
            Err(problem) => (None, Err(problem)),
        };
        match reply {
            Ok(reply) => self.send(reply.to_string()).await,
            Err(problem) => self.refuse(request, &problem).await,
        }
    }

    async fn obey(&mut self, frame: Frame) -> Result<Value, Problem> {
        let (caller, raw) = (&self.caller, frame.payload.as_deref());
        let (engine, user) = (caller.engine(), caller.user());
        match frame.kind.as_str() {
            "chat.send" => {
                caller.still_may(Scope::Write).await?;
                let body: StartBody = payload(raw, false)?;
                let request = frame.request_id.clone().map(RequestName::new).transpose()?;
                let body = body.in_conversation(self.id.clone(), request);
                let request = caller.admit(body.into_request(&HeaderMap::new())?).await?;
                let started = engine.start(user, request).await?;
                Ok(json!({
                    "type": "chat.accepted",
                    "requestId": frame.request_id,
                    "generationId": started.generation,
                    "payload": StartedGeneration::from(started.clone()),
                }))
            }
            "chat.cancel" => {
                caller.still_may(Scope::Write).await?;
                let Cancel { generation_id } = payload(raw, false)?;
                let cancelled = engine.cancel(user, &generation_id).await?;
                Ok(json!({
                    "type": "chat.cancel.answer",
                    "requestId": frame.request_id,
                    "generationId": generation_id,
                    "payload": Outcome::from(cancelled),
                }))
            }
            // Scripts in a browser cannot see the pings of the WebSocket protocol, so they can use this one.
            "ping" => Ok(json!({"type": "pong", "requestId": frame.request_id})),
            "hello" => Err(Problem::invalid("type", "hello was already received; reconnect to send another")),
            "approval.submit" => {
                caller.still_may(Scope::Approve).await?;
                let Submit { generation_id, tool_use_id, decision, reason, always, pattern, hash } =
                    payload(raw, false)?;
                let decided = decided(user, decision, reason, (always, pattern))?;
                let decision = ToolDecision { tool_use_id, hash, decided };
                let status = engine.decide(user, &generation_id, decision).await?;
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

    /// Commands are in the audit log like requests.
    fn audit(&self, command: &str, text: &[u8], reply: &Result<Value, Problem>) {
        let kind = COMMANDS.iter().find(|kind| **kind == command);
        let Some(kind) = kind else { return };
        let result = reply.as_ref().map_or_else(|problem| problem.status().as_u16(), |_| 200);
        let at = self.caller.app().auth().now();
        let action = Action::of(self.caller.principal(), at, format!("WebSocket {kind}"));
        let arguments = Some(hex(&Sha256::digest(text)));
        let object = format!("/v1/conversations/{}", self.id);
        self.caller.app().audit().record(&Action { object, arguments, result, ..action });
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
