//! Stores on database servers pass the suite that every store passes, and everything moves between them.
#![allow(clippy::unwrap_used)]

mod connections;
mod convex;
mod migrate;
mod postgres;
mod redis;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use outlast_store::Store;
use outlast_store::suite::Subject;

/// Opens the store that a URL names, as a new instance.
type Open = fn(String) -> BoxFuture<'static, Arc<dyn Store>>;

/// A store on a server, which keeps it while nobody has it open.
struct Served {
    url: String,
    open: Open,
    store: Option<Arc<dyn Store>>,
}

impl Served {
    async fn new(url: String, open: Open) -> Self {
        let store = open(url.clone()).await;
        Self { url, open, store: Some(store) }
    }
}

#[async_trait]
impl Subject for Served {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone().expect("open")
    }

    async fn reopen(&mut self) {
        drop(self.store.take());
        self.store = Some((self.open)(self.url.clone()).await);
    }

    async fn another(&self) -> Option<Arc<dyn Store>> {
        Some((self.open)(self.url.clone()).await)
    }

    fn durable(&self) -> bool {
        true
    }
}
