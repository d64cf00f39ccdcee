//! The WebSocket of a conversation: the same events as in the other streams (O3, O4, O5).

use anyhow::{Context, bail};
use futures_util::{SinkExt, StreamExt};
use outlast_proof::server::Server;
use outlast_proof::stored::Stored;
use outlast_proof::wait::{LONG, bounded};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::{both, titled};

struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    async fn hello(server: &Server, conversation: &str, payload: Value) -> anyhow::Result<Socket> {
        let url = format!("ws://{}/v1/conversations/{conversation}/ws", server.address());
        let (socket, _) = bounded("a WebSocket", LONG, connect_async(url)).await??;
        let mut socket = Socket(socket);
        socket.send(&json!({"type": "hello", "payload": payload})).await?;
        Ok(socket)
    }

    async fn send(&mut self, frame: &Value) -> anyhow::Result<()> {
        Ok(self.0.send(Message::text(frame.to_string())).await?)
    }

    /// The next frame as text, without pings.
    async fn next(&mut self) -> anyhow::Result<String> {
        loop {
            match bounded("a frame", LONG, self.0.next()).await?.context("the socket was closed")?? {
                Message::Text(text) => return Ok(text.as_str().to_owned()),
                Message::Ping(_) | Message::Pong(_) => {}
                other => bail!("unexpected {other:?}"),
            }
        }
    }

    /// Frames up to and including one of this type.
    async fn until(&mut self, kind: &str) -> anyhow::Result<Vec<String>> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await?;
            let found = serde_json::from_str::<Value>(&frame)?["type"] == kind;
            frames.push(frame);
            if found {
                return Ok(frames);
            }
        }
    }
}

/// The frames that are events of the log. Replies to commands have no seq.
fn events(frames: &[String]) -> anyhow::Result<Vec<String>> {
    let mut events = Vec::new();
    for frame in frames {
        let parsed: Value = serde_json::from_str(frame)?;
        if parsed["seq"].is_u64() && parsed["type"] != "snapshot" {
            events.push(frame.clone());
        }
    }
    Ok(events)
}

