//! The load generator's HTTP/1.1 client.
//!
//! Written by hand because it shares one core with the upstream: it reads into one buffer for all
//! connections, looks at the clock once per read and hands the bytes straight to the check.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};

use crate::clock;

/// A connection, and how far its current response is decoded.
pub(crate) struct Connection {
    stream: TcpStream,
    /// Bytes that arrived together with the head of the response.
    rest: Vec<u8>,
    body: Body,
}

/// No candidate sends a head larger than this.
const MAX_HEAD: usize = 64 * 1024;
/// A response that is not a stream is an id or an error.
const MAX_RESPONSE: usize = 1024 * 1024;

/// The system takes at least twice as much, and without a limit it would take megabytes.
const SMALL_BUFFER: u32 = 4096;

thread_local! {
    /// The load generator has one thread, and a poll reads and decodes without waiting in between.
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 64 * 1024]);
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, rest: Vec::new(), body: Body::Ended })
    }

    /// A connection of a client that takes in as little as possible without being asked.
    pub(crate) async fn open_small(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(SMALL_BUFFER)?;
        let stream = socket.connect(address).await?;
        Ok(Self { stream, rest: Vec::new(), body: Body::Ended })
    }

    /// Sends a request and reads the head of its response.
    pub(crate) async fn request(&mut self, request: &str) -> io::Result<u16> {
        self.stream.write_all(request.as_bytes()).await?;
        self.rest.clear();
        loop {
            if let Some((status, head, body)) = parse_head(&self.rest)? {
                self.rest.drain(..head);
                self.body = body;
                return Ok(status);
            }
            if self.rest.len() > MAX_HEAD {
                return Err(io::Error::other("the head of the response is too large"));
            }
            if self.stream.read_buf(&mut self.rest).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Reads until the body ends or `sink` is done. `Ok(true)` is a proper end of the body.
    pub(crate) async fn read(&mut self, sink: &mut impl Sink) -> io::Result<bool> {
        let rest = std::mem::take(&mut self.rest);
        self.body.feed(&rest, clock::now_ns(), sink)?;
        while !self.body.ended() {
            if sink.is_done() {
                return Ok(false);
            }
            let Self { stream, body, .. } = self;
            let count = poll_fn(|context| {
                READ_BUFFER.with_borrow_mut(|buffer| {
                    let mut read = ReadBuf::new(buffer);
                    ready!(Pin::new(&mut *stream).poll_read(context, &mut read))?;
                    body.feed(read.filled(), clock::now_ns(), sink)?;
                    Poll::Ready(io::Result::Ok(read.filled().len()))
                })
            })
            .await?;
            if count == 0 {
                let proper = matches!(self.body, Body::UntilClose);
                self.body = Body::Ended;
                return if proper { Ok(true) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
        Ok(true)
    }

    /// The whole body of a response that is not a stream.
    pub(crate) async fn text(&mut self) -> io::Result<String> {
        let mut collected = Collected(Vec::new());
        self.read(&mut collected).await?;
        String::from_utf8(collected.0).map_err(io::Error::other)
    }
}

/// Takes the decoded body.
pub(crate) trait Sink {
    fn take(&mut self, bytes: &[u8], at_ns: u64);
    /// Whether nothing more is needed.
    fn is_done(&self) -> bool;
}

struct Collected(Vec<u8>);

impl Sink for Collected {
    fn take(&mut self, bytes: &[u8], _: u64) {
        self.0.extend_from_slice(bytes);
    }

    fn is_done(&self) -> bool {
        self.0.len() > MAX_RESPONSE
    }
}

/// The part of the body that comes next.
#[derive(Debug, PartialEq)]
enum Body {
    Length(usize),
    /// The size line of a chunk, with the digits so far.
    Size(usize),
    /// An extension of the size line, which nobody reads.
    Extension(usize),
    Data(usize),
    /// The line end after a chunk's data.
    DataEnd,
    /// The lines after the last chunk; true while the line is empty.
    Trailer(bool),
    UntilClose,
    Ended,
}

impl Body {
    fn ended(&self) -> bool {
        *self == Self::Ended
    }

    fn feed(&mut self, mut input: &[u8], at_ns: u64, sink: &mut impl Sink) -> io::Result<()> {
        while let [first, tail @ ..] = input {
            match self {
                Self::Length(left) | Self::Data(left) => {
                    let (data, behind) = input.split_at(input.len().min(*left));
                    sink.take(data, at_ns);
                    *left -= data.len();
                    input = behind;
                    if *left == 0 {
                        *self = if matches!(self, Self::Length(_)) { Self::Ended } else { Self::DataEnd };
                    }
                    continue;
                }
                Self::UntilClose => {
                    sink.take(input, at_ns);
                    return Ok(());
                }
                Self::Ended => return Ok(()),
                Self::Size(size) | Self::Extension(size) if *first == b'\n' => {
                    *self = if *size == 0 { Self::Trailer(true) } else { Self::Data(*size) };
                }
                Self::Size(size) => match (*first as char).to_digit(16) {
                    Some(digit) if *size < usize::MAX >> 8 => *size = *size * 16 + digit as usize,
                    Some(_) => return Err(io::Error::other("a chunk is too large")),
                    None => *self = Self::Extension(*size),
                },
                Self::Extension(_) => {}
                Self::DataEnd if *first == b'\n' => *self = Self::Size(0),
                Self::DataEnd => {}
                Self::Trailer(empty) => match (*first, *empty) {
                    (b'\n', true) => *self = Self::Ended,
                    (b'\n', false) => *empty = true,
                    (b'\r', _) => {}
                    _ => *empty = false,
                },
            }
            input = tail;
        }
        Ok(())
    }
}

/// Status, length of the head, and how the body is framed.
fn parse_head(buffer: &[u8]) -> io::Result<Option<(u16, usize, Body)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = parsed.parse(buffer).map_err(io::Error::other)? else {
        return Ok(None);
    };
    let status = parsed.code.unwrap_or(0);
    let value = |name: &str| {
        let header = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(header.value).ok()
    };
    let length = value("content-length").and_then(|length| length.trim().parse().ok());
    let body = match (value("transfer-encoding"), length) {
        _ if status == 204 => Body::Ended,
        (Some(_), _) => Body::Size(0),
        (None, Some(0)) => Body::Ended,
        (None, Some(length)) => Body::Length(length),
        (None, None) => Body::UntilClose,
    };
    Ok(Some((status, head, body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_decoded_wherever_they_are_cut() {
        let wire = b"5\r\nhello\r\n1;x=y\r\n \r\n00A\r\n0123456789\r\n0\r\n\r\n";
        for cut in 0..wire.len() {
            let mut body = Body::Size(0);
            let mut out = Collected(Vec::new());
            body.feed(&wire[..cut], 0, &mut out).unwrap();
            assert!(!body.ended());
            body.feed(&wire[cut..], 0, &mut out).unwrap();
            assert!(body.ended());
            assert_eq!(out.0, b"hello 0123456789");
        }
    }

    #[test]
    fn a_known_length_ends_by_itself() {
        let (status, head, mut body) =
            parse_head(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}").unwrap().unwrap();
        assert_eq!((status, head), (202, 44));
        body.feed(b"{}", 0, &mut Collected(Vec::new())).unwrap();
        assert!(body.ended());
    }
}
