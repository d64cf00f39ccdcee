//! Connections to PostgreSQL: through a pooler, with TLS, and to a server that could lose data, which is refused.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::ConversationId;
use outlast_store::suite::postgres::{Pooler, Server};
use outlast_store::suite::{all, append, conversation, write};
use outlast_store::{AppendError, Durable, PostgresOptions, PostgresStore, Store, StoreError};

use crate::Served;

async fn open(url: String) -> Arc<dyn Store> {
    Arc::new(PostgresStore::open(&url, PostgresOptions::default()).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_postgres_behind_a_transaction_pooler_passes_the_suite() {
    let server = Server::start();
    let pooler = Pooler::start(&server);
    let subject = async |_: &str| Served::new(pooler.url(&server), |url| Box::pin(open(url))).await;
    outlast_store::conformance_in_order!(subject);
    let locks = server.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'");
    assert_eq!(locks, "0", "a lock that outlives its transaction would never be released");
}

async fn refused(url: &str, durable: Durable) -> Option<String> {
    match PostgresStore::open(url, PostgresOptions { durable, ..PostgresOptions::default() }).await {
        Ok(_) => None,
        Err(StoreError::Broken(why) | StoreError::Unavailable(why)) => Some(why),
    }
}

#[tokio::test]
async fn a_server_that_could_lose_what_it_committed_is_refused() {
    let mut server = Server::start();
    let url = server.url();
    for (setting, all_modes) in [("synchronous_commit", false), ("full_page_writes", true), ("fsync", true)] {
        server.ask(&format!("ALTER SYSTEM SET {setting} = off"));
        server.ask("SELECT pg_reload_conf()");
        until(async || refused(&url, Durable::AtOnce).await.is_some()).await;
        let why = refused(&url, Durable::AtOnce).await.unwrap();
        assert!(why.contains(&format!("{setting} = off")) && !why.contains('\n'), "{why}");
        assert_eq!(why.contains("durability.mode"), !all_modes, "it names the other way out: {why}");
        assert_eq!(refused(&url, Durable::WithinSeconds).await.is_some(), all_modes);
        server.ask(&format!("ALTER SYSTEM RESET {setting}"));
        server.ask("SELECT pg_reload_conf()");
        until(async || refused(&url, Durable::AtOnce).await.is_none()).await;
    }

    // The same when the server comes back with other settings.
    let store = open(url).await;
    let c = conversation("c");
    write(&*store, &c, 0, &["a"]).await;
    server.ask("ALTER SYSTEM SET synchronous_commit = off");
    server.stop(true);
    server.resume();
    until(async || refusal(&*store, &c).await.is_some_and(|why| why.contains("synchronous_commit"))).await;
    server.ask("ALTER SYSTEM RESET synchronous_commit");
    server.ask("SELECT pg_reload_conf()");
    until(async || refusal(&*store, &c).await.is_none()).await;
    assert_eq!(all(&*store, &c).await.len(), 2, "nothing was written in between");
}

/// Tries to append the second record; the reason if that did not work.
async fn refusal(store: &dyn Store, c: &ConversationId) -> Option<String> {
    let fence = match store.claim(c).await {
        Ok(fence) => fence,
        Err(error) => return Some(error.to_string()),
    };
    match store.append(append(c, fence, 1, &["b"])).await {
        Ok(()) | Err(AppendError::Conflict { .. }) => None,
        Err(error) => Some(error.to_string()),
    }
}

async fn until(holds: impl AsyncFn() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("in time");
}

#[tokio::test]
async fn a_connection_is_encrypted_and_the_certificate_verified() {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let settings = ["ssl=on", "ssl_cert_file=server.crt", "ssl_key_file=server.key"];
    let server = Server::with(&settings, &[("server.crt", &certificate), ("server.key", &key)]);
    let trusted = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(trusted.path(), certificate).unwrap();
    let url = format!("{}&sslmode=verify-full", server.url());
    let store = open(format!("{url}&sslrootcert={}", trusted.path().display())).await;
    write(&*store, &conversation("c"), 0, &["a"]).await;
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE application_name = 'outlast' AND NOT ssl";
    assert_eq!(server.ask(encrypted), "0");

    // Nobody vouches for it here: no connection, and above all none without encryption.
    let why = refused(&url, Durable::AtOnce).await.unwrap();
    assert!(why.to_lowercase().contains("certificate"), "{why}");
}
