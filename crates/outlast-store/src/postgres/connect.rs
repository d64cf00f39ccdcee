//! Connections: how they are made, and what their errors mean.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime, Timeouts,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls_improved::MakeRustlsConnect;

use super::address::Address;
use super::durability;
use super::session::Pooled;
use crate::StoreError;
use crate::open::Durable;

/// How long anybody waits for a connection, new or shared.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A statement that takes longer than this waits for somebody who is gone.
const STATEMENT_WITHIN: &str = "30s";
/// A transaction whose owner says nothing for this long ends: a server that was stopped in the middle of one must not
/// hold up others for as long as a lease. One that was only slow finds that nothing was written, and writes it again.
const NEXT_STATEMENT_WITHIN: &str = "3s";

/// The waits between two tries to connect: the first, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Waits longer each time.
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Self {
        Self(FIRST_WAIT)
    }

    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST_WAIT);
    }
}

/// Where connections come from.
#[derive(Clone)]
pub(super) struct Source {
    config: Config,
    tls: MakeRustlsConnect,
    pool: Pool,
    /// Whether transactions may come to different connections, so that none can be told anything for later.
    pub(super) pooled: bool,
}

pub(super) type Tls = <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream;

impl Source {
    pub(super) fn new(url: &str, connections: usize, durable: Durable) -> Result<Self, StoreError> {
        let Address { mut config, pooled, authorities } = Address::parse(url)?;
        config.application_name("outlast");
        config.connect_timeout(CONNECT_WITHIN);
        config.keepalives_idle(Duration::from_secs(10));
        config.tcp_user_timeout(Duration::from_secs(10));
        if !pooled {
            let options = config.get_options().unwrap_or_default();
            config.options(format!(
                "{options} -c statement_timeout={STATEMENT_WITHIN} -c idle_in_transaction_session_timeout={NEXT_STATEMENT_WITHIN}"
            ));
        }
        let tls = MakeRustlsConnect::new(tls(authorities.as_deref())?);
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config.clone(), tls.clone(), recycling);
        let timeouts = Timeouts {
            wait: Some(CONNECT_WITHIN),
            create: Some(CONNECT_WITHIN),
            recycle: Some(CONNECT_WITHIN),
        };
        let pool = Pool::builder(manager)
            .max_size(connections)
            .timeouts(timeouts)
            .runtime(Runtime::Tokio1)
            .post_create(Hook::async_fn(move |client, _| {
                Box::pin(async move {
                    match durability::objection(client, durable).await {
                        Ok(None) => Ok(()),
                        Ok(Some(why)) => Err(HookError::message(why)),
                        Err(error) => Err(HookError::Backend(error)),
                    }
                })
            }))
            .build()
            .map_err(|error| StoreError::Broken(error.to_string()))?;
        Ok(Self { config, tls, pool, pooled })
    }

    /// A connection of one's own. The second part must be polled for the first to work.
    pub(super) async fn connect(&self) -> Result<(Client, Connection<Socket, Tls>), StoreError> {
        let connecting = self.config.connect(self.tls.clone());
        match tokio::time::timeout(CONNECT_WITHIN, connecting).await {
            Ok(connected) => connected.map_err(store_error),
            Err(_) => Err(StoreError::Unavailable("PostgreSQL does not respond".to_owned())),
        }
    }

    /// A shared connection.
    pub(super) async fn shared(&self) -> Result<Pooled, StoreError> {
        let client = self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                store_error(error)
            }
            PoolError::PostCreateHook(HookError::Message(why)) => StoreError::Broken(why.into_owned()),
            other => StoreError::Unavailable(format!("no connection to PostgreSQL: {other}")),
        })?;
        Ok(Pooled::new(client, !self.pooled))
    }
}

/// Certificates are always verified, by the system's list of authorities unless the URL names another.
fn tls(authorities: Option<&Path>) -> Result<rustls::ClientConfig, StoreError> {
    let mut roots = rustls::RootCertStore::empty();
    match authorities {
        Some(file) => {
            let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let certificates = read.map_err(|error| {
                StoreError::Broken(format!("the certificates in {} cannot be read: {error}", file.display()))
            })?;
            roots.add_parsable_certificates(certificates);
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| StoreError::Broken(format!("TLS cannot be used: {error}")))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// What an error of a single statement, or of the connection, means for whoever called.
pub(super) fn store_error(error: tokio_postgres::Error) -> StoreError {
    match error.code() {
        Some(code) if !is_passing(code) => StoreError::Broken(reason(&error)),
        Some(_) | None => StoreError::Unavailable(reason(&error)),
    }
}

/// Whether the server said that nothing was written. Otherwise nobody knows.
pub(super) fn is_refusal(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| !code.code().starts_with("57P") && !code.code().starts_with("08"))
}

/// Trouble that goes away: the server restarts, is full, or made us wait for too long, or we made it wait.
fn is_passing(code: &SqlState) -> bool {
    ["08", "25P", "40", "53", "55", "57", "58"].iter().any(|class| code.code().starts_with(class))
}

/// The server's words; the library's own are often only "db error".
pub(super) fn reason(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{} ({})", db.message(), db.code().code());
    }
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
