//! Opens the store that the setting `store.url` names, and never a different one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

use crate::sqlite::ItemFile;
use crate::{Items, MemoryStore, PostgresOptions, PostgresStore, SqliteStore, Store, StoreError};

/// The name of the file in the data folder when the URL is just `sqlite:`.
const SQLITE_FILE: &str = "outlast.db";

/// A store, and a way to learn that it has failed permanently.
pub struct Opened {
    pub store: Arc<dyn Store>,
    failed: Option<watch::Receiver<bool>>,
}

impl Opened {
    /// Returns when the store can write nothing more until the process is restarted, which may be never.
    /// It does not borrow the store, so that a task waiting here does not keep it open.
    pub fn failed(&self) -> impl Future<Output = ()> + Send + 'static {
        let failed = self.failed.clone();
        async move {
            if let Some(mut failed) = failed
                && failed.wait_for(|failed| *failed).await.is_ok()
            {
                return;
            }
            // A store that was closed has not failed.
            std::future::pending().await
        }
    }
}

/// Opens what the URL names: `memory:`, `sqlite:` (a file in the folder `data`), `sqlite:path`, or
/// `postgres://user@host/database`.
pub async fn open(url: &str, data: &Path) -> Result<Opened, StoreError> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "memory" if rest.is_empty() => Ok(Opened { store: Arc::new(MemoryStore::new()), failed: None }),
        "sqlite" => {
            let store = SqliteStore::open(&sqlite_path(rest, data))?;
            let failed = Some(store.failed());
            Ok(Opened { store: Arc::new(store), failed })
        }
        "postgres" | "postgresql" => {
            let store = PostgresStore::open(url, PostgresOptions::default()).await?;
            Ok(Opened { store: Arc::new(store), failed: None })
        }
        "redis" | "rediss" | "convex" => Err(StoreError::Broken(format!(
            "store {scheme}: is not built into this version of Outlast; it has memory:, sqlite: and postgres:"
        ))),
        // The message shows only the scheme, because the rest may contain a password.
        _ => Err(StoreError::Broken(format!(
            "unknown store {scheme}: use memory:, sqlite:, sqlite:path/to/file.db or postgres://user@host/database"
        ))),
    }
}

/// Opens only the items of a store, for a command that may run beside a server.
pub async fn open_items(url: &str, data: &Path) -> Result<Arc<dyn Items>, StoreError> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "memory" => Err(StoreError::Broken(
            "the store memory: ends with its server, so another process cannot reach it".into(),
        )),
        "sqlite" => Ok(Arc::new(ItemFile::open(&sqlite_path(rest, data))?)),
        _ => {
            let store: Arc<dyn Items> = open(url, data).await?.store;
            Ok(store)
        }
    }
}

fn sqlite_path(rest: &str, data: &Path) -> PathBuf {
    if rest.is_empty() { data.join(SQLITE_FILE) } else { PathBuf::from(rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_url_opens_what_it_names_and_nothing_else() {
        let data = tempfile::tempdir().unwrap();
        assert!(open("memory:", data.path()).await.is_ok());
        assert!(!data.path().join(SQLITE_FILE).exists());
        assert!(open("sqlite:", data.path()).await.is_ok());
        assert!(data.path().join(SQLITE_FILE).exists());
        let other = data.path().join("deep/er.db");
        assert!(open(&format!("sqlite:{}", other.display()), data.path()).await.is_ok());
        assert!(other.exists());
    }

    #[tokio::test]
    async fn an_unknown_store_is_refused_by_name() {
        let data = tempfile::tempdir().unwrap();
        let why = async |url| open(url, data.path()).await.map(|_| ()).unwrap_err().to_string();
        for url in ["redis://u:secret@host", "convex:x"] {
            let why = why(url).await;
            assert!(why.contains("not built into this version") && !why.contains("secret"), "{why}");
        }
        for url in ["mysql://u:secret@host", "", "outlast.db", "memory:x"] {
            let why = why(url).await;
            assert!(why.contains("memory:") && why.contains("sqlite:") && !why.contains("secret"), "{why}");
        }
    }

    #[tokio::test]
    async fn a_database_that_cannot_be_reached_is_named_without_its_password() {
        let data = tempfile::tempdir().unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("postgres://ann:secret@127.0.0.1:{free}/outlast");
        let error = open(&url, data.path()).await.map(|_| ()).unwrap_err();
        let why = error.to_string();
        assert!(matches!(error, StoreError::Unavailable(_)), "{why}");
        assert!(why.contains("refused") && !why.contains("secret"), "{why}");
    }
}
