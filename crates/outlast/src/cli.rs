//! The command line: commands, flags and how flags become settings.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};

use crate::auth::KeysCommand;
use crate::commands::{
    AuditCommand, BackupCommand, ConfigCommand, ExportCommand, ImportCommand, McpCommand, MigrateCommand,
};
use crate::config::{Config, Sources};

/// The version, and the commit that it was built from.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("OUTLAST_COMMIT"), ")");

/// A server that owns AI generations: they finish even if clients disconnect.
#[derive(Parser)]
#[command(version = VERSION, about, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start the server (the default).
    Serve(Serve),
    /// Create, list or revoke API keys, even while the server runs.
    Keys {
        #[command(subcommand)]
        command: KeysCommand,
        #[command(flatten)]
        settings: SettingsFlags,
    },
    /// Show tools of MCP servers that are new or have changed, and agree to them, even while the server runs.
    Mcp {
        #[command(subcommand)]
        command: McpCommand,
        #[command(flatten)]
        settings: SettingsFlags,
    },
    /// Print all settings with their defaults, or print or check those that a server would use.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
        #[command(flatten)]
        settings: SettingsFlags,
    },
    /// Check settings, store, sandbox and models, and say how to fix what does not work.
    Doctor {
        #[command(flatten)]
        settings: SettingsFlags,
    },
    /// Copy the data of a SQLite store into a new folder, even while the server runs.
    Backup {
        #[command(flatten)]
        command: BackupCommand,
        #[command(flatten)]
        settings: SettingsFlags,
    },
    /// Write conversations as lines of JSON to standard output.
    Export {
        #[command(flatten)]
        command: ExportCommand,
        #[command(flatten)]
        settings: SettingsFlags,
    },
    /// Read conversations that `export` wrote. Existing conversations are not changed.
    Import {
        #[command(flatten)]
        command: ImportCommand,
        #[command(flatten)]
        settings: SettingsFlags,
    },
    /// Print the newest lines of the audit log.
    Audit {
        #[command(flatten)]
        command: AuditCommand,
        #[command(flatten)]
        settings: SettingsFlags,
    },
    /// Copy everything from one store to another while no server uses either.
    Migrate {
        #[command(flatten)]
        command: MigrateCommand,
        #[command(flatten)]
        settings: SettingsFlags,
    },
    /// Run a file tool; sandboxes start this.
    #[command(hide = true)]
    Tool { name: String },
    /// Answer a question inside a sandbox that is elsewhere.
    #[command(hide = true)]
    Inside { question: String },
}

#[derive(Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) settings: SettingsFlags,
    /// Address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Without API keys, accept requests from other machines and through proxies: everyone is the same user
    #[arg(long)]
    pub(crate) insecure: bool,
}

impl Serve {
    pub(crate) fn load(&self) -> anyhow::Result<Config> {
        let listen = self.listen.map(|listen| ("--listen", "server.listen", listen.to_string()));
        self.settings.load_with(listen)
    }
}

/// What every command takes.
#[derive(Args)]
pub(crate) struct SettingsFlags {
    /// Settings file, in TOML
    #[arg(long, env = "OUTLAST_CONFIG", value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Override any setting, as in --set limits.body_bytes=65536; can be repeated
    #[arg(long, value_name = "KEY=VALUE", global = true)]
    set: Vec<String>,
    /// Data folder
    #[arg(long, value_name = "FOLDER", global = true)]
    data: Option<PathBuf>,
    /// Store: memory:, sqlite:PATH, postgres://USER@HOST/DATABASE, redis://HOST or convex+https://key:DEPLOY_KEY@HOST
    #[arg(long, value_name = "URL", global = true)]
    store: Option<String>,
}

/// A flag for one setting: the flag, the setting and its value.
type Named = (&'static str, &'static str, String);

impl SettingsFlags {
    pub(crate) fn load(&self) -> anyhow::Result<Config> {
        self.load_with(None)
    }

    fn load_with(&self, more: Option<Named>) -> anyhow::Result<Config> {
        let mut named: Vec<Named> = more.into_iter().collect();
        if let Some(data) = &self.data {
            let data = data.to_str().context("--data: the path is not valid UTF-8")?;
            named.push(("--data", "server.data", data.to_owned()));
        }
        if let Some(store) = &self.store {
            named.push(("--store", "store.url", store.clone()));
        }
        Config::load(Sources {
            file: self.config.as_deref(),
            environment: std::env::vars_os().collect(),
            flags: &self.set,
            named,
        })
    }
}
