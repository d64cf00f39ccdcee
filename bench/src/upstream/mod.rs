//! A scripted OpenAI-compatible provider, as its own process.
//!
//! `POST /v1/chat/completions` plays the script found in the last user message (see [`Script`]);
//! `GET /calls?seed=7` returns how often a seed was called, and `GET /asked?seed=7` the last request of an [`Agent`]. HTTP/1.1 is written by hand, because at
//! 100,000 tokens a second the cost of a framework would distort the measurement.

mod agent;
mod answer;
mod calls;
mod play;
mod request;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::script::{Fault, Script};
use agent::Agent;
use calls::Calls;
use play::Finale;
use request::{Request, RequestReader};

/// Serves until the process is killed. Prints its address first; the run waits for that line.
pub(crate) async fn serve(listen: SocketAddr) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    println!("upstream listening on http://{}", listener.local_addr()?);
    let calls = Arc::new(Calls::default());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                connections.spawn(connection(stream, calls.clone()));
            }
            // Join finished connections, or the set would grow during a long run.
            Some(_) = connections.join_next() => {}
        }
    }
}

/// What happens to a connection after a response.
enum After {
    /// The next request may come on it.
    Keep,
    /// It cannot be used again.
    Close,
}

/// Serves one request after the other. An error means that the peer left; it is counted as `closed_early`.
async fn connection(stream: TcpStream, calls: Arc<Calls>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut reader = RequestReader::new(stream);
    while let Ok(Some(request)) = reader.next().await {
        match answer(reader.stream(), &request, &calls).await {
            Ok(After::Keep) => {}
            Ok(After::Close) | Err(_) => return,
        }
    }
}

async fn answer(stream: &mut TcpStream, request: &Request, calls: &Calls) -> io::Result<After> {
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    match (request.method.as_str(), path) {
        ("POST", "/v1/chat/completions") => completion(stream, request, calls).await,
        ("GET", "/calls") => {
            let seed = query.strip_prefix("seed=").and_then(|seed| seed.parse().ok()).unwrap_or(0);
            stream.write_all(&answer::json(200, &calls.report(seed), None)).await?;
            Ok(After::Keep)
        }
        ("GET", "/asked") => {
            let seed = query.strip_prefix("seed=").and_then(|seed| seed.parse().ok()).unwrap_or(0);
            let kept = calls.kept(seed).unwrap_or_else(|| "null".to_owned());
            stream.write_all(&answer::json(200, &kept, None)).await?;
            Ok(After::Keep)
        }
        _ => {
            stream.write_all(&answer::error(404, "not found", None)).await?;
            Ok(After::Keep)
        }
    }
}

async fn completion(stream: &mut TcpStream, request: &Request, calls: &Calls) -> io::Result<After> {
    let asked = match request::asked(&request.body) {
        Ok(asked) => asked,
        Err(reason) => {
            stream.write_all(&answer::error(400, &reason, None)).await?;
            return Ok(After::Keep);
        }
    };
    if asked.text.starts_with(agent::PREFIX) {
        return agent_round(stream, request, &asked, calls).await;
    }
    let script = match Script::parse(&asked.text) {
        Ok(script) => script,
        Err(reason) => {
            stream.write_all(&answer::error(400, &reason, None)).await?;
            return Ok(After::Keep);
        }
    };
    let call = calls.begin(script.seed);
    if let Some(Fault::Status { code, retry_after }) = script.fault_of(call.number()) {
        let key = request.key.as_deref().unwrap_or("nobody");
        let message = format!("scripted failure for {key}");
        stream.write_all(&answer::error(*code, &message, *retry_after)).await?;
        call.finished();
        return Ok(After::Keep);
    }
    match play::play(stream, &script, call.number(), asked.already).await? {
        Finale::Complete => {
            call.finished();
            Ok(After::Keep)
        }
        // The peer left first; dropping the call counts it.
        Finale::PeerLeft => Ok(After::Close),
        Finale::Reset => {
            // Without lingering, closing the socket sends a reset instead of an orderly end.
            stream.set_zero_linger()?;
            call.finished();
            Ok(After::Close)
        }
    }
}

async fn agent_round(
    stream: &mut TcpStream,
    request: &Request,
    asked: &request::Asked,
    calls: &Calls,
) -> io::Result<After> {
    let agent = match Agent::parse(&asked.text) {
        Ok(agent) => agent,
        Err(reason) => {
            stream.write_all(&answer::error(400, &reason, None)).await?;
            return Ok(After::Keep);
        }
    };
    if agent.keep {
        calls.keep(agent.seed, &request.body);
    }
    let (number, round) = agent.round(asked.rounds);
    let call = calls.begin(agent.seed_of(number));
    if let Some(status) = round.failure(call.number()) {
        stream.write_all(&answer::error(status, "scripted failure", None)).await?;
        call.finished();
        return Ok(After::Keep);
    }
    match agent::play(stream, number, round).await? {
        Finale::Complete => {
            call.finished();
            Ok(After::Keep)
        }
        Finale::PeerLeft | Finale::Reset => Ok(After::Close),
    }
}