fn stored_events(stored: &Stored, after: u64) -> Vec<String> {
    // Notifications follow the end of a generation that nobody watched.
    let newer =
        stored.log.iter().filter(|frame| frame.seq > after && !frame.kind.starts_with("notification."));
    newer.map(|frame| String::from_utf8_lossy(&frame.data).into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn o3_o4_a_websocket_gets_a_snapshot_and_then_the_bytes_of_the_log() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let id = titled(&server).await?;
    let mut socket = Socket::hello(&server, &id, json!({})).await?;
    let snapshot: Value = serde_json::from_str(&socket.next().await?)?;
    assert_eq!(snapshot["type"], "snapshot");
    let before = snapshot["payload"]["lastSeq"].as_u64().context("a view has a lastSeq")?;

    let script = upstream.script(40).rate(200);
    let send = json!({"type": "chat.send", "requestId": "ws-1", "payload": {"content": script.to_string()}});
    socket.send(&send).await?;
    let frames = socket.until("chat.done").await?;
    let accepted = frames.iter().find(|frame| frame.contains("chat.accepted")).context("an answer")?;
    let accepted: Value = serde_json::from_str(accepted)?;
    assert_eq!(accepted["requestId"], "ws-1");
    let stored = Stored::read(server.api(), &id).await?;
    assert_eq!(events(&frames)?, stored_events(&stored, before), "the same bytes as by SSE");
    for frame in events(&frames)? {
        let event: Value = serde_json::from_str(&frame)?;
        let about = event["generationId"].is_null() || event["requestId"] == "ws-1";
        assert!(about, "o3: each with seq, requestId, generationId: {event}");
    }

    // Repeating the request starts nothing and returns the same ids.
    socket.send(&send).await?;
    let again: Value = serde_json::from_str(&socket.next().await?)?;
    assert_eq!(again["payload"]["generationId"], accepted["payload"]["generationId"]);
    assert_eq!(again["payload"]["messageId"], accepted["payload"]["messageId"]);
    let other = json!({"type": "chat.send", "requestId": "ws-1", "payload": {"content": "other"}});
    socket.send(&other).await?;
    let refused: Value = serde_json::from_str(&socket.next().await?)?;
    assert_eq!(refused["payload"]["code"], "idempotency_conflict");
    assert_eq!(upstream.calls(&script).await?.calls, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn o4_a_websocket_with_a_last_seq_gets_what_it_missed() -> anyhow::Result<()> {
    let (mut server, upstream) = both().await?;
    let started = server.api().play_in(&titled(&server).await?, &upstream.script(30)).await?;
    server.api().until_ended(&started.generation).await?;
    let stored = Stored::read(server.api(), &started.conversation).await?;
    server.crash().await?; // the position outlives the server
    let end = stored.log.iter().find(|frame| frame.kind == "chat.done").context("it has ended")?.seq;
    for after in [0, 3, end - 1] {
        let hello = json!({"lastSeq": after});
        let mut socket = Socket::hello(&server, &started.conversation, hello).await?;
        let frames = socket.until("chat.done").await?;
        assert_eq!(frames, stored_events(&stored, after));
    }
    let mut ahead = Socket::hello(&server, &started.conversation, json!({"lastSeq": 99_999})).await?;
    let first: Value = serde_json::from_str(&ahead.next().await?)?;
    assert_eq!(first["type"], "snapshot", "an invalid position gets a snapshot");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn o3_x1_started_by_websocket_watched_by_sse_cancelled_by_websocket() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let id = titled(&server).await?;
    let mut socket = Socket::hello(&server, &id, json!({"lastSeq": 0})).await?;
    let script = upstream.script(10_000).rate(200);
    let send = json!({"type": "chat.send", "requestId": "r", "payload": {"content": script.to_string()}});
    socket.send(&send).await?;
    let accepted = socket.until("chat.accepted").await?;
    let accepted: Value = serde_json::from_str(accepted.last().context("one at least")?)?;
    let generation = accepted["generationId"].as_str().context("an id")?.to_owned();
    let started = outlast_proof::api::Started {
        generation: generation.clone(),
        conversation: id.clone(),
        message: accepted["payload"]["messageId"].as_str().context("an id")?.to_owned(),
    };
    let reader =
        outlast_proof::reader::Reader::of_generation(server.api(), &generation).record(crate::soon());
    let cancel = async {
        server.api().until_chunks(&generation, 20).await?;
        let cancel =
            json!({"type": "chat.cancel", "requestId": "c", "payload": {"generationId": generation}});
        socket.send(&cancel).await?;
        let first = socket.until("chat.cancel.answer").await?;
        let answer: Value = serde_json::from_str(first.last().context("one at least")?)?;
        assert_eq!((&answer["payload"]["success"], &answer["requestId"]), (&json!(true), &json!("c")));
        socket.send(&cancel).await?;
        let second = socket.until("chat.cancel.answer").await?;
        let answer: Value = serde_json::from_str(second.last().context("one at least")?)?;
        assert_eq!(answer["payload"]["success"], false);
        let mut frames = [first, second].concat();
        // A reply and the event it is about take different paths; either may come first.
        if !frames.iter().any(|frame| frame.contains("\"type\":\"chat.cancelled\"")) {
            frames.extend(socket.until("chat.cancelled").await?);
        }
        anyhow::Ok(frames)
    };
    let (recording, frames) = tokio::join!(reader, cancel);
    let stored = Stored::read(server.api(), &id).await?;
    let seen = events(&frames?)?;
    let log = stored_events(&stored, 0);
    assert!(log.ends_with(&seen), "the socket must receive the rest of the log");
    let case = outlast_proof::check::Case::ended(&started, 10_000, &["cancelled"], vec![recording]);
    case.check(server.api()).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn o3_an_invalid_command_gets_an_error_and_changes_nothing() -> anyhow::Result<()> {
    let (server, _upstream) = both().await?;
    let id = titled(&server).await?;
    let before = server.api().view(&id).await?["lastSeq"].clone();
    let mut socket = Socket::hello(&server, &id, json!({"lastSeq": before})).await?;
    let wrong = [
        (json!({"type": "tea.make"}), "invalid_request"),
        (json!({"type": "chat.send"}), "invalid_request"),
        (json!({"type": "chat.send", "payload": {"content": 7}}), "invalid_request"),
        (json!({"type": "chat.send", "payload": {"content": "x", "colour": 1}}), "invalid_request"),
        (json!({"type": "chat.cancel", "payload": {"generationId": "gen_x"}}), "not_found"),
        (json!({"type": "chat.send", "colour": 1}), "invalid_request"),
    ];
    for (frame, code) in wrong {
        socket.send(&frame).await?;
        let answer: Value = serde_json::from_str(&socket.next().await?)?;
        assert_eq!((&answer["type"], &answer["payload"]["code"]), (&json!("error"), &json!(code)), "{frame}");
    }
    let url = format!("ws://{}/v1/conversations/conv_x/ws", server.address());
    assert!(connect_async(url).await.is_err(), "b5: a conversation that does not exist");
    assert_eq!(server.api().view(&id).await?["messages"], json!([]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn x6_a_stopping_server_sends_a_close_frame() -> anyhow::Result<()> {
    let (mut server, _upstream) = both().await?;
    let mut socket = Socket::hello(&server, &titled(&server).await?, json!({})).await?;
    socket.until("snapshot").await?;
    server.stop().await?;
    let last = bounded("the last frame", LONG, async {
        loop {
            match socket.0.next().await {
                Some(Ok(Message::Close(reason))) => return Ok(reason),
                Some(Ok(_)) => {}
                other => bail!("no close frame: {other:?}"),
            }
        }
    });
    assert_eq!(last.await??.map(|close| close.code), Some(CloseCode::Away));
    Ok(())
}
