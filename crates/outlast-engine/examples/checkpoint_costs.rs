//! What checkpoints cost on this machine, on a real disk: `cargo run --release --example checkpoint_costs`.
#![allow(clippy::print_stdout)]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outlast_core::Timestamp;
use outlast_engine::checkpoints::{Checkpoints, LocalWorkspace, Restore, Take, Taken, Workspace};

const FILES: usize = 10_000;
const FILE_BYTES: usize = 4_000;
const CHANGED: usize = 10;
const RESTORED_FILES: usize = 1_000;
const RESTORED_FILE_BYTES: usize = 8_800;
const RUNS: usize = 9;

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let folder =
        tempfile::tempdir_in(std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from))?;
    let checkpoints = Checkpoints::in_folder(&folder.path().join("checkpoints"))?;
    changed_files(folder.path(), &checkpoints).await?;
    restored_files(folder.path(), &checkpoints).await
}

async fn changed_files(folder: &Path, checkpoints: &Checkpoints) -> Result<(), Failure> {
    let workspace = folder.join("many");
    for file in 0..FILES {
        write(&workspace, file, &noise(file, FILE_BYTES))?;
    }
    let files = open(&workspace)?;
    let begun = Instant::now();
    let taken = take(checkpoints, &files, "first").await?;
    report("the first checkpoint of 10,000 files of 4 kB", &mut [begun.elapsed()], Some(&taken));
    // Files that changed just now are read again: their time is too coarse to tell.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    take(checkpoints, &files, "settled").await?;

    let mut times = Vec::new();
    let mut last = None;
    for run in 0..RUNS {
        for changed in 0..CHANGED {
            write(
                &workspace,
                changed * (FILES / CHANGED) + run,
                &noise(FILES * (run + 1) + changed, FILE_BYTES),
            )?;
        }
        let begun = Instant::now();
        last = Some(take(checkpoints, &files, &format!("run {run}")).await?);
        times.push(begun.elapsed());
    }
    report("a checkpoint after 10 of them changed (40 kB)", &mut times, last.as_ref());
    let begun = Instant::now();
    let taken = take(checkpoints, &files, "nothing").await?;
    report("a checkpoint after nothing changed", &mut [begun.elapsed()], Some(&taken));
    let index = fs::metadata(workspace.with_extension("index"))?.len();
    println!("the index of 10,000 files, rewritten each time without a sync: {} kB", index / 1_000);
    Ok(())
}

async fn restored_files(folder: &Path, checkpoints: &Checkpoints) -> Result<(), Failure> {
    let workspace = folder.join("some");
    for file in 0..RESTORED_FILES {
        write(&workspace, file, &noise(file, RESTORED_FILE_BYTES))?;
    }
    take(checkpoints, &open(&workspace)?, "to restore").await?;
    let mut times = Vec::new();
    for run in 0..RUNS {
        let into = folder.join(format!("restored {run}"));
        fs::create_dir(&into)?;
        let workspace: Arc<dyn Workspace> = open(&into)?;
        let request = Restore { conversation: "costs".into(), id: "to restore".to_owned(), workspace };
        let begun = Instant::now();
        checkpoints.restore(&request).await?;
        times.push(begun.elapsed());
    }
    report("restoring 1,000 files (8.8 MB), every hash verified", &mut times, None);
    Ok(())
}

fn open(workspace: &Path) -> io::Result<Arc<LocalWorkspace>> {
    Ok(Arc::new(LocalWorkspace::open(workspace, workspace.with_extension("index"))?))
}

async fn take(
    checkpoints: &Checkpoints,
    workspace: &Arc<LocalWorkspace>,
    id: &str,
) -> Result<Taken, Failure> {
    let (conversation, id, workspace) = ("costs".into(), id.to_owned(), workspace.clone());
    Ok(checkpoints.take(&Take { conversation, id, workspace, git: None, now: Timestamp(0) }).await?)
}

/// A hundred files in each directory.
fn write(workspace: &Path, file: usize, content: &[u8]) -> io::Result<()> {
    let directory = workspace.join(format!("{:03}", file / 100));
    fs::create_dir_all(&directory)?;
    fs::write(directory.join(format!("{file}.txt")), content)
}

/// Text that compresses about as well as source code.
fn noise(seed: usize, bytes: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes + 32);
    let mut line = 0;
    while text.len() < bytes {
        let word = blake3::hash(format!("{seed} {line}").as_bytes()).to_hex();
        text.extend_from_slice(format!("    let value_{line} = \"{}\";\n", &word[..16]).as_bytes());
        line += 1;
    }
    text.truncate(bytes);
    text
}

fn report(what: &str, times: &mut [Duration], taken: Option<&Taken>) {
    times.sort();
    let (median, worst) = (times[times.len() / 2].as_millis(), times[times.len() - 1].as_millis());
    let stored =
        taken.map(|taken| format!(", {} new blobs, {} bytes stored", taken.new_blobs, taken.new_bytes));
    println!("{what}: median {median} ms, worst {worst} ms of {}{}", times.len(), stored.unwrap_or_default());
}
