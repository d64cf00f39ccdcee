//! Events as bytes. What is written here is what the log keeps and what every reader receives, unchanged.
//!
//! The order of the fields is fixed, so that a reader's filter can look at the front of a line without
//! parsing it: `{"seq":…,"ts":…,"generationId":…,"requestId":…,"type":…,"payload":…}`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{Entry, Event, GenerationId, RequestId, Seq, Timestamp};

/// Why a line of a log could not be understood.
#[derive(Debug, thiserror::Error)]
#[error("event cannot be read: {0}; was the log written by a newer version?")]
pub struct DecodeError(#[from] serde_json::Error);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    seq: Seq,
    ts: Timestamp,
    generation_id: &'a Option<GenerationId>,
    request_id: &'a Option<RequestId>,
    #[serde(flatten)]
    event: &'a Event,
}

/// The line that stands for an event. It holds no newline.
pub fn encode(entry: &Entry) -> Vec<u8> {
    let line = Line {
        seq: entry.seq,
        ts: entry.ts,
        generation_id: &entry.generation,
        request_id: &entry.request,
        event: &entry.event,
    };
    let mut bytes = Vec::with_capacity(256);
    serde_json::to_writer(&mut bytes, &line).expect("an event has only string keys and a Vec never fails");
    bytes
}

/// The event that a line stands for.
pub fn decode(line: &[u8]) -> Result<Entry, DecodeError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Envelope {
        seq: Seq,
        ts: Timestamp,
        generation_id: Option<GenerationId>,
        request_id: Option<RequestId>,
    }
    // Two passes over the line: serde's `flatten` would copy every payload into a tree first.
    let envelope: Envelope = serde_json::from_slice(line)?;
    let event: Event = serde_json::from_slice(line)?;
    Ok(Entry {
        seq: envelope.seq,
        ts: envelope.ts,
        generation: envelope.generation_id,
        request: envelope.request_id,
        event,
    })
}

/// The front of a line: enough to filter by generation, to name the event and to see an end.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head<'a> {
    /// Which generation the event belongs to.
    #[serde(borrow)]
    pub generation_id: Option<Cow<'a, str>>,
    /// Its name on the wire.
    #[serde(borrow, rename = "type")]
    pub kind: Cow<'a, str>,
}

impl Head<'_> {
    /// Whether this event ends its generation.
    pub fn is_end(&self) -> bool {
        matches!(&*self.kind, "chat.done" | "chat.error" | "chat.cancelled")
    }
}

/// Looks at the front of a line without parsing the rest.
pub fn head(line: &[u8]) -> Result<Head<'_>, DecodeError> {
    Heads::default().of(line)
}

/// Looks at the fronts of many lines. Words follow words of the same generation, so most fronts differ
/// from the one before in nothing but seq and time, and are known without being read again.
#[derive(Default)]
pub struct Heads<'a> {
    /// The last front from behind its time to the end of its type.
    same: &'a [u8],
    head: Option<Head<'a>>,
}

