//! Finds the programs under test.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

const BUILD: &str = "cargo build -p outlast -p outlast-bench --features outlast/fault-points";

/// The server.
pub fn outlast() -> anyhow::Result<PathBuf> {
    find("outlast", "OUTLAST_BIN")
}

/// The scripted upstream.
pub(crate) fn bench() -> anyhow::Result<PathBuf> {
    find("outlast-bench", "OUTLAST_BENCH_BIN")
}

/// The path in the environment, or the program built next to the running one.
fn find(name: &str, variable: &str) -> anyhow::Result<PathBuf> {
    let path = match std::env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => built_beside(&std::env::current_exe()?).context("the program has no folder")?.join(name),
    };
    if !path.is_file() {
        bail!("{} is missing; run `{BUILD}`, or set {variable}", path.display());
    }
    Ok(path)
}

/// A test binary is one folder deeper than the programs of its profile.
fn built_beside(program: &Path) -> Option<&Path> {
    let folder = program.parent()?;
    if folder.ends_with("deps") { folder.parent() } else { Some(folder) }
}
