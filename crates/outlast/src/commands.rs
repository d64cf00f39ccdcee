//! The commands besides `serve` and `keys`, one file each.

mod audit;
mod backup;
mod config;
pub(crate) mod doctor;
mod export;
mod import;
mod mcp;
mod migrate;
mod transfer;

#[cfg(test)]
mod tests;

use std::io::Write as _;

pub(crate) use audit::AuditCommand;
pub(crate) use backup::BackupCommand;
pub(crate) use config::ConfigCommand;
pub(crate) use export::ExportCommand;
pub(crate) use import::ImportCommand;
pub(crate) use mcp::McpCommand;
pub(crate) use migrate::MigrateCommand;

/// Prints a line of a command's output. If its reader has gone away, like `head`, there is nobody left to tell.
fn say(text: &str) {
    writeln!(std::io::stdout(), "{text}").ok();
}
