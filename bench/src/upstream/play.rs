//! Plays a script as an OpenAI stream.

use std::io;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::clock;
use crate::marker;
use crate::script::{Fault, Script};

/// How a played script ended.
pub(crate) enum Finale {
    /// The body ended; the connection can be used again.
    Complete,
    /// The client closed its side first.
    PeerLeft,
    /// The script wants the connection reset.
    Reset,
}

/// Streams the tokens from `already` on, until the script or its fault ends it.
pub(crate) async fn play(
    stream: &mut TcpStream,
    script: &Script,
    call: u64,
    already: u64,
) -> io::Result<Finale> {
    let fault = script.fault_of(call);
    let frames = Frames::new(script.seed, call);
    let mut out = HEAD.to_vec();
    frames.role(&mut out);
    stream.write_all(&out).await?;

    let begun = Instant::now();
    let mut index = already;
    // A fault counts the tokens of this call, wherever the call began.
    let last = fault.map_or(script.tokens, |fault| script.tokens.min(already.saturating_add(fault.after())));
    while index < last {
        if let Some(period) = script.period() {
            // From the beginning and not from the last token, so that lateness does not add up.
            let due = begun + period.mul_f64((index - already) as f64);
            if peer_left_before(stream, due).await {
                return Ok(Finale::PeerLeft);
            }
        }
        out.clear();
        let burst = script.burst.min(last - index);
        for _ in 0..burst {
            frames.token(&mut out, index);
            index += 1;
        }
        stream.write_all(&out).await?;
    }
    out.clear();
    match fault {
        Some(Fault::Reset(_)) => return Ok(Finale::Reset),
        Some(Fault::Hang(_)) => {
            peer_left(stream).await;
            return Ok(Finale::PeerLeft);
        }
        Some(Fault::Error(_)) => frames.error(&mut out),
        Some(Fault::End(_)) => {}
        Some(Fault::Status { .. }) | None => frames.finish(&mut out, script.tokens),
    }
    out.extend_from_slice(b"0\r\n\r\n");
    stream.write_all(&out).await?;
    Ok(Finale::Complete)
}

impl Fault {
    /// After how many tokens it happens.
    fn after(&self) -> u64 {
        match self {
            Self::Status { .. } => 0,
            Self::Reset(after) | Self::End(after) | Self::Error(after) | Self::Hang(after) => *after,
        }
    }
}

pub(super) async fn peer_left_before(stream: &TcpStream, due: Instant) -> bool {
    if due <= Instant::now() {
        return false;
    }
    tokio::select! {
        biased;
        () = tokio::time::sleep_until(due) => false,
        () = peer_left(stream) => true,
    }
}

/// Waits until the client closes its side. A client sends nothing during a response, so anything readable is
/// either the end or a pipelined request, which nobody sends. Both count as leaving.
pub(super) async fn peer_left(stream: &TcpStream) {
    let mut byte = [0; 1];
    loop {
        if stream.readable().await.is_err() {
            return;
        }
        match stream.try_read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return,
        }
    }
}

pub(super) const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
    cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";

/// The events of one call. What does not change between tokens is rendered once.
struct Frames {
    before: String,
    after: &'static str,
}

impl Frames {
    fn new(seed: u64, call: u64) -> Self {
        let before = format!(
            r#"{{"id":"chatcmpl-{seed}-{call}","object":"chat.completion.chunk","created":1731700000,"model":"bench","system_fingerprint":null,"choices":["#
        );
        Self { before, after: r#"],"usage":null}"# }
    }

    fn role(&self, out: &mut Vec<u8>) {
        self.choice(out, r#"{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}"#);
    }

    fn token(&self, out: &mut Vec<u8>, index: u64) {
        chunk(out, |out| {
            out.extend_from_slice(self.before.as_bytes());
            out.extend_from_slice(br#"{"index":0,"delta":{"content":""#);
            marker::write(out, index, clock::now_ns());
            out.extend_from_slice(br#""},"finish_reason":null}"#);
            out.extend_from_slice(self.after.as_bytes());
        });
    }

    fn finish(&self, out: &mut Vec<u8>, tokens: u64) {
        self.choice(out, r#"{"index":0,"delta":{},"finish_reason":"stop"}"#);
        let total = tokens + 9;
        chunk(out, |out| {
            out.extend_from_slice(self.before.as_bytes());
            let usage = format!(
                r#"],"usage":{{"prompt_tokens":9,"completion_tokens":{tokens},"total_tokens":{total}}}}}"#
            );
            out.extend_from_slice(usage.as_bytes());
        });
        chunk(out, |out| out.extend_from_slice(b"[DONE]"));
    }

    fn error(&self, out: &mut Vec<u8>) {
        let error = r#"{"error":{"message":"scripted error","type":"server_error","code":500}}"#;
        chunk(out, |out| out.extend_from_slice(error.as_bytes()));
    }

    fn choice(&self, out: &mut Vec<u8>, choice: &str) {
        chunk(out, |out| {
            out.extend_from_slice(self.before.as_bytes());
            out.extend_from_slice(choice.as_bytes());
            out.extend_from_slice(self.after.as_bytes());
        });
    }
}

/// Wraps an event's data as one SSE event in one HTTP chunk, in place: the length comes first on the
/// wire but is known last, so its four digits are filled in afterwards.
pub(super) fn chunk(out: &mut Vec<u8>, data: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(b"0000\r\ndata: ");
    data(out);
    out.extend_from_slice(b"\n\n");
    let length = out.len() - start - 6;
    for (place, shift) in [12, 8, 4, 0].into_iter().enumerate() {
        out[start + place] = b"0123456789abcdef"[(length >> shift) & 15];
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_says_its_length() {
        let mut out = b"before".to_vec();
        chunk(&mut out, |out| out.extend_from_slice(b"{}"));
        assert_eq!(out, b"before000a\r\ndata: {}\n\n\r\n");
    }

    #[test]
    fn every_event_is_json() {
        let frames = Frames::new(7, 1);
        let mut out = Vec::new();
        frames.role(&mut out);
        frames.token(&mut out, 0);
        frames.error(&mut out);
        frames.finish(&mut out, 1);
        let text = String::from_utf8(out).unwrap();
        let events: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(events.len(), 6);
        for event in &events[..5] {
            serde_json::from_str::<serde_json::Value>(event).unwrap();
        }
        assert_eq!(events[5], "[DONE]");
    }
}
