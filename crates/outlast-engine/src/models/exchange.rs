//! One request and its answer over a connection of its own, read in the task that wants the bytes.
//!
//! Clients with a pool give each connection a task, and hand over the body one chunk at a time: an upstream
//! that sends every token as a chunk then costs two switches of tasks for each. Here the socket is read by
//! whoever wants the bytes. While nobody does, it is left alone and text gathers in it; when the reader is
//! dropped, the connection is closed. And since no connection is ever used twice, no request is ever sent
//! twice behind our back.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::Stream;
use hyper::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use super::framing::{Body, Head};

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// So much is read at once.
const READ_BYTES: usize = 64 * 1024;

thread_local! {
    /// Where bytes are read to. They leave it before anybody waits, so all connections share one.
    static ARRIVING: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Opens connections, with TLS where the address says so.
#[derive(Clone, Debug)]
pub(super) struct Connector(HttpsConnector<HttpConnector>);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Broken {
    /// No connection came about.
    Connect,
    /// The connection broke, or what came over it was no answer.
    Connection,
}

/// The bytes of an answer.
pub(super) struct Exchange {
    connection: Connection,
    /// Came with the head.
    ahead: BytesMut,
    body: Body,
}

struct Connection {
    io: TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>,
    unsent: Bytes,
    /// TLS may hold back what it was given.
    unflushed: bool,
    /// The other side has hung up on the request. How the connection then ends tells nothing any more.
    cut: bool,
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
        address: Uri,
        request: Request<String>,
    ) -> Result<Response<Exchange>, Broken> {
        let mut connector = self.0.clone();
        let io = timeout(CONNECT_TIMEOUT, connector.call(address)).await;
        let io = io.map_err(|_| Broken::Connect)?.map_err(|_| Broken::Connect)?;
        let (io, unsent) = (TokioIo::new(io), written(&request));
        drop(request); // a prompt may be large
        let mut connection = Connection { io, unsent, unflushed: true, cut: false };
        let mut head = Head::default();
        loop {
            let arrived = poll_fn(|cx| connection.poll_read(cx, |bytes| head.take(bytes))).await;
            let arrived = arrived.ok().flatten().ok_or(Broken::Connection)?;
            if let Some((answer, ahead)) = arrived.map_err(|_| Broken::Connection)? {
                return Ok(answer.map(|body| Exchange { connection, ahead, body }));
            }
        }
    }
}

/// The request as it goes over the wire.
fn written(request: &Request<String>) -> Bytes {
    let body = request.body();
    let mut bytes = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri()).into_bytes();
    for (name, value) in request.headers() {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body.as_bytes());
    bytes.into()
}

impl Connection {
    /// Hands on what has arrived; nothing at the end. What is still to be sent is sent meanwhile.
    fn poll_read<T>(
        &mut self,
        cx: &mut Context<'_>,
        read: impl FnOnce(&mut [u8]) -> T,
    ) -> Poll<io::Result<Option<T>>> {
        self.send(cx);
        ARRIVING.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer))?;
            let arrived = buffer.filled_mut();
            Poll::Ready(Ok((!arrived.is_empty()).then(|| read(arrived))))
        })
    }

    /// Sends what can be sent. One who does not want to hear the whole question may still have answered it.
    fn send(&mut self, cx: &mut Context<'_>) {
        while !self.unsent.is_empty() {
            match Pin::new(&mut self.io).poll_write(cx, &self.unsent) {
                Poll::Ready(Ok(sent)) if sent > 0 => self.unsent.advance(sent),
                Poll::Ready(_) => (self.unsent, self.cut) = (Bytes::new(), true),
                Poll::Pending => return,
            }
        }
        self.unsent = Bytes::new(); // its memory is free while the answer is read
        if self.unflushed
            && let Poll::Ready(flushed) = Pin::new(&mut self.io).poll_flush(cx)
        {
            (self.unflushed, self.cut) = (false, self.cut || flushed.is_err());
        }
    }
}

impl Exchange {
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let Exchange { connection, ahead, body } = self;
        while !body.is_over() {
            if body.is_malformed() {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            let mut take = |bytes: &mut [u8]| {
                let taken = body.take(bytes);
                Bytes::copy_from_slice(&bytes[..taken])
            };
            let mut early = std::mem::take(ahead);
            let arrived = match early.is_empty() {
                true => ready!(connection.poll_read(cx, take))?,
                false => Some(take(&mut early)),
            };
            match arrived {
                // Only framing.
                Some(bytes) if bytes.is_empty() => {}
                Some(bytes) => return Poll::Ready(Ok(Some(bytes))),
                None if body.may_end() && !connection.cut => break,
                None => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            }
        }
        Poll::Ready(Ok(None))
    }
}

impl Stream for Exchange {
    type Item = Result<Bytes, Broken>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_body(cx).map(|arrived| arrived.map_err(|_| Broken::Connection).transpose())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// More than the buffers of a connection hold.
    const LONG_BYTES: usize = 32 * 1024 * 1024;

    /// What one does after the answer.
    #[derive(PartialEq)]
    enum Then {
        Leaves,
        Stays,
        HearsOn,
    }

    /// What is heard from one who answers like this after the first words of a long question.
    async fn asked(answer: &'static [u8], then: Then) -> Result<(u16, String), Broken> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: Uri = format!("http://{}/a?b=c", listener.local_addr().unwrap()).parse().unwrap();
        let serving = async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut begin = [0; 20];
            stream.read_exact(&mut begin).await.unwrap();
            assert_eq!(&begin, b"POST /a?b=c HTTP/1.1");
            stream.write_all(answer).await.unwrap();
            if then == Then::HearsOn {
                stream.read_exact(&mut vec![0; LONG_BYTES]).await.unwrap();
                stream.write_all(b" and all").await.unwrap();
            }
            (then != Then::Leaves).then_some(stream)
        };
        let asking = async {
            let request = Request::post("/a?b=c").body("x".repeat(LONG_BYTES)).unwrap();
            let (head, body) = Connector::new().unwrap().send(address, request).await?.into_parts();
            let bytes: Vec<Bytes> = body.map(Result::unwrap).collect().await;
            Ok((head.status.as_u16(), String::from_utf8(bytes.concat()).unwrap()))
        };
        tokio::join!(serving, asking).1
    }

    #[tokio::test]
    async fn one_who_does_not_hear_the_question_out_is_still_heard() {
        let refused = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 8\r\n\r\ntoo long";
        for then in [Then::Stays, Then::Leaves] {
            assert_eq!(asked(refused, then).await.unwrap(), (413, "too long".to_owned()));
        }
    }

    #[tokio::test]
    async fn the_question_is_sent_on_while_the_answer_comes() {
        let early = b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\nsome";
        assert_eq!(asked(early, Then::HearsOn).await.unwrap(), (200, "some and all".to_owned()));
    }

    #[tokio::test]
    async fn an_end_before_the_head_is_broken() {
        assert!(matches!(asked(b"HTTP/1.1 200 OK\r\n", Then::Leaves).await, Err(Broken::Connection)));
    }
}
