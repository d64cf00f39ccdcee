//! A scripted agent: what a model says and asks for, round by round.
//!
//! The script is the user's message, `agent=` and JSON. Which round is next follows from the request: it is the number
//! of answers with tool calls behind that message. So a server that was killed gets the same answer again, from an
//! upstream that remembers nothing.

use std::io;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::play::{Finale, HEAD, chunk, peer_left, peer_left_before};

/// How the user's message begins.
pub(super) const PREFIX: &str = "agent=";
/// Seeds are counted per round: this is added for each round, so that a seed below it names one script.
const PER_ROUND: u64 = 1 << 32;
/// Text is sent in pieces of this many characters, as models do, ...
const TEXT_CHARS: usize = 12;
/// ... and arguments in larger ones: a length on the wire has four digits.
const ARGUMENT_CHARS: usize = 8 * 1024;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agent {
    pub(super) seed: u64,
    rounds: Vec<Round>,
    /// Whether to keep the last request, for `GET /asked?seed=`.
    #[serde(default)]
    pub(super) keep: bool,
}

/// One answer. The last one should have no calls; it is repeated if the server asks for more.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Round {
    #[serde(default)]
    text: String,
    #[serde(default)]
    calls: Vec<Call>,
    /// The pause between two pieces of text.
    #[serde(default)]
    pause_ms: u64,
    /// Sends its text, then nothing more.
    #[serde(default)]
    hang: bool,
    /// Fails with this status instead, ...
    pub(super) fail: Option<u16>,
    /// ... this many times; without it, always.
    pub(super) fails: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    name: String,
    input: Value,
}

impl Agent {
    pub(super) fn parse(text: &str) -> Result<Agent, String> {
        let json = text.strip_prefix(PREFIX).unwrap_or(text);
        let agent: Agent =
            serde_json::from_str(json).map_err(|error| format!("bad agent script: {error}"))?;
        if agent.rounds.is_empty() || agent.seed >= PER_ROUND {
            return Err("an agent has rounds, and a seed below 2^32".to_owned());
        }
        Ok(agent)
    }

    /// The round for which this many answers have been given.
    pub(super) fn round(&self, answered: usize) -> (usize, &Round) {
        let number = answered.min(self.rounds.len() - 1);
        (number, &self.rounds[number])
    }

    /// The seed under which calls for a round are counted.
    pub(super) fn seed_of(&self, round: usize) -> u64 {
        self.seed + round as u64 * PER_ROUND
    }
}

impl Round {
    /// Whether the call with this number, from 1, fails.
    pub(super) fn failure(&self, call: u64) -> Option<u16> {
        self.fail.filter(|_| self.fails.is_none_or(|fails| call <= fails))
    }
}

/// Streams the answer of a round.
pub(super) async fn play(stream: &mut TcpStream, number: usize, round: &Round) -> io::Result<Finale> {
    stream.write_all(HEAD).await?;
    let begun = Instant::now();
    for (piece, text) in (0_u32..).zip(pieces(&round.text, TEXT_CHARS)) {
        let due = begun + Duration::from_millis(round.pause_ms) * piece;
        if round.pause_ms > 0 && peer_left_before(stream, due).await {
            return Ok(Finale::PeerLeft);
        }
        send(stream, &delta(&json!({"content": text}))).await?;
    }
    if round.hang {
        peer_left(stream).await;
        return Ok(Finale::PeerLeft);
    }
    for (index, call) in round.calls.iter().enumerate() {
        let id = format!("call_{number}_{index}");
        let function = json!({"name": call.name, "arguments": ""});
        let call_start = json!({"index": index, "id": id, "type": "function", "function": function});
        send(stream, &delta(&json!({"tool_calls": [call_start]}))).await?;
        for arguments in pieces(&call.input.to_string(), ARGUMENT_CHARS) {
            let more = json!({"index": index, "function": {"arguments": arguments}});
            send(stream, &delta(&json!({"tool_calls": [more]}))).await?;
        }
    }
    let reason = if round.calls.is_empty() { "stop" } else { "tool_calls" };
    send(stream, &json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}).to_string())
        .await?;
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16});
    send(stream, &json!({"choices": [], "usage": usage}).to_string()).await?;
    send(stream, "[DONE]").await?;
    stream.write_all(b"0\r\n\r\n").await?;
    Ok(Finale::Complete)
}

fn delta(delta: &Value) -> String {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}).to_string()
}

async fn send(stream: &mut TcpStream, data: &str) -> io::Result<()> {
    let mut out = Vec::with_capacity(data.len() + 32);
    chunk(&mut out, |out| out.extend_from_slice(data.as_bytes()));
    stream.write_all(&out).await
}

/// A text in pieces of this many characters.
fn pieces(text: &str, chars: usize) -> Vec<String> {
    let all: Vec<char> = text.chars().collect();
    all.chunks(chars).map(|piece| piece.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_round_follows_from_the_answers_and_the_last_one_is_repeated() {
        let agent = Agent::parse(
            r#"agent={"seed":7,"rounds":[{"calls":[{"name":"bash","input":{}}]},{"text":"done"}]}"#,
        );
        let agent = agent.unwrap();
        assert_eq!(agent.round(0).0, 0);
        assert_eq!((agent.round(1).0, agent.round(5).0), (1, 1));
        assert_ne!(agent.seed_of(0), agent.seed_of(1));
        Agent::parse("agent={}").unwrap_err();
    }

    #[test]
    fn a_round_fails_as_often_as_it_says() {
        let round: Round = serde_json::from_str(r#"{"fail":500,"fails":1}"#).unwrap();
        assert_eq!((round.failure(1), round.failure(2)), (Some(500), None));
    }
}
