//! Opens the store that the setting `store.url` names, and never a different one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

use crate::sqlite::ItemFile;
use crate::{
    ConvexStore, Items, MemoryStore, PostgresOptions, PostgresStore, RedisStore, SqliteStore, Store,
    StoreError,
};

/// The name of the file in the data folder when the URL is just `sqlite:`.
pub(crate) const SQLITE_FILE: &str = "outlast.db";

/// What a store must promise about what it has acknowledged. Most stores always promise the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// It survives a crash.
    AtOnce,
    /// A crash may lose the last seconds of it.
    WithinSeconds,
}

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
/// `postgres://user@host/database`, `redis://host`, `rediss://host` or `convex+https://key:DEPLOY_KEY@host`.
pub async fn open(url: &str, data: &Path, durable: Durable) -> Result<Opened, StoreError> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "memory" if rest.is_empty() => Ok(Opened { store: Arc::new(MemoryStore::new()), failed: None }),
        "sqlite" => {
            let store = SqliteStore::open(&sqlite_path(rest, data))?;
            let failed = Some(store.failed());
            Ok(Opened { store: Arc::new(store), failed })
        }
        "postgres" | "postgresql" => {
            let store =
                PostgresStore::open(url, PostgresOptions { durable, ..PostgresOptions::default() }).await?;
            Ok(Opened { store: Arc::new(store), failed: None })
        }
        "redis" | "rediss" => {
            let store = RedisStore::open(url, durable).await?;
            Ok(Opened { store: Arc::new(store), failed: None })
        }
        "convex+https" | "convex+http" => {
            Ok(Opened { store: Arc::new(ConvexStore::open(url).await?), failed: None })
        }
        // The message shows only the scheme, because the rest may contain a password.
        _ => Err(StoreError::Broken(format!(
            "unknown store {scheme}: use memory:, sqlite:, sqlite:path/to/file.db, postgres://user@host/database, \
             redis://host or convex+https://key:DEPLOY_KEY@host"
        ))),
    }
}

/// Opens a store to read from: a mistyped path must not become a new, empty store.
pub async fn open_existing(url: &str, data: &Path, durable: Durable) -> Result<Opened, StoreError> {
    if let Some(rest) = url.strip_prefix("sqlite:") {
        let path = sqlite_path(rest, data);
        if !path.is_file() {
            return Err(StoreError::Unavailable(format!("{} does not exist", path.display())));
        }
    }
    open(url, data, durable).await
}

/// Opens only the items of a store, for a command that may run beside a server.
pub async fn open_items(url: &str, data: &Path, durable: Durable) -> Result<Arc<dyn Items>, StoreError> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "memory" => Err(StoreError::Broken(
            "the store memory: ends with its server, so another process cannot reach it".into(),
        )),
        "sqlite" => Ok(Arc::new(ItemFile::open(&sqlite_path(rest, data))?)),
        _ => {
            let store: Arc<dyn Items> = open(url, data, durable).await?.store;
            Ok(store)
        }
    }
}

/// Copies the data of a SQLite store into a folder, even while a server uses it, and returns the copy. Databases with
/// a server of their own have better tools for that.
pub fn backup(url: &str, data: &Path, to: &Path) -> Result<PathBuf, StoreError> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "sqlite" => crate::sqlite::backup::copy(&sqlite_path(rest, data), to),
        "postgres" | "postgresql" => {
            Err(StoreError::Broken("use pg_dump for a copy of a PostgreSQL database".into()))
        }
        _ => Err(StoreError::Broken(format!("the store {scheme}: cannot be copied"))),
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
        assert!(open("memory:", data.path(), Durable::AtOnce).await.is_ok());
        assert!(!data.path().join(SQLITE_FILE).exists());
        assert!(open("sqlite:", data.path(), Durable::AtOnce).await.is_ok());
        assert!(data.path().join(SQLITE_FILE).exists());
        let other = data.path().join("deep/er.db");
        assert!(open(&format!("sqlite:{}", other.display()), data.path(), Durable::AtOnce).await.is_ok());
        assert!(other.exists());
    }

    #[tokio::test]
    async fn a_store_to_read_from_must_exist() {
        let data = tempfile::tempdir().unwrap();
        let missing = open_existing("sqlite:", data.path(), Durable::AtOnce).await.map(|_| ()).unwrap_err();
        assert!(missing.to_string().ends_with("outlast.db does not exist"), "{missing}");
        assert!(!data.path().join(SQLITE_FILE).exists());
        drop(open("sqlite:", data.path(), Durable::AtOnce).await.unwrap());
        assert!(open_existing("sqlite:", data.path(), Durable::AtOnce).await.is_ok());
    }

    #[tokio::test]
    async fn a_store_in_use_can_be_copied_and_the_copy_opens() {
        let (data, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let used = open("sqlite:", data.path(), Durable::AtOnce).await.unwrap();
        let item = crate::Item {
            kind: "key".into(),
            id: "a".into(),
            user: "ann".into(),
            order: 1,
            due: None,
            version: 0,
            body: "{}".into(),
        };
        used.store.put_item(item).await.unwrap();
        let copy = backup("sqlite:", data.path(), to.path()).unwrap();
        assert_eq!(copy, to.path().join(SQLITE_FILE));
        let copied = open("sqlite:", to.path(), Durable::AtOnce).await.unwrap();
        assert!(copied.store.get_item("key", "a").await.unwrap().is_some());
        assert!(backup("sqlite:", to.path().join("none").as_path(), to.path()).is_err(), "nothing to copy");
        assert!(
            backup("postgres://ann:secret@h/d", data.path(), to.path())
                .unwrap_err()
                .to_string()
                .contains("pg_dump")
        );
    }

    #[tokio::test]
    async fn an_unknown_store_is_refused_by_name() {
        let data = tempfile::tempdir().unwrap();
        let why =
            async |url| open(url, data.path(), Durable::AtOnce).await.map(|_| ()).unwrap_err().to_string();
        for url in ["mysql://u:secret@host", "", "outlast.db", "memory:x"] {
            let why = why(url).await;
            assert!(why.contains("memory:") && why.contains("sqlite:") && !why.contains("secret"), "{why}");
        }
    }

    #[tokio::test]
    async fn a_database_that_cannot_be_reached_is_named_without_its_password() {
        for scheme in ["postgres", "redis", "convex+http"] {
            a_database_that_cannot_be_reached(scheme).await;
        }
    }

    async fn a_database_that_cannot_be_reached(scheme: &str) {
        let data = tempfile::tempdir().unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("{scheme}://ann:secret@127.0.0.1:{free}/0");
        let error = open(&url, data.path(), Durable::AtOnce).await.map(|_| ()).unwrap_err();
        let why = error.to_string();
        assert!(matches!(error, StoreError::Unavailable(_)), "{why}");
        assert!(why.contains("refused") && !why.contains("secret"), "{why}");
    }
}
