//! Opens a file as a store: locks it, prepares its schema, counts this start, and builds the index of recent
//! rows.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

use outlast_core::{ConversationId, Seq};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::StoreError;
use crate::fault::point;
use crate::sqlite::Options;
use crate::sqlite::chunk::settled_last;
use crate::sqlite::failure::broken;
use crate::sqlite::hot::{HotIndex, HotRow, Limits};
use crate::sqlite::removal::Removal;
use crate::sqlite::{private, schema};

/// The number of bits for the fences of one start of the server. At 1,000 claims a second they last for 30
/// years, and the remaining bits for eight million starts.
pub(super) const FENCE_BITS: u32 = 40;

/// Larger than SQLite's default, because chunks of 32 KiB then need fewer pages. Not much larger, because
/// every changed document writes a page.
pub(super) const PAGE_BYTES: i64 = 8 << 10;

/// The WAL file is truncated to this size when it starts over.
const WAL_KEPT_BYTES: i64 = 64 << 20;

/// The writer's page cache, in KiB: the pages at the end of the tables and the indexes of documents. It writes
/// rows to `recent` and does not read them again.
const WRITER_CACHE_KIB: i64 = 4 << 10;

/// Each reader's page cache, in KiB. The operating system caches the file too.
const READER_CACHE_KIB: i64 = 2 << 10;

/// How long to wait for a lock. Only a person with `sqlite3` can hold one, and not for long.
pub(super) const BUSY: Duration = Duration::from_secs(5);

/// How many prepared statements are cached. There are few; lists with many statuses add some.
const STATEMENTS: usize = 64;

pub(super) struct Opened {
    pub(super) db: Connection,
    pub(super) lock: File,
    pub(super) hot: HotIndex,
    pub(super) next_position: i64,
    pub(super) fences_after: u64,
    pub(super) removals: VecDeque<Removal>,
}

pub(super) fn open(path: &Path, options: &Options) -> Result<Opened, StoreError> {
    create_folder(path)?;
    let lock = lock(path)?;
    private::restrict(path).map_err(|error| {
        StoreError::Unavailable(format!("cannot restrict access to {}: {error}", path.display()))
    })?;
    let mut db = open_writer(path, options).map_err(broken)?;
    schema::prepare(&mut db)?;
    let epoch = schema::next_epoch(&db)?;
    point("open.epoch");
    let Options { chunk_bytes, hot_bytes, hot_rows, unsettled_bytes, .. } = *options;
    let limits = Limits { chunk_bytes, hot_bytes, hot_rows, unsettled_bytes };
    let mut removals = removals(&db).map_err(broken)?;
    let (hot, next_position) = scan(&db, limits, &mut removals).map_err(broken)?;
    point("open.scanned");
    Ok(Opened { db, lock, hot, next_position, fences_after: epoch << FENCE_BITS, removals })
}

/// A connection for items alone. While a server has the file, its schema must be the one known here; if none
/// has it, the schema is prepared as for a store. The lock is given back at once, so that a server can start.
pub(super) fn open_items(path: &Path) -> Result<Connection, StoreError> {
    create_folder(path)?;
    let held = try_lock(path)?;
    if held.is_some() {
        private::restrict(path).map_err(|error| {
            StoreError::Unavailable(format!("cannot restrict access to {}: {error}", path.display()))
        })?;
    }
    let mut db = open_writer(path, &Options::default()).map_err(broken)?;
    match held {
        Some(_) => schema::prepare(&mut db)?,
        None => schema::check(&db)?,
    }
    Ok(db)
}

fn create_folder(path: &Path) -> Result<(), StoreError> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    if folder.is_dir() {
        private::warn_about(folder);
        return Ok(());
    }
    let failed = |error| StoreError::Unavailable(format!("cannot create {}: {error}", folder.display()));
    private::create_folder(folder).map_err(failed)?;
    // SQLite makes the file's entry in the folder durable, but not the folder's entry in its parent.
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
    }
    Ok(())
}

/// Keeps other processes out. A second one would assign the same positions, and check fences against an
/// index that lacks the first one's rows.
fn lock(path: &Path) -> Result<File, StoreError> {
    try_lock(path)?.ok_or_else(|| {
        StoreError::Unavailable(format!(
            "{} is in use by another Outlast process, which holds {}",
            path.display(),
            private::with_suffix(path, ".lock").display()
        ))
    })
}

