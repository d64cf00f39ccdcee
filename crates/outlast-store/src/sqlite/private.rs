//! File permissions. Conversations are private, so only the user that the server runs as may read the files.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::path::{Path, PathBuf};

/// The suffixes of the database, its write-ahead log, that log's index, and our lock file.
const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", ".lock"];

/// Creates the folder and its missing parents, accessible to this user only.
#[cfg(unix)]
pub(super) fn create_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
pub(super) fn create_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(folder)
}

/// Creates the database if it is missing, and makes its files accessible to this user only. SQLite gives
/// the other files that it creates the database's permissions. An existing folder may have other uses, so
/// its permissions are left alone.
pub(super) fn restrict(path: &Path) -> io::Result<()> {
    File::options().create(true).append(true).open(path)?;
    for suffix in SUFFIXES {
        restrict_file(&with_suffix(path, suffix))?;
    }
    Ok(())
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(unix)]
fn restrict_file(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    match fs::metadata(path) {
        Ok(file) if file.permissions().mode() & 0o077 != 0 => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(not(unix))]
fn restrict_file(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Logs a warning if other users can access the folder.
#[cfg(unix)]
pub(super) fn warn_about(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let Ok(found) = fs::metadata(folder) else { return };
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        tracing::warn!(
            folder = %folder.display(),
            mode = %format_args!("{mode:o}"),
            "other users can access the data folder; restrict it with chmod 700"
        );
    }
}

#[cfg(not(unix))]
pub(super) fn warn_about(_folder: &Path) {}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::SqliteStore;
    use crate::Store;
    use crate::suite::{conversation, write};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn only_this_user_can_access_the_folder_and_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("deep/data");
        let path = data.join("outlast.db");
        let store = SqliteStore::open(&path).unwrap();
        write(&store, &conversation("c"), 0, &["a"]).await;
        assert_eq!((mode(&data), mode(data.parent().unwrap())), (0o700, 0o700));
        for suffix in SUFFIXES {
            assert_eq!(mode(&with_suffix(&path, suffix)), 0o600, "{suffix}");
        }
    }

    #[tokio::test]
    async fn files_that_others_could_read_are_tightened_and_a_folder_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outlast.db");
        drop(SqliteStore::open(&path).unwrap());
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for suffix in ["", ".lock"] {
            fs::set_permissions(with_suffix(&path, suffix), fs::Permissions::from_mode(0o644)).unwrap();
        }
        let store = SqliteStore::open(&path).unwrap();
        store.claim(&conversation("c")).await.unwrap();
        write(&store, &conversation("c"), 0, &["a"]).await;
        for suffix in SUFFIXES {
            assert_eq!(mode(&with_suffix(&path, suffix)), 0o600, "{suffix}");
        }
        assert_eq!(mode(folder.path()), 0o755);
    }
}
