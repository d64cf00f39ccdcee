//! Two users who write a canary into everything: nothing that one gets holds the other's (I13). And the limit on the
//! connections of one.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::{SinkExt, StreamExt};
use outlast_proof::agent::{Agent, allowed};
use outlast_proof::api::{Api, Started};
use outlast_proof::server::{Options, Server};
use outlast_proof::upstream::Upstream;
use outlast_proof::wait::{LONG, bounded, until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

/// A user with a run of tools that is over.
struct User {
    api: Api,
    key: String,
    canary: String,
    run: Started,
    /// What the user's own WebSocket showed of it.
    shown: String,
}

impl User {
    /// Writes the canary as title, metadata, message, answer, argument, output, name and content of a file.
    async fn new(server: &Server, upstream: &Upstream, name: &str) -> anyhow::Result<User> {
        let canary = format!("canary-of-{name}");
        let key = server.key(name, "read,write,approve").await?;
        let api = server.api().with_key(&key)?;
        let file = json!({"path": format!("{canary}.txt"), "content": format!("{canary}\n")});
        let agent = Agent::new(upstream)
            .asks(&canary, &[("write_file", file)])
            .runs(&format!("cat {canary}.txt; echo {canary} >&2"))
            .says(&format!("{canary}, done."));
        let new = json!({"title": canary, "metadata": {"note": canary}, "key": canary});
        let conversation = api.post("/v1/conversations", &new).await?.expect(201)?.text("id")?;
        let hook = json!({"url": format!("https://{canary}.example/")});
        let refused = api.post("/v1/webhooks", &hook).await?;
        ensure!([201, 422].contains(&refused.status), "{}", refused.body); // the name may not be looked up here
        let shown = follow(server, &key, &conversation).await?;
        let (run, shown) = tokio::try_join!(agent.start_in(&api, &conversation), shown)?;
        Ok(User { api, key, canary, run, shown })
    }
}

/// Opens the WebSocket of a conversation. What it shows follows, up to the end of a generation.
async fn follow(
    server: &Server,
    key: &str,
    conversation: &str,
) -> anyhow::Result<impl Future<Output = anyhow::Result<String>>> {
    let (mut socket, _) = open(server, key, conversation).await??;
    socket.send(Message::text(json!({"type": "hello", "payload": {}}).to_string())).await?;
    let first = bounded("a snapshot", LONG, socket.next()).await?.context("a frame")??;
    Ok(async move {
        let mut shown = first.to_string();
        while !shown.contains("\"chat.done\"") {
            let frame = bounded("a frame", LONG, socket.next()).await?.context("the socket was closed")??;
            shown.push_str(&frame.to_string());
        }
        Ok(shown)
    })
}

type Opened = (
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>,
    tokio_tungstenite::tungstenite::handshake::client::Response,
);

async fn open(server: &Server, key: &str, conversation: &str) -> anyhow::Result<Result<Opened, Error>> {
    let url = format!("ws://{}/v1/conversations/{conversation}/ws", server.address());
    let mut request = url.into_client_request()?;
    request.headers_mut().insert("authorization", format!("Bearer {key}").parse()?);
    bounded("a WebSocket", LONG, connect_async(request)).await
}

/// Everything that can be read: of this conversation, and lists.
fn paths(run: &Started, canary: &str) -> Vec<(String, bool)> {
    let Started { conversation, generation, .. } = run;
    let of_conversation = ["", "/messages", "/events?after=0", "/files", "/diff"];
    let of_generation = ["", "/events", "/events?format=json"];
    let mut paths = Vec::new();
    paths.extend(of_conversation.map(|what| (format!("/v1/conversations/{conversation}{what}"), true)));
    paths.push((format!("/v1/conversations/{conversation}/files/{canary}.txt"), true));
    paths.extend(of_generation.map(|what| (format!("/v1/generations/{generation}{what}"), true)));
    paths.push((format!("/v1/generations/{generation}/tools/call_1_0/output"), true));
    paths.push((format!("/v1/jobs/{generation}"), true));
    paths.push((format!("/v1/generations?conversationId={conversation}"), false));
    paths.push((format!("/v1/conversations?key={canary}"), false));
    for list in ["conversations", "generations", "notifications", "webhooks", "capabilities"] {
        paths.push((format!("/v1/{list}"), false));
    }
    paths
}

/// The status, and what arrives until the response ends or, for a stream, a while passes.
async fn read(api: &Api, path: &str) -> anyhow::Result<(u16, String)> {
    let mut response = bounded("a response", LONG, api.request(Method::GET, path).send()).await??;
    let (status, mut text) = (response.status().as_u16(), String::new());
    let streams = path.contains("/conversations/") && path.contains("/events");
    while let Some(bytes) = bounded("a body", LONG, response.chunk()).await?? {
        text.push_str(&String::from_utf8_lossy(&bytes));
        if streams && text.contains("chat.done") {
            break;
        }
    }
    Ok((status, text))
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_i13_two_users_with_canaries_in_everything_see_nothing_of_each_other() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let server = Server::start(allowed(&upstream)).await?;
    let (ada, bob) =
        tokio::try_join!(User::new(&server, &upstream, "ada"), User::new(&server, &upstream, "bob"),)?;
    for (user, other) in [(&ada, &bob), (&bob, &ada)] {
        ensure!(user.shown.contains(&user.canary), "the canary is in the WebSocket");
        assert!(!user.shown.contains(&other.canary), "{}", user.shown);
        let (mut own, mut foreign) = (0, 0);
        for (path, _) in paths(&user.run, &user.canary) {
            let (status, text) = read(&user.api, &path).await?;
            assert_eq!(status, 200, "{path}: {text}");
            assert!(!text.contains(&other.canary), "{path}: {text}");
            own += usize::from(text.contains(&user.canary));
        }
        assert!(own >= 13, "the canary is in {own} responses");
        for (path, is_theirs) in paths(&other.run, &other.canary) {
            let (status, text) = read(&user.api, &path).await?;
            assert_eq!(status, if is_theirs { 404 } else { 200 }, "{path}: {text}");
            assert!(!text.contains(&other.canary), "{path}: {text}");
            foreign += 1;
        }
        assert_eq!(foreign, 18);
        match open(&server, &user.key, &other.run.conversation).await? {
            Err(Error::Http(response)) => {
                let body =
                    String::from_utf8_lossy(response.body().as_deref().unwrap_or_default()).into_owned();
                assert_eq!(
                    (response.status().as_u16(), body.contains(&other.canary)),
                    (404, false),
                    "{body}"
                );
            }
            other => panic!("a WebSocket of somebody else: {other:?}"),
        }
    }
    operators_see_no_content(&server, [&ada, &bob]).await
}

/// Nothing that users write is in the figures, the overview, the log or the audit log.
async fn operators_see_no_content(server: &Server, users: [&User; 2]) -> anyhow::Result<()> {
    let operator = server.api().with_key(&server.key("olga", "read,admin").await?)?;
    let overview = until("both runs to be over", LONG, async || {
        let overview = operator.get("/v1/admin/overview").await?.expect(200)?.body;
        Ok((overview["running"] == json!([])).then_some(overview))
    });
    let overview: Value = overview.await?;
    let (_, metrics) = read(&operator, "/metrics").await?;
    let audit = std::fs::read_to_string(server.data().join("audit.jsonl"))?;
    ensure!(audit.contains("POST /v1/generations") && metrics.contains("outlast_"), "they have something");
    for (what, text) in
        [("overview", overview.to_string()), ("metrics", metrics), ("audit", audit), ("log", server.said()?)]
    {
        for user in users {
            assert!(!text.contains(&user.canary) && !text.contains(&user.key), "{what}: {text}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_revoking_a_key_closes_its_websocket_and_its_stream_within_5_seconds() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let server = Server::start(Options::with(&upstream)).await?;
    let (key, other) = (server.key("ada", "read,write").await?, server.key("ada", "read,write").await?);
    let api = server.api().with_key(&key)?;
    let conversation = api.post("/v1/conversations", &json!({})).await?.expect(201)?.text("id")?;
    let (mut ended, _) = open(&server, &key, &conversation).await??;
    let (mut kept, _) = open(&server, &other, &conversation).await??;
    for socket in [&mut ended, &mut kept] {
        socket.send(Message::text(json!({"type": "hello", "payload": {}}).to_string())).await?;
        bounded("a snapshot", LONG, socket.next()).await?.context("a frame")??;
    }
    let path = format!("/v1/conversations/{conversation}/events");
    let mut stream = bounded("a response", LONG, api.request(Method::GET, &path).send()).await??;
    server.revoke(&key).await?;
    let revoked = Instant::now();
    let closed = bounded("the end of the socket", LONG, async {
        loop {
            match ended.next().await {
                Some(Ok(Message::Close(frame))) => return frame,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    });
    let frame = closed.await?.context("a close frame that says why")?;
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1008, "the API key is no longer valid"));
    while bounded("the end of the stream", LONG, stream.chunk()).await??.is_some() {}
    assert!(revoked.elapsed() < Duration::from_secs(5), "{:?}", revoked.elapsed());
    kept.send(Message::text(json!({"type": "ping"}).to_string())).await?;
    let pong = bounded("a pong", LONG, kept.next()).await?.context("the other key's socket stays open")??;
    assert!(pong.to_string().contains("pong"), "{pong}");
    Ok(())
}

/// Sends a request on a connection, and returns the beginning of the response.
async fn ask(stream: &mut TcpStream, key: &str) -> anyhow::Result<String> {
    let request =
        format!("GET /v1/capabilities HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = vec![0; 16 * 1024];
    let read = bounded("a response", LONG, stream.read(&mut bytes)).await??;
    Ok(String::from_utf8_lossy(&bytes[..read]).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn b4_a_connection_too_many_of_a_user_is_refused_until_another_one_closes() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let options = Options::with(&upstream).arg("--set").arg("limits.connections_per_user=2");
    let server = Server::start(options).await?;
    let (ada, bob) = (server.key("ada", "read").await?, server.key("bob", "read").await?);
    let connect = async || TcpStream::connect(server.address()).await;
    let mut open = vec![connect().await?, connect().await?];
    for stream in &mut open {
        assert!(ask(stream, &ada).await?.starts_with("HTTP/1.1 200"));
    }
    let mut third = connect().await?;
    let refused = ask(&mut third, &ada).await?;
    assert!(
        refused.starts_with("HTTP/1.1 429") && refused.contains("limits.connections_per_user"),
        "{refused}"
    );
    let mut rest = Vec::new();
    bounded("closing a refused connection", LONG, third.read_to_end(&mut rest)).await??;
    assert!(ask(&mut connect().await?, &bob).await?.starts_with("HTTP/1.1 200"), "another user");
    open.pop();
    until("room for a connection", LONG, async || {
        Ok(ask(&mut connect().await?, &ada).await?.starts_with("HTTP/1.1 200").then_some(()))
    })
    .await
}
