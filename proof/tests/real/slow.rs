//! The memory that slow clients of a large conversation use.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use futures_util::{SinkExt, StreamExt};
use outlast_proof::api::Api;
use outlast_proof::wait::{LONG, bounded};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::{both, titled};

/// 60 MB of text: every message is in the log and in the list of messages.
const MESSAGES: usize = 200;
const MESSAGE_BYTES: usize = 300_000;
const CLIENTS: usize = 12;
/// What 12 clients together may use: each holds a page or snapshot of at most 1 MiB, and for a moment the server also
/// holds the data it was built from.
const MEMORY_MAX: u64 = 64 << 20;
/// The maximum size of a page or snapshot, with some room for the JSON around it.
const PAGE_MAX: usize = (1 << 20) + 64 * 1024;

/// A conversation of long messages that were never answered. Returns its id and its newest generation.
async fn large(api: &Api, conversation: &str) -> anyhow::Result<String> {
    let mut newest = None;
    for number in 0..MESSAGES {
        let text = format!("{number} ").repeat(MESSAGE_BYTES / (number.to_string().len() + 1));
        let body = json!({"content": text, "producer": "external", "conversationId": conversation});
        let started = api.post("/v1/generations", &body).await?.started()?;
        ensure!(
            api.cancel(&started.generation).await?,
            "a generation without a worker could not be cancelled"
        );
        newest = Some(started.generation);
    }
    newest.context("one at least")
}

async fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    Ok(socket.connect(address).await?)
}

/// Sends a request, reads the beginning of the response and nothing more.
async fn begin(address: SocketAddr, path: String) -> anyhow::Result<TcpStream> {
    let mut stream = connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").as_bytes()).await?;
    let mut beginning = [0; 1024];
    bounded("the beginning of a response", LONG, stream.read_exact(&mut beginning)).await??;
    ensure!(beginning.starts_with(b"HTTP/1.0 200"), "{path}: {}", String::from_utf8_lossy(&beginning));
    Ok(stream)
}

/// Opens a WebSocket, reads its first event and nothing more.
async fn begin_socket(
    address: SocketAddr,
    path: String,
    last_seq: Option<u64>,
) -> anyhow::Result<WebSocketStream<TcpStream>> {
    let url = format!("ws://{address}{path}");
    let (mut socket, _) = client_async(url, connect(address).await?).await?;
    socket
        .send(Message::text(json!({"type": "hello", "payload": {"lastSeq": last_seq}}).to_string()))
        .await?;
    let first = bounded("the first event", LONG, socket.next()).await?.context("a frame")??;
    ensure!(first.is_text(), "{first:?} instead of an event");
    Ok(socket)
}

#[tokio::test(flavor = "multi_thread")]
async fn i12_twelve_slow_clients_of_a_conversation_of_60_mb_cost_less_than_64_mb() -> anyhow::Result<()> {
    let (server, _upstream) = both().await?;
    let id = titled(&server).await?;
    let newest = large(server.api(), &id).await?;
    let address = server.address();
    server.forget_peak()?;
    let before = server.peak_bytes()?;
    let mut worst = 0;
    for path in [
        format!("/v1/conversations/{id}?limit=200"),
        format!("/v1/conversations/{id}/messages?limit=200"),
        format!("/v1/conversations/{id}/events"),
        format!("/v1/conversations/{id}/events?after=0"),
        format!("/v1/generations?conversationId={id}&limit=200"),
        format!("/v1/generations/{newest}/events?format=json&limit=1000"),
    ] {
        server.forget_peak()?;
        let clients = futures_util::future::join_all((0..CLIENTS).map(|_| begin(address, path.clone())));
        let clients: Vec<TcpStream> = clients.await.into_iter().collect::<anyhow::Result<_>>()?;
        let cost = server.peak_bytes()?.saturating_sub(before);
        eprintln!("{CLIENTS} clients of {path}: {} MB", cost / 1_000_000);
        worst = worst.max(cost);
        drop(clients);
    }
    for last_seq in [None, Some(0)] {
        server.forget_peak()?;
        let path = format!("/v1/conversations/{id}/ws");
        let sockets = (0..CLIENTS).map(|_| begin_socket(address, path.clone(), last_seq));
        let sockets = futures_util::future::join_all(sockets).await;
        let sockets: Vec<_> = sockets.into_iter().collect::<anyhow::Result<_>>()?;
        let cost = server.peak_bytes()?.saturating_sub(before);
        eprintln!("{CLIENTS} WebSockets from {last_seq:?}: {} MB", cost / 1_000_000);
        worst = worst.max(cost);
        drop(sockets);
    }
    assert!(worst < MEMORY_MAX, "{} MB more than before", worst / 1_000_000);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn i12_a_response_that_would_be_too_large_is_split_into_pages() -> anyhow::Result<()> {
    let (server, _upstream) = both().await?;
    let api = server.api();
    let id = titled(&server).await?;
    for _ in 0..8 {
        let body = json!({"content": "x".repeat(300_000), "producer": "external", "conversationId": id});
        let started = api.post("/v1/generations", &body).await?.started()?;
        ensure!(
            api.cancel(&started.generation).await?,
            "a generation without a worker could not be cancelled"
        );
    }
    let view = api.get(&format!("/v1/conversations/{id}?limit=1000")).await?.expect(200)?.body;
    assert_eq!(view["hasMore"], true);
    assert!(view["messages"].to_string().len() <= PAGE_MAX, "{} bytes", view["messages"].to_string().len());

    // Every message is on one of the pages, once.
    let (mut before, mut found) = (String::new(), 0);
    loop {
        let page =
            api.get(&format!("/v1/conversations/{id}/messages?limit=200{before}")).await?.expect(200)?;
        let data = page.body["data"].as_array().context("a list")?;
        assert!(page.body["data"].to_string().len() <= PAGE_MAX);
        found += data.len();
        before = format!("&before={}", data[0]["seq"]);
        if page.body["hasMore"] == false {
            break;
        }
    }
    assert_eq!(found, 8);
    Ok(())
}
