//! Connections: how they are made, and what their errors mean.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Timeouts,
};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls_improved::MakeRustlsConnect;

use crate::StoreError;

/// How long anybody waits for a connection, new or shared.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A statement that takes longer than this waits for somebody who is gone.
const STATEMENT_WITHIN: &str = "30s";

/// Where connections come from.
#[derive(Clone)]
pub(super) struct Source {
    config: Config,
    tls: MakeRustlsConnect,
    pool: Pool,
}

pub(super) type Tls = <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream;

impl Source {
    pub(super) fn new(url: &str, connections: usize) -> Result<Self, StoreError> {
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            // The URL itself may hold a password.
            StoreError::Broken(format!("the PostgreSQL URL cannot be used: {}", reason(&error)))
        })?;
        config.application_name("outlast");
        config.connect_timeout(CONNECT_WITHIN);
        config.keepalives_idle(Duration::from_secs(10));
        config.tcp_user_timeout(Duration::from_secs(10));
        let options = config.get_options().unwrap_or_default();
        config.options(format!(
            "{options} -c statement_timeout={STATEMENT_WITHIN} -c idle_in_transaction_session_timeout={STATEMENT_WITHIN}"
        ));
        let tls = MakeRustlsConnect::new(tls()?);
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
            .build()
            .map_err(|error| StoreError::Broken(error.to_string()))?;
        Ok(Self { config, tls, pool })
    }

    /// A connection of one's own. The second part must be polled for the first to work.
    pub(super) async fn connect(&self) -> Result<(Client, Connection<Socket, Tls>), StoreError> {
        let connecting = self.config.connect(self.tls.clone());
        match tokio::time::timeout(CONNECT_WITHIN, connecting).await {
            Ok(connected) => connected.map_err(store_error),
            Err(_) => Err(StoreError::Unavailable("PostgreSQL does not answer".to_owned())),
        }
    }

    /// A shared connection.
    pub(super) async fn shared(&self) -> Result<Object, StoreError> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => store_error(error),
            other => StoreError::Unavailable(format!("no connection to PostgreSQL: {other}")),
        })
    }
}

/// Certificates are always verified, by the system's list of authorities.
fn tls() -> Result<rustls::ClientConfig, StoreError> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
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

/// Trouble that goes away: the server restarts, is full, or made us wait for too long.
fn is_passing(code: &SqlState) -> bool {
    ["08", "40", "53", "55", "57", "58"].iter().any(|class| code.code().starts_with(class))
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
