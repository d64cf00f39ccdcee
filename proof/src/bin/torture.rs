//! `outlast-torture`: kills the server hundreds of times and checks that nothing was lost.

#![allow(clippy::print_stdout, reason = "a command-line tool prints its results")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use outlast_proof::torture::{Plan, Tally, torture};

/// Kills the real server at random moments and at every fault point, under load, and compares what
/// readers recorded with what is stored.
#[derive(Parser)]
struct Arguments {
    /// Rounds of kill -9 at a random moment.
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// Repeats the choices of an earlier run.
    #[arg(long)]
    seed: Option<u64>,
    /// Concurrent generations in each round.
    #[arg(long, default_value_t = 20)]
    generations: usize,
    /// Readers in each round.
    #[arg(long, default_value_t = 60)]
    readers: usize,
    /// The server; by default the one built next to this program.
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Only the rounds of kill -9, for a server built without fault points.
    #[arg(long)]
    no_faults: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    let plan = Plan {
        rounds: arguments.rounds,
        seed,
        generations: arguments.generations,
        readers: arguments.readers,
        program: arguments.bin,
        faults: !arguments.no_faults,
    };
    println!("seed {seed}");
    let begun = Instant::now();
    let tally = torture(&plan, &mut |line| println!("{line}")).await?;
    summarise(&plan, &tally, begun);
    Ok(if tally.findings.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn summarise(plan: &Plan, tally: &Tally, begun: Instant) {
    let Tally { rounds, deaths, faults, not_reached, recoveries, findings } = tally;
    for violation in findings.violations.iter().take(20) {
        println!("{violation}");
    }
    for reason in not_reached {
        println!("not reached: {reason}");
    }
    println!(
        "\n{rounds} rounds of kill -9, {faults} deaths at fault points, {recoveries} recoveries cut short; \
         the process died {deaths} times in {:.0} s",
        begun.elapsed().as_secs_f32()
    );
    println!(
        "{} generations, {} events, {} recorded by readers who reconnected {} times",
        findings.generations, findings.events, findings.recorded, findings.reconnects
    );
    println!("{findings}");
    if !findings.violations.is_empty() {
        println!("repeat with --seed {} --rounds {}", plan.seed, plan.rounds);
    }
}
