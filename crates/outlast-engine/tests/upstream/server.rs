//! A raw TCP server: it reads a request to its end and then plays its script.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Sends these bytes at once.
    Send(Vec<u8>),
    /// Sends these bytes one by one, each in a separate packet.
    Drip(Vec<u8>),
    /// Sends these bytes repeatedly, at most this many times, until the client disconnects.
    Repeat(Vec<u8>, usize),
    /// Is silent for a while.
    Wait(Duration),
    /// Is silent until the client disconnects.
    Hang,
    /// Resets the connection.
    Reset,
    /// Closes the connection and waits until the client has closed it too.
    HangUp,
    /// Waits for the next request on the same connection.
    Keep,
}

/// The response to one call. The connection is closed after it.
pub(crate) type Script = Vec<Act>;

pub(crate) struct Upstream {
    pub(crate) base_url: String,
    state: Arc<State>,
    serving: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    connections: AtomicUsize,
    play: Mutex<Play>,
    left: Notify,
}

#[derive(Default)]
struct Play {
    scripts: Vec<Script>,
    requests: Vec<String>,
    /// How many bytes of each call's script the client or its socket buffers accepted.
    sent: Vec<usize>,
    left_at: Option<Instant>,
}

impl State {
    fn leave(&self) {
        self.play.lock().unwrap().left_at = Some(Instant::now());
        self.left.notify_waiters();
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Upstream {
    pub(crate) async fn start() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let state: Arc<State> = Arc::default();
        let serving = tokio::spawn(serve(listener, state.clone()));
        Upstream { base_url, state, serving }
    }

    /// Sets one script for each call. The last one is repeated.
    pub(crate) fn play(&self, scripts: Vec<Script>) {
        *self.state.play.lock().unwrap() = Play { scripts, ..Play::default() };
    }

    /// The requests since the last `play`, head and body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.play.lock().unwrap().requests.clone()
    }

    /// The total number of connections opened.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn sent(&self) -> Vec<usize> {
        self.state.play.lock().unwrap().sent.clone()
    }

    /// When a waiting client disconnected.
    pub(crate) async fn left(&self) -> Instant {
        loop {
            let notified = self.state.left.notified();
            if let Some(at) = self.state.play.lock().unwrap().left_at {
                return at;
            }
            notified.await;
        }
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        state.connections.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(answer(stream, state.clone()));
    }
}

async fn answer(mut stream: TcpStream, state: Arc<State>) {
    while let Some(request) = read_request(&mut stream).await {
        if !play(&mut stream, &state, request).await {
            return;
        }
    }
}

/// Plays one script. Returns whether the connection is kept.
async fn play(stream: &mut TcpStream, state: &State, request: String) -> bool {
    let (call, script) = {
        let mut play = state.play.lock().unwrap();
        play.requests.push(request);
        play.sent.push(0);
        let call = play.requests.len() - 1;
        (call, play.scripts.get(call).or(play.scripts.last()).cloned().unwrap_or_default())
    };
    let count = |bytes: usize| state.play.lock().unwrap().sent[call] += bytes;
    for act in script {
        match act {
            Act::Send(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return false;
                }
                count(bytes.len());
            }
            Act::Drip(bytes) => {
                for byte in bytes {
                    if stream.write_all(&[byte]).await.is_err() {
                        return false;
                    }
                    tokio::task::yield_now().await;
                }
            }
            Act::Repeat(bytes, times) => {
                for _ in 0..times {
                    if stream.write_all(&bytes).await.is_err() {
                        return false;
                    }
                    count(bytes.len());
                }
            }
            Act::Wait(pause) => tokio::time::sleep(pause).await,
            Act::Hang => {
                // The client sends nothing more, so the socket becomes readable when it disconnects.
                stream.readable().await.ok();
                state.leave();
            }
            Act::Reset => {
                stream.set_zero_linger().unwrap();
                return false;
            }
            Act::HangUp => {
                stream.shutdown().await.unwrap();
                while stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
                state.leave();
                return false;
            }
            Act::Keep => return true,
        }
    }
    false
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or_default() {
                return Some(text.into_owned());
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// A response that ends with its connection.
pub(crate) fn events(body: &str) -> Vec<u8> {
    [b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n", body.as_bytes()]
        .concat()
}

/// A response in chunked encoding, after which the connection is closed.
pub(crate) fn chunked(body: &str, size: usize) -> Vec<u8> {
    with_chunks("connection: close\r\n", body, size)
}

/// A response in chunked encoding, after which the connection may be kept.
pub(crate) fn kept(body: &str) -> Vec<u8> {
    with_chunks("", body, body.len())
}

fn with_chunks(headers: &str, body: &str, size: usize) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{headers}transfer-encoding: chunked\r\n\r\n"
    );
    let mut bytes = head.into_bytes();
    for chunk in body.as_bytes().chunks(size) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

/// A response of a known length, after which the connection is closed.
pub(crate) fn document(status: u16, headers: &str, body: &str) -> Vec<u8> {
    let headers = format!("{headers}connection: close\r\ncontent-length: {}\r\n", body.len());
    format!("HTTP/1.1 {status} Whatever\r\n{headers}\r\n{body}").into_bytes()
}
