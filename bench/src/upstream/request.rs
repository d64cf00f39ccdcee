//! Requests, read by hand: a head, a body of known length, nothing else.

use std::io;

use bytes::{Buf, BytesMut};
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::agent::PREFIX;
use crate::marker;

/// A request with its whole body.
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// The caller's API key. Some providers repeat it in their errors.
    pub(crate) key: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// Reads one request after the other from a connection that is kept alive.
pub(crate) struct RequestReader {
    stream: TcpStream,
    buffer: BytesMut,
}

/// A transcript of a long conversation fits; a runaway client does not.
const MAX_REQUEST: usize = 16 * 1024 * 1024;
/// More headers than any client sends.
const MAX_HEADERS: usize = 64;

impl RequestReader {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    /// The connection, for the response.
    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// The next request, or `None` when the client is done with the connection.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Request>> {
        loop {
            if let Some((mut request, head, length)) = parse_head(&self.buffer)?
                && self.buffer.len() >= head + length
            {
                request.body = self.buffer[head..head + length].to_vec();
                self.buffer.advance(head + length);
                return Ok(Some(request));
            }
            if self.buffer.len() > MAX_REQUEST {
                return Err(io::Error::other("request is too large"));
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// The request without its body, the length of its head and the length of its body.
fn parse_head(buffer: &[u8]) -> io::Result<Option<(Request, usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = parsed.parse(buffer).map_err(io::Error::other)? else {
        return Ok(None);
    };
    let header = |name: &str| {
        let found = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.value).ok().map(str::trim)
    };
    let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let request = Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: parsed.path.unwrap_or_default().to_owned(),
        key: header("authorization").map(str::to_owned),
        body: Vec::new(),
    };
    Ok(Some((request, head, length)))
}

/// What a chat completion request asks for.
pub(crate) struct Asked {
    /// The last user message.
    pub(crate) text: String,
    /// How many tokens of the answer the caller already has. A caller that continues an answer puts it after
    /// the user's message and gets the rest.
    pub(crate) already: u64,
    /// How many answers with tool calls stand behind the user's message.
    pub(crate) rounds: usize,
}

/// Reads a chat completion request, or says what is wrong with it.
pub(crate) fn asked(body: &[u8]) -> Result<Asked, String> {
    let body: Body = serde_json::from_slice(body).map_err(|error| format!("bad request: {error}"))?;
    if !body.stream {
        return Err("only stream: true is scripted".to_owned());
    }
    let position = script_position(&body.messages).ok_or("no user message")?;
    let already = match body.messages.last() {
        Some(last) if last.role == "assistant" => {
            marker::last_index(&last.text()).map_or(0, |index| index + 1)
        }
        _ => 0,
    };
    let behind = &body.messages[position..];
    let rounds = behind.iter().filter(|message| !message.tool_calls.is_empty()).count();
    Ok(Asked { text: body.messages[position].text(), already, rounds })
}

/// The last message of the user. In a run with tools, the server adds messages of its own in that role.
fn script_position(messages: &[Message]) -> Option<usize> {
    let by_user = |message: &Message| message.role == "user";
    let agent = messages.iter().rposition(|message| by_user(message) && message.text().starts_with(PREFIX));
    agent.or_else(|| messages.iter().rposition(by_user))
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    stream: bool,
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    tool_calls: Vec<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
}

impl Message {
    fn text(&self) -> String {
        match &self.content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => parts.iter().map(|part| part.text.as_str()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_the_last_user_message_in_either_form() {
        let body = br#"{"stream":true,"messages":[{"role":"user","content":"old"},
            {"role":"user","content":[{"type":"text","text":"tokens=3 "},{"type":"text","text":"seed=1"}]}]}"#;
        let asked = asked(body).unwrap();
        assert_eq!(asked.text, "tokens=3 seed=1");
        assert_eq!(asked.already, 0);
    }

    #[test]
    fn a_cut_answer_is_continued_behind_its_last_token() {
        let body = br#"{"stream":true,"messages":[{"role":"user","content":"tokens=9"},
            {"role":"assistant","content":"<0:5> <1:6> "}]}"#;
        assert_eq!(asked(body).unwrap().already, 2);
    }

    #[test]
    fn the_rounds_of_an_agent_are_counted_behind_its_script() {
        let body = br#"{"stream":true,"messages":[{"role":"user","content":"agent={}"},
            {"role":"assistant","content":null,"tool_calls":[{}]},{"role":"tool","content":"x"},
            {"role":"user","content":"[SESSION_RESUMED]"}]}"#;
        let asked = asked(body).unwrap();
        assert_eq!((asked.text.as_str(), asked.rounds), ("agent={}", 1));
    }
}
