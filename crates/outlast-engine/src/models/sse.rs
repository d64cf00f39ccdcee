//! Server-sent events, as bytes arrive: any split, any line ending, a bounded amount of memory.

/// One event may be this large, with everything that was gathered for it. Larger is a broken or a
/// hostile upstream.
pub(crate) const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// Splits a stream of bytes into the `data` of its events. Names, ids and comments are passed over:
/// no upstream we speak to needs them.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    begun: bool,
}

/// An event or line grew beyond `EVENT_BYTES_MAX`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Decoder {
    /// Takes in bytes and hands each finished event's data to `event`, until it says stop.
    pub(crate) fn push(&mut self, bytes: &[u8], mut event: impl FnMut(&[u8])) -> Result<(), TooLarge> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest[0] == b'\n' {
                rest = &rest[1..]; // the second half of a CRLF
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.line.extend_from_slice(rest);
                return self.check();
            };
            self.after_cr = rest[end] == b'\r';
            let (head, tail) = (&rest[..end], &rest[end + 1..]);
            rest = tail;
            if let Some(data) = self.alone(head, tail) {
                self.begun = true;
                event(data);
                rest = &tail[1..];
            } else if self.line.is_empty() {
                self.take_line(head, &mut event);
            } else {
                self.line.extend_from_slice(head);
                let line = std::mem::take(&mut self.line);
                self.take_line(&line, &mut event);
                self.line = line;
                self.line.clear();
            }
            self.check()?;
        }
        Ok(())
    }

    /// The data of an event that is one line and lies here as a whole, as nearly all of them do: it can be
    /// handed on without a copy.
    fn alone<'a>(&self, line: &'a [u8], tail: &[u8]) -> Option<&'a [u8]> {
        let fresh = self.line.is_empty() && !self.has_data && !self.after_cr;
        if !fresh || tail.first() != Some(&b'\n') || line.len() > EVENT_BYTES_MAX {
            return None;
        }
        let value = line.strip_prefix(b"data:")?;
        Some(value.strip_prefix(b" ").unwrap_or(value))
    }

    fn take_line(&mut self, line: &[u8], event: &mut impl FnMut(&[u8])) {
        let line = if self.begun { line } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) };
        self.begun = true;
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                event(&self.data);
                self.data.clear();
            }
            return;
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        if field == b"data" {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            self.has_data = true;
        }
    }

    fn check(&self) -> Result<(), TooLarge> {
        if self.line.len() + self.data.len() > EVENT_BYTES_MAX { Err(TooLarge) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(chunks: &[&[u8]]) -> Vec<String> {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(chunk, |data| events.push(String::from_utf8_lossy(data).into_owned())).unwrap();
        }
        events
    }

    #[test]
    fn every_line_ending_and_every_split_gives_the_same_events() {
        for ending in ["\n", "\r", "\r\n"] {
            let text = format!(
                "\u{feff}: hello{ending}event: x{ending}data: añb{ending}data:two{ending}{ending}data{ending}{ending}"
            );
            let whole = decode(&[text.as_bytes()]);
            assert_eq!(whole, ["añb\ntwo", ""]);
            let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(decode(&single), whole);
            for cut in 0..text.len() {
                let (head, tail) = text.as_bytes().split_at(cut);
                assert_eq!(decode(&[head, tail]), whole, "cut at {cut}");
            }
        }
    }

    #[test]
    fn an_event_that_was_not_finished_is_not_one() {
        assert_eq!(decode(&[b"data: half"]), Vec::<String>::new());
        assert_eq!(decode(&[b"data: half\n"]), Vec::<String>::new());
    }

    #[test]
    fn an_endless_line_is_refused_in_bounded_memory() {
        let mut decoder = Decoder::default();
        let chunk = vec![b'x'; 64 * 1024];
        let pushed = (0..1024).take_while(|_| decoder.push(&chunk, |_| ()).is_ok()).count();
        assert_eq!(pushed, EVENT_BYTES_MAX / chunk.len());
    }
}
