//! Follows one stream's text and checks it: every token once, in order.

use std::rc::Rc;

use memchr::memchr;

use super::meter::Meter;
use super::wire::Sink;
use crate::clock;
use crate::marker;

/// How a stream ended, as far as its events say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The complete answer.
    Done,
    /// The server said that there will be no complete answer.
    Failed,
}

/// One reader's view of one generation, kept across reconnects.
pub(crate) struct Watch {
    meter: Rc<Meter>,
    line: Vec<u8>,
    event: Event,
    /// The next index that this connection expects; a replay starts again at 0.
    expected: u64,
    /// How many tokens were received, over all connections.
    pub(crate) received: u64,
    /// Tokens left out, and tokens received twice.
    pub(crate) missed: u64,
    pub(crate) doubled: u64,
    /// How often the server retracted what it had shown and started over.
    pub(crate) retractions: u64,
    /// Events that carried text, and the position of the last event.
    pub(crate) text_events: u64,
    pub(crate) last_seq: u64,
    coming_seq: u64,
    pub(crate) end: Option<End>,
    /// The server interrupted the generation and waits for a decision.
    pub(crate) interrupted: bool,
    /// A digest of all tokens, equal for readers that saw the same bytes.
    pub(crate) digest: u64,
    /// When the first token arrived that no earlier connection had received.
    pub(crate) first_new_ns: Option<u64>,
    /// Stop here instead of at the end.
    goal: Option<u64>,
}

/// The event that the lines being read belong to. The AI SDK's stream names it inside the data.
#[derive(Clone, Copy, PartialEq)]
enum Event {
    Unnamed,
    Text,
    Retracted,
    Done,
    Failed,
    Interrupted,
    Other,
}

impl Watch {
    pub(crate) fn new(meter: Rc<Meter>) -> Self {
        Self {
            meter,
            line: Vec::new(),
            event: Event::Unnamed,
            expected: 0,
            received: 0,
            missed: 0,
            doubled: 0,
            retractions: 0,
            text_events: 0,
            last_seq: 0,
            coming_seq: 0,
            end: None,
            interrupted: false,
            digest: 0,
            first_new_ns: None,
            goal: None,
        }
    }

    /// Stops after this many tokens.
    pub(crate) fn until(mut self, goal: u64) -> Self {
        self.goal = Some(goal);
        self
    }

    /// Stops after this many more tokens.
    pub(crate) fn until_more(&mut self, tokens: u64) {
        self.goal = Some(self.received + tokens);
    }

    /// Stops at the end only.
    pub(crate) fn until_the_end(&mut self) {
        self.goal = None;
    }

    /// How many of the `tokens` of a stream are expected.
    pub(crate) fn wanted(&self, tokens: u64) -> u64 {
        self.goal.unwrap_or(tokens)
    }

    /// Forgets the incomplete line of a closed connection.
    pub(crate) fn reconnected(&mut self) {
        self.line.clear();
        self.event = Event::Unnamed;
        self.coming_seq = self.last_seq;
        self.first_new_ns = None;
    }

    /// Whether all `tokens` were received once and the stream ended properly, or all up to the goal if there is one.
    pub(crate) fn complete(&self, tokens: u64) -> bool {
        let there = match self.goal {
            Some(goal) => self.received >= goal,
            None => self.end == Some(End::Done) && self.received == tokens,
        };
        there && self.missed + self.doubled == 0
    }

    fn line(&mut self, line: &[u8], at_ns: u64) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            self.event = Event::Unnamed;
        } else if let Some(data) = field(line, b"data:") {
            // Every candidate's events have one data line, which comes last. A position counts as read with its
            // data: a reader that is cut off in between must ask for that event again.
            self.data(data, at_ns);
            self.last_seq = self.coming_seq;
        } else if let Some(name) = field(line, b"event:") {
            self.event = Event::named(name);
        } else if let Some(seq) = field(line, b"id:") {
            self.coming_seq = std::str::from_utf8(seq).ok().and_then(|seq| seq.parse().ok()).unwrap_or(0);
        }
    }

    fn data(&mut self, data: &[u8], at_ns: u64) {
        let event = if self.event == Event::Unnamed { self.event_of_sdk(data) } else { self.event };
        match event {
            Event::Text => self.text(data, at_ns),
            Event::Done => self.end = Some(End::Done),
            Event::Failed => self.end = Some(End::Failed),
            Event::Interrupted => self.interrupted = true,
            Event::Retracted => {
                self.retractions += 1;
                self.expected = 0;
                self.received = 0;
            }
            Event::Unnamed | Event::Other => {}
        }
    }

    /// The AI SDK's events. Its `start` means that a replay from the beginning follows.
    fn event_of_sdk(&mut self, data: &[u8]) -> Event {
        let Some(kind) = data.strip_prefix(br#"{"type":""#) else { return Event::Other };
        let kind = &kind[..memchr(b'"', kind).unwrap_or(kind.len())];
        match kind {
            b"text-delta" => Event::Text,
            b"start" => {
                self.expected = 0;
                Event::Other
            }
            b"finish" => Event::Done,
            b"error" | b"abort" => Event::Failed,
            _ => Event::Other,
        }
    }

    fn text(&mut self, mut data: &[u8], at_ns: u64) {
        self.text_events += 1;
        while let Some(start) = memchr(b'<', data) {
            let Some(end) = memchr(b'>', &data[start..]) else { return };
            if let Some((index, sent_ns)) = marker::read(&data[start + 1..start + end]) {
                self.token(index, sent_ns, at_ns);
            }
            data = &data[start + end..];
        }
    }

    fn token(&mut self, index: u64, sent_ns: u64, at_ns: u64) {
        if index < self.expected {
            self.doubled += 1;
            return;
        }
        self.missed += index - self.expected;
        self.expected = index + 1;
        if index < self.received {
            return; // a replay of what an earlier reading brought
        }
        self.received = index + 1;
        self.first_new_ns.get_or_insert(at_ns);
        self.digest = (self.digest ^ sent_ns).wrapping_mul(0x0100_0000_01b3).wrapping_add(index);
        self.meter.token(at_ns.saturating_sub(sent_ns));
    }
}

