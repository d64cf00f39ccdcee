//! The body of a response.

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt};
use reqwest::Response;

use super::pool::Slot;

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

/// The bytes of a response, as they arrive.
pub(in super::super) type Chunks = BoxStream<'static, Result<Bytes, Broken>>;

/// Dropping the chunks ends the request: an HTTP/1.1 connection is closed, an HTTP/2 stream is reset. If they were
/// read to the end, the connection is reused.
pub(super) fn chunks(response: Response, slot: Slot) -> Chunks {
    let bytes = response.bytes_stream();
    bytes
        .map(move |chunk| {
            let _taken = &slot; // until the last chunk
            chunk.map_err(Broken::from)
        })
        .boxed()
}
