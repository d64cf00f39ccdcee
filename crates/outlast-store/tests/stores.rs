//! Runs the conformance suite against every store.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outlast_store::suite::Subject;
use outlast_store::{SqliteOptions, SqliteStore, Store};

mod memory {
    use super::*;
    use outlast_store::MemoryStore;
    use outlast_store::suite::Memory;

    outlast_store::conformance!(Memory(Arc::new(MemoryStore::new())));
}

mod sqlite {
    use super::*;

    outlast_store::conformance!(Sqlite::with(SqliteOptions {
        frame: Duration::ZERO,
        ..SqliteOptions::default()
    }));
}

/// With limits so small that records are settled and cut off all the time.
mod tiny_sqlite {
    use super::*;

    outlast_store::conformance!(Sqlite::with(SqliteOptions {
        readers: 2,
        queue: 4,
        chunk_bytes: 64,
        hot_bytes: 200,
        hot_rows: 8,
        unsettled_bytes: 150,
        frame: Duration::ZERO,
        ..SqliteOptions::default()
    }));
}

struct Sqlite {
    store: Option<Arc<SqliteStore>>,
    path: PathBuf,
    options: SqliteOptions,
    _folder: tempfile::TempDir,
}

impl Sqlite {
    fn with(options: SqliteOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outlast.db");
        let store = Some(Arc::new(SqliteStore::open_with(&path, options.clone()).unwrap()));
        Self { store, path, options, _folder: folder }
    }

    fn sqlite(&self) -> &Arc<SqliteStore> {
        self.store.as_ref().expect("open")
    }
}

#[async_trait]
impl Subject for Sqlite {
    fn store(&self) -> Arc<dyn Store> {
        self.sqlite().clone()
    }

    async fn reopen(&mut self) {
        let store = self.store.take().expect("open");
        assert_eq!(Arc::strong_count(&store), 1, "the test still holds the store");
        drop(store);
        self.store = Some(Arc::new(SqliteStore::open_with(&self.path, self.options.clone()).unwrap()));
    }

    async fn another(&self) -> Option<Arc<dyn Store>> {
        None
    }

    fn durable(&self) -> bool {
        true
    }

    async fn settle(&mut self) {
        self.sqlite().settle().await.unwrap();
    }
}
