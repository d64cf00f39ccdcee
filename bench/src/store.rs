//! `outlast-bench store`: what PostgreSQL costs by itself, without a server in front of the store.
//!
//! Each of N conversations produces a token every 20 ms. Tokens that come while an append is on its way leave with the
//! next one, as in the server. PostgreSQL is a private one on this machine.

mod load;
mod takeover;

use std::time::Duration;

use anyhow::ensure;
use outlast_store::suite::postgres::Server;

use load::{Figures, Load};

/// CPU seconds of PostgreSQL per million tokens of a prototype that did nothing but write, on two shared cores. What we
/// need may be twice that.
const PROTOTYPE: [(usize, f64); 2] = [(200, 5.8), (1_000, 2.4)];
/// How far a follower at another instance may be behind the commit, in milliseconds.
const BEHIND_MS: f64 = 10.0;
/// How long a command to another instance may take, in milliseconds.
const COMMAND_MS: f64 = 40.0;
/// Bytes of the write-ahead log for each byte of a record.
const WRITTEN: f64 = 1.7;
/// How long taking over 1,000 conversations may take after the lease has expired, in milliseconds.
const TAKEOVER_MS: f64 = 300.0;

/// Two lines of the report for each number of conversations, then the targets.
pub(crate) async fn run(streams: &[usize], seconds: u64, check: bool) -> anyhow::Result<()> {
    println!(
        "| streams | tokens/s | tokens an event | PostgreSQL CPU s per M tokens | client CPU s per M | WAL bytes a token \
         | WAL × records | p50 / p99 ms to commit | p50 / p99 ms follower behind | p50 / p99 ms command |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let server = Server::with(&["shared_buffers=128MB"], &[]);
    let window = Duration::from_secs(seconds);
    let mut targets = Vec::new();
    for count in streams {
        let alone = Load::new(*count).measure(&server, window, false).await?;
        println!("| {count} | {alone} |");
        let watched = Load::new(*count).measure(&server, window, true).await?;
        println!("| {count}, all followed | {watched} |");
        targets.extend(judge(*count, &alone, &watched));
    }
    let took = takeover::measure(&server).await?;
    let what = "ms to take over 1,000 conversations once the lease has expired";
    targets.push(Target { what: what.to_owned(), most: TAKEOVER_MS, value: took });

    println!("\n| target | measured | |\n|---|---|---|");
    for Target { what, most, value } in &targets {
        let verdict = if value <= most { "PASS" } else { "MISS" };
        println!("| {what}: at most {most} | {value:.2} | {verdict} |");
    }
    let missed = targets.iter().filter(|target| target.value > target.most).count();
    ensure!(!check || missed == 0, "{missed} targets were missed");
    Ok(())
}

struct Target {
    what: String,
    most: f64,
    value: f64,
}

fn judge(count: usize, alone: &Figures, watched: &Figures) -> Vec<Target> {
    let Some((_, prototype)) = PROTOTYPE.into_iter().find(|(streams, _)| *streams == count) else {
        return Vec::new();
    };
    let target = |what: &str, most: f64, value: f64| Target {
        what: format!("{what} at {count} streams"),
        most,
        value,
    };
    vec![
        target("CPU s of PostgreSQL per million tokens", 2.0 * prototype, alone.postgres_cpu),
        target("bytes of WAL for each byte of the records", WRITTEN, alone.written),
        target(
            "p99 ms that a follower at another instance is behind the commit",
            BEHIND_MS,
            watched.behind[1],
        ),
        target("p99 ms of a command to another instance", COMMAND_MS, watched.command[1]),
    ]
}