impl<'a> Heads<'a> {
    /// The front of the next line.
    pub fn of(&mut self, line: &'a [u8]) -> Result<Head<'a>, DecodeError> {
        let rest = behind_time(line);
        if let (Some(rest), Some(head)) = (rest, &self.head)
            && rest.starts_with(self.same)
        {
            return Ok(head.clone());
        }
        let Some((head, length)) = rest.and_then(quick_head) else {
            return Ok(serde_json::from_slice(line)?);
        };
        self.same = rest.map_or(&[], |rest| &rest[..length]);
        Ok(self.head.insert(head).clone())
    }
}

/// What follows the time, in our own field order. Anything else is left to serde.
fn behind_time(line: &[u8]) -> Option<&[u8]> {
    const TIME: usize = "2026-01-01T00:00:00.000Z".len();
    let rest = line.strip_prefix(b"{\"seq\":")?;
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    rest[digits..].strip_prefix(b",\"ts\":\"")?.get(TIME..)
}

/// The usual case, with nothing escaped in the ids: the head, and how many bytes tell it.
fn quick_head(behind_time: &[u8]) -> Option<(Head<'_>, usize)> {
    let rest = behind_time.strip_prefix(b"\",\"generationId\":")?;
    let (generation_id, rest) = quick_string(rest)?;
    let (_, rest) = quick_string(rest.strip_prefix(b",\"requestId\":")?)?;
    let (kind, rest) = quick_string(rest.strip_prefix(b",\"type\":")?)?;
    let text = |bytes| std::str::from_utf8(bytes).ok().map(Cow::Borrowed);
    let generation_id = match generation_id {
        Some(id) => Some(text(id)?),
        None => None,
    };
    Some((Head { generation_id, kind: text(kind?)? }, behind_time.len() - rest.len()))
}

/// A string without escapes, or null, and what follows it.
fn quick_string(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    if let Some(rest) = bytes.strip_prefix(b"null") {
        return Some((None, rest));
    }
    let bytes = bytes.strip_prefix(b"\"")?;
    let end = memchr::memchr2(b'"', b'\\', bytes)?;
    (bytes[end] == b'"').then(|| (Some(&bytes[..end]), &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(request: &str, text: &str) -> Entry {
        Entry {
            seq: Seq(42),
            ts: Timestamp(1_767_225_600_000),
            generation: Some("gen_1".into()),
            request: Some(request.into()),
            event: Event::ChatDelta { message_id: "msg_1".into(), text: text.into(), chunks: 1 },
        }
    }

    #[test]
    fn a_line_is_the_documented_json() {
        assert_eq!(
            String::from_utf8(encode(&entry("r", "Hel"))).unwrap(),
            r#"{"seq":42,"ts":"2026-01-01T00:00:00.000Z","generationId":"gen_1","requestId":"r","type":"chat.delta","payload":{"messageId":"msg_1","text":"Hel"}}"#
        );
    }

    #[test]
    fn every_text_reads_back_as_it_was_and_makes_one_line() {
        for text in ["", "\n\r\u{2028}", "\"\\", "naïve 👩‍🚀", "\u{0}", "\",\"type\":\"chat.done\""] {
            let entry = entry(text, text);
            let line = encode(&entry);
            assert!(!line.contains(&b'\n'));
            assert_eq!(decode(&line).unwrap(), entry);
            let head = head(&line).unwrap();
            assert_eq!((head.generation_id.as_deref(), &*head.kind), (Some("gen_1"), "chat.delta"));
        }
    }

    #[test]
    fn many_heads_are_what_each_is_alone() {
        let texts = ["a", "b", "\",\"type\":\"chat.done\"", "\\"];
        let mut lines: Vec<Vec<u8>> =
            texts.iter().flat_map(|text| [encode(&entry("r", text)), encode(&entry("\"", text))]).collect();
        for (n, kind) in Event::KINDS.iter().enumerate() {
            let generation = if n % 3 == 0 { "null".into() } else { format!("\"gen_{}\"", n % 2) };
            let line = format!(
                r#"{{"seq":{n},"ts":"2026-01-01T00:00:00.000Z","generationId":{generation},"requestId":null,"type":"{kind}"}}"#
            );
            lines.extend([line.clone().into_bytes(), line.into_bytes()]);
        }
        lines.push(br#"{"type":"chat.delta","seq":1}"#.to_vec());
        let mut heads = Heads::default();
        for line in lines.iter().chain(lines.iter().rev()) {
            assert_eq!(heads.of(line).unwrap(), head(line).unwrap(), "{}", String::from_utf8_lossy(line));
            assert_eq!(head(line).unwrap(), serde_json::from_slice(line).unwrap());
        }
        assert!(heads.of(b"{}").is_err());
    }

    #[test]
    fn fields_that_this_version_does_not_know_are_passed_over() {
        let line = br#"{"seq":1,"ts":"2026-01-01T00:00:00.000Z","later":true,"generationId":null,"requestId":null,"type":"chat.resumed","payload":{"by":"ann","later":1}}"#;
        assert_eq!(decode(line).unwrap().event, Event::ChatResumed { by: "ann".into() });
        assert_eq!(head(line).unwrap().generation_id, None);
    }

    #[test]
    fn an_event_of_a_newer_version_is_an_error_that_says_so() {
        let line = br#"{"seq":1,"ts":"2026-01-01T00:00:00.000Z","generationId":null,"requestId":null,"type":"tea.made","payload":{}}"#;
        assert!(decode(line).unwrap_err().to_string().contains("newer version"));
    }

    #[test]
    fn i11_a_number_reads_back_to_the_last_bit() {
        for number in [-3.106278780831748e-227, 0.1 + 0.2, f64::MAX, 5e-324] {
            let event = Event::ConversationUpdated { title: None, metadata: Some(number.into()) };
            let entry = Entry { generation: None, request: None, event, ..entry("r", "") };
            assert_eq!(decode(&encode(&entry)).unwrap(), entry);
        }
    }

    #[test]
    fn every_kind_is_listed_once() {
        let mut kinds = Event::KINDS.to_vec();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), Event::KINDS.len());
    }
}