/// `None` if another process holds it.
fn try_lock(path: &Path) -> Result<Option<File>, StoreError> {
    let name = private::with_suffix(path, ".lock");
    let failed = |error| StoreError::Unavailable(format!("cannot lock {}: {error}", name.display()));
    let file = File::options().create(true).write(true).truncate(false).open(&name).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn open_writer(path: &Path, options: &Options) -> rusqlite::Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    set_up(&db)?;
    db.pragma_update(None, "page_size", PAGE_BYTES)?;
    let mode: String = db.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        // For example on network file systems where connections cannot share memory.
        return Err(rusqlite::Error::InvalidParameterName(format!(
            "this file system does not allow a write-ahead log (journal mode {mode})"
        )));
    }
    db.pragma_update(None, "synchronous", "FULL")?;
    // The writer decides when to checkpoint. Inside a commit it would delay the callers that wait.
    db.pragma_update(None, "wal_autocheckpoint", 0)?;
    db.pragma_update(None, "journal_size_limit", WAL_KEPT_BYTES)?;
    db.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    if let Some(pages) = options.max_pages {
        db.pragma_update(None, "max_page_count", pages)?;
    }
    Ok(db)
}

/// Settings that the writer and the readers share.
fn set_up(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(BUSY)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    // One plan for a statement, whatever its parameters are. Otherwise SQLite plans a range query again for
    // each new position.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Without a memory map, because an I/O error there is a signal that kills the process.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    set_up(&db)?;
    db.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(db)
}

/// The removals that were unfinished when the server last stopped.
fn removals(db: &Connection) -> rusqlite::Result<VecDeque<Removal>> {
    let mut statement = db.prepare("SELECT conversation FROM removals")?;
    let rows = statement.query_map([], |row| {
        let conversation = ConversationId::from(row.get_ref(0)?.as_str()?);
        Ok(Removal { conversation, positions: Vec::new(), answers: Vec::new() })
    })?;
    rows.collect()
}

/// Builds the index of `recent`. Rows that are also in `log` were settled before the server last stopped, and
/// only need to be cut off.
fn scan(
    db: &Connection,
    limits: Limits,
    removals: &mut VecDeque<Removal>,
) -> rusqlite::Result<(HotIndex, i64)> {
    let mut hot = HotIndex::new(limits);
    let mut settled: HashMap<ConversationId, Seq> = HashMap::new();
    let mut next_position = 1;
    let sql =
        "SELECT position, conversation, first_seq, last_seq, length(bytes) FROM recent ORDER BY position";
    let mut statement = db.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let found = HotRow {
            position: row.get(0)?,
            first: Seq(row.get::<_, i64>(2)?.cast_unsigned()),
            last: Seq(row.get::<_, i64>(3)?.cast_unsigned()),
            bytes: row.get::<_, u32>(4)? as usize,
            lines: None,
        };
        let last = found.last;
        let conversation = ConversationId::from(row.get_ref(1)?.as_str()?);
        next_position = found.position + 1;
        if let Some(removal) = removals.iter_mut().find(|removal| removal.conversation == conversation) {
            removal.positions.push(found.position);
            continue;
        }
        let settled_last = match settled.get(&conversation) {
            Some(last) => *last,
            None => {
                let last = settled_last(db, conversation.as_str())?;
                settled.insert(conversation.clone(), last);
                last
            }
        };
        hot.push(&conversation, found);
        if last <= settled_last {
            hot.settled(&conversation);
        }
    }
    Ok((hot, next_position))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqliteStore;

    #[test]
    fn a_second_process_is_refused_with_the_name_of_the_lock_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("outlast.db");
        let first = SqliteStore::open(&path).unwrap();
        let Err(StoreError::Unavailable(why)) = SqliteStore::open(&path) else { panic!("opened twice") };
        assert!(why.contains("another Outlast process") && why.contains("outlast.db.lock"), "{why}");
        drop(first);
        SqliteStore::open(&path).unwrap();
    }

    #[test]
    fn another_schema_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outlast.db");
        drop(SqliteStore::open(&path).unwrap());
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
        let Err(StoreError::Broken(why)) = SqliteStore::open(&path) else { panic!("opened") };
        assert!(why.contains("schema version 99") && why.contains("another data folder"), "{why}");
    }
}
