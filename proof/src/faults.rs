//! Every fault point of the server, and how to reach it.

use std::time::Duration;

use tokio::time::Instant;

use crate::crash::{Blow, Mix, Outcome, strike};
use crate::server::{Options, Server};
use crate::upstream::Upstream;
use crate::visitor::Visitor;
use crate::wait::LONG;

/// How a fault point is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Once during every start.
    Opening,
    /// With every event, under any load.
    Often,
    /// A few times: when something starts, is resumed, or has become long.
    Seldom,
    /// Only when thousands of rows can be cut off at once.
    Heavy,
    /// Not by these tests, for this reason.
    Never(&'static str),
}

impl Reach {
    /// At which visits of the point to die.
    pub fn hits(self) -> &'static [u64] {
        match self {
            Reach::Opening | Reach::Heavy => &[1],
            Reach::Seldom => &[1, 2],
            Reach::Often => &[1, 2, 30],
            Reach::Never(_) => &[],
        }
    }
}

/// All points, and how to reach each. A new point counts as reached often. If that is wrong, its test fails, and
/// somebody has to add it here.
pub fn points() -> Vec<(&'static str, Reach)> {
    let all = outlast_store::fault::POINTS.iter().chain(outlast_engine::FAULT_POINTS);
    all.map(|point| (*point, reach(point))).collect()
}

fn reach(point: &str) -> Reach {
    match point {
        "open.epoch" | "open.scanned" => Reach::Opening,
        "settle.before" | "settle.copied" | "settle.committed" => Reach::Seldom,
        "recover.claimed" | "recover.folded" | "recover.observed" | "recover.called" => Reach::Seldom,
        "truncate.committed" => Reach::Heavy,
        "confirm.claimed" => Reach::Never(
            "needs an append whose outcome the store does not know, which SQLite says only after a broken \
             disk; the simulation makes it happen",
        ),
        "delete.marked" | "delete.step" => {
            Reach::Never("needs a conversation that is deleted; the store's own crash test dies there")
        }
        "notify.listed" | "notify.queued" => {
            Reach::Never("needs a generation that nobody watches, and every visitor of these tests watches")
        }
        "outbox.leased" | "outbox.sent" => {
            Reach::Never("needs a webhook; the proof of notifications kills the server between two attempts")
        }
        "remove.owed" | "remove.deleted" | "remove.cleared" => {
            Reach::Never("needs a conversation that is deleted; the proof of deletions dies there")
        }
        "work.begun" | "work.done" => Reach::Never("needs a run with tools; the table of deaths dies there"),
        _ => Reach::Often,
    }
}

/// Lets the server die at a fault point (`name:N`) under load, restarts it and compares. `None` if the point was
/// not reached.
pub async fn die_at(
    fault: &str,
    reach: Reach,
    upstream: &Upstream,
    options: Options,
    random: &mut fastrand::Rng,
) -> anyhow::Result<Option<Outcome>> {
    let mut server = Server::start(options).await?;
    server.kill().await?;
    server.restart_with_fault(Some(fault)).await?;
    let visitors = match reach {
        Reach::Heavy => heavy(&server, upstream, random),
        Reach::Opening | Reach::Often | Reach::Seldom | Reach::Never(_) => {
            Mix { generations: 9, readers: 18, millis: 300 }.visitors(server.api(), upstream, random)
        }
    };
    let outcome = strike(&mut server, visitors, Blow::Fault).await?;
    Ok((outcome.deaths > 0).then_some(outcome))
}

/// Lets the server die the given number of times during recovery, each time at a different point, then restarts it.
pub async fn die_recovering(
    times: usize,
    upstream: &Upstream,
    options: Options,
    random: &mut fastrand::Rng,
) -> anyhow::Result<Outcome> {
    const IN_RECOVERY: [&str; 8] = [
        "recover.claimed:1",
        "recover.observed:2",
        "recover.folded:3",
        "open.scanned:1",
        "recover.called:2",
        "append.inserted:2",
        "record.durable:3",
        "append.after_commit:1",
    ];
    let mut server = Server::start(options).await?;
    let visitors = Mix { generations: 9, readers: 18, millis: 600 }.visitors(server.api(), upstream, random);
    let mut points: Vec<String> = IN_RECOVERY.iter().map(|point| (*point).to_owned()).collect();
    random.shuffle(&mut points);
    points.truncate(times);
    let after = Duration::from_millis(random.u64(150..=450));
    strike(&mut server, visitors, Blow::Recovery(after, points)).await
}

/// Many long concurrent answers, and nothing short before them that would keep its rows. They are slow, because on
/// a busy machine quick tokens are combined into few rows, and many rows are needed. Nobody waits for their end.
fn heavy(server: &Server, upstream: &Upstream, random: &mut fastrand::Rng) -> Vec<Visitor> {
    let visitor = |_| Visitor {
        api: server.api().clone(),
        scripts: vec![upstream.script(5_000).rate(60)],
        readers: 1,
        cancel_after: Some(Duration::from_secs(16)),
        seed: random.u64(..),
        deadline: Instant::now() + 2 * LONG,
    };
    (0..40).map(visitor).collect()
}
