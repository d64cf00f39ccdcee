//! Opens what tools need: sandboxes to run in, and a place for the checkpoints of their files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use outlast_engine::Workshop;
use outlast_engine::checkpoints::Checkpoints;
use outlast_engine::sandbox::{E2b, Local, SandboxError, Sandboxes};

use crate::config::{Config, SandboxKind};

/// The inner error says why there are no sandboxes; the server works without them. An invalid setting, or a folder or
/// bucket that cannot be opened, stops the start.
pub(crate) async fn open(config: &Config) -> anyhow::Result<Result<Workshop, String>> {
    match config.sandbox.kind {
        SandboxKind::None => return Ok(Err("tools are switched off by sandbox.kind = \"none\"".to_owned())),
        SandboxKind::Local | SandboxKind::E2b => {}
    }
    let data = &config.server.data;
    let checkpoints = checkpoints(&config.checkpoints.url, data)?;
    let settings = config.sandbox.settings();
    let tool_timeout = settings.tool_timeout;
    let opened: Result<Arc<dyn Sandboxes>, SandboxError> = match config.e2b()? {
        Some(e2b) => E2b::open(e2b).await.map(|e2b| Arc::new(e2b) as _),
        None => {
            let program = std::env::current_exe().context("cannot find this program's own file")?;
            Local::open(&data.join("sandboxes"), settings, program).await.map(|local| Arc::new(local) as _)
        }
    };
    match opened {
        Ok(sandboxes) => Ok(Ok(Workshop { sandboxes, checkpoints, tool_timeout })),
        // Whoever names a service elsewhere wants to know at once that it does not work.
        Err(error) if config.sandbox.kind == SandboxKind::E2b => bail!("cannot use E2B: {error}"),
        Err(SandboxError::Unavailable(reason)) => {
            tracing::warn!("no sandboxes, and so no tools that run in one: {reason}");
            Ok(Err(reason))
        }
        Err(error) => bail!("cannot open the sandboxes: {error}"),
    }
}

fn checkpoints(url: &str, data: &Path) -> anyhow::Result<Checkpoints> {
    let folder = match url.strip_prefix("file:") {
        _ if url.starts_with("s3://") => {
            return Checkpoints::in_bucket(url).context("cannot open the bucket for checkpoints");
        }
        Some("") => data.join("checkpoints"),
        Some(path) => PathBuf::from(path.strip_prefix("//").unwrap_or(path)),
        None => bail!("checkpoints.url must be file:, file:PATH or s3://BUCKET/PREFIX"),
    };
    Checkpoints::in_folder(&folder).context("cannot open the folder for checkpoints")
}
