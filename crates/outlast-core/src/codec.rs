//! Events as bytes. The log stores exactly these bytes, and every follower receives them unchanged.
//!
//! The field order is fixed, so that the head of a line can be read without parsing the payload:
//! `{"seq":…,"ts":…,"generationId":…,"requestId":…,"type":…,"payload":…}`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{Entry, Event, GenerationId, RequestId, Seq, Timestamp};

/// A line of the log could not be decoded.
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

/// Encodes an event as one line of JSON, without a newline.
pub fn encode(entry: &Entry) -> Vec<u8> {
    let line = Line {
        seq: entry.seq,
        ts: entry.ts,
        generation_id: &entry.generation,
        request_id: &entry.request,
        event: &entry.event,
    };
    let mut bytes = Vec::with_capacity(256);
    serde_json::to_writer(&mut bytes, &line).expect("an event has only string keys, and a Vec cannot fail");
    bytes
}

pub fn decode(line: &[u8]) -> Result<Entry, DecodeError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Envelope {
        seq: Seq,
        ts: Timestamp,
        generation_id: Option<GenerationId>,
        request_id: Option<RequestId>,
    }
    // Two passes over the line, because serde's `flatten` would first copy every payload into a tree.
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

/// What a stream needs to know about an event without decoding it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub generation_id: Option<GenerationId>,
    /// The event's wire name. Owned only for events that this version does not know.
    pub kind: Cow<'static, str>,
}

impl Head {
    /// The head of an event that has not been encoded, or that was just encoded.
    pub fn of(entry: &Entry) -> Head {
        Head { generation_id: entry.generation.clone(), kind: Cow::Borrowed(entry.event.kind()) }
    }

    /// Whether this event ends its generation.
    pub fn is_end(&self) -> bool {
        matches!(&*self.kind, "chat.done" | "chat.error" | "chat.cancelled")
    }
}

/// Reads the head of a line without parsing its payload.
pub fn head(line: &[u8]) -> Result<Head, DecodeError> {
    Heads::default().of(line)
}

/// Reads the heads of consecutive lines. Most lines are text of the same generation and differ from the one
/// before only in seq and time, so their head is copied instead of parsed.
#[derive(Default)]
pub struct Heads<'a> {
    /// The previous line's bytes, from after its time to the end of its type.
    same: &'a [u8],
    head: Option<Head>,
}

impl<'a> Heads<'a> {
    pub fn of(&mut self, line: &'a [u8]) -> Result<Head, DecodeError> {
        let rest = behind_time(line);
        if let (Some(rest), Some(head)) = (rest, &self.head)
            && rest.starts_with(self.same)
        {
            return Ok(head.clone());
        }
        let Some((head, length)) = rest.and_then(quick_head) else { return slow_head(line) };
        self.same = rest.map_or(&[], |rest| &rest[..length]);
        Ok(self.head.insert(head).clone())
    }
}

/// Handles any field order and any escapes: lines of other versions, ids that contain quotes.
fn slow_head(line: &[u8]) -> Result<Head, DecodeError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Front<'a> {
        generation_id: Option<GenerationId>,
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
    }
    let front: Front<'_> = serde_json::from_slice(line)?;
    Ok(Head { generation_id: front.generation_id, kind: known(&front.kind) })
}

fn known(kind: &str) -> Cow<'static, str> {
    match Event::KINDS.iter().find(|known| **known == kind) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(kind.to_owned()),
    }
}

/// The bytes after the time, if the line has the usual field order.
fn behind_time(line: &[u8]) -> Option<&[u8]> {
    const TIME: usize = "2026-01-01T00:00:00.000Z".len();
    let rest = line.strip_prefix(b"{\"seq\":")?;
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    rest[digits..].strip_prefix(b",\"ts\":\"")?.get(TIME..)
}

/// The head, and how many bytes it was read from. `None` if a string has escapes.
fn quick_head(behind_time: &[u8]) -> Option<(Head, usize)> {
    let rest = behind_time.strip_prefix(b"\",\"generationId\":")?;
    let (generation_id, rest) = quick_string(rest)?;
    let (_, rest) = quick_string(rest.strip_prefix(b",\"requestId\":")?)?;
    let (kind, rest) = quick_string(rest.strip_prefix(b",\"type\":")?)?;
    let generation_id = match generation_id {
        Some(id) => Some(GenerationId::from(std::str::from_utf8(id).ok()?)),
        None => None,
    };
    let kind = known(std::str::from_utf8(kind?).ok()?);
    Some((Head { generation_id, kind }, behind_time.len() - rest.len()))
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
    fn every_text_reads_back_unchanged_and_is_one_line() {
        for text in ["", "\n\r\u{2028}", "\"\\", "naïve 👩‍🚀", "\u{0}", "\",\"type\":\"chat.done\""] {
            let entry = entry(text, text);
            let line = encode(&entry);
            assert!(!line.contains(&b'\n'));
            assert_eq!(decode(&line).unwrap(), entry);
            let head = head(&line).unwrap();
            assert_eq!(head, Head::of(&entry));
        }
    }

    #[test]
    fn heads_read_in_sequence_equal_heads_read_separately() {
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
            assert_eq!(head(line).unwrap(), slow_head(line).unwrap());
        }
        assert!(heads.of(b"{}").is_err());
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let line = br#"{"seq":1,"ts":"2026-01-01T00:00:00.000Z","later":true,"generationId":null,"requestId":null,"type":"chat.resumed","payload":{"by":"ann","later":1}}"#;
        assert_eq!(decode(line).unwrap().event, Event::ChatResumed { by: "ann".into() });
        assert_eq!(head(line).unwrap().generation_id, None);
    }

    #[test]
    fn an_event_of_a_newer_version_is_an_error_that_says_so_but_has_a_head() {
        let line = br#"{"seq":1,"ts":"2026-01-01T00:00:00.000Z","generationId":null,"requestId":null,"type":"tea.made","payload":{}}"#;
        assert!(decode(line).unwrap_err().to_string().contains("newer version"));
        assert_eq!(head(line).unwrap().kind, "tea.made");
    }

    #[test]
    fn i11_a_number_reads_back_bit_for_bit() {
        for number in [-3.106278780831748e-227, 0.1 + 0.2, f64::MAX, 5e-324] {
            let event = Event::ConversationUpdated {
                title: None,
                metadata: Some(number.into()),
                files: None,
                key: None,
            };
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
