//! Logs to standard error, for people or as JSON. Log lines have ids and no content.

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Overrides `log.filter`.
const VARIABLE: &str = "OUTLAST_LOG";

pub(crate) fn begin(log: &Log) -> anyhow::Result<()> {
    let lines = tracing_subscriber::fmt().with_env_filter(filter(log)?).with_writer(std::io::stderr);
    match log.format {
        LogFormat::Human => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    Ok(())
}

/// The library for MCP logs what servers send, even at `info`. A later filter for `rmcp` overrides this one.
const QUIET: &str = "rmcp=off";

pub(crate) fn filter(log: &Log) -> anyhow::Result<EnvFilter> {
    let quietly = |filter: &str| EnvFilter::try_new(format!("{QUIET},{filter}"));
    match std::env::var(VARIABLE) {
        Ok(filter) => quietly(&filter).with_context(|| format!("{VARIABLE} is invalid")),
        Err(_) => quietly(&log.filter).context("the setting log.filter cannot be used"),
    }
}
