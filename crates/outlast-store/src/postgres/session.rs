//! How a statement reaches PostgreSQL: prepared once on each connection, or whole each time behind a pooler that gives
//! every transaction another connection.

use deadpool_postgres::{Object, StatementCache, Transaction};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, IsolationLevel, Row};

/// A parameter of a statement. Its type is sent along where nothing is prepared.
pub(super) trait Value: Sync {
    fn typed(&self) -> (&(dyn ToSql + Sync), Type);
}

macro_rules! values {
    ($($rust:ty => $name:ident,)*) => {
        $(impl Value for $rust {
            fn typed(&self) -> (&(dyn ToSql + Sync), Type) {
                (self, Type::$name)
            }
        })*
    };
}

values! {
    &str => TEXT,
    String => TEXT,
    Option<&str> => TEXT,
    i64 => INT8,
    Option<i64> => INT8,
    f64 => FLOAT8,
    &[u8] => BYTEA,
    Vec<u8> => BYTEA,
    Vec<&str> => TEXT_ARRAY,
    Vec<String> => TEXT_ARRAY,
    Vec<i64> => INT8_ARRAY,
    Vec<Vec<u8>> => BYTEA_ARRAY,
}

/// Runs statements: on a connection of its own, or within a transaction.
#[derive(Clone, Copy)]
pub(super) struct Session<'a> {
    client: &'a Client,
    prepared: Option<&'a StatementCache>,
}

impl Session<'_> {
    pub(super) async fn query(self, sql: &str, values: &[&dyn Value]) -> Result<Vec<Row>, Error> {
        match self.prepared {
            Some(cache) => {
                let statement = cache.prepare(self.client, sql).await?;
                self.client.query(&statement, &plain(values)).await
            }
            None => self.client.query_typed(sql, &typed(values)).await,
        }
    }

    /// The first row, for a query that returns at most one.
    pub(super) async fn query_opt(self, sql: &str, values: &[&dyn Value]) -> Result<Option<Row>, Error> {
        Ok(self.query(sql, values).await?.into_iter().next())
    }

    /// The number of rows that were changed.
    pub(super) async fn execute(self, sql: &str, values: &[&dyn Value]) -> Result<u64, Error> {
        match self.prepared {
            Some(cache) => {
                let statement = cache.prepare(self.client, sql).await?;
                self.client.execute(&statement, &plain(values)).await
            }
            None => self.client.execute_typed(sql, &typed(values)).await,
        }
    }
}

fn plain<'a>(values: &[&'a dyn Value]) -> Vec<&'a (dyn ToSql + Sync)> {
    values.iter().map(|value| value.typed().0).collect()
}

fn typed<'a>(values: &[&'a dyn Value]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    values.iter().map(|value| value.typed()).collect()
}

/// A connection from the pool.
pub(super) struct Pooled {
    client: Object,
    prepares: bool,
}

impl Pooled {
    pub(super) fn new(client: Object, prepares: bool) -> Self {
        Self { client, prepares }
    }

    pub(super) fn session(&self) -> Session<'_> {
        let prepared = self.prepares.then_some(&*self.client.statement_cache);
        Session { client: &self.client, prepared }
    }

    /// Dropped without a commit, the transaction is rolled back.
    pub(super) async fn transaction(&mut self) -> Result<Tx<'_>, Error> {
        let prepares = self.prepares;
        Ok(Tx { tx: self.client.transaction().await?, prepares })
    }

    /// A transaction that sees one state of everything.
    pub(super) async fn snapshot(&mut self) -> Result<Tx<'_>, Error> {
        let prepares = self.prepares;
        let snapshot = self.client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
        Ok(Tx { tx: snapshot.read_only(true).start().await?, prepares })
    }

    /// Closes it instead of giving it back: nobody knows what it is still doing.
    pub(super) fn discard(self) {
        drop(Object::take(self.client));
    }
}

pub(super) struct Tx<'a> {
    tx: Transaction<'a>,
    prepares: bool,
}

impl Tx<'_> {
    pub(super) fn session(&self) -> Session<'_> {
        let prepared = self.prepares.then_some(&*self.tx.statement_cache);
        Session { client: self.tx.client(), prepared }
    }

    pub(super) async fn commit(self) -> Result<(), Error> {
        self.tx.commit().await
    }

    /// Runs statements without parameters.
    pub(super) async fn batch_execute(&self, sql: &str) -> Result<(), Error> {
        self.tx.batch_execute(sql).await
    }
}