/// The value of a line, with or without the space that SSE allows after the colon.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = line.strip_prefix(name)?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

impl Event {
    fn named(name: &[u8]) -> Self {
        match name {
            b"chat.delta" => Self::Text,
            b"attempt.retracted" => Self::Retracted,
            b"chat.done" => Self::Done,
            b"chat.error" | b"chat.cancelled" => Self::Failed,
            b"chat.interrupted" => Self::Interrupted,
            _ => Self::Other,
        }
    }
}

impl Sink for Watch {
    fn take(&mut self, mut bytes: &[u8], at_ns: u64) {
        while let Some(end) = memchr(b'\n', bytes) {
            if self.line.is_empty() {
                self.line(&bytes[..end], at_ns);
            } else {
                self.line.extend_from_slice(&bytes[..end]);
                let line = std::mem::take(&mut self.line);
                self.line(&line, at_ns);
                self.line = line;
                self.line.clear();
            }
            bytes = &bytes[end + 1..];
        }
        self.line.extend_from_slice(bytes);
    }

    fn is_done(&self) -> bool {
        self.end.is_some() || self.goal.is_some_and(|goal| self.received >= goal)
    }
}

/// Now, for times measured against [`Watch::first_new_ns`], in milliseconds since `start_ns`.
pub(crate) fn ms_since(start_ns: u64) -> f64 {
    clock::now_ns().saturating_sub(start_ns) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(text: &str) -> Watch {
        let mut watch = Watch::new(Rc::default());
        for byte in text.as_bytes() {
            watch.take(&[*byte], 10);
        }
        watch
    }

    fn delta(text: &str) -> String {
        format!("id: 4\nevent: chat.delta\ndata: {{\"payload\":{{\"text\":\"{text}\"}}}}\n\n")
    }

    #[test]
    fn one_event_may_carry_several_tokens() {
        let watch = watched(&(delta("<0:1> ") + &delta("<1:2> <2:3> ") + "event: chat.done\ndata: {}\n\n"));
        assert!(watch.complete(3));
        assert_eq!((watch.text_events, watch.last_seq), (2, 4));
    }

    #[test]
    fn an_event_cut_off_is_not_yet_read() {
        let mut watch = watched("id: 3\ndata: {}\n\nid: 4\nevent: chat.delta\n");
        assert_eq!(watch.last_seq, 3);
        watch.reconnected();
        watch.take(b"data: {}\n", 10);
        assert_eq!(watch.last_seq, 3);
    }

    #[test]
    fn a_gap_and_a_repeat_are_counted() {
        assert_eq!(watched(&(delta("<0:1> ") + &delta("<3:2> "))).missed, 2);
        assert_eq!(watched(&(delta("<0:1> ") + &delta("<0:1> "))).doubled, 1);
    }

    #[test]
    fn a_replay_is_neither() {
        let start = "data: {\"type\":\"start\"}\n\n";
        let token = |index| format!("data: {{\"type\":\"text-delta\",\"delta\":\"<{index}:1> \"}}\n\n");
        let watch = watched(&format!("{start}{}{start}{}{}", token(0), token(0), token(1)));
        assert_eq!((watch.received, watch.missed, watch.doubled), (2, 0, 0));
    }

    #[test]
    fn a_retracted_attempt_starts_again() {
        let watch = watched(&(delta("<0:1> ") + "event: attempt.retracted\ndata: {}\n\n" + &delta("<0:9> ")));
        assert_eq!((watch.received, watch.doubled, watch.retractions), (1, 0, 1));
    }
}
