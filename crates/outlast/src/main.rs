//! The command `outlast`: reads the settings, opens the store, and serves until it is told to stop.

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

use crate::config::{Config, Sources};
use crate::server::Server;

/// The server did not start: a setting, the store or the address is wrong. Also what clap exits with.
const DID_NOT_START: u8 = 2;

/// A server that owns AI generations: they finish whatever clients do.
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
}

#[derive(Args)]
struct Serve {
    /// Settings file in TOML
    #[arg(long, env = "OUTLAST_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Any setting, for example --set limits.body_bytes=65536; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Data folder
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Store, for example memory:, sqlite:PATH or postgres://USER@HOST/DATABASE
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Listen on an address that others can reach, although nobody has to log in
    #[arg(long)]
    insecure: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let serve = match cli.command {
        Some(Command::Serve(serve)) => serve,
        None => cli.serve,
    };
    let filter = match std::env::var("OUTLAST_LOG") {
        Ok(filter) => EnvFilter::try_new(filter),
        Err(_) => EnvFilter::try_new("info"),
    };
    let filter = match filter.context("OUTLAST_LOG cannot be used") {
        Ok(filter) => filter,
        Err(error) => return failed(&error, DID_NOT_START),
    };
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow::Error::new(error).context("cannot start"), DID_NOT_START),
    };
    runtime.block_on(async {
        let server = match start(serve).await {
            Ok(server) => server,
            Err(error) => return failed(&error, DID_NOT_START),
        };
        match server.run().await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error, 1),
        }
    })
}

/// Tells the person who started it what is wrong, in one line.
fn failed(error: &anyhow::Error, code: u8) -> ExitCode {
    eprintln!("outlast: {}", format!("{error:#}").replace('\n', " "));
    ExitCode::from(code)
}

async fn start(serve: Serve) -> anyhow::Result<Server> {
    let mut config = Config::load(Sources {
        file: serve.config.as_deref(),
        environment: std::env::vars_os().collect(),
        flags: &serve.set,
    })?;
    if let Some(listen) = serve.listen {
        config.server.listen = listen;
    }
    if let Some(data) = serve.data {
        config.server.data = data;
    }
    if let Some(store) = serve.store {
        config.store.url = store;
    }
    if !config.server.listen.ip().is_loopback() && !serve.insecure {
        bail!(
            "{} can be reached from other machines and nobody has to log in: listen on 127.0.0.1, or pass --insecure",
            config.server.listen
        );
    }
    // Without the URL, which may hold a password; the store says what is wrong with it.
    let opened = outlast_store::open(&config.store.url, &config.server.data).await;
    let opened = opened.context("cannot open the store")?;
    let engine = Engine::new(Parts {
        store: opened.store.clone(),
        models: models::open(&config.models)?,
        settings: config.engine(),
        clock: Clock::System,
        ids: Ids::Random,
    });
    Server::start(engine, opened, &config).await
}
