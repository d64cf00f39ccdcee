//! How an HTTP/1.1 answer says where it begins and ends (RFC 9112), as bytes arrive.
//!
//! Upstreams send every token as a chunk of its own. A library hands these on one by one, through a channel
//! and with a count of references each, and that cost more than all we do with the token. Here everything
//! that one read brought is freed of its framing in place, and is one piece.

use std::ops::Range;

use bytes::{Buf, BytesMut};
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use hyper::{Response, StatusCode};

/// The head of an answer may be this large, with what the server says before it.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// A head may have so many lines.
const HEADERS_MAX: usize = 128;
/// What stands beside a chunk's size, or after the last chunk, may be this large. Nobody reads it.
const ASIDE_BYTES_MAX: usize = 16 * 1024;
/// A chunk's size has at most so many digits. No chunk is that large, and no number overflows.
const SIZE_DIGITS_MAX: u8 = 15;

/// The bytes are not an answer that we understand.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// A head that is being read.
#[derive(Debug, Default)]
pub(super) struct Head {
    bytes: BytesMut,
    /// How much was passed over.
    passed: usize,
}

impl Head {
    /// Takes in bytes. At its end: the answer with how its body is framed, and what of the body came already.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Option<(Response<Body>, BytesMut)>, Malformed> {
        self.bytes.extend_from_slice(bytes);
        // It ends with a line. Looked at after every byte, a slow head would cost the square of its size.
        while memchr::memchr(b'\n', bytes).is_some() {
            let Some((answer, length)) = head(&self.bytes)? else { break };
            self.bytes.advance(length);
            if !answer.status().is_informational() {
                return Ok(Some((answer, std::mem::take(&mut self.bytes))));
            }
            self.passed += length; // said before the answer
        }
        if self.passed + self.bytes.len() > HEAD_BYTES_MAX { Err(Malformed) } else { Ok(None) }
    }
}

/// The head at the beginning of these bytes, if all of it is there, and its length.
fn head(bytes: &[u8]) -> Result<Option<(Response<Body>, usize)>, Malformed> {
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut lines);
    let httparse::Status::Complete(length) = parsed.parse(bytes).map_err(|_| Malformed)? else {
        return Ok(None);
    };
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(Malformed)?;
    let headers = parsed.headers.iter().map(|line| {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| Malformed)?;
        Ok((name, HeaderValue::from_bytes(line.value).map_err(|_| Malformed)?))
    });
    let headers = headers.collect::<Result<HeaderMap, Malformed>>()?;
    let body = match status {
        StatusCode::SWITCHING_PROTOCOLS => return Err(Malformed), // nobody asked for it
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => Body(Part::Over),
        _ => Body::new(&headers)?,
    };
    let mut answer = Response::new(body);
    (*answer.status_mut(), *answer.headers_mut()) = (status, headers);
    Ok(Some((answer, length)))
}

/// A body that is being read.
#[derive(Debug)]
pub(super) struct Body(Part);

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Everything until the connection ends.
    UntilClose,
    /// So many bytes.
    Length(u64),
    Chunked {
        at: At,
        aside: usize,
    },
    Over,
    /// What came was no framing.
    Malformed,
}

/// Where in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Size {
        value: u64,
        digits: u8,
    },
    /// Some fill up the size with blanks.
    Padding {
        value: u64,
    },
    /// After the size; the rest of its line says nothing.
    Extension {
        value: u64,
    },
    SizeEnd {
        value: u64,
    },
    Data {
        left: u64,
    },
    DataEnd,
    DataEndLine,
    /// After the last chunk: lines, and an empty one.
    Trailer {
        empty: bool,
    },
    TrailerEnd {
        empty: bool,
    },
}

const SIZE: At = At::Size { value: 0, digits: 0 };

