//! Accepts connections, up to the limit in the settings, and serves HTTP/1 on each.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::pace::{Counted, Paced, Slot};
use crate::http::ConnectionUser;

/// A client must send the head of a request within this time. An idle connection is closed after it.
const HEADER_TIMEOUT: Duration = Duration::from_secs(15);
/// The buffer of a connection, for the head of a request and for data that its client has not read yet.
const BUFFER_BYTES: usize = 64 * 1024;
/// The kernel's send buffer for a slow client. Linux doubles it for bookkeeping, which makes 256 KiB. Without this
/// limit it would grow to 4 MiB for each stalled reader.
const SEND_BUFFER_BYTES: u32 = 128 * 1024;
/// How many connections may wait to be accepted, if the system allows that many. When all clients reconnect at once,
/// further ones get no reply and try again a second later.
const BACKLOG: u32 = 4096;
/// The pause after a failed accept. With too many open files, trying faster does not help.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How many connections beyond the limit are refused at the same time. The rest wait to be accepted.
const REFUSALS_AT_ONCE: usize = 64;
/// A refused client must send its request and read the refusal within this time.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart must not wait for the connections of the previous process.
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?; // accepted connections inherit it
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

pub(super) struct Doors {
    /// Serves connections within the limit.
    pub(super) router: Router,
    /// Refuses connections beyond it.
    pub(super) full: Router,
    pub(super) limit: usize,
    pub(super) connections: TaskTracker,
    pub(super) stopping: CancellationToken,
    /// If the server has a certificate.
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) counted: Counted,
}

impl Doors {
    /// Runs until it is dropped.
    pub(super) async fn accept(self, listener: &TcpListener) {
        let slots = Arc::new(Semaphore::new(self.limit));
        let refusals = Arc::new(Semaphore::new(REFUSALS_AT_ONCE));
        loop {
            let refusal = Arc::clone(&refusals).acquire_owned().await.expect("the semaphore is never closed");
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // Send every event at once, because somebody is reading along.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "cannot set TCP_NODELAY");
            }
            let user = ConnectionUser::default();
            let paced = |permit| Paced::new(stream, Slot::new(permit, user.clone(), self.counted.clone()));
            let service = |router: &Router| Service {
                router: router.clone(),
                user: user.clone(),
                tls: self.tls.clone(),
                stopping: self.stopping.clone(),
            };
            match Arc::clone(&slots).try_acquire_owned() {
                Ok(slot) => {
                    self.connections.spawn(serve(paced(slot), service(&self.router)));
                }
                Err(_) => {
                    let serving = serve(paced(refusal), service(&self.full));
                    self.connections.spawn(tokio::time::timeout(REFUSAL_TIMEOUT, serving));
                }
            }
        }
    }
}

/// What a connection is served with.
struct Service {
    router: Router,
    /// Told to every request of the connection.
    user: ConnectionUser,
    tls: Option<TlsAcceptor>,
    stopping: CancellationToken,
}

/// The slot belongs to the socket, not to this function, because a WebSocket outlives it.
async fn serve(stream: Paced<TcpStream>, service: Service) {
    let Some(tls) = &service.tls else { return serve_http(stream, service).await };
    match tokio::time::timeout(HEADER_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve_http(stream, service).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake timed out"),
    }
}

async fn serve_http<S>(stream: S, service: Service)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Only HTTP/1: a stalled HTTP/2 stream cannot be told apart from here while other streams of its connection make
    // progress, so one client could hold a thousand of them. A proxy in front can speak HTTP/2.
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(BUFFER_BYTES);
    let io = TokioIo::new(stream);
    let Service { router, user, stopping, .. } = service;
    let router = TowerToHyperService::new(router);
    let answer = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(user.clone());
        router.call(request)
    });
    let connection = builder.serve_connection(io, answer).with_upgrades();
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
}
