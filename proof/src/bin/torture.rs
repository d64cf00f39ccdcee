//! `outlast-torture`: kills the server hundreds of times and checks that nothing was lost.

#![allow(clippy::print_stdout, reason = "a command-line tool prints its results")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use outlast_proof::instances;
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
    /// Only runs with tools, killed at every step.
    #[arg(long, conflicts_with = "no_faults")]
    only_agents: bool,
    /// Several instances on one PostgreSQL, with this many rounds of everything that can happen to them.
    #[arg(long, value_name = "ROUNDS", num_args = 0..=1, default_missing_value = "60")]
    postgres: Option<usize>,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    if let Some(rounds) = arguments.postgres {
        return several(&arguments, rounds, seed).await;
    }
    let plan = Plan {
        rounds: if arguments.only_agents { 0 } else { arguments.rounds },
        seed,
        generations: arguments.generations,
        readers: arguments.readers,
        program: arguments.bin,
        faults: !arguments.no_faults && !arguments.only_agents,
        agents: !arguments.no_faults,
    };
    println!("seed {seed}");
    let begun = Instant::now();
    let tally = torture(&plan, &mut |line| println!("{line}")).await?;
    summarise(&plan, &tally, begun);
    let clean = tally.findings.violations.is_empty() && tally.agents.clean().is_ok();
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn several(arguments: &Arguments, rounds: usize, seed: u64) -> anyhow::Result<ExitCode> {
    let plan = instances::Plan {
        generations: arguments.generations,
        readers: arguments.readers,
        program: arguments.bin.clone(),
        ..instances::Plan::mixed(rounds, seed)
    };
    println!("seed {seed}");
    let begun = Instant::now();
    let tally = instances::torture(&plan, &mut |line| println!("{line}")).await?;
    for violation in tally.findings.violations.iter().take(20) {
        println!("{violation}");
    }
    println!("\n{}\n{tally}{} in {:.0} s", instances::HEADS, tally.findings, begun.elapsed().as_secs_f32());
    Ok(match tally.clean() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => {
            println!("repeat with --postgres {rounds} --seed {seed}");
            ExitCode::FAILURE
        }
    })
}

fn summarise(plan: &Plan, tally: &Tally, begun: Instant) {
    let Tally { rounds, deaths, faults, not_reached, recoveries, findings, agents } = tally;
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
        "{} generations, {} events, {} received by readers, which reconnected {} times",
        findings.generations, findings.events, findings.recorded, findings.reconnects
    );
    println!("{findings}");
    if !agents.rows.is_empty() {
        println!("\nRuns with tools, killed at every visit of each point:\n{agents}");
        for difference in agents.sum().differences.iter().take(20) {
            println!("{difference}");
        }
    }
    if !findings.violations.is_empty() {
        println!("repeat with --seed {} --rounds {}", plan.seed, plan.rounds);
    }
}
