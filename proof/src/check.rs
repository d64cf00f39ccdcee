//! Compares what readers recorded, the log, the documents, and the scripts of the upstream.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::api::Api;
use crate::reader::Recording;
use crate::script::count_from_first;
use crate::sse::Frame;
use crate::stored::{Stored, poll_all};
use crate::transcript::{Said, Transcript};
use crate::violation::{Findings, Kind};

/// The expected result of a generation.
#[derive(Clone, Debug)]
pub struct Expected {
    pub generation: String,
    /// The user's message.
    pub message: String,
    /// The number of tokens in the whole answer.
    pub tokens: u64,
    /// The statuses it may have ended with.
    pub ends: Vec<&'static str>,
}

/// A conversation and what is known about it.
#[derive(Debug)]
pub struct Case {
    pub conversation: String,
    /// Its generations, in the order in which they were started.
    pub expected: Vec<Expected>,
    /// What readers recorded, by generation.
    pub recordings: Vec<(String, Recording)>,
}

impl Case {
    /// One generation that must complete.
    pub fn completed(started: &crate::api::Started, tokens: u64, recordings: Vec<Recording>) -> Case {
        Case::ended(started, tokens, &["completed"], recordings)
    }

    /// One generation that must end in one of these ways.
    pub fn ended(
        started: &crate::api::Started,
        tokens: u64,
        ends: &[&'static str],
        recordings: Vec<Recording>,
    ) -> Case {
        let generation = started.generation.clone();
        let expected = Expected {
            generation: generation.clone(),
            message: started.message.clone(),
            tokens,
            ends: ends.to_vec(),
        };
        Case {
            conversation: started.conversation.clone(),
            expected: vec![expected],
            recordings: recordings.into_iter().map(|recording| (generation.clone(), recording)).collect(),
        }
    }

    /// Reads the conversation and compares everything.
    pub async fn check(self, api: &Api) -> anyhow::Result<Findings> {
        let mut findings = Findings::default();
        let stored = Stored::read(api, &self.conversation).await?;
        let transcript = Transcript::of(&stored.log, &mut findings);
        findings.events += stored.log.len() as u64;
        findings.logs.insert(self.conversation.clone(), (stored.log.len(), fingerprint(&stored.log)));
        check_messages(&stored, &transcript, &mut findings);
        check_starts(&self.expected, &transcript, &mut findings);
        for expected in &self.expected {
            findings.generations += 1;
            check_generation(api, expected, &stored, &transcript, &mut findings).await?;
        }
        for (generation, recording) in self.recordings {
            check_recording(&generation, recording, &stored, &mut findings);
        }
        Ok(findings)
    }
}

/// The stored messages must be the result of the log.
fn check_messages(stored: &Stored, transcript: &Transcript, findings: &mut Findings) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let messages = stored.view["messages"].as_array().cloned().unwrap_or_default();
    let shown: Vec<Said> = messages
        .iter()
        .map(|message| Said {
            id: text(&message["id"]),
            role: text(&message["role"]),
            content: text(&message["content"]),
            generation: text(&message["generationId"]),
        })
        .collect();
    findings.demand(shown == transcript.messages, Kind::WrongDocument, || {
        let conversation = &stored.conversation;
        let brief = |said: &[Said]| -> Vec<(String, usize)> {
            said.iter().map(|said| (said.id.clone(), said.content.len())).collect()
        };
        let (shown, logged) = (brief(&shown), brief(&transcript.messages));
        format!("{conversation} has {shown:?}\nbut its log gives {logged:?} (ids and bytes)")
    });
}

/// Each accepted message must be there once, and no others.
fn check_starts(expected: &[Expected], transcript: &Transcript, findings: &mut Findings) {
    let mut asked: BTreeMap<&str, usize> = BTreeMap::new();
    for said in transcript.messages.iter().filter(|said| said.role == "user") {
        *asked.entry(&said.id).or_default() += 1;
    }
    for expected in expected {
        findings.demand(asked.remove(expected.message.as_str()) == Some(1), Kind::Lost, || {
            format!("the message {} of {} is missing", expected.message, expected.generation)
        });
    }
    findings
        .demand(asked.is_empty(), Kind::WrongDocument, || format!("messages that no client sent: {asked:?}"));
}

