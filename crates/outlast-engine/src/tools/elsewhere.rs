//! Tools that do not run in the sandbox: the seam behind which HTTP and MCP are.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use outlast_core::{ExecutionId, SERVER_SEPARATOR, ToolSpec};
use serde_json::Value;
use tokio::sync::mpsc;

use super::Tool;
use super::mcp::McpServer;

/// A tool that somebody else runs.
///
/// `ask` sends the call once. It never repeats it, because whether that is allowed is recorded with the call and decided
/// by the caller. Dropping the future cancels the call as far as the other side allows.
#[async_trait]
pub trait ToolElsewhere: Send + Sync {
    /// What a model is told about it.
    fn spec(&self) -> ToolSpec;

    async fn ask(&self, call: Asked<'_>) -> Answer;
}

/// A call of a tool elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The idempotency key: the same for every repetition of this call, and for no other.
    pub execution: &'a ExecutionId,
    pub input: &'a Value,
    /// Lines about the progress of the call, for people who watch. They may be left out.
    pub progress: &'a mpsc::Sender<String>,
}

/// What came of asking.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Said {
        /// At most [`super::INLINE_MAX`] bytes, and no deeper than other JSON that is stored.
        result: Value,
        is_error: bool,
    },
    /// The other side certainly got nothing. The reason is for the model, and names no secret.
    NotAsked(String),
    /// It may have got the call, and there is no answer.
    Unanswered(String),
}

/// All tools that models can be offered, by name: those of the sandbox and those elsewhere.
#[derive(Clone, Default)]
pub struct Toolbox {
    elsewhere: BTreeMap<String, Arc<dyn ToolElsewhere>>,
    /// Servers that bring their own tools, which come and go while Outlast runs.
    servers: BTreeMap<String, Arc<McpServer>>,
}

impl Toolbox {
    pub fn add(&mut self, tool: Arc<dyn ToolElsewhere>) {
        self.elsewhere.insert(tool.spec().name, tool);
    }

    pub fn add_server(&mut self, server: Arc<McpServer>) {
        self.servers.insert(server.name().to_owned(), server);
    }

    pub fn servers(&self) -> impl Iterator<Item = &Arc<McpServer>> {
        self.servers.values()
    }

    /// What a model is told about a tool that can be called now.
    pub fn spec(&self, name: &str) -> Option<ToolSpec> {
        let inside = || Tool::named(name).map(Tool::spec).or_else(|| super::delegate::spec(name));
        let of_server = || self.server_of(name)?.spec(name);
        self.elsewhere.get(name).map(|tool| tool.spec()).or_else(inside).or_else(of_server)
    }

    /// A tool of a server is found even if it cannot be called now: asking it says why.
    pub(crate) fn elsewhere(&self, name: &str) -> Option<Arc<dyn ToolElsewhere>> {
        let of_server = || self.server_of(name).map(|server| server.tool(name));
        self.elsewhere.get(name).cloned().or_else(of_server)
    }

    pub(crate) fn server_of(&self, tool: &str) -> Option<&Arc<McpServer>> {
        self.servers.get(tool.split_once(SERVER_SEPARATOR)?.0)
    }
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.elsewhere.keys()).entries(self.servers.keys()).finish()
    }
}
