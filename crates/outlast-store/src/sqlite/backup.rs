//! A consistent copy of a SQLite file, even while a server writes to it.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use crate::StoreError;
use crate::sqlite::failure::broken;
use crate::sqlite::{opening, private};

/// Copies the file into the folder `to`, as one transaction sees it, and returns the copy. Readers do not block the
/// server's writer.
pub(crate) fn copy(file: &Path, to: &Path) -> Result<PathBuf, StoreError> {
    if !file.is_file() {
        return Err(StoreError::Unavailable(format!("{} does not exist", file.display())));
    }
    let copy = to.join(crate::open::SQLITE_FILE);
    let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(broken)?;
    db.busy_timeout(opening::BUSY).map_err(broken)?;
    let target =
        copy.to_str().ok_or_else(|| StoreError::Broken("the folder's name is not UTF-8".to_owned()))?;
    db.execute("VACUUM INTO ?1", [target]).map_err(broken)?;
    private::restrict(&copy).map_err(|error| {
        StoreError::Unavailable(format!("cannot restrict access to {}: {error}", copy.display()))
    })?;
    Ok(copy)
}
