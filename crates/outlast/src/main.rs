//! The command `outlast`: reads the settings, opens the store, and serves until it is stopped.

mod audit;
mod auth;
mod cli;
mod commands;
mod config;
mod http;
mod logging;
mod models;
mod server;
mod toolbox;
mod traces;
mod workshop;

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser as _;
use outlast_engine::{Clock, Engine, Ids, Parts, Settings};

use crate::audit::Audit;
use crate::auth::{Auth, KeysCommand};
use crate::cli::{Cli, Command, Serve};
use crate::commands::{ExportCommand, ImportCommand, McpCommand, MigrateCommand};
use crate::config::Config;
use crate::server::Server;

/// The exit code if a setting, the store or the address prevents the start. Clap uses the same code.
const DID_NOT_START: u8 = 2;

/// What is done with settings and a runtime.
enum Task {
    Serve { insecure: bool },
    Keys(KeysCommand),
    Mcp(McpCommand),
    Export(ExportCommand),
    Import(ImportCommand),
    Doctor,
    Migrate(MigrateCommand),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let command = cli.command.unwrap_or(Command::Serve(cli.serve));
    let loaded = match command {
        // Runs inside a sandbox, where there is no server.
        Command::Tool { name } => return outlast_engine::tools::inside::main(&name),
        Command::Inside { question } => return outlast_engine::sandbox::inside::main(&question),
        Command::Config { command, settings } => return finished(command.run(&settings)),
        Command::Serve(serve) => load_for(serve),
        Command::Keys { command, settings } => settings.load().map(|config| (Task::Keys(command), config)),
        Command::Mcp { command, settings } => settings.load().map(|config| (Task::Mcp(command), config)),
        Command::Export { command, settings } => {
            settings.load().map(|config| (Task::Export(command), config))
        }
        Command::Import { command, settings } => {
            settings.load().map(|config| (Task::Import(command), config))
        }
        Command::Doctor { settings } => settings.load().map(|config| (Task::Doctor, config)),
        Command::Backup { command, settings } => {
            return finished(settings.load().and_then(|config| command.run(&config)));
        }
        Command::Audit { command, settings } => {
            return finished(settings.load().and_then(|config| command.run(&config)));
        }
        Command::Migrate { command, settings } => {
            settings.load().map(|config| (Task::Migrate(command), config))
        }
    };
    let begun = loaded.and_then(|(task, config)| {
        logging::begin(&config.log)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        Ok((task, config, runtime.context("cannot start")?))
    });
    let (task, config, runtime) = match begun {
        Ok(begun) => begun,
        Err(error) => return failed(&error, DID_NOT_START),
    };
    runtime.block_on(async {
        match task {
            Task::Serve { insecure } => serve(config, insecure).await,
            Task::Keys(command) => finished(keys(command, &config).await),
            Task::Mcp(command) => finished(command.run(&config).await),
            Task::Export(command) => finished(command.run(&config).await),
            Task::Import(command) => finished(command.run(&config).await),
            Task::Doctor => finished(commands::doctor::run(&config).await),
            Task::Migrate(command) => finished(command.run(&config).await),
        }
    })
}

fn load_for(serve: Serve) -> anyhow::Result<(Task, Config)> {
    Ok((Task::Serve { insecure: serve.insecure }, serve.load()?))
}

fn finished(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error, DID_NOT_START),
    }
}

async fn serve(config: Config, insecure: bool) -> ExitCode {
    let server = match start(config, insecure).await {
        Ok(server) => server,
        Err(error) => return failed(&error, DID_NOT_START),
    };
    match server.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error, 1),
    }
}

async fn keys(command: KeysCommand, config: &Config) -> anyhow::Result<()> {
    let items = outlast_store::open_items(&config.store.url, &config.server.data, config.durable()).await;
    let items = items.with_context(|| config.blame("store.url"))?;
    let audit = Audit::new(&config.audit.file, &config.server.data);
    command.run(&*items, &audit).await
}

/// Prints what is wrong in one line.
fn failed(error: &anyhow::Error, code: u8) -> ExitCode {
    eprintln!("outlast: {}", format!("{error:#}").replace('\n', " "));
    ExitCode::from(code)
}

async fn start(config: Config, insecure: bool) -> anyhow::Result<Server> {
    // Without the URL, which may contain a password. The store's error says what is wrong with it.
    let opened = outlast_store::open(&config.store.url, &config.server.data, config.durable()).await;
    let opened = opened.with_context(|| format!("{}: cannot open the store", config.blame("store.url")))?;
    if outlast_store::migrate::is_unfinished(&*opened.store).await? {
        bail!(
            "{}: a migration into this store was not finished: run `outlast migrate` again",
            config.blame("store.url")
        );
    }
    let jwt = match &config.jwt {
        Some(section) => Some(section.open().await.with_context(|| config.blame("jwt"))?),
        None => None,
    };
    let auth = Auth::open(opened.store.clone(), Clock::System, jwt).await.context("cannot read the keys")?;
    let listen = config.server.listen;
    if !listen.ip().is_loopback() && !insecure && !auth.is_required().await? {
        bail!(
            "{}: other machines can reach {listen}, and there are no API keys: create one with \
             `outlast keys create --user NAME`, listen on 127.0.0.1, or pass --insecure",
            config.blame("server.listen")
        );
    }
    let settings = config.engine().map_err(anyhow::Error::msg)?;
    let settings = Settings { toolbox: toolbox::open(&config)?, ..settings };
    let engine = Engine::new(Parts {
        store: opened.store.clone(),
        models: models::open(&config.models)?,
        workshop: workshop::open(&config).await?,
        settings,
        clock: Clock::System,
        ids: Ids::Random,
    });
    Server::start(engine, auth, opened, &config, insecure).await
}
