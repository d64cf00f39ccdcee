//! One connection to the right server: the one that holds our keys and keeps what it has acknowledged.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, cmd,
};

use super::failure::reason;
use crate::StoreError;
use crate::open::Durable;

/// How long anybody waits for a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A script that takes longer may or may not have run.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The first version that judges a script as a whole before it begins.
const OLDEST: u64 = 7;

/// Where connections come from.
#[derive(Clone)]
pub(super) struct Server {
    seed: ConnectionInfo,
    durable: Durable,
    /// What all keys begin with.
    pub(super) root: String,
}

impl Server {
    /// The URL may name a prefix for all keys, for several stores in one Redis: `redis://host/0?prefix=chat`.
    pub(super) fn new(url: &str, durable: Durable) -> Result<Self, StoreError> {
        // A certificate is verified by the system's list of authorities. An error means that it was set before.
        rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
        let (url, prefix) = match url.split_once("?prefix=") {
            Some((url, prefix)) => (url, prefix),
            None => (url, "outlast"),
        };
        let named =
            !prefix.is_empty() && prefix.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if !named {
            let why = "the prefix in the Redis URL must consist of letters, digits, '-', '_' and '.'";
            return Err(StoreError::Broken(why.to_owned()));
        }
        // The URL itself may hold a password, so the message does not repeat it.
        let seed = url.into_connection_info().map_err(|error| {
            StoreError::Broken(format!("the Redis URL cannot be used: {}", reason(&error)))
        })?;
        Ok(Self { seed, durable, root: format!("{{{prefix}}}:") })
    }

    /// A connection that was checked: its server is the right one of a cluster, and as durable as it must be.
    pub(super) async fn connect(&self) -> Result<MultiplexedConnection, StoreError> {
        let mut connection = open(&self.seed).await?;
        if let Some(place) = self.place(&mut connection).await? {
            connection = open(&self.seed.clone().set_addr(place)).await?;
        }
        check_role(&mut connection).await?;
        check_settings(&mut connection, self.durable).await?;
        Ok(connection)
    }

    /// A connection that only listens. A cluster passes every message on to all of its servers.
    pub(super) async fn listen(&self) -> Result<PubSub, StoreError> {
        let client = Client::open(self.seed.clone()).map_err(unreachable)?;
        match tokio::time::timeout(CONNECT_WITHIN, client.get_async_pubsub()).await {
            Ok(listening) => listening.map_err(unreachable),
            Err(_) => Err(StoreError::Unavailable("Redis does not respond".to_owned())),
        }
    }

    /// Which server of a cluster has our keys; `None` without a cluster. All keys are in one slot, so it is one
    /// server, and a plain connection to it is enough.
    async fn place(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Option<ConnectionAddr>, StoreError> {
        let info: String = cmd("INFO").arg("cluster").query_async(connection).await.map_err(unreachable)?;
        if !info.contains("cluster_enabled:1") {
            return Ok(None);
        }
        let slot: u16 = cmd("CLUSTER")
            .arg("KEYSLOT")
            .arg(&self.root)
            .query_async(connection)
            .await
            .map_err(unreachable)?;
        type Shard = (u16, u16, (String, u16));
        let shards: Vec<Vec<redis::Value>> =
            cmd("CLUSTER").arg("SLOTS").query_async(connection).await.map_err(unreachable)?;
        for mut shard in shards {
            shard.truncate(3);
            // Of a server only its address matters; newer versions add more.
            if let Some(redis::Value::Array(server)) = shard.get_mut(2) {
                server.truncate(2);
            }
            let shard: Shard = redis::from_redis_value(redis::Value::Array(shard)).map_err(|error| {
                StoreError::Broken(format!("cannot read how Redis describes its cluster: {error}"))
            })?;
            let (first, last, (host, port)) = shard;
            if (first..=last).contains(&slot) {
                return Ok(Some(self.beside(host, port)));
            }
        }
        Err(StoreError::Unavailable("no node of the Redis cluster serves this store's slot".to_owned()))
    }

    /// Another server of the same cluster, reached in the same way.
    fn beside(&self, host: String, port: u16) -> ConnectionAddr {
        match self.seed.addr().clone() {
            ConnectionAddr::TcpTls { host: seed, insecure, tls_params, .. } => {
                let host = if host.is_empty() { seed } else { host };
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            // A server that does not know its own address leaves it out: it is the one that was asked.
            ConnectionAddr::Tcp(seed, _) if host.is_empty() => ConnectionAddr::Tcp(seed, port),
            _ => ConnectionAddr::Tcp(host, port),
        }
    }
}

async fn open(to: &ConnectionInfo) -> Result<MultiplexedConnection, StoreError> {
    let client = Client::open(to.clone()).map_err(unreachable)?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_WITHIN))
        .set_response_timeout(Some(ANSWER_WITHIN));
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(unreachable)
}

fn unreachable(error: RedisError) -> StoreError {
    StoreError::Unavailable(reason(&error))
}

async fn check_role(connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
    let info: String = cmd("INFO").query_async(connection).await.map_err(unreachable)?;
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let version = field("redis_version").unwrap_or_default();
    if version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0) < OLDEST {
        return Err(StoreError::Broken(format!(
            "Redis has version {version}; Outlast needs {OLDEST} or later"
        )));
    }
    match field("role") {
        Some("master") => Ok(()),
        _ => Err(StoreError::Unavailable(
            "this Redis server is a replica, which cannot be written to".to_owned(),
        )),
    }
}

/// Refuses a server that could lose what it has acknowledged, unless the setting says that it may.
async fn check_settings(connection: &mut MultiplexedConnection, durable: Durable) -> Result<(), StoreError> {
    let names = ["appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy"];
    let found: Result<HashMap<String, String>, _> =
        cmd("CONFIG").arg("GET").arg(&names).query_async(connection).await;
    let found = found.map_err(|error| match error.code() {
        Some(_) => StoreError::Broken(format!(
            "cannot find out whether Redis keeps what it acknowledges: {}; allow the user to run CONFIG GET",
            reason(&error)
        )),
        None => unreachable(error),
    })?;
    let is = |name: &str| found.get(name).map_or("unknown", String::as_str);
    if is("maxmemory-policy").starts_with("allkeys") {
        return Err(StoreError::Broken(format!(
            "Redis may drop any key when memory runs short: set maxmemory-policy to noeviction, not {}",
            is("maxmemory-policy")
        )));
    }
    if is("appendonly") != "yes" {
        return Err(StoreError::Broken(format!(
            "Redis has appendonly {}, so a restart would lose data: set it to yes",
            is("appendonly")
        )));
    }
    if durable == Durable::WithinSeconds {
        return Ok(());
    }
    for (name, needed) in [("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")] {
        if is(name) != needed {
            return Err(StoreError::Broken(format!(
                "Redis has {name} {}, so a crash could lose what was acknowledged: set it to {needed}, or set \
                 durability.mode to debounce or boundary to accept that",
                is(name)
            )));
        }
    }
    Ok(())
}
