//! Kills the server while visitors use it, and compares everything afterwards.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::api::Api;
use crate::check::Case;
use crate::server::Server;
use crate::upstream::Upstream;
use crate::violation::{Findings, Kind};
use crate::visitor::Visitor;
use crate::wait::{LONG, bounded};

/// How the server is killed.
#[derive(Clone, Debug)]
pub enum Blow {
    /// `kill -9` after each of these waits, with a restart after each.
    Kills(Vec<Duration>),
    /// The server was started to die at a fault point. It is restarted without one.
    Fault,
    /// `kill -9` after this long, then one restart for each of these fault points (`name:N`), so that it dies
    /// during recovery, then a restart without one.
    Recovery(Duration, Vec<String>),
}

#[derive(Debug)]
pub struct Outcome {
    pub findings: Findings,
    /// How often the server died.
    pub deaths: u64,
}

/// How many visitors there are, and what they do.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Concurrent generations.
    pub generations: usize,
    /// Readers in total.
    pub readers: usize,
    /// About how long an answer takes.
    pub millis: u64,
}

/// Starts the visitors, kills the server, waits until all visitors are finished, and compares.
pub async fn strike(server: &mut Server, visitors: Vec<Visitor>, blow: Blow) -> anyhow::Result<Outcome> {
    let mut visits = JoinSet::new();
    for visitor in visitors {
        visits.spawn(visitor.visit());
    }
    let mut cases: Vec<Case> = Vec::new();
    let mut deaths = 0;
    tokio::select! {
        fallen = fall(server, &blow, &mut deaths) => fallen?,
        done = finish(&mut visits, &mut cases) => done?, // all visitors were finished before the last kill
    }
    if !server.is_running()? {
        deaths = deaths.max(1);
        server.restart().await?;
    }
    bounded("serving every visitor", 2 * LONG, finish(&mut visits, &mut cases)).await??;
    let mut findings = Findings::default();
    for case in cases {
        findings.add(case.check(server.api()).await?);
    }
    findings.demand(server.is_running()?, Kind::Refused, || server.last_errors());
    Ok(Outcome { findings, deaths })
}

async fn finish(visits: &mut JoinSet<anyhow::Result<Case>>, cases: &mut Vec<Case>) -> anyhow::Result<()> {
    while let Some(case) = visits.join_next().await {
        cases.push(case??);
    }
    Ok(())
}

/// Kills the server, and counts its deaths.
async fn fall(server: &mut Server, blow: &Blow, deaths: &mut u64) -> anyhow::Result<()> {
    match blow {
        Blow::Kills(waits) => {
            for wait in waits {
                sleep(*wait).await; // a random moment is intended here
                *deaths += 1;
                server.crash().await?;
            }
        }
        Blow::Fault => {
            server.ended(2 * LONG).await?;
            *deaths += 1;
        }
        Blow::Recovery(wait, points) => {
            sleep(*wait).await;
            *deaths += 1;
            server.kill().await?;
            for point in points {
                server.restart_with_fault(Some(point)).await?;
                server.ended(LONG).await?;
                *deaths += 1;
            }
        }
    }
    Ok(())
}

impl Mix {
    /// Visitors of every kind: most get a plain answer, some an upstream that fails first, some send two
    /// messages, some cancel, and one gets an answer long enough to be settled in the store.
    pub fn visitors(self, api: &Api, upstream: &Upstream, random: &mut fastrand::Rng) -> Vec<Visitor> {
        let mut visitors: Vec<Visitor> = Vec::new();
        let mut answers = 0;
        while answers < self.generations {
            let visitor = self.visitor(visitors.len(), api, upstream, random);
            answers += visitor.scripts.len();
            visitors.push(visitor);
        }
        visitors
    }

    fn visitor(self, number: usize, api: &Api, upstream: &Upstream, random: &mut fastrand::Rng) -> Visitor {
        let script = |random: &mut fastrand::Rng| {
            let tokens = random.u64(20..=80);
            upstream.script(tokens).rate(tokens * 1_000 / self.millis.max(1))
        };
        let scripts = match number % 8 {
            1 => vec![script(random).fault("reset_after=9 fails=1")],
            3 => vec![script(random).fault("error_after=5 fails=2")],
            4 => vec![script(random), script(random)],
            5 => vec![script(random).fault("fail=503 fails=1")],
            6 => vec![upstream.script(10_000)],
            _ => vec![script(random)],
        };
        let cancels = number % 8 == 7;
        Visitor {
            api: api.clone(),
            scripts,
            readers: (self.readers / self.generations.max(1)).max(1),
            cancel_after: cancels.then(|| Duration::from_millis(random.u64(0..=self.millis))),
            seed: random.u64(..),
            deadline: Instant::now() + 2 * LONG,
        }
    }
}
