//! Runs the engine as a server: starts, serves, removes old events, and stops in order.

mod connections;
mod pace;
mod tls;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use outlast_engine::Engine;
use outlast_engine::outside::{Outside, Walls};
use outlast_store::Opened;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use crate::audit::Audit;
use crate::auth::Auth;
use crate::config::Config;
use crate::http::{self, App, AppParts, PerUser};
use crate::traces::Traces;
use connections::Doors;
use pace::Counted;
use tls::Tls;

pub(crate) use tls::TlsFiles;

/// How often old events are removed.
const TRIM_EVERY: Duration = Duration::from_secs(60 * 60);

/// A server that is ready: it listens, and has resumed unfinished generations.
pub(crate) struct Server {
    engine: Engine,
    opened: Opened,
    listener: TcpListener,
    connections: TaskTracker,
    connections_limit: usize,
    tls: Option<Tls>,
    /// How long open connections may take to finish when the server stops.
    drain: Duration,
    app: App,
}

impl Server {
    pub(crate) async fn start(
        engine: Engine,
        auth: Auth,
        opened: Opened,
        config: &Config,
        insecure: bool,
    ) -> anyhow::Result<Server> {
        let listen = config.server.listen;
        let tls = config.tls.files()?.map(|files| Tls::open(&files)).transpose()?;
        let listener = connections::bind(listen)
            .with_context(|| format!("cannot listen on {listen}; choose another address with --listen"))?;
        let recovered = engine.take_up().await.context("cannot list unfinished generations")?;
        engine.connect_tools().await;
        let connections = TaskTracker::new();
        let hosts = config.server.allowed_hosts.clone();
        let hosts = if listen.ip().is_loopback() { hosts } else { hosts.with_any_address() };
        let walls = Walls {
            allow_private: config.webhooks.allow_private,
            own_ports: vec![listener.local_addr()?.port()],
        };
        let outside = Outside::new(walls).map_err(anyhow::Error::msg)?;
        engine.deliver(outside.clone()).await.context("cannot read the key for web push")?;
        engine.introduce(crate::cli::VERSION);
        let app = App::new(AppParts {
            engine: engine.clone(),
            auth,
            rates: config.limits.rates(),
            quotas: config.limits.quotas(),
            connections: connections.clone(),
            body_bytes: config.limits.body_bytes,
            hosts,
            outside,
            store: config.store.url.split(':').next().unwrap_or_default().to_owned(),
            insecure,
            streams: PerUser::streams(config.limits.streams_per_user),
            user_connections: PerUser::connections(config.limits.connections_per_user),
            audit: Audit::new(&config.audit.file, &config.server.data),
        });
        if let Some(collector) = config.traces.collector()?
            && let Some(traces) = Traces::new(&engine, collector)?
        {
            connections.spawn(traces.run());
        }
        announce(if tls.is_some() { "https" } else { "http" }, listener.local_addr()?);
        if recovered > 0 {
            tracing::info!(conversations = recovered, "resumed unfinished generations");
        }
        let connections_limit = config.limits.connections;
        let drain = config.server.drain;
        Ok(Server { engine, opened, listener, connections, connections_limit, tls, drain, app })
    }

    /// Serves until the process is stopped or the store fails.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Server { engine, opened, listener, connections, connections_limit, tls, drain, app } = self;
        let figures = app.figures();
        let doors = Doors {
            router: http::router(app.clone()),
            full: http::full(),
            limit: connections_limit,
            connections: connections.clone(),
            stopping: engine.stopping(),
            tls: tls.as_ref().map(|tls| tls.acceptor.clone()),
            counted: Counted { open: figures.connections.clone(), dropped: figures.dropped_readers.clone() },
        };
        let trimming = trim_regularly(engine.clone());
        tokio::pin!(trimming);
        let outcome = tokio::select! {
            () = doors.accept(&listener) => Ok(()),
            () = opened.failed() => Err(anyhow::anyhow!("the store failed; nothing more can be saved")),
            () = told_to_stop() => Ok(()),
            () = &mut trimming => Ok(()),
            () = app.auth().watch() => Ok(()),
            () = watch(tls.as_ref()) => Ok(()),
        };
        app.drain();
        drop(listener);
        engine.stop().await;
        connections.close();
        if tokio::time::timeout(drain, connections.wait()).await.is_err() {
            tracing::info!(open = connections.len(), "closing connections that did not finish");
        }
        outcome
    }
}

#[expect(clippy::print_stdout, reason = "the one line that scripts and people wait for")]
fn announce(scheme: &str, address: SocketAddr) {
    println!("Outlast is ready on {scheme}://{address}");
}

async fn watch(tls: Option<&Tls>) {
    match tls {
        Some(tls) => tls.watch().await,
        None => std::future::pending().await,
    }
}

async fn told_to_stop() {
    let interrupt = tokio::signal::ctrl_c();
    let mut terminate = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(error) => {
            tracing::error!(%error, "cannot listen for SIGTERM");
            return;
        }
    };
    tokio::select! {
        _ = interrupt => {}
        _ = terminate.recv() => {}
    }
    tracing::info!("stopping");
}

async fn trim_regularly(engine: Engine) {
    loop {
        match engine.trim().await {
            Ok(0) => {}
            Ok(generations) => tracing::info!(generations, "removed events past their retention"),
            Err(error) => tracing::warn!(%error, "cannot remove old events; will retry"),
        }
        tokio::time::sleep(TRIM_EVERY).await;
    }
}
