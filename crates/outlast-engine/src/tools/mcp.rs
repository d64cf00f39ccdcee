//! Tools that a server brings by the Model Context Protocol. The server is a program on this machine or has a URL, and is
//! not trusted: its list of tools is checked and pinned, and its hints about them count for nothing.
//!
//! `session.rs` keeps the connection. Everything else asks [`McpServer`] what can be called now.

mod connection;
mod http;
mod listing;
mod pins;
mod program;
mod result;
mod session;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outlast_core::ToolSpec;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::{Notify, Semaphore, watch};

pub use listing::{full_name, is_server_name};
pub use pins::{PinnedServer, accept_tools, pinned_servers};
pub use program::McpProgram;

use self::connection::Line;
use self::listing::Listed;
use self::result::refused;
use super::elsewhere::{Answer, Asked, ToolElsewhere};
use crate::models::Secret;
use crate::outside::Outside;

/// The largest message that a server may send. A result may be longer as JSON than what a model is given of it.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How many calls of one server run at the same time. Others wait.
const CALLS_MAX: usize = 16;
/// How long a call waits for a server that is being connected.
const READY_WITHIN: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct McpSettings {
    pub name: String,
    pub address: McpAddress,
    /// How long a call may take.
    pub timeout: Duration,
}

#[derive(Clone)]
pub enum McpAddress {
    Url { url: String, outside: Outside, headers: HeaderMap },
    Program(McpProgram),
}

impl McpAddress {
    /// Checks what can be checked without a network, so that an invalid value stops the start of the server.
    pub fn url(
        url: &str,
        outside: Outside,
        headers: &BTreeMap<String, Secret>,
    ) -> Result<McpAddress, String> {
        drop(outside.request(Method::GET, url).map_err(|error| format!("url: {error}"))?);
        let mut checked = HeaderMap::new();
        for (name, value) in headers {
            let parsed = HeaderName::from_bytes(name.as_bytes());
            let parsed = parsed.map_err(|_| format!("headers: {name:?} is not a valid header name"))?;
            if http::RESERVED.contains(&parsed) {
                return Err(format!("headers: {name} is set by the server itself"));
            }
            // The value is not shown: it may be a key.
            let value = HeaderValue::from_str(value.expose());
            let mut value =
                value.map_err(|_| format!("headers: the value of {name} is not a valid header"))?;
            value.set_sensitive(true);
            checked.insert(parsed, value);
        }
        Ok(McpAddress::Url { url: url.to_owned(), outside, headers: checked })
    }
}

impl std::fmt::Debug for McpAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            McpAddress::Url { .. } => "[url]",
            McpAddress::Program(_) => "[program]",
        })
    }
}

/// A server and what it offers now.
pub struct McpServer {
    settings: McpSettings,
    state: watch::Sender<State>,
    /// A call got no answer: see whether the server still responds.
    doubts: Notify,
    calls: Semaphore,
}

#[derive(Clone, Default)]
struct State {
    line: Option<Arc<Line>>,
    /// Why there is no connection. Absent while the first one is being made.
    problem: Option<String>,
    /// By the name that models use. While there is no connection, as they were last seen.
    tools: Arc<BTreeMap<String, KnownTool>>,
}

#[derive(Clone)]
struct KnownTool {
    /// Absent if the server was not reached since Outlast started.
    listed: Option<Listed>,
    /// Why it cannot be called even while the server can be reached.
    refusal: Option<String>,
}

/// What people are told about a server.
#[derive(Clone, Debug)]
pub struct McpStanding {
    pub name: String,
    /// Why none of its tools can be called.
    pub problem: Option<String>,
    pub unavailable: Vec<UnavailableTool>,
}

/// A tool that cannot be called now.
#[derive(Clone, Debug)]
pub struct UnavailableTool {
    pub name: String,
    pub reason: String,
}

