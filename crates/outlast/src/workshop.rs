//! Opens what tools need: sandboxes to run in, and a place for the checkpoints of their files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use outlast_engine::Workshop;
use outlast_engine::checkpoints::Checkpoints;
use outlast_engine::sandbox::{Local, SandboxError};

use crate::config::{Config, SandboxKind};

/// The inner error says why there are no tools here; the server works without them. A setting that cannot be honoured
/// stops the start.
pub(crate) async fn open(config: &Config) -> anyhow::Result<Result<Workshop, String>> {
    match config.sandbox.kind {
        SandboxKind::None => return Ok(Err("tools are switched off by sandbox.kind = \"none\"".to_owned())),
        SandboxKind::Local => {}
    }
    let data = &config.server.data;
    let checkpoints = checkpoints(&config.checkpoints.url, data)?;
    let settings = config.sandbox.settings();
    let tool_timeout = settings.tool_timeout;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    match Local::open(&data.join("sandboxes"), settings, program).await {
        Ok(local) => Ok(Ok(Workshop { sandboxes: Arc::new(local), checkpoints, tool_timeout })),
        Err(SandboxError::Unavailable(reason)) => {
            tracing::warn!("no tools: {reason}");
            Ok(Err(reason))
        }
        Err(error) => bail!("cannot open the sandboxes: {error}"),
    }
}

fn checkpoints(url: &str, data: &Path) -> anyhow::Result<Checkpoints> {
    let folder = match url.strip_prefix("file:") {
        _ if url.starts_with("s3://") => {
            return Checkpoints::in_bucket(url).context("cannot open the bucket of checkpoints");
        }
        Some("") => data.join("checkpoints"),
        Some(path) => PathBuf::from(path.strip_prefix("//").unwrap_or(path)),
        None => bail!("checkpoints.url must be file:, file:PATH or s3://BUCKET/PREFIX"),
    };
    Checkpoints::in_folder(&folder).context("cannot open the folder of checkpoints")
}
