//! PostgreSQL passes the suite that every store passes, on a real server.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use async_trait::async_trait;
use outlast_store::suite::Subject;
use outlast_store::suite::postgres::Server;
use outlast_store::{PostgresOptions, PostgresStore, Store};

struct Postgres {
    url: String,
    store: Option<Arc<PostgresStore>>,
}

impl Postgres {
    async fn new(url: String) -> Self {
        let store = open(&url).await;
        Self { url, store: Some(store) }
    }
}

async fn open(url: &str) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(url, PostgresOptions::default()).await.unwrap())
}

#[async_trait]
impl Subject for Postgres {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone().expect("open")
    }

    async fn reopen(&mut self) {
        drop(self.store.take());
        self.store = Some(open(&self.url).await);
    }

    async fn another(&self) -> Option<Arc<dyn Store>> {
        Some(open(&self.url).await)
    }

    fn durable(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_postgres_passes_the_suite() {
    let server = Server::start();
    let subject = async |_: &str| Postgres::new(server.url()).await;
    outlast_store::conformance_in_order!(subject);
}
