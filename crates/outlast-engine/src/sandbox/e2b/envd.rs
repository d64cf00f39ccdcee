//! The server inside a sandbox: programs are started there, and files are sent and fetched.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes, BytesMut};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RANGE};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde_json::{Value, json};

use super::E2bSettings;
use super::api::Access;
use super::settings::ENVD_PORT;

/// Chunks of output are at most 32 KiB there; a listing of many files comes in many of them.
const FRAME_MAX: usize = 4 * 1024 * 1024;
/// The most that a question may answer.
const ANSWER_MAX: usize = 256 * 1024 * 1024;
const COMPRESSED: u8 = 1;
const LAST: u8 = 2;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnvdError {
    /// The sandbox is paused, gone or changing; the control API knows which. It has not heard the call.
    #[error("the sandbox does not answer")]
    Away,
    /// The connection broke. The call may have been heard.
    #[error("the connection to the sandbox broke")]
    Cut,
    #[error("{0}")]
    NotFound(String),
    /// Asking again may help.
    #[error("{0}")]
    Passing(String),
    /// The program could not be started, or the request was refused.
    #[error("{0}")]
    Refused(String),
}

/// What a program wrote, and how it ended.
#[derive(Debug, Default)]
pub(super) struct Finished {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) exit: i64,
}

/// When to stop listening to a program, which keeps running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    End,
    /// One line of output.
    Line,
}

/// A connection to one sandbox.
pub(super) struct Envd<'a> {
    pub(super) client: &'a Client,
    pub(super) settings: &'a E2bSettings,
    pub(super) access: &'a Access,
}

impl Envd<'_> {
    /// Runs a program. Output is lost if the connection breaks; the program is not.
    pub(super) async fn run(
        &self,
        user: &str,
        words: &[&str],
        until: Until,
        longest: Duration,
    ) -> Result<Finished, EnvdError> {
        let (program, arguments) = words.split_first().expect("a program has a name");
        let message = json!({"process": {"cmd": program, "args": arguments, "cwd": "/"}, "stdin": false});
        let request = self
            .post("/process.Process/Start", user)
            .header(CONTENT_TYPE, "application/connect+json")
            .header("Connect-Protocol-Version", "1")
            .body(framed(&message));
        let listening = async { listen(answered(request).await?, until).await };
        match tokio::time::timeout(longest, listening).await {
            Ok(finished) => finished,
            Err(_) => Err(EnvdError::Passing("the sandbox did not answer in time".to_owned())),
        }
    }

    /// A new file, with the folders above it.
    pub(super) async fn upload(&self, path: &str, content: Bytes) -> Result<(), EnvdError> {
        let longest = self.settings.patience + Duration::from_secs(content.len() as u64 / 100_000);
        let request = self
            .with_headers(self.client.post(self.file(path)?), &self.settings.user)
            .header(CONTENT_TYPE, "application/octet-stream")
            .timeout(longest)
            .body(content);
        answered(request).await.map(drop)
    }

    /// A part of a file; nothing behind its end.
    pub(super) async fn read(&self, path: &str, offset: u64, max: usize) -> Result<Bytes, EnvdError> {
        let last = offset.saturating_add(max as u64).saturating_sub(1);
        let request = self
            .with_headers(self.client.get(self.file(path)?), &self.settings.user)
            .header(RANGE, format!("bytes={offset}-{last}"))
            .timeout(self.settings.patience);
        let response = request.send().await.map_err(broken)?;
        match response.status() {
            StatusCode::RANGE_NOT_SATISFIABLE => Ok(Bytes::new()),
            // It was empty when it was opened, or the server there does not know ranges.
            StatusCode::OK => {
                let bytes = response.bytes().await.map_err(broken)?;
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                Ok(bytes.slice(from..from.saturating_add(max).min(bytes.len())))
            }
            StatusCode::PARTIAL_CONTENT => response.bytes().await.map_err(broken),
            _ => Err(refusal(response).await),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.settings.envd(&self.access.id, self.access.domain.as_deref()))
    }

    fn file(&self, path: &str) -> Result<Url, EnvdError> {
        let query = [("path", path), ("username", &self.settings.user)];
        Url::parse_with_params(&self.url("/files"), query)
            .map_err(|_| EnvdError::Refused("the address of the sandbox is not a URL".to_owned()))
    }

    fn post(&self, path: &str, user: &str) -> RequestBuilder {
        self.with_headers(self.client.post(self.url(path)), user)
    }

    fn with_headers(&self, request: RequestBuilder, user: &str) -> RequestBuilder {
        let mut request = request
            .header("E2b-Sandbox-Id", &self.access.id)
            .header("E2b-Sandbox-Port", ENVD_PORT)
            .header(AUTHORIZATION, format!("Basic {}", STANDARD.encode(format!("{user}:"))));
        if let Some(token) = &self.access.token
            && let Ok(mut token) = HeaderValue::from_str(token.expose())
        {
            token.set_sensitive(true);
            request = request.header("X-Access-Token", token);
        }
        request
    }
}

