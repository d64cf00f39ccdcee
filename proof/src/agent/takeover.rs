//! Kills the instance that owns a run with tools, and lets another one on the same machine take it over.

use anyhow::Context;
use futures_util::StreamExt;
use futures_util::stream::{self, TryStreamExt};

use super::deaths::{Executioner, Row, attend, nothing_runs, request};
use super::outcome::Outcome;
use crate::cluster::{Database, SHORT_LEASE};
use crate::server::Server;
use crate::wait::{LONG, bounded};

impl Executioner {
    /// The owner dies at each of these faults (`name:N`), this many runs at a time.
    pub async fn taken_over(
        &self,
        database: &Database,
        faults: &[&str],
        at_once: usize,
    ) -> anyhow::Result<Row> {
        let mut row = Row { point: format!("{} takeovers", faults.len()), ..Row::default() };
        let runs = stream::iter(faults).map(|fault| self.take_over(database, fault));
        let mut runs = runs.buffer_unordered(at_once);
        while let Some(one) = runs.try_next().await? {
            row.add(&one);
        }
        Ok(row)
    }

    /// Starts the run at a server that dies at a fault, and sees it through at another.
    async fn take_over(&self, database: &Database, fault: &str) -> anyhow::Result<Row> {
        let options = database.shared(self.options().clone().toml(SHORT_LEASE)).await?;
        let mut owner = Server::start_with_fault(options.clone(), fault).await?;
        let heir = Server::start(options).await?;
        let request = request(self.agent());
        // If the owner dies before it answers, the same start at the other finds what there is, or makes it.
        let started = match owner.api().post("/v1/generations", &request).await {
            Ok(answer) if answer.status == 202 => answer.started()?,
            Ok(_) | Err(_) => heir.api().insist("/v1/generations", &request).await?.started()?,
        };
        let attending = attend(heir.api(), &started);
        bounded("the end of the run", 3 * LONG, attending).await?.with_context(|| fault.to_owned())?;
        let outcome = Outcome::read(heir.api(), &started, &heir.data()).await?;
        let deaths = u64::from(!owner.is_running()?);
        owner.kill().await?;
        nothing_runs(&heir).await.with_context(|| fault.to_owned())?;
        Ok(self.compare(&outcome, &[fault.to_owned()], deaths))
    }
}
