//! The long test of several instances: whatever can happen to an instance or to its database, mixed by a seed, while
//! visitors use them all in turn.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::api::Api;
use crate::check::{Case, unchanged};
use crate::cluster::{Cluster, SHORT_LEASE, Shutdown};
use crate::crash::Mix;
use crate::script::Script;
use crate::server::Options;
use crate::upstream::Upstream;
use crate::violation::{Findings, Kind};
use crate::wait::{LONG, bounded};

const INSTANCES: usize = 3;
/// What [`SHORT_LEASE`] says.
const LEASE: Duration = Duration::from_secs(3);
/// The upstream sends an answer in about this time.
const ANSWER_MS: u64 = 800;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blow {
    /// `kill -9` of an instance, which is restarted.
    Kill,
    /// SIGTERM, and a restart.
    Terminate,
    /// SIGSTOP for longer than the lease, and SIGCONT: two instances take themselves for the owner.
    Freeze,
    /// The connections between an instance and the database break, for less or more than the lease.
    CutOff,
    /// PostgreSQL is restarted.
    Restart,
    /// PostgreSQL crashes and is restarted.
    Crash,
}

impl Blow {
    pub const ALL: [Blow; 6] =
        [Blow::Kill, Blow::Terminate, Blow::Freeze, Blow::CutOff, Blow::Restart, Blow::Crash];

    fn name(self) -> &'static str {
        match self {
            Blow::Kill => "kill -9 of an instance",
            Blow::Terminate => "SIGTERM of an instance",
            Blow::Freeze => "SIGSTOP past the lease, SIGCONT",
            Blow::CutOff => "an instance cut off from PostgreSQL",
            Blow::Restart => "PostgreSQL restarted (fast)",
            Blow::Crash => "PostgreSQL restarted (immediate)",
        }
    }

    /// Strikes, and undoes it.
    async fn fall(self, cluster: &mut Cluster, random: &mut fastrand::Rng) -> anyhow::Result<()> {
        let struck = random.usize(..INSTANCES);
        let mut up_to = |time: Duration| Duration::from_millis(random.u64(0..=time.as_millis() as u64));
        match self {
            Blow::Kill => {
                cluster.servers[struck].kill().await?;
                sleep(up_to(2 * LEASE)).await;
                cluster.servers[struck].restart().await
            }
            Blow::Terminate => {
                cluster.servers[struck].stop().await?;
                cluster.servers[struck].restart().await
            }
            Blow::Freeze => {
                cluster.servers[struck].freeze()?;
                sleep(LEASE + up_to(LEASE)).await;
                cluster.servers[struck].thaw()
            }
            Blow::CutOff => {
                cluster.cut_off(struck, up_to(2 * LEASE)).await;
                Ok(())
            }
            Blow::Restart => cluster.database().restart(Shutdown::Fast, up_to(LEASE / 2)).await,
            Blow::Crash => cluster.database().restart(Shutdown::Immediate, up_to(LEASE / 2)).await,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Plan {
    /// What happens, in this order.
    pub blows: Vec<Blow>,
    pub seed: u64,
    /// Concurrent generations in a round.
    pub generations: usize,
    /// Readers in a round.
    pub readers: usize,
    /// The server, if not the one built next to this program.
    pub program: Option<PathBuf>,
}

impl Plan {
    /// This many rounds of each blow, mixed by the seed.
    pub fn mixed(rounds: usize, seed: u64) -> Plan {
        let mut blows: Vec<Blow> = (0..rounds).flat_map(|_| Blow::ALL).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut blows);
        Plan { blows, seed, generations: 20, readers: 60, program: None }
    }
}

/// What came of the rounds with one kind of blow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    pub rounds: u64,
    pub generations: u64,
    pub events: u64,
    /// Acknowledged events that are lost, missed or repeated.
    pub lost: u64,
    /// Whatever only a second owner could have written.
    pub stale: u64,
    /// Calls to the upstream that no attempt in the log accounts for.
    pub doubled: u64,
    /// The longest time from the end of a blow until everything had ended.
    pub slowest: Duration,
}

#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub rows: BTreeMap<Blow, Row>,
    pub findings: Findings,
}

impl Tally {
    pub fn sum(&self) -> Row {
        let mut sum = Row::default();
        for row in self.rows.values() {
            sum.rounds += row.rounds;
            sum.generations += row.generations;
            sum.events += row.events;
            sum.lost += row.lost;
            sum.stale += row.stale;
            sum.doubled += row.doubled;
            sum.slowest = sum.slowest.max(row.slowest);
        }
        sum
    }

