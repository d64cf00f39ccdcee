//! The process around the engine: accepts connections, drops those that do not read, and stops in order.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::Context as _;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use outlast_engine::Engine;
use outlast_store::Opened;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, Sleep};
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::http::{self, App};

/// A client must have sent its request's head in this time.
const HEADER_TIMEOUT: Duration = Duration::from_secs(15);
/// What a connection keeps of a request's head, or of what its client has not taken yet, beside one piece.
const BUFFER_BYTES: usize = 64 * 1024;
/// A client that takes nothing for this long is dropped. It can come back where it was.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long open connections may take to finish when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that may wait to be accepted, if the system allows as many. When all clients come back at once,
/// one too many is told nothing and tries again a second later.
const BACKLOG: u32 = 4096;
/// A pause after an accept that failed: too many open files do not go away by trying faster.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often old events are looked for.
const TRIM_EVERY: Duration = Duration::from_secs(60 * 60);
/// How often everything is looked at and not only what is likely to be due: once a day.
const WHOLE_PASS_EVERY: u64 = 24;

/// Serves until the process is told to stop or the store fails.
pub(crate) async fn serve(
    engine: Engine,
    opened: Opened,
    config: &Config,
    insecure: bool,
) -> anyhow::Result<()> {
    let listen = config.server.listen;
    let listener = bind(listen)
        .with_context(|| format!("cannot listen on {listen}; choose another address with --listen"))?;
    let address = listener.local_addr()?;
    let taken_up = engine.sweep().await.context("cannot look for unfinished generations")?;
    if taken_up > 0 {
        tracing::info!(conversations = taken_up, "took up unfinished work");
    }
    let connections = TaskTracker::new();
    let store = config.store.url.split(':').next().unwrap_or_default();
    let app = App::new(engine.clone(), connections.clone(), store, config.limits.body_bytes, insecure);
    let router = http::router(app.clone());
    announce(address);

    let trimming = trim_again_and_again(engine.clone());
    tokio::pin!(trimming);
    let outcome = tokio::select! {
        error = accept(&listener, router, &connections, &engine) => Err(error),
        () = opened.failed() => Err(anyhow::anyhow!("the store failed; nothing more can be saved")),
        () = told_to_stop() => Ok(()),
        () = &mut trimming => Ok(()),
    };
    app.drain();
    drop(listener);
    engine.stop().await;
    connections.close();
    if tokio::time::timeout(DRAIN_TIMEOUT, connections.wait()).await.is_err() {
        tracing::info!(open = connections.len(), "closing connections that did not finish");
    }
    outcome
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart must not wait for the connections of the one before.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[expect(clippy::print_stdout, reason = "the one line that scripts and people wait for")]
fn announce(address: SocketAddr) {
    println!("Outlast is ready on http://{address}");
}

async fn accept(
    listener: &TcpListener,
    router: axum::Router,
    connections: &TaskTracker,
    engine: &Engine,
) -> anyhow::Error {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        let stopping = engine.stopping();
        connections.spawn(async move {
            // Every event is worth a packet of its own: somebody is reading along.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "cannot set nodelay");
            }
            // HTTP/1 alone: a stream of HTTP/2 that its reader does not take would stall unseen by us, behind
            // a connection that moves. Whoever wants HTTP/2 has a proxy in front, for its certificates.
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(BUFFER_BYTES);
            let io = TokioIo::new(Impatient::new(stream));
            let connection = builder.serve_connection(io, service).with_upgrades();
            tokio::pin!(connection);
            let served = tokio::select! {
                served = connection.as_mut() => served,
                () = stopping.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.as_mut().await
                }
            };
            if let Err(error) = served {
                tracing::debug!(%error, "a connection broke");
            }
        });
    }
}

async fn told_to_stop() {
    let interrupt = tokio::signal::ctrl_c();
    let mut terminate = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(error) => {
            tracing::error!(%error, "cannot listen for SIGTERM");
            return;
        }
    };
    tokio::select! {
        _ = interrupt => {}
        _ = terminate.recv() => {}
    }
    tracing::info!("stopping");
}

async fn trim_again_and_again(engine: Engine) {
    let mut last = None;
    for pass in 0_u64.. {
        if pass % WHOLE_PASS_EVERY == 0 {
            last = None;
        }
        let began = engine.now();
        match engine.trim(last).await {
            Ok(0) => {}
            Ok(generations) => tracing::info!(generations, "removed events that were kept long enough"),
            Err(error) => {
                tracing::warn!(%error, "cannot remove old events now");
                tokio::time::sleep(TRIM_EVERY).await;
                continue;
            }
        }
        last = Some(began);
        tokio::time::sleep(TRIM_EVERY).await;
    }
}

/// A connection that fails when the other side takes nothing for too long. The reader's position is its
/// own; what is dropped here is only a socket and its buffers.
struct Impatient {
    stream: TcpStream,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    fn new(stream: TcpStream) -> Impatient {
        Impatient { stream, stalled: None }
    }

    /// Passes progress on and turns a stall that lasts into an error.
    fn guard<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let until = || Box::pin(tokio::time::sleep_until(Instant::now() + STALL_TIMEOUT));
        ready!(self.stalled.get_or_insert_with(until).as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the reader took nothing for too long")))
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.guard(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.guard(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
