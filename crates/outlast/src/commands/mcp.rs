//! `outlast mcp`: shows which tools of MCP servers wait for a person, and agrees to them, even while the server runs.

use anyhow::{Context as _, bail};
use clap::Subcommand;
use outlast_engine::Clock;
use outlast_engine::tools::{PinnedServer, accept_tools, pinned_servers};
use outlast_store::Items;

use super::say;
use crate::audit::{Action, Audit};
use crate::config::Config;

/// How much of a list's hash is shown: enough that no two lists of a server share it.
const SHOWN: usize = 12;

#[derive(Subcommand)]
pub(crate) enum McpCommand {
    /// List the servers that were reached, and their tools that are new or have changed.
    List,
    /// Agree to the tools that a server lists now. A running server offers them within seconds.
    Accept {
        /// The server's name in the settings
        name: String,
        /// The list's hash, as `list` shows it; fails if the list has changed since
        #[arg(long)]
        hash: Option<String>,
    },
}

impl McpCommand {
    pub(crate) async fn run(self, config: &Config) -> anyhow::Result<()> {
        let items = outlast_store::open_items(&config.store.url, &config.server.data, config.durable()).await;
        let items = items.with_context(|| config.blame("store.url"))?;
        match self {
            McpCommand::List => list(&*items).await,
            McpCommand::Accept { name, hash } => {
                let audit = Audit::new(&config.audit.file, &config.server.data);
                let count = match accept_tools(&*items, &name, hash.as_deref()).await {
                    Ok(count) => count,
                    Err(why) => bail!("{why}"),
                };
                let now = Clock::System.now();
                audit.record(&Action { object: name.clone(), ..Action::here(now, "mcp accept".to_owned()) });
                say(&format!("accepted {count} changed tools of {name}"));
                Ok(())
            }
        }
    }
}

async fn list(items: &dyn Items) -> anyhow::Result<()> {
    for server in pinned_servers(items).await? {
        show(&server);
    }
    Ok(())
}

/// Quoted, so that what a server wrote cannot pass for something else in a terminal.
fn show(server: &PinnedServer) {
    let PinnedServer { name, accepted, changed, hash } = server;
    say(&format!("{name}: {} tools accepted, {} changed", accepted.len(), changed.len()));
    for tool in changed {
        let what = if tool.is_known { "changed" } else { "new" };
        say(&format!("  {what} {:?}", tool.name));
        say(&format!("    description {:?}", tool.description.as_deref().unwrap_or_default()));
        say(&format!("    schema {:?}", tool.schema.to_string()));
    }
    if !changed.is_empty() {
        say(&format!("  to agree: outlast mcp accept {name} --hash {}", &hash[..SHOWN.min(hash.len())]));
    }
}