    pub fn clean(&self) -> anyhow::Result<()> {
        self.findings.clean()?;
        anyhow::ensure!(self.sum().doubled == 0, "an upstream was called twice for one attempt\n{self}");
        Ok(())
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, row: &Row| {
            let Row { rounds, generations, events, lost, stale, doubled, slowest } = row;
            let slowest = slowest.as_secs_f32();
            writeln!(
                f,
                "{name:<38} {rounds:>6} {generations:>11} {events:>9} {lost:>6} {stale:>6} {doubled:>8} {slowest:>7.1} s"
            )
        };
        for (blow, row) in &self.rows {
            line(blow.name(), row)?;
        }
        line("together", &self.sum())
    }
}

/// The heads of the columns of a tally.
pub const HEADS: &str = "                                       rounds generations    events   lost  stale  doubled   ended after";

/// Carries out the plan, and reports progress.
pub async fn torture(plan: &Plan, say: &mut dyn FnMut(String)) -> anyhow::Result<Tally> {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let upstream = Upstream::start().await?;
    let options = Options::with(&upstream).toml(SHORT_LEASE).program(plan.program.clone());
    let mut cluster = Cluster::start(options, INSTANCES).await?;
    let api = cluster.in_turn()?;
    let mix = Mix { generations: plan.generations, readers: plan.readers, millis: ANSWER_MS };
    let mut tally = Tally::default();
    for (number, blow) in plan.blows.iter().enumerate() {
        let mut visits = JoinSet::new();
        for visitor in mix.visitors(&api, &upstream, &mut random) {
            let scripts = visitor.scripts.clone();
            visits.spawn(async move { (scripts, visitor.visit().await) });
        }
        sleep(Duration::from_millis(random.u64(0..ANSWER_MS))).await; // a random moment is intended here
        blow.fall(&mut cluster, &mut random).await.with_context(|| format!("round {number}: {blow:?}"))?;
        let over = Instant::now();
        let visited = bounded("serving every visitor", 2 * LONG, visits.join_all()).await?;
        let slowest = over.elapsed();
        let mut findings = Findings::default();
        let mut doubled = 0;
        for (scripts, case) in visited {
            let case = case.with_context(|| format!("round {number}: {blow:?}"))?;
            doubled += doubled_calls(&api, &upstream, &scripts, &case).await?;
            findings.add(case.check(&api).await?);
        }
        let found = findings.violations.len();
        say(format!(
            "round {} of {}, {}: {} generations, {found} violations, all ended {:.1} s after",
            number + 1,
            plan.blows.len(),
            blow.name(),
            findings.generations,
            slowest.as_secs_f32(),
        ));
        tally.rows.entry(*blow).or_default().add(&findings, doubled, slowest);
        tally.findings.add(findings);
    }
    let again = unchanged(&api, &tally.findings.logs).await?;
    say(format!("{} logs read again: {} changed", tally.findings.logs.len(), again.violations.len()));
    tally.findings.add(again);
    Ok(tally)
}

impl Row {
    fn add(&mut self, findings: &Findings, doubled: u64, slowest: Duration) {
        let count = |kinds: &[Kind]| {
            findings.violations.iter().filter(|violation| kinds.contains(&violation.kind)).count() as u64
        };
        self.rounds += 1;
        self.generations += findings.generations;
        self.events += findings.events;
        self.lost += count(&[Kind::Lost, Kind::Gap, Kind::Repeat, Kind::WithoutEnd, Kind::Refused]);
        self.stale += count(&[Kind::WrongText, Kind::AfterEnd, Kind::WrongDocument]);
        self.doubled += doubled;
        self.slowest = self.slowest.max(slowest);
    }
}

/// Each attempt calls the upstream at most once.
async fn doubled_calls(
    api: &Api,
    upstream: &Upstream,
    scripts: &[Script],
    case: &Case,
) -> anyhow::Result<u64> {
    let mut doubled = 0;
    for (script, expected) in scripts.iter().zip(&case.expected) {
        let document = api.generation(&expected.generation).await?;
        let attempts = document["attempt"].as_u64().unwrap_or_default();
        doubled += upstream.calls(script).await?.calls.saturating_sub(attempts);
    }
    Ok(doubled)
}