impl Body {
    /// Whoever says one thing twice is believed: nobody else's answer can come after this one.
    fn new(headers: &HeaderMap) -> Result<Body, Malformed> {
        let mut codings = listed(headers, &TRANSFER_ENCODING)?;
        codings.retain(|coding| !coding.eq_ignore_ascii_case("identity"));
        if !codings.is_empty() {
            let chunked = codings.iter().all(|coding| coding.eq_ignore_ascii_case("chunked"));
            return if chunked { Ok(Body(Part::Chunked { at: SIZE, aside: 0 })) } else { Err(Malformed) };
        }
        let lengths = listed(headers, &CONTENT_LENGTH)?;
        let Some(length) = lengths.first() else { return Ok(Body(Part::UntilClose)) };
        // A sign would be read as part of the number.
        let is_number = length.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number || lengths.iter().any(|other| other != length) {
            return Err(Malformed);
        }
        Ok(Body(match length.parse().map_err(|_| Malformed)? {
            0 => Part::Over,
            length => Part::Length(length),
        }))
    }

    /// Whether nothing more belongs to it.
    pub(super) fn is_over(&self) -> bool {
        self.0 == Part::Over
    }

    /// Whether it may end where the connection ends.
    pub(super) fn may_end(&self) -> bool {
        matches!(self.0, Part::Over | Part::UntilClose)
    }

    /// Whether nothing more can be understood. What was taken before is the answer's all the same.
    pub(super) fn is_malformed(&self) -> bool {
        self.0 == Part::Malformed
    }

    /// Moves what belongs to the body to the front of these bytes and tells how much it is.
    pub(super) fn take(&mut self, bytes: &mut [u8]) -> usize {
        match &mut self.0 {
            Part::Over | Part::Malformed => 0,
            Part::UntilClose => bytes.len(),
            Part::Length(left) => {
                let taken = at_most(*left, bytes.len());
                *left -= taken as u64;
                if *left == 0 {
                    self.0 = Part::Over;
                }
                taken
            }
            Part::Chunked { .. } => self.take_chunks(bytes),
        }
    }

    fn take_chunks(&mut self, bytes: &mut [u8]) -> usize {
        let (mut read, mut kept) = (0, 0);
        while let (Part::Chunked { at, aside }, true) = (&mut self.0, read < bytes.len()) {
            if let At::Data { left } = at {
                let data: Range<usize> = read..read + at_most(*left, bytes.len() - read);
                (read, *left) = (data.end, *left - data.len() as u64);
                let length = data.len();
                bytes.copy_within(data, kept);
                kept += length;
                if *left == 0 {
                    *at = At::DataEnd;
                }
                continue;
            }
            match at.step(bytes[read], aside) {
                Ok(Some(next)) => *at = next,
                Ok(None) => self.0 = Part::Over,
                Err(Malformed) => self.0 = Part::Malformed,
            }
            read += 1;
        }
        kept
    }
}

impl At {
    /// Where the next byte leads; nothing if it was the last one.
    fn step(self, byte: u8, aside: &mut usize) -> Result<Option<At>, Malformed> {
        match self {
            At::Padding { .. } | At::Extension { .. } | At::Trailer { .. } => *aside += 1,
            At::DataEnd => *aside = 0,
            _ => {}
        }
        if *aside > ASIDE_BYTES_MAX {
            return Err(Malformed);
        }
        if let (At::Size { value, digits }, Some(digit)) = (self, char::from(byte).to_digit(16)) {
            let size = At::Size { value: value * 16 + u64::from(digit), digits: digits + 1 };
            return if digits < SIZE_DIGITS_MAX { Ok(Some(size)) } else { Err(Malformed) };
        }
        Ok(Some(match (self, byte) {
            (At::Size { digits: 0, .. }, _) => return Err(Malformed),
            (At::Size { value, .. } | At::Padding { value } | At::Extension { value }, b'\r') => {
                At::SizeEnd { value }
            }
            (At::Size { value, .. } | At::Padding { value }, b' ' | b'\t') => At::Padding { value },
            (At::Size { value, .. } | At::Padding { value }, b';') => At::Extension { value },
            (At::Extension { value }, byte) if byte != b'\n' => At::Extension { value },
            (At::SizeEnd { value: 0 }, b'\n') => At::Trailer { empty: true },
            (At::SizeEnd { value }, b'\n') => At::Data { left: value },
            (At::DataEnd, b'\r') => At::DataEndLine,
            (At::DataEndLine, b'\n') => SIZE,
            (At::Trailer { empty }, b'\r') => At::TrailerEnd { empty },
            (At::Trailer { .. }, byte) if byte != b'\n' => At::Trailer { empty: false },
            (At::TrailerEnd { empty: true }, b'\n') => return Ok(None),
            (At::TrailerEnd { empty: false }, b'\n') => At::Trailer { empty: true },
            _ => return Err(Malformed),
        }))
    }
}

