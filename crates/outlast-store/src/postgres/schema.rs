//! Brings the tables up to date, once, however many instances start together.

use super::connect::store_error;
use super::session::Pooled;
use crate::StoreError;

/// What each version added to the one before.
const STEPS: &[&str] = &[include_str!("schema.sql"), include_str!("schema_2.sql")];

/// Held while the tables are being changed. Any number will do if all versions of Outlast agree on it.
const MIGRATION_LOCK: i64 = 0x6f75_746c_6173_7400;

/// What an instance leaves behind is removed when its lease ran out this long ago.
const FORGET_AFTER: &str = "1 hour";

pub(super) async fn prepare(client: &mut Pooled) -> Result<(), StoreError> {
    let tx = client.transaction().await.map_err(store_error)?;
    let lock = "SELECT pg_advisory_xact_lock($1)";
    tx.session().query(lock, &[&MIGRATION_LOCK]).await.map_err(store_error)?;
    tx.batch_execute("CREATE TABLE IF NOT EXISTS outlast_schema (version int NOT NULL)")
        .await
        .map_err(store_error)?;
    let row = tx.session().query_opt("SELECT version FROM outlast_schema", &[]).await.map_err(store_error)?;
    let version = row.map_or(0, |row| row.get::<_, i32>(0));
    let known = i32::try_from(STEPS.len()).expect("a few versions");
    if version > known {
        return Err(StoreError::Broken(format!(
            "the database has schema version {version}, this version of Outlast supports {known}: use a newer Outlast"
        )));
    }
    for step in STEPS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        tx.batch_execute(step).await.map_err(store_error)?;
    }
    if version < known {
        tx.batch_execute(&format!("DELETE FROM outlast_schema; INSERT INTO outlast_schema VALUES ({known})"))
            .await
            .map_err(store_error)?;
    }
    tx.commit().await.map_err(store_error)
}

/// Introduces this instance, and removes what instances of the past have left behind.
pub(super) async fn join(client: &Pooled, instance: &str) -> Result<(), StoreError> {
    let forget = format!(
        "WITH gone AS (DELETE FROM instances WHERE lease_until < clock_timestamp() - interval '{FORGET_AFTER}' \
         RETURNING instance), \
         letters AS (DELETE FROM mail USING gone WHERE sender = gone.instance), \
         held AS (SELECT DISTINCT instance FROM owners) \
         DELETE FROM writers USING gone WHERE writers.instance = gone.instance \
         AND gone.instance NOT IN (SELECT instance FROM held)"
    );
    client.session().execute(&forget, &[]).await.map_err(store_error)?;
    let insert = "INSERT INTO writers (instance) VALUES ($1)";
    client.session().execute(insert, &[&instance]).await.map_err(store_error)?;
    Ok(())
}
