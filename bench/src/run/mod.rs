//! The run: every workload with every candidate, one after the other, on one machine.

mod candidate;
mod database;
pub(crate) mod meter;
mod process;
mod reader;
mod report;
mod results;
mod targets;
pub(crate) mod usage;
mod watch;
mod window;
mod wire;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::signal::unix::{SignalKind, signal};

use candidate::{Candidate, Programs};
use process::{LOAD_CORE, Process, Start};
use results::Row;
use workload::{Stage, Workload};

/// What the command line asks for.
pub(crate) struct Options {
    pub(crate) only: Option<String>,
    pub(crate) candidates: Option<String>,
    pub(crate) seconds: u64,
    pub(crate) outlast: PathBuf,
    pub(crate) check: bool,
}

/// Files that 2,000 streams need: a connection on each side of the server, and some room.
const FILES_NEEDED: u64 = 6_000;

/// Pins this process to its core and raises its limit of open files. Children inherit both; servers get their
/// own core when they are started. Call this before any thread is started.
pub(crate) fn prepare() -> anyhow::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(LOAD_CORE);
    sched_setaffinity(None, &cores).context("the benchmark needs two cores")?;
    let mut limit = getrlimit(Resource::Nofile);
    ensure!(
        limit.maximum.is_none_or(|maximum| maximum >= FILES_NEEDED),
        "the hard limit of open files is {:?}, 2,000 streams need {FILES_NEEDED}",
        limit.maximum,
    );
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(())
}

/// Runs it and reports. An error is a token missed or doubled, or with `check` a target missed.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    // Returning drops the processes and data folders; the signal would leave them behind.
    tokio::select! {
        done = measure(options) => done,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        _ = terminated.recv() => bail!("terminated"),
    }
}

async fn measure(options: Options) -> anyhow::Result<()> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let results = home.join("results");
    fs::create_dir_all(&results)?;
    let folder = tempfile::Builder::new().prefix("run-").tempdir_in(&results)?;
    let programs = Programs {
        bench: std::env::current_exe()?,
        outlast: std::path::absolute(&options.outlast)?,
        node_folder: home.join("node"),
        data: folder.path().to_owned(),
    };
    let workloads = chosen_workloads(options.only.as_deref())?;
    let candidates = chosen_candidates(options.candidates.as_deref(), &programs)?;
    let upstream = start_upstream(&programs).await?;
    let stage = Stage { programs, upstream, window: Duration::from_secs(options.seconds) };

    let begun = Instant::now();
    let mut rows = Vec::new();
    println!("{}", report::progress_head());
    for workload in workloads {
        for candidate in &candidates {
            if !workload.suits(*candidate) {
                continue;
            }
            match workload.run(&stage, *candidate).await {
                Ok(measured) => rows.extend(measured),
                Err(error) => rows.push(broken(workload, *candidate, &error)),
            }
            report::progress(&rows, &workload.key());
        }
    }
    stage.upstream.kill().await?;
    conclude(&rows, &results, begun, options.check)
}

async fn start_upstream(programs: &Programs) -> anyhow::Result<Process> {
    Process::start(Start {
        name: "upstream",
        core: LOAD_CORE,
        program: &programs.bench,
        arguments: ["upstream", "--listen", "127.0.0.1:0"].map(str::to_owned).to_vec(),
        environment: Vec::new(),
        folder: &programs.data,
        address: None,
    })
    .await
}

/// A workload that could not be measured is a row too, so that the others are still reported.
fn broken(workload: Workload, candidate: Candidate, error: &anyhow::Error) -> Row {
    let mut row = Row::new(&workload.key(), candidate, 0);
    row.check.failed = 1;
    row.check.error = Some(format!("{error:#}"));
    row.add_note(&format!("not measured: {error:#}"));
    row
}

fn conclude(rows: &[Row], results: &Path, begun: Instant, check: bool) -> anyhow::Result<()> {
    let targets = targets::judge(rows);
    let markdown = report::markdown(rows, &targets, begun.elapsed());
    println!("\n{markdown}");
    fs::write(results.join("latest.md"), &markdown)?;
    fs::write(results.join("latest.json"), serde_json::to_string_pretty(rows)?)?;
    // Text that Node loses is a result. Text that Outlast or the floor loses is a bug.
    let lost: Vec<_> = rows
        .iter()
        .filter(|row| row.candidate != Candidate::Node.name() && !row.check.perfect())
        .map(|row| format!("{} ({})", row.workload, row.candidate))
        .collect();
    ensure!(lost.is_empty(), "tokens were missed, repeated or not delivered: {}", lost.join(", "));
    let failed = targets.iter().filter(|target| target.met == Some(false)).count();
    ensure!(!check || failed == 0, "{failed} targets were missed");
    Ok(())
}

fn chosen_workloads(only: Option<&str>) -> anyhow::Result<Vec<Workload>> {
    let Some(only) = only else { return Ok(Workload::ALL.to_vec()) };
    let mut chosen = Vec::new();
    for key in only.split(',') {
        let Some(workload) = Workload::ALL.into_iter().find(|workload| workload.key() == key) else {
            let keys: Vec<_> = Workload::ALL.into_iter().map(Workload::key).collect();
            bail!("no workload {key}; there are {}", keys.join(","));
        };
        chosen.push(workload);
    }
    Ok(chosen)
}

fn chosen_candidates(asked: Option<&str>, programs: &Programs) -> anyhow::Result<Vec<Candidate>> {
    let mut chosen = Candidate::ALL.to_vec();
    if let Some(asked) = asked {
        let names: Vec<_> = asked.split(',').collect();
        chosen.retain(|candidate| names.contains(&candidate.name()));
        ensure!(chosen.len() == names.len(), "candidates are floor,outlast,outlast-postgres,node");
    }
    if chosen.iter().any(|one| matches!(one, Candidate::Outlast | Candidate::OutlastPostgres)) {
        let outlast = &programs.outlast;
        ensure!(
            outlast.exists(),
            "{} not found: build the server, or pass --outlast PATH",
            outlast.display()
        );
    }
    if chosen.contains(&Candidate::Node) {
        let installed = programs.node_folder.join("node_modules").exists();
        ensure!(installed, "the Node candidate is not installed: run bench/setup.sh");
    }
    Ok(chosen)
}
