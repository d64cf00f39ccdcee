//! Keeps a server connected, knows which of its tools can be used, and connects again after a failure.

use std::sync::Arc;
use std::time::Duration;

use outlast_store::Items;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, Line};
use super::listing::{Listed, check};
use super::{KnownTool, McpServer, State, full_name, pins};

/// How long a server may take to start and shake hands. Some download themselves first.
const CONNECT_WITHIN: Duration = Duration::from_secs(60);
/// How long it may take to list its tools. If it takes longer, it hangs.
const LIST_WITHIN: Duration = Duration::from_secs(10);
/// How often it is asked for its tools: to notice that it hangs, and changes that it does not announce.
const LIST_EVERY: Duration = Duration::from_secs(60);
/// How long a server that was never seen before may take to announce that its list was not complete.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// It may announce changes as often as it likes, but is asked no more often than this.
const LIST_PAUSE: Duration = Duration::from_secs(1);
/// How often the store is asked whether a person has agreed to a change.
const ACCEPTED_EVERY: Duration = Duration::from_secs(2);
/// The wait before it is connected again. It doubles with each failure ...
const WAIT_MIN: Duration = Duration::from_secs(1);
/// ... up to this, ...
const WAIT_MAX: Duration = Duration::from_secs(60);
/// ... and starts over if the connection lasted this long.
const STEADY_AFTER: Duration = Duration::from_secs(60);

impl McpServer {
    /// Keeps it connected until `stop`. A server that cannot be reached is tried again and again.
    pub(crate) async fn keep_connected(self: Arc<Self>, items: Arc<dyn Items>, stop: CancellationToken) {
        self.recall(&*items).await;
        let mut wait = WAIT_MIN;
        loop {
            let began = Instant::now();
            let Some(problem) = self.connect(&*items, &stop).await else { return };
            tracing::warn!(server = self.name(), problem, "an MCP server cannot be used; will retry");
            self.state.send_modify(|state| {
                state.line = None;
                state.problem = Some(problem);
            });
            if began.elapsed() > STEADY_AFTER {
                wait = WAIT_MIN;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            wait = (wait * 2).min(WAIT_MAX);
        }
    }

    /// The tools that it had when it was last reached, so that they can be listed as unavailable.
    async fn recall(&self, items: &dyn Items) {
        match pins::known(items, self.name()).await {
            Ok(known) => {
                let unknown =
                    |name: String| (full_name(self.name(), &name), KnownTool { listed: None, refusal: None });
                let tools = Arc::new(known.into_iter().map(unknown).collect());
                self.state.send_modify(|state| state.tools = tools);
            }
            Err(error) => {
                tracing::warn!(server = self.name(), %error, "cannot read the tools of an MCP server")
            }
        }
    }

    /// One connection from beginning to end. Returns why it ended; nothing if it was to stop.
    async fn connect(&self, items: &dyn Items, stop: &CancellationToken) -> Option<String> {
        let opening = timeout(CONNECT_WITHIN, Connection::open(&self.settings));
        let opened = tokio::select! {
            () = stop.cancelled() => return None,
            opened = opening => opened,
        };
        let mut connection = match opened {
            Ok(Ok(connection)) => connection,
            Ok(Err(problem)) => return Some(problem),
            Err(_) => return Some("it did not respond in time".to_owned()),
        };
        let line = connection.line.clone();
        let ended = tokio::select! {
            () = stop.cancelled() => None,
            problem = self.attend(&line, items) => Some(problem),
            never = connection.serve(self.name()) => match never {},
        };
        self.state.send_modify(|state| state.line = None);
        connection.close().await;
        ended
    }

    /// Lists the tools whenever they may have changed. Returns what is wrong with the connection.
    async fn attend(&self, line: &Arc<Line>, items: &dyn Items) -> String {
        // Some servers complete their list right after the handshake. The first one is trusted, so it should be whole.
        if self.state.borrow().tools.is_empty() {
            timeout(FIRST_PAUSE, line.list_changed.notified()).await.ok();
        }
        loop {
            let listed = match timeout(LIST_WITHIN, line.list()).await {
                Ok(Ok(described)) => check(self.name(), described),
                Ok(Err(problem)) => Err(problem),
                Err(_) => Err("it does not respond".to_owned()),
            };
            let attended = match listed {
                Ok(listed) => self.offer(line, &listed, items).await,
                Err(problem) => Err(problem),
            };
            match attended {
                Ok(()) => tokio::time::sleep(LIST_PAUSE).await,
                Err(problem) => return problem,
            }
        }
    }

    /// Offers those tools that a person agreed to, until it is time to list them again.
    async fn offer(&self, line: &Arc<Line>, listed: &[Listed], items: &dyn Items) -> Result<(), String> {
        let again = tokio::time::sleep(LIST_EVERY);
        tokio::pin!(again);
        loop {
            let accepted = pins::compare(items, self.name(), listed).await?;
            let known = |tool: &Listed| {
                let is_changed = accepted.get(&tool.name) != Some(&tool.hash);
                let changed = is_changed.then(|| {
                    let server = self.name();
                    format!(
                        "it is new or has changed; see `outlast mcp list`, then `outlast mcp accept {server}`"
                    )
                });
                let refusal = tool.fault.clone().or(changed);
                (tool.spec.name.clone(), KnownTool { listed: Some(tool.clone()), refusal })
            };
            let tools = Arc::new(listed.iter().map(known).collect());
            let pending = listed
                .iter()
                .any(|tool| tool.fault.is_none() && accepted.get(&tool.name) != Some(&tool.hash));
            self.state.send_replace(State { line: Some(line.clone()), problem: None, tools });
            tokio::select! {
                () = &mut again => return Ok(()),
                () = line.list_changed.notified() => return Ok(()),
                () = self.doubts.notified() => return Ok(()),
                () = line.closed.cancelled() => return Err("the connection was closed".to_owned()),
                () = tokio::time::sleep(ACCEPTED_EVERY), if pending => {}
            }
        }
    }
}
