//! Parses server-sent events and keeps their raw bytes.

use anyhow::{Context, ensure};
use bytes::{Buf, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::Value;

/// One event as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub seq: u64,
    /// Its type.
    pub kind: String,
    /// The generation it belongs to.
    pub generation: Option<String>,
    /// Everything from `id:` to the empty line.
    pub raw: Bytes,
    /// The event itself: what follows `data: `.
    pub data: Bytes,
}

impl Frame {
    /// The event as JSON.
    pub fn event(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.data).with_context(|| format!("event {} is not JSON", self.seq))
    }

    /// Whether it ends its generation.
    pub fn is_end(&self) -> bool {
        matches!(self.kind.as_str(), "chat.done" | "chat.error" | "chat.cancelled")
    }

    fn parse(raw: Bytes) -> anyhow::Result<Frame> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Front {
            seq: u64,
            r#type: String,
            generation_id: Option<String>,
        }
        let text = std::str::from_utf8(&raw)?;
        let mut lines = text.lines();
        let mut field = |name: &str| {
            let line = lines.next().unwrap_or_default();
            line.strip_prefix(name).with_context(|| format!("{line:?} does not start with {name:?}"))
        };
        let (id, kind, data) = (field("id: ")?, field("event: ")?, field("data: ")?);
        ensure!(
            lines.next() == Some("") && lines.next().is_none(),
            "an event must have three lines: {text:?}"
        );
        let front: Front = serde_json::from_str(data)?;
        let seq = id.parse()?;
        ensure!(front.seq == seq && front.r#type == kind, "frame and event disagree: {text:?}");
        let data = raw.slice_ref(data.as_bytes());
        Ok(Frame { seq, kind: kind.to_owned(), generation: front.generation_id, data, raw })
    }
}

/// Splits a byte stream into frames. Comments are skipped.
#[derive(Debug, Default)]
pub struct Cutter {
    buffer: BytesMut,
    looked_at: usize,
}

impl Cutter {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame, if there is one.
    pub fn cut(&mut self) -> anyhow::Result<Option<Frame>> {
        loop {
            let unseen = &self.buffer[self.looked_at..];
            let Some(end) = unseen.windows(2).position(|pair| pair == b"\n\n") else {
                self.looked_at = self.buffer.len().saturating_sub(1);
                return Ok(None);
            };
            let raw = self.buffer.split_to(self.looked_at + end + 2).freeze();
            self.looked_at = 0;
            if raw.first() != Some(&b':') {
                return Frame::parse(raw).map(Some);
            }
        }
    }

    /// All complete frames.
    pub fn cut_all(&mut self) -> anyhow::Result<Vec<Frame>> {
        let mut frames = Vec::new();
        while let Some(frame) = self.cut()? {
            frames.push(frame);
        }
        Ok(frames)
    }

    /// The rest, which is an incomplete frame.
    pub fn torn(mut self) -> Bytes {
        if self.buffer.first() == Some(&b':') {
            self.buffer.advance(self.buffer.len());
        }
        self.buffer.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str =
        "id: 7\nevent: usage\ndata: {\"seq\":7,\"type\":\"usage\",\"generationId\":\"g\"}\n\n";

    #[test]
    fn frames_are_complete_however_the_bytes_arrive() {
        let stream = format!(": keep-alive\n\n{FIRST}id: 8\nev");
        for size in 1..stream.len() {
            let mut cutter = Cutter::default();
            let mut frames = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                cutter.push(piece);
                frames.extend(cutter.cut_all().unwrap());
            }
            assert_eq!(frames.len(), 1);
            assert_eq!((frames[0].seq, &frames[0].raw[..]), (7, FIRST.as_bytes()));
            assert_eq!(frames[0].generation.as_deref(), Some("g"));
            assert_eq!(&cutter.torn()[..], b"id: 8\nev");
        }
    }
}
