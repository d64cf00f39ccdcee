//! The command `outlast`: reads the settings, opens the store, and serves until it is stopped.

mod auth;
mod config;
mod http;
mod models;
mod server;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use outlast_engine::{Clock, Engine, Ids, Parts};
use tracing_subscriber::EnvFilter;

use crate::auth::{Auth, KeysCommand};
use crate::config::{Config, Sources};
use crate::server::Server;

/// The exit code if a setting, the store or the address prevents the start. Clap uses the same code.
const DID_NOT_START: u8 = 2;

/// A server that owns AI generations: they finish even if clients disconnect.
#[derive(Parser)]
#[command(version, about, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Subcommand)]
enum Command {
    /// Start the server (the default).
    Serve(Serve),
    /// Create, list or revoke API keys, also while the server runs.
    Keys {
        #[command(subcommand)]
        command: KeysCommand,
        #[command(flatten)]
        settings: SettingsFlags,
    },
}

#[derive(Args)]
struct Serve {
    #[command(flatten)]
    settings: SettingsFlags,
    /// Address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Listen on an address that others can reach, or behind a proxy, although nobody has to log in
    #[arg(long)]
    insecure: bool,
}

/// What every command takes.
#[derive(Args)]
struct SettingsFlags {
    /// Settings file in TOML
    #[arg(long, env = "OUTLAST_CONFIG", value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Any setting, for example --set limits.body_bytes=65536; can be repeated
    #[arg(long, value_name = "KEY=VALUE", global = true)]
    set: Vec<String>,
    /// Data folder
    #[arg(long, value_name = "FOLDER", global = true)]
    data: Option<PathBuf>,
    /// Store, for example memory:, sqlite:PATH or postgres://USER@HOST/DATABASE
    #[arg(long, value_name = "URL", global = true)]
    store: Option<String>,
}

impl SettingsFlags {
    fn load(self) -> anyhow::Result<Config> {
        let mut config = Config::load(Sources {
            file: self.config.as_deref(),
            environment: std::env::vars_os().collect(),
            flags: &self.set,
        })?;
        if let Some(data) = self.data {
            config.server.data = data;
        }
        if let Some(store) = self.store {
            config.store.url = store;
        }
        Ok(config)
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let command = cli.command.unwrap_or(Command::Serve(cli.serve));
    let filter = match std::env::var("OUTLAST_LOG") {
        Ok(filter) => EnvFilter::try_new(filter),
        Err(_) => EnvFilter::try_new("info"),
    };
    let filter = match filter.context("OUTLAST_LOG is invalid") {
        Ok(filter) => filter,
        Err(error) => return failed(&error, DID_NOT_START),
    };
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow::Error::new(error).context("cannot start"), DID_NOT_START),
    };
    runtime.block_on(async {
        match command {
            Command::Serve(flags) => serve(flags).await,
            Command::Keys { command, settings } => match keys(command, settings).await {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed(&error, DID_NOT_START),
            },
        }
    })
}

async fn serve(flags: Serve) -> ExitCode {
    let server = match start(flags).await {
        Ok(server) => server,
        Err(error) => return failed(&error, DID_NOT_START),
    };
    match server.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error, 1),
    }
}

async fn keys(command: KeysCommand, settings: SettingsFlags) -> anyhow::Result<()> {
    let config = settings.load()?;
    let items = outlast_store::open_items(&config.store.url, &config.server.data).await;
    let items = items.context("cannot open the store")?;
    command.run(&*items).await
}

/// Prints what is wrong in one line.
fn failed(error: &anyhow::Error, code: u8) -> ExitCode {
    eprintln!("outlast: {}", format!("{error:#}").replace('\n', " "));
    ExitCode::from(code)
}

async fn start(flags: Serve) -> anyhow::Result<Server> {
    let mut config = flags.settings.load()?;
    if let Some(listen) = flags.listen {
        config.server.listen = listen;
    }
    // Without the URL, which may contain a password. The store's error says what is wrong with it.
    let opened = outlast_store::open(&config.store.url, &config.server.data).await;
    let opened = opened.context("cannot open the store")?;
    let jwt = match &config.jwt {
        Some(section) => Some(section.open().await?),
        None => None,
    };
    let auth = Auth::open(opened.store.clone(), Clock::System, jwt).await.context("cannot read the keys")?;
    let listen = config.server.listen;
    if !listen.ip().is_loopback() && !flags.insecure && !auth.is_required().await? {
        bail!(
            "{listen} can be reached from other machines and nobody has to log in: create a key with \
             `outlast keys create --user NAME`, listen on 127.0.0.1, or pass --insecure"
        );
    }
    let engine = Engine::new(Parts {
        store: opened.store.clone(),
        models: models::open(&config.models)?,
        settings: config.engine(),
        clock: Clock::System,
        ids: Ids::Random,
    });
    Server::start(engine, auth, opened, &config, flags.insecure).await
}
