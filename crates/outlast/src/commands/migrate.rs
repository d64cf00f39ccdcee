//! `outlast migrate`: copies everything from one store to another.

use anyhow::{Context as _, bail};
use clap::Args;

use super::say;
use crate::config::Config;

#[derive(Args)]
pub(crate) struct MigrateCommand {
    /// Store to copy from, for example sqlite: for the file in the data folder
    #[arg(long, value_name = "URL")]
    from: String,
    /// Store to copy to; it must be empty, or the target of a migration that was not finished
    #[arg(long, value_name = "URL")]
    to: String,
}

impl MigrateCommand {
    pub(crate) async fn run(&self, config: &Config) -> anyhow::Result<()> {
        if self.from == self.to {
            bail!("--from and --to name the same store");
        }
        if self.to.starts_with("memory:") {
            bail!("--to: the store memory: would end with this command");
        }
        let (data, durable) = (&config.server.data, config.durable());
        let from = outlast_store::open_existing(&self.from, data, durable).await.context("--from")?;
        let to = outlast_store::open(&self.to, data, durable).await.context("--to")?;
        let mut progress = |line: String| eprintln!("{line}");
        let done = outlast_store::migrate::migrate(&*from.store, &*to.store, &mut progress).await?;
        say(&format!(
            "{} conversations ({} by an earlier run), {} events and {} items are in the new store; every conversation \
             was read back and its digest compared",
            done.conversations, done.found, done.events, done.items
        ));
        let digest: String = done.digest.iter().map(|byte| format!("{byte:02x}")).collect();
        say(&format!("digest of all conversations: {digest}"));
        say("Set store.url to the new store. Keep the data folder: checkpoints and sandboxes are in it.");
        Ok(())
    }
}