async fn check_generation(
    api: &Api,
    expected: &Expected,
    stored: &Stored,
    transcript: &Transcript,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let id = &expected.generation;
    let document = api.generation(id).await?;
    let Some(end) = transcript.ends.get(id) else {
        findings.broke(Kind::WithoutEnd, format!("{id} is {}", document["status"]));
        return Ok(());
    };
    findings.demand(expected.ends.contains(&end.status), Kind::WrongText, || {
        format!("{id} ended as {} and not as {:?}: {}", end.status, expected.ends, document["errorMessage"])
    });
    match count_from_first(&end.text) {
        Ok(count) if end.status == "completed" && count != expected.tokens => {
            findings.broke(Kind::WrongText, format!("{id} has {count} of {} tokens", expected.tokens));
        }
        Ok(_) => {}
        Err(wrong) => findings.broke(Kind::WrongText, format!("{id}: {wrong}")),
    }
    findings.demand(document["status"] == end.status, Kind::WrongDocument, || {
        format!("{id} is {} and its log says {}", document["status"], end.status)
    });
    findings.demand(document["lastSeq"] == end.seq, Kind::WrongDocument, || {
        format!("{id} says {} and its end is {}", document["lastSeq"], end.seq)
    });
    let parts = document["contentParts"].as_array().cloned().unwrap_or_default();
    let said: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    findings.demand(said == end.text, Kind::WrongDocument, || {
        format!("{id} has {} bytes of text and its log {}", said.len(), end.text.len())
    });
    let polled = poll_all(api, id, 100).await?;
    let streamed = stored.events_of(id);
    let same = polled.len() == streamed.len()
        && polled.iter().zip(&streamed).all(|(polled, frame)| polled.as_bytes() == frame.data);
    findings.demand(same, Kind::WrongDocument, || format!("{id}: polling and streaming disagree"));
    Ok(())
}

/// A reader must have seen exactly its generation's events in the log, byte for byte, up to the end.
fn check_recording(generation: &str, recording: Recording, stored: &Stored, findings: &mut Findings) {
    let log = stored.events_of(generation);
    findings.recorded += recording.frames.len() as u64;
    if let Some((kind, what)) = first_difference(&recording.frames, &log) {
        findings.broke(kind, format!("{generation}: {what}"));
    }
    if !recording.ended && recording.findings.violations.is_empty() {
        findings.broke(Kind::WithoutEnd, format!("{generation}: a reader did not reach the end"));
    }
    findings.add(recording.findings);
}

/// The first difference between a recording and the log, and which promise it breaks.
pub fn first_difference(recorded: &[Frame], log: &[&Frame]) -> Option<(Kind, String)> {
    for (index, frame) in recorded.iter().enumerate() {
        let Some(stored) = log.get(index) else {
            return Some((Kind::Lost, format!("{} {} is not in the log", frame.kind, frame.seq)));
        };
        if frame.raw == stored.raw {
            continue;
        }
        let before = index.checked_sub(1).map_or(0, |before| recorded[before].seq);
        let kind = match frame.seq {
            seq if seq <= before => Kind::Repeat,
            seq if seq > stored.seq => Kind::Gap,
            _ => Kind::Lost,
        };
        let (seen, kept) = (String::from_utf8_lossy(&frame.raw), String::from_utf8_lossy(&stored.raw));
        return Some((kind, format!("a reader got {seen} where the log has {kept}")));
    }
    None
}

/// Checks that logs still start with the same bytes. A log may grow but is never rewritten.
pub async fn unchanged(api: &Api, logs: &BTreeMap<String, (usize, u64)>) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    for (conversation, (length, before)) in logs {
        let stored = Stored::read(api, conversation).await?;
        let same = stored.log.get(..*length).is_some_and(|log| fingerprint(log) == *before);
        findings.demand(same, Kind::Lost, || format!("the log of {conversation} has changed"));
    }
    Ok(findings)
}

fn fingerprint(log: &[Frame]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for frame in log {
        frame.raw.hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sse::Cutter;

    fn frames(seqs: &[u64]) -> Vec<Frame> {
        let mut cutter = Cutter::default();
        for seq in seqs {
            let data = format!("{{\"seq\":{seq},\"type\":\"usage\",\"generationId\":\"g\"}}");
            cutter.push(format!("id: {seq}\nevent: usage\ndata: {data}\n\n").as_bytes());
        }
        cutter.cut_all().unwrap()
    }

    fn found(recorded: &[u64], log: &[u64]) -> Option<Kind> {
        let log = frames(log);
        first_difference(&frames(recorded), &log.iter().collect::<Vec<_>>()).map(|(kind, _)| kind)
    }

    #[test]
    fn a_gap_a_repeat_and_a_loss_in_a_recording_are_distinguished() {
        assert_eq!(found(&[1, 2, 3], &[1, 2, 3]), None);
        assert_eq!(found(&[1, 2], &[1, 2, 3]), None, "an incomplete recording is noticed by its missing end");
        assert_eq!(found(&[1, 3], &[1, 2, 3]), Some(Kind::Gap));
        assert_eq!(found(&[1, 1, 2], &[1, 2, 3]), Some(Kind::Repeat));
        assert_eq!(found(&[1, 2, 3], &[1, 2]), Some(Kind::Lost));
    }

    #[test]
    fn a_single_different_byte_is_a_loss() {
        let log = frames(&[1, 2]);
        let mut recorded = log.clone();
        recorded[1].raw = "id: 2\nevent: usage\ndata: {}\n\n".into();
        let difference = first_difference(&recorded, &log.iter().collect::<Vec<_>>());
        assert_eq!(difference.map(|(kind, _)| kind), Some(Kind::Lost));
    }
}
