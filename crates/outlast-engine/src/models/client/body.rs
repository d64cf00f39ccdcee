//! The body of a response, read ahead by a separate task.
//!
//! The HTTP library returns one chunk at a time and waits until it is taken, and upstreams send every token as a
//! separate chunk. After saving text, the owner would find only one token. So a task moves chunks into a pipe,
//! and the owner takes everything that arrived meanwhile at once. When the pipe is full nothing more is read:
//! bytes wait in the socket, and the upstream is slowed down.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use reqwest::Response;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinSet;
use tokio_util::io::ReaderStream;

use super::pool::Slot;

const AHEAD_BYTES: usize = 64 * 1024;

/// Why a body ended too early.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum Broken {
    #[error("cannot connect to the upstream")]
    Connect,
    #[error("the connection to the upstream broke")]
    Connection,
    #[error("upstream sent more than {most} bytes without completing an event")]
    EventTooLarge { most: usize },
}

impl From<reqwest::Error> for Broken {
    // The library's own message is left out because it contains the address.
    fn from(error: reqwest::Error) -> Broken {
        if error.is_connect() { Broken::Connect } else { Broken::Connection }
    }
}

/// The bytes of a response. Dropping it ends the request: an HTTP/1.1 connection is closed, an HTTP/2 stream is
/// reset. If the body was read to its end, the connection is reused.
pub(super) struct Body {
    bytes: ReaderStream<DuplexStream>,
    /// The task that reads ahead. Its result says whether the body was complete.
    ahead: JoinSet<Result<(), Broken>>,
    _slot: Slot,
}

impl Body {
    pub(super) fn new(response: Response, slot: Slot) -> Body {
        let (reader, writer) = duplex(AHEAD_BYTES);
        let mut ahead = JoinSet::new();
        ahead.spawn(read_ahead(response, writer));
        Body { bytes: ReaderStream::with_capacity(reader, AHEAD_BYTES), ahead, _slot: slot }
    }
}

async fn read_ahead(mut response: Response, mut writer: DuplexStream) -> Result<(), Broken> {
    while let Some(chunk) = response.chunk().await? {
        if writer.write_all(&chunk).await.is_err() {
            break; // the reader is gone
        }
    }
    Ok(())
}

impl Stream for Body {
    type Item = Result<Bytes, Broken>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(bytes) = ready!(Pin::new(&mut self.bytes).poll_next(cx)) {
            return Poll::Ready(Some(bytes.map_err(|_| Broken::Connection)));
        }
        match ready!(self.ahead.poll_join_next(cx)) {
            None | Some(Ok(Ok(()))) => Poll::Ready(None),
            Some(Ok(Err(broken))) => Poll::Ready(Some(Err(broken))),
            Some(Err(_panicked)) => Poll::Ready(Some(Err(Broken::Connection))),
        }
    }
}
