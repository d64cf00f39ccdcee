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

use crate::config::Config;

/// Owns AI generations: they finish whatever clients do.
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
    /// Serve (the default).
    Serve(Serve),
}

#[derive(Args)]
struct Serve {
    /// Settings in TOML.
    #[arg(long, env = "OUTLAST_CONFIG")]
    config: Option<PathBuf>,
    /// Where to listen; port 0 takes a free one.
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// The folder for everything that is kept.
    #[arg(long)]
    data: Option<PathBuf>,
    /// The store: memory: | sqlite: | sqlite:path
    #[arg(long)]
    store: Option<String>,
    /// Allow an address that others can reach, although nobody has to log in.
    #[arg(long)]
    insecure: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let serve = match cli.command {
        Some(Command::Serve(serve)) => serve,
        None => cli.serve,
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("OUTLAST_LOG").unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime.context("cannot start the runtime").and_then(|runtime| runtime.block_on(run(serve))) {
        Ok(()) => ExitCode::SUCCESS,
        // For the person who started it: what is wrong and why, and not where in the code.
        Err(error) => {
            eprintln!("outlast: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(serve: Serve) -> anyhow::Result<()> {
    let mut config = Config::load(serve.config.as_deref(), std::env::vars_os())?;
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
            "{} can be reached from outside and nobody has to log in: listen on 127.0.0.1, or say --insecure",
            config.server.listen
        );
    }
    for name in config.without_effect() {
        tracing::warn!("the setting [{name}] has no effect: this version runs no tools");
    }
    // Without the URL, which may hold a password; the store says what is wrong with it.
    let opened =
        outlast_store::open(&config.store.url, &config.server.data).context("cannot open the store")?;
    let engine = Engine::new(Parts {
        store: opened.store.clone(),
        models: models::open(&config.models)?,
        settings: config.engine(),
        clock: Clock::System,
        ids: Ids::Random,
    });
    server::serve(engine, opened, &config, serve.insecure).await
}