async fn answered(request: RequestBuilder) -> Result<Response, EnvdError> {
    let response = request.send().await.map_err(broken)?;
    if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
}

async fn refusal(response: Response) -> EnvdError {
    let status = response.status().as_u16();
    let body: Value = response.json().await.unwrap_or_default();
    let said = body["message"].as_str().unwrap_or_default().to_owned();
    match status {
        // The token changes when a sandbox is resumed, and a paused or killed one answers with 502.
        401 | 409 | 502 => EnvdError::Away,
        404 => EnvdError::NotFound(said),
        507 => EnvdError::Refused("the disk of the sandbox is full".to_owned()),
        429 | 500..=599 => EnvdError::Passing(format!("the sandbox answered with {status}: {said}")),
        _ => EnvdError::Refused(format!("the sandbox answered with {status}: {said}")),
    }
}

fn broken(error: reqwest::Error) -> EnvdError {
    match error.is_timeout() {
        true => EnvdError::Passing("the sandbox did not answer in time".to_owned()),
        false => EnvdError::Cut, // as every pause does
    }
}

fn framed(message: &Value) -> Vec<u8> {
    let payload = message.to_string();
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend_from_slice(payload.as_bytes());
    frame
}

async fn listen(mut response: Response, until: Until) -> Result<Finished, EnvdError> {
    let (mut buffer, mut finished) = (BytesMut::new(), Finished::default());
    let mut exit = None;
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        buffer.extend_from_slice(&chunk);
        while let Some((flags, message)) = next_frame(&mut buffer)? {
            if flags & LAST != 0 {
                if let Some(error) = message.get("error") {
                    return Err(failed(error));
                }
                finished.exit =
                    exit.ok_or_else(|| EnvdError::Passing("a program ended unheard".to_owned()))?;
                return Ok(finished);
            }
            let event = &message["event"];
            take(&event["data"]["stdout"], &mut finished.stdout)?;
            take(&event["data"]["stderr"], &mut finished.stderr)?;
            if let Some(end) = event.get("end") {
                exit = Some(end["exitCode"].as_i64().unwrap_or_default()); // zero is left out
            }
            if until == Until::Line && finished.stdout.contains(&b'\n') {
                return Ok(finished);
            }
        }
    }
    Err(EnvdError::Cut) // a stream that ends without its last frame was cut
}

fn next_frame(buffer: &mut BytesMut) -> Result<Option<(u8, Value)>, EnvdError> {
    let nonsense = |what: &str| EnvdError::Passing(format!("the sandbox sent {what}"));
    let Some(head) = buffer.first_chunk::<5>() else { return Ok(None) };
    let (flags, length) = (head[0], u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize);
    if length > FRAME_MAX || flags & COMPRESSED != 0 {
        return Err(nonsense("a frame that nobody asked for"));
    }
    if buffer.len() < 5 + length {
        return Ok(None);
    }
    buffer.advance(5);
    let message = serde_json::from_slice(&buffer.split_to(length));
    Ok(Some((flags, message.map_err(|_| nonsense("no JSON"))?)))
}

fn take(data: &Value, into: &mut Vec<u8>) -> Result<(), EnvdError> {
    let Some(text) = data.as_str() else { return Ok(()) };
    let bytes =
        STANDARD.decode(text).map_err(|_| EnvdError::Passing("the sandbox sent no base64".to_owned()))?;
    if into.len() + bytes.len() > ANSWER_MAX {
        return Err(EnvdError::Refused("a program in the sandbox writes too much".to_owned()));
    }
    into.extend_from_slice(&bytes);
    Ok(())
}

fn failed(error: &Value) -> EnvdError {
    let said = error["message"].as_str().unwrap_or_default().to_owned();
    match error["code"].as_str().unwrap_or_default() {
        "not_found" => EnvdError::NotFound(said),
        "unavailable" | "internal" | "unknown" | "aborted" | "deadline_exceeded" | "resource_exhausted" => {
            EnvdError::Passing(said)
        }
        _ => EnvdError::Refused(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_may_come_in_pieces_and_together() {
        let mut stream = framed(&json!({"event": {"data": {"stdout": "aGk="}}}));
        stream.extend(framed(&json!({"event": {"end": {"exited": true}}})));
        let (mut buffer, mut seen) = (BytesMut::new(), Vec::new());
        for byte in stream {
            buffer.extend_from_slice(&[byte]);
            while let Some((_, message)) = next_frame(&mut buffer).unwrap() {
                seen.push(message);
            }
        }
        assert_eq!(seen.len(), 2);
        assert!(seen[1]["event"]["end"]["exitCode"].is_null());
    }

    #[test]
    fn a_frame_larger_than_any_the_server_sends_is_refused() {
        let mut buffer = BytesMut::from(&[0, 255, 255, 255, 255, 0][..]);
        assert!(next_frame(&mut buffer).is_err());
    }
}
