//! A second implementation of the fold over a log, independent of the server's.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::sse::Frame;
use crate::violation::{Findings, Kind};

/// The result of a log.
#[derive(Debug, Default)]
pub struct Transcript {
    /// The messages at the end, in order.
    pub messages: Vec<Said>,
    /// The generations that ended, and how.
    pub ends: BTreeMap<String, End>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub id: String,
    /// `user` or `assistant`.
    pub role: String,
    pub content: String,
    /// The generation it belongs to.
    pub generation: String,
}

/// How a generation ended.
#[derive(Clone, Debug)]
pub struct End {
    /// The position of the end.
    pub seq: u64,
    /// The status that the documents must have.
    pub status: &'static str,
    /// Its text that was not withdrawn.
    pub text: String,
}

impl Transcript {
    /// Folds a log, and reports invalid events.
    pub fn of(log: &[Frame], findings: &mut Findings) -> Transcript {
        let mut transcript = Transcript::default();
        for (index, frame) in log.iter().enumerate() {
            let expected = index as u64 + 1;
            findings.demand(frame.seq == expected, Kind::Gap, || {
                format!("the log has {} instead of {expected}", frame.seq)
            });
            transcript.take(frame, findings);
        }
        transcript
    }

    /// The current text of a generation's messages.
    pub fn text_of(&self, generation: &str) -> String {
        let own = |said: &&Said| said.role == "assistant" && said.generation == generation;
        self.messages.iter().filter(own).map(|said| said.content.as_str()).collect()
    }

    fn take(&mut self, frame: &Frame, findings: &mut Findings) {
        let event = match frame.event() {
            Ok(event) => event,
            Err(error) => return findings.broke(Kind::Lost, format!("{error:#}")),
        };
        let payload = &event["payload"];
        let generation = frame.generation.clone().unwrap_or_default();
        if let Some(end) = self.ends.get(&generation) {
            let (kind, seq) = (&frame.kind, frame.seq);
            findings.broke(Kind::AfterEnd, format!("{kind} at {seq} after {} at {}", end.status, end.seq));
        }
        match frame.kind.as_str() {
            "message.added" => self.messages.push(Said {
                id: text(&payload["message"]["id"]),
                role: text(&payload["message"]["role"]),
                content: text(&payload["message"]["content"]),
                generation,
            }),
            "assistant.segment.started" => self.messages.push(Said {
                id: text(&payload["messageId"]),
                role: "assistant".to_owned(),
                content: String::new(),
                generation,
            }),
            "chat.delta" => {
                let id = text(&payload["messageId"]);
                match self.messages.iter_mut().find(|said| said.id == id) {
                    Some(said) => said.content.push_str(&text(&payload["text"])),
                    None => findings
                        .broke(Kind::WrongText, format!("text at {} without an open message", frame.seq)),
                }
            }
            "attempt.retracted" => {
                let gone: Vec<String> =
                    payload["messageIds"].as_array().into_iter().flatten().map(text).collect();
                self.messages.retain(|said| !gone.contains(&said.id));
            }
            "chat.done" => self.end(generation, frame.seq, "completed"),
            "chat.error" => self.end(generation, frame.seq, "error"),
            "chat.cancelled" => self.end(generation, frame.seq, "cancelled"),
            _ => {} // neither text nor an end
        }
    }

    fn end(&mut self, generation: String, seq: u64, status: &'static str) {
        let text = self.text_of(&generation);
        self.ends.entry(generation).or_insert(End { seq, status, text });
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sse::Cutter;

    fn fold(events: &[(&str, Value)]) -> (Transcript, Vec<Kind>) {
        let mut cutter = Cutter::default();
        for (index, (kind, payload)) in events.iter().enumerate() {
            let seq = index + 1;
            let event = json!({"seq": seq, "type": kind, "generationId": "g", "payload": payload});
            cutter.push(format!("id: {seq}\nevent: {kind}\ndata: {event}\n\n").as_bytes());
        }
        let mut findings = Findings::default();
        let transcript = Transcript::of(&cutter.cut_all().unwrap(), &mut findings);
        (transcript, findings.violations.iter().map(|violation| violation.kind).collect())
    }

    #[test]
    fn withdrawn_text_does_not_count() {
        let open = |id: &str| ("assistant.segment.started", json!({"messageId": id}));
        let say = |id: &str, text: &str| ("chat.delta", json!({"messageId": id, "text": text}));
        let back = ("attempt.retracted", json!({"messageIds": ["a"]}));
        let done = ("chat.done", json!({}));
        let (transcript, broken) =
            fold(&[open("a"), say("a", "one"), back, open("b"), say("b", "two"), done]);
        assert_eq!(broken, []);
        assert_eq!(transcript.ends["g"].text, "two");
        assert_eq!((transcript.ends["g"].seq, transcript.ends["g"].status), (6, "completed"));
    }

    #[test]
    fn a_second_end_and_text_without_a_message_are_noticed() {
        let words = ("chat.delta", json!({"messageId": "a", "text": "x"}));
        let (_, broken) = fold(&[words, ("chat.done", json!({})), ("chat.cancelled", json!({}))]);
        assert_eq!(broken, [Kind::WrongText, Kind::AfterEnd]);
    }
}
