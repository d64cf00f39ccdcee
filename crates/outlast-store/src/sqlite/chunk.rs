//! Chunks of records in the table `log`.

use outlast_core::Seq;
use rusqlite::Connection;

pub(super) use crate::chunk::Chunk;
use crate::sqlite::sql_int;

impl Chunk {
    pub(super) fn insert(&self, db: &Connection, conversation: &str) -> rusqlite::Result<()> {
        let sql = "INSERT INTO log (conversation, first_seq, last_seq, bytes) VALUES (?1, ?2, ?3, ?4)";
        let params = (conversation, sql_int(self.first.0), sql_int(self.last.0), &self.bytes);
        db.prepare_cached(sql)?.execute(params)?;
        Ok(())
    }
}

/// Where the settled part of a log ends; zero if nothing is settled.
pub(super) fn settled_last(db: &Connection, conversation: &str) -> rusqlite::Result<Seq> {
    let sql = "SELECT last_seq FROM log WHERE conversation = ?1 ORDER BY first_seq DESC LIMIT 1";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([conversation])?;
    Ok(match rows.next()? {
        Some(row) => Seq(row.get::<_, i64>(0)?.cast_unsigned()),
        None => Seq::ZERO,
    })
}
