//! The long test: repeated `kill -9`, then a crash at every fault point, then crashes during recovery.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::agent::deaths::{Executioner, Row, Table, Visits, points as agent_points};
use crate::check::unchanged;
use crate::crash::{Blow, Mix, strike};
use crate::faults::{Reach, die_at, die_recovering, points};
use crate::server::{Options, Server};
use crate::upstream::Upstream;
use crate::violation::Findings;

/// Servers that run at a time while each step of a run is tried.
const SERVERS: usize = 4;

#[derive(Clone, Debug)]
pub struct Plan {
    /// Rounds of `kill -9`.
    pub rounds: u64,
    /// The seed of all random choices.
    pub seed: u64,
    /// Concurrent generations in a round.
    pub generations: usize,
    /// Readers in a round.
    pub readers: usize,
    /// The server, if not the one built next to this program.
    pub program: Option<PathBuf>,
    /// Whether to test the fault points and recovery after the rounds.
    pub faults: bool,
    /// Whether to kill runs with tools at every step.
    pub agents: bool,
}

/// What was done, and the result.
#[derive(Debug, Default)]
pub struct Tally {
    /// Rounds of `kill -9`.
    pub rounds: u64,
    /// How often the process died.
    pub deaths: u64,
    /// Deaths at fault points, by `name:N`.
    pub faults: u64,
    /// Fault points that were not reached, with the reason.
    pub not_reached: Vec<String>,
    /// Recoveries that were interrupted.
    pub recoveries: u64,
    pub findings: Findings,
    /// Runs with tools.
    pub agents: Table,
}

/// Runs the plan, and reports progress.
pub async fn torture(plan: &Plan, say: &mut dyn FnMut(String)) -> anyhow::Result<Tally> {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let upstream = Upstream::start().await?;
    let mut tally = Tally::default();
    kill_rounds(plan, &upstream, &mut random, &mut tally, say).await?;
    if plan.faults {
        every_point(plan, &upstream, &mut random, &mut tally, say).await?;
        recoveries(plan, &upstream, &mut random, &mut tally, say).await?;
    }
    if plan.agents {
        tally.agents = agents(plan, &upstream, say).await?;
    }
    Ok(tally)
}

fn options(plan: &Plan, upstream: &Upstream) -> Options {
    Options::with(upstream).program(plan.program.clone())
}

/// All rounds use one server and one data folder, so that whatever survives must also survive all later crashes.
async fn kill_rounds(
    plan: &Plan,
    upstream: &Upstream,
    random: &mut fastrand::Rng,
    tally: &mut Tally,
    say: &mut dyn FnMut(String),
) -> anyhow::Result<()> {
    let mut server = Server::start(options(plan, upstream)).await?;
    let mix = Mix { generations: plan.generations, readers: plan.readers, millis: 800 };
    for round in 1..=plan.rounds {
        let begun = Instant::now();
        let visitors = mix.visitors(server.api(), upstream, random);
        let kills = if random.u8(0..4) == 0 { 2 } else { 1 };
        let waits: Vec<Duration> =
            (0..kills).map(|_| Duration::from_millis(random.u64(0..mix.millis))).collect();
        let outcome = strike(&mut server, visitors, Blow::Kills(waits)).await?;
        tally.rounds += 1;
        tally.deaths += outcome.deaths;
        let (found, took) = (&outcome.findings, begun.elapsed().as_secs_f32());
        say(format!(
            "round {round}: {} generations, {} events, {} reconnects, {} violations, {took:.1} s",
            found.generations,
            found.events,
            found.reconnects,
            found.violations.len()
        ));
        tally.findings.add(outcome.findings);
    }
    let again = unchanged(server.api(), &tally.findings.logs).await?;
    say(format!(
        "{} logs of all rounds read again: {} changed",
        tally.findings.logs.len(),
        again.violations.len()
    ));
    tally.findings.add(again);
    Ok(())
}

async fn every_point(
    plan: &Plan,
    upstream: &Upstream,
    random: &mut fastrand::Rng,
    tally: &mut Tally,
    say: &mut dyn FnMut(String),
) -> anyhow::Result<()> {
    for (point, reach) in points() {
        if let Reach::Never(reason) = reach {
            say(format!("{point}: not reached, {reason}"));
            tally.not_reached.push(format!("{point}: {reason}"));
            continue;
        }
        for hit in reach.hits() {
            let fault = format!("{point}:{hit}");
            let Some(outcome) = die_at(&fault, reach, upstream, options(plan, upstream), random).await?
            else {
                bail!("{fault} was not reached; is the server built with fault points?");
            };
            say(format!("{fault}: {} violations", outcome.findings.violations.len()));
            tally.faults += 1;
            tally.deaths += outcome.deaths;
            tally.findings.add(outcome.findings);
        }
    }
    Ok(())
}

async fn recoveries(
    plan: &Plan,
    upstream: &Upstream,
    random: &mut fastrand::Rng,
    tally: &mut Tally,
    say: &mut dyn FnMut(String),
) -> anyhow::Result<()> {
    for times in 1..=5 {
        let outcome = die_recovering(times, upstream, options(plan, upstream), random).await?;
        say(format!("recovery interrupted {times} times: {} violations", outcome.findings.violations.len()));
        tally.recoveries += 1;
        tally.deaths += outcome.deaths;
        tally.findings.add(outcome.findings);
    }
    Ok(())
}

/// Kills a run with tools at every visit of every point, and again during recovery; then a run with sub-agents.
async fn agents(plan: &Plan, upstream: &Upstream, say: &mut dyn FnMut(String)) -> anyhow::Result<Table> {
    let executioner = Executioner::new(upstream, plan.program.clone()).await?;
    let mut table = Table::default();
    for point in agent_points() {
        let row = executioner.at(point, Visits::Every, SERVERS).await?;
        if row.deaths == 0 {
            bail!("{point} was not reached; is the server built with fault points?");
        }
        say(row.to_string());
        row.differences.iter().for_each(|difference| say(difference.clone()));
        table.rows.push(row);
    }
    for row in executioner.recovering(Visits::Every, SERVERS).await? {
        say(row.to_string());
        table.rows.push(row);
    }
    table.rows.push(executioner.again_and_again().await?);
    let family = Executioner::of_family(upstream, plan.program.clone()).await?;
    for point in ["append.before_commit", "record.durable", "record.visible", "work.begun", "work.done"] {
        let row = family.at(point, Visits::Every, SERVERS).await?;
        let row = Row { point: format!("sub-agents: {}", row.point), ..row };
        say(row.to_string());
        row.differences.iter().for_each(|difference| say(difference.clone()));
        table.rows.push(row);
    }
    Ok(table)
}
