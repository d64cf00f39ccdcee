//! `outlast audit`: prints the newest lines of the audit log.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind};

use anyhow::{Context as _, bail};
use clap::Args;

use super::say;
use crate::audit::Audit;
use crate::config::Config;

#[derive(Args)]
pub(crate) struct AuditCommand {
    /// How many lines to print
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    last: u32,
}

impl AuditCommand {
    pub(crate) fn run(&self, config: &Config) -> anyhow::Result<()> {
        let audit = Audit::new(&config.audit.file, &config.server.data);
        let Some(path) = audit.file() else {
            bail!("there is no audit log: the setting audit.file is empty")
        };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()), // nothing was done yet
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let mut newest = VecDeque::new();
        for line in BufReader::new(file).lines() {
            if newest.len() == self.last as usize {
                newest.pop_front();
            }
            newest.push_back(line.with_context(|| format!("cannot read {}", path.display()))?);
        }
        newest.iter().for_each(|line| say(line));
        Ok(())
    }
}
