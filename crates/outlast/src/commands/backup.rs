//! `outlast backup`: copies the database and the checkpoints into a new folder, even while the server runs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;

use super::say;
use crate::config::Config;

#[derive(Args)]
pub(crate) struct BackupCommand {
    /// The folder to create
    #[arg(value_name = "FOLDER")]
    to: PathBuf,
}

impl BackupCommand {
    /// The database comes first: what it refers to exists by then, and the blobs of checkpoints never change.
    pub(crate) fn run(&self, config: &Config) -> anyhow::Result<()> {
        if self.to.exists() {
            bail!("{} already exists; a backup needs a new folder", self.to.display());
        }
        create_private(&self.to).with_context(|| format!("cannot create {}", self.to.display()))?;
        let data = &config.server.data;
        let file = outlast_store::backup(&config.store.url, data, &self.to)
            .with_context(|| config.blame("store.url"))?;
        say(&format!("copied the database to {}", file.display()));
        match config.checkpoints.url.as_str() {
            "file:" => {
                let (from, to) = (data.join("checkpoints"), self.to.join("checkpoints"));
                let files = copy_folder(&from, &to).context("cannot copy the checkpoints")?;
                say(&format!("copied {files} checkpoint files"));
            }
            _ => say("did not copy the checkpoints, which are not in the data folder (checkpoints.url)"),
        }
        say("did not copy the sandboxes, which are restored from their checkpoints");
        Ok(())
    }
}

fn create_private(folder: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Copies the files of a folder and of those in it, and returns how many. A file that is removed in the meantime
/// belonged to a checkpoint that is no longer needed.
fn copy_folder(from: &Path, to: &Path) -> std::io::Result<usize> {
    let mut copied = 0;
    let mut folders = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = folders.pop() {
        let entries = match fs::read_dir(&from) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        create_private(&to)?;
        for entry in entries {
            let entry = entry?;
            let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
            if kind.is_dir() {
                folders.push((entry.path(), target));
            } else if kind.is_file() {
                match fs::copy(entry.path(), target) {
                    Ok(_) => copied += 1,
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(copied)
}
