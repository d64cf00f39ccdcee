//! One request and its answer over a connection of its own, read in the task that wants the bytes.
//!
//! Clients with a pool give each connection a task, and hand over the body one chunk at a time: an upstream
//! that sends every token as a chunk then costs two switches of tasks for each. Here the connection is
//! driven by whoever reads. While nobody does, the socket is left alone and text gathers in it; when the
//! reader is dropped, the connection is closed. And since no connection is ever used twice, no request is
//! ever sent twice behind our back.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::{Either, select};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::time::timeout;
use tower_service::Service;

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens connections, with TLS where the address says so.
#[derive(Clone, Debug)]
pub(super) struct Connector(HttpsConnector<HttpConnector>);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Broken {
    /// No connection came about.
    Connect,
    /// The connection broke.
    Connection,
}

type Connection = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// The bytes of an answer.
pub(super) struct Exchange {
    connection: Option<Connection>,
    body: Incoming,
}

impl Connector {
    pub(super) fn new() -> Result<Connector, String> {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        http.enforce_http(false); // the scheme is looked at by the layer around it
        let tls = HttpsConnectorBuilder::new().try_with_platform_verifier();
        let tls =
            tls.map_err(|error| format!("cannot set up TLS: {error}; are CA certificates installed?"))?;
        Ok(Connector(tls.https_or_http().enable_http1().wrap_connector(http)))
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(
        &self,
        uri: Uri,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Exchange>, Broken> {
        let mut connector = self.0.clone();
        let io = timeout(CONNECT_TIMEOUT, connector.call(uri)).await;
        let io = io.map_err(|_| Broken::Connect)?.map_err(|_| Broken::Connect)?;
        let (mut sender, connection) = http1::handshake(io).await.map_err(|_| Broken::Connection)?;
        let mut connection: Option<Connection> = Some(Box::pin(connection));
        let answer = sender.send_request(request);
        tokio::pin!(answer);
        let answer = match connection.take() {
            None => answer.await,
            Some(driving) => match select(answer.as_mut(), driving).await {
                Either::Left((answer, driving)) => {
                    connection = Some(driving);
                    answer
                }
                // It has nothing more to do; what it read is still handed over.
                Either::Right((_, answer)) => answer.await,
            },
        };
        let (head, body) = answer.map_err(|_| Broken::Connection)?.into_parts();
        Ok(Response::from_parts(head, Exchange { connection, body }))
    }
}

impl Stream for Exchange {
    type Item = Result<Bytes, Broken>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut driven = false;
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Some(Err(Broken::Connection))),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => return Poll::Ready(Some(Ok(bytes))),
                    Err(_) => continue, // trailers say nothing about the answer
                },
                Poll::Pending if driven => return Poll::Pending,
                Poll::Pending => {}
            }
            // What the body waits for has to be read first; then it is asked once more.
            driven = true;
            if let Some(connection) = &mut self.connection
                && connection.as_mut().poll(cx).is_ready()
            {
                self.connection = None;
            }
        }
    }
}