/// The values of a header, which may stand in one line or in several.
fn listed<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Vec<&'a str>, Malformed> {
    let lines = headers.get_all(name).iter().map(|line| line.to_str().map_err(|_| Malformed));
    let lines = lines.collect::<Result<Vec<_>, _>>()?;
    Ok(lines.iter().flat_map(|line| line.split(',')).map(str::trim).collect())
}

fn at_most(left: u64, here: usize) -> usize {
    usize::try_from(left).map_or(here, |left| left.min(here))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n";

    /// What an answer is made of if it comes in parts of this size, and whether it is at its end.
    fn read(wire: &str, size: usize) -> Result<(u16, String, bool), Malformed> {
        let mut head = Head::default();
        let mut parts = wire.as_bytes().chunks(size).map(<[u8]>::to_vec);
        let (answer, ahead) = loop {
            if let Some(complete) = head.take(&parts.next().ok_or(Malformed)?)? {
                break complete;
            }
        };
        let (status, mut body) = (answer.status().as_u16(), answer.into_body());
        let mut said = Vec::new();
        for mut part in std::iter::once(ahead.to_vec()).chain(parts) {
            let kept = body.take(&mut part);
            said.extend_from_slice(&part[..kept]);
        }
        if body.is_malformed() {
            return Err(Malformed);
        }
        Ok((status, String::from_utf8(said).unwrap(), body.is_over()))
    }

    fn body(head: &str) -> Body {
        super::head(head.as_bytes()).unwrap().unwrap().0.into_body()
    }

    #[track_caller]
    fn says(wire: &str, status: u16, said: &str, over: bool) {
        for size in 1..=wire.len() {
            assert_eq!(read(wire, size), Ok((status, said.to_owned(), over)), "{wire:?} by {size}");
        }
    }

    #[track_caller]
    fn is_malformed(wire: &str) {
        for size in 1..=wire.len() {
            assert_eq!(read(wire, size), Err(Malformed), "{wire:?} by {size}");
        }
    }

    #[test]
    fn a_body_is_freed_of_its_framing_however_it_is_split() {
        let chunked = |body: &str| format!("{CHUNKED}{body}");
        says(&chunked("3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\n"), 200, "abc0123456789", true);
        says(&chunked("3;a=\"b\"\r\nabc\r\n1 \t\r\nd\r\n0 ;x\r\nName: v\r\nb: c\r\n\r\n"), 200, "abcd", true);
        says(&chunked("3\r\n\r\n!\r\n0\r\n\r\nof the next answer"), 200, "\r\n!", true);
        says(&chunked("5\r\nab"), 200, "ab", false);
        says("HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nabcdef", 404, "abc", true);
        says("HTTP/1.1 200 OK\r\nContent-Length: 3\r\ncontent-length: 3\r\n\r\nab", 200, "ab", false);
        says("HTTP/1.0 200 OK\r\n\r\nto the end", 200, "to the end", false);
        says("HTTP/1.1 204 No Content\r\n\r\nof the next answer", 204, "", true);
        says("HTTP/1.1 500 \r\ncontent-length:0\r\n\r\nof the next answer", 500, "", true);
    }

    #[test]
    fn what_is_said_before_the_answer_is_passed_over() {
        let early = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        says(&format!("{early}HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"), 200, "a", true);
        is_malformed("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n");
    }

    #[test]
    fn chunks_win_over_a_length_and_nobody_is_blamed_for_a_repetition() {
        for coding in
            ["chunked", "chunked, CHUNKED", "identity, chunked", "chunked\r\nTransfer-Encoding: chunked"]
        {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: {coding}\r\n\r\n");
            says(&format!("{head}2\r\nab\r\n0\r\n\r\n"), 200, "ab", true);
        }
        let length = "Transfer-Encoding: identity\r\nContent-Length: 3, 3";
        says(&format!("HTTP/1.1 200 OK\r\n{length}\r\n\r\nabcd"), 200, "abc", true);
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        for body in [
            "x",
            "\r\n",
            "3\nabc",
            "3 5\r\nabc",
            "3\r\nabcd",
            "3\r\nabc\n",
            "-1\r\n",
            "3x\r\n",
            "1000000000000000\r\n",
        ] {
            is_malformed(&format!("{CHUNKED}{body}"));
        }
        is_malformed("SSH-2.0-OpenSSH_9.2\r\n");
        is_malformed("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n");
        is_malformed("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n");
        is_malformed("HTTP/1.1 200 OK\r\nTransfer-Encoding: \r\n\r\n");
        for length in ["+3", "-3", "99999999999999999999", "x", "3, 4", ""] {
            is_malformed(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"));
        }
        is_malformed("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n");
    }

    #[test]
    fn what_came_before_a_broken_chunk_is_kept() {
        let mut body = body(CHUNKED);
        let mut bytes = *b"3\r\nabc\r\nnot a size";
        assert_eq!((body.take(&mut bytes), body.is_malformed()), (3, true));
        assert_eq!(&bytes[..3], b"abc");
    }

    #[test]
    fn only_a_body_without_framing_may_end_with_its_connection() {
        assert!(body("HTTP/1.1 200 OK\r\n\r\n").may_end());
        assert!(!body(CHUNKED).may_end());
        assert!(!body("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n").may_end());
        assert!(body("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").may_end());
    }

    #[test]
    fn nobody_fills_the_memory_or_the_time_with_what_is_passed_over() {
        let endless = |start: &str, with: u8| {
            let mut body = body(CHUNKED);
            body.take(start.to_owned().into_bytes().as_mut_slice());
            let mut goes_on = || {
                body.take(&mut [with; 1024]);
                !body.is_malformed()
            };
            (0..).take_while(|_| goes_on()).count() * 1024
        };
        assert_eq!(endless("1;", b'a'), ASIDE_BYTES_MAX);
        assert_eq!(endless("1\t", b' '), ASIDE_BYTES_MAX);
        assert_eq!(endless("0\r\n", b'a'), ASIDE_BYTES_MAX);
        // A little beside every chunk is nothing, however many there are.
        let mut polite = body(CHUNKED);
        for _ in 0..2 * ASIDE_BYTES_MAX {
            assert_eq!(polite.take(&mut b"1 ;a=b\r\nx\r\n".to_vec()), 1);
        }
        let long_head = |part: &[u8]| {
            let mut head = Head::default();
            assert_eq!(head.take(b"HTTP/1.1 200 OK\r\n".as_slice()).map(|head| head.is_some()), Ok(false));
            (0..).take_while(|_| head.take(part).is_ok()).count() * part.len()
        };
        for part in [&[b'a'; 1000][..], b"a"] {
            let most = HEAD_BYTES_MAX - b"HTTP/1.1 200 OK\r\n".len();
            assert_eq!(long_head(part), most / part.len() * part.len());
        }
        let mut head = Head::default();
        let early = b"HTTP/1.1 100 Continue\r\n\r\n";
        let passed = (0..).take_while(|_| head.take(early).is_ok()).count();
        assert_eq!(passed, HEAD_BYTES_MAX / early.len());
    }
}