impl McpServer {
    /// A server that is not connected yet: the engine does that when it starts.
    pub fn new(settings: McpSettings) -> Result<McpServer, String> {
        if settings.timeout.is_zero() {
            return Err("timeout must be longer than 0, or every call would time out at once".to_owned());
        }
        if let McpAddress::Program(program) = &settings.address
            && program.command.first().is_none_or(String::is_empty)
        {
            return Err("command must name a program".to_owned());
        }
        let (state, calls) = (watch::Sender::new(State::default()), Semaphore::new(CALLS_MAX));
        Ok(McpServer { settings, state, doubts: Notify::new(), calls })
    }

    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// The names of the tools that can be called now.
    pub fn tools(&self) -> Vec<String> {
        let state = self.state.borrow();
        let usable = state.tools.iter().filter(|(_, tool)| state.line.is_some() && tool.refusal.is_none());
        usable.map(|(name, _)| name.clone()).collect()
    }

    pub fn standing(&self) -> McpStanding {
        let state = self.state.borrow();
        let problem = match (&state.line, &state.problem) {
            (Some(_), _) => None,
            (None, problem) => Some(problem.clone().unwrap_or_else(|| "it is being connected".to_owned())),
        };
        let unavailable = state.tools.iter().filter_map(|(name, tool)| {
            let reason = problem.clone().or_else(|| tool.refusal.clone())?;
            Some(UnavailableTool { name: name.clone(), reason })
        });
        McpStanding { name: self.settings.name.clone(), unavailable: unavailable.collect(), problem }
    }

    /// Waits until it is connected, or until that has failed once.
    pub async fn tried(&self) {
        let mut state = self.state.subscribe();
        let tried = state.wait_for(|state| state.line.is_some() || state.problem.is_some()).await;
        drop(tried); // cannot fail: this holds the sender
    }

    /// What a model is told about a tool that can be called now.
    pub(super) fn spec(&self, name: &str) -> Option<ToolSpec> {
        let state = self.state.borrow();
        let tool = state.tools.get(name).filter(|tool| state.line.is_some() && tool.refusal.is_none())?;
        tool.listed.as_ref().map(|listed| listed.spec.clone())
    }

    pub(super) fn tool(self: &Arc<Self>, name: &str) -> Arc<dyn ToolElsewhere> {
        Arc::new(McpTool { server: self.clone(), name: name.to_owned() })
    }

    /// The connection and the tool's name there. The error is for the model.
    async fn ready(&self, name: &str) -> Result<(Arc<Line>, String), Answer> {
        let mut state = self.state.subscribe();
        let connected = state.wait_for(|state| state.line.is_some());
        let now = match tokio::time::timeout(READY_WITHIN, connected).await {
            Ok(Ok(state)) => state.clone(),
            Ok(Err(_)) | Err(_) => {
                let problem = self.standing().problem;
                return Err(Answer::NotAsked(problem.unwrap_or_else(|| "it is not connected".to_owned())));
            }
        };
        let tool = now.tools.get(name);
        if let Some(refusal) = tool.and_then(|tool| tool.refusal.as_ref()) {
            return Err(refused(format!("not run: {refusal}")));
        }
        let listed = tool.and_then(|tool| tool.listed.as_ref()).zip(now.line);
        let (listed, line) =
            listed.ok_or_else(|| refused("not run: the server no longer has this tool".to_owned()))?;
        Ok((line, listed.name.clone()))
    }
}

/// A tool by the name that models use. Whether it exists is found out when it is asked.
struct McpTool {
    server: Arc<McpServer>,
    name: String,
}

#[async_trait]
impl ToolElsewhere for McpTool {
    fn spec(&self) -> ToolSpec {
        let unknown =
            || ToolSpec { name: self.name.clone(), description: None, parameters: None, strict: None };
        self.server.spec(&self.name).unwrap_or_else(unknown)
    }

    async fn ask(&self, call: Asked<'_>) -> Answer {
        let Ok(_place) = self.server.calls.acquire().await else {
            return Answer::NotAsked("the server is stopping".to_owned());
        };
        let (line, name) = match self.server.ready(&self.name).await {
            Ok(ready) => ready,
            Err(answer) => return answer,
        };
        let answer = line.call(&name, call, self.server.settings.timeout).await;
        if matches!(answer, Answer::NotAsked(_) | Answer::Unanswered(_)) {
            self.server.doubts.notify_one();
        }
        answer
    }
}
