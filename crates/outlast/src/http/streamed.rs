//! Large JSON responses, sent in pieces.

use std::convert::Infallible;
use std::io;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;

/// A piece is freed as soon as it is written to the connection, so a slow client holds only the rest.
const PIECE_BYTES: usize = 64 * 1024;

/// A JSON response that is never one large buffer. The caller limits its total size.
pub(crate) struct StreamedJson<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for StreamedJson<T> {
    fn into_response(self) -> Response {
        let pieces = json_pieces(&self.0);
        drop(self);
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let body = Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<Bytes, Infallible>)));
        let mut response = body.into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        response
    }
}

/// A value as JSON, in pieces of at most `PIECE_BYTES`.
pub(crate) fn json_pieces(value: &impl Serialize) -> Vec<Bytes> {
    let mut pieces = Pieces::default();
    serde_json::to_writer(&mut pieces, value)
        .expect("our own types have string keys, and memory cannot fail");
    pieces.full.push(pieces.open.into());
    pieces.full
}

#[derive(Default)]
struct Pieces {
    full: Vec<Bytes>,
    open: Vec<u8>,
}

impl io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.open.len() == PIECE_BYTES {
            self.full.push(std::mem::take(&mut self.open).into());
        }
        let taken = bytes.len().min(PIECE_BYTES - self.open.len());
        self.open.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_small_and_add_up_to_the_json() {
        for length in [0, 1, PIECE_BYTES - 2, PIECE_BYTES - 1, PIECE_BYTES, 5 * PIECE_BYTES] {
            let value = "x".repeat(length);
            let pieces = json_pieces(&value);
            assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES));
            assert_eq!(pieces.concat(), serde_json::to_vec(&value).unwrap());
        }
    }
}
