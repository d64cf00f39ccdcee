//! The command `outlast`: reads the settings, opens the store, and serves until it is told to stop.

mod config;
mod http;
mod server;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use outlast_engine::{Clock, DemoModel, Engine, Ids, Model, Models, OpenAiModel, OpenAiSettings, Parts};

use crate::config::{Config, ModelConfig, Upstream};

/// Where OpenAI-compatible models are called if nothing else is said.
const OPENROUTER: &str = "https://openrouter.ai/api/v1";

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
    let mut config = Config::load(serve.config.as_deref(), std::env::vars())?;
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
        models: models(&config)?,
        settings: config.engine(),
        clock: Clock::System,
        ids: Ids::Random,
    });
    server::serve(engine, opened, &config, serve.insecure).await
}

/// The models of the settings; the demo model answers where none is called `default`.
fn models(config: &Config) -> anyhow::Result<Models> {
    let mut by_name: BTreeMap<String, Arc<dyn Model>> = BTreeMap::new();
    for (name, model) in &config.models {
        by_name.insert(name.clone(), one_model(model).with_context(|| format!("[models.{name}]"))?);
    }
    by_name.entry("default".to_owned()).or_insert_with(|| Arc::new(DemoModel::default()));
    by_name.entry("demo".to_owned()).or_insert_with(|| Arc::new(DemoModel::default()));
    Ok(Models::new(by_name))
}

fn one_model(model: &ModelConfig) -> anyhow::Result<Arc<dyn Model>> {
    match model {
        ModelConfig::Demo { pace: None } => Ok(Arc::new(DemoModel::default())),
        ModelConfig::Demo { pace: Some(pace) } => Ok(Arc::new(DemoModel::with_pace(*pace))),
        ModelConfig::Openai(upstream) => {
            let base_url = upstream.base_url.clone().unwrap_or_else(|| OPENROUTER.to_owned());
            let (model, api_key) = (upstream.model.clone(), api_key(upstream)?);
            let settings = OpenAiSettings { base_url, model, api_key };
            Ok(Arc::new(OpenAiModel::new(settings).map_err(anyhow::Error::msg)?))
        }
        ModelConfig::Anthropic(_) => bail!("kind = \"anthropic\" is not built yet"),
    }
}

fn api_key(upstream: &Upstream) -> anyhow::Result<Option<String>> {
    match (&upstream.api_key_env, &upstream.api_key_file) {
        (None, None) => Ok(None),
        (Some(name), None) => {
            let missing = || format!("api_key_env names {name}, which is not in the environment");
            std::env::var(name).map(Some).with_context(missing)
        }
        (None, Some(path)) => {
            let unreadable = || format!("api_key_file names {}, which cannot be read", path.display());
            let key = std::fs::read_to_string(path).with_context(unreadable)?;
            Ok(Some(key.trim().to_owned()))
        }
        (Some(_), Some(_)) => bail!("api_key_env and api_key_file are both given: leave one out"),
    }
}
