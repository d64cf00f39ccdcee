//! 1,000 readers lose their connection and come back at the same moment, each at its own position.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::clock;
use crate::run::candidate::{Client, Server};
use crate::run::meter::{Meter, percentile};
use crate::run::reader::{Crowd, Seen, step};
use crate::run::results::Row;
use crate::run::watch::Watch;

const STREAMS: u64 = 1_000;
/// Gentle, so that what is measured is coming back and not streaming; starting is spread out for the same reason.
const RATE: u64 = 2;
const RAMP: Duration = Duration::from_secs(10);
const CUT_AT: Duration = Duration::from_secs(13);
/// Everyone is away for so long and misses some four tokens.
const AWAY: Duration = Duration::from_secs(2);
const LENGTH: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Read,
    Cut,
    Return,
}

pub(super) async fn run(server: Server) -> anyhow::Result<Vec<Row>> {
    let mut row = Row::new("1000 reconnects at once", server.candidate, STREAMS);
    let tokens = LENGTH.as_secs() * RATE;
    let begun = Instant::now();
    let (phase, phases) = tokio::sync::watch::channel(Phase::Read);
    let waits = Rc::new(std::cell::RefCell::new(Vec::with_capacity(STREAMS as usize)));
    let mut crowd = Crowd::new(tokens);
    for index in 0..STREAMS {
        let returning = Returning {
            client: server.client(),
            meter: Rc::new(Meter::default()),
            index,
            script: format!("tokens={tokens} rate={RATE} seed={index}"),
            begin: begun + step(RAMP, index, STREAMS),
            deadline: begun + RAMP + LENGTH + Duration::from_secs(30),
            phases: phases.clone(),
        };
        let waits = waits.clone();
        crowd.add(async move {
            let (seen, wait) = returning.run().await;
            waits.borrow_mut().extend(wait);
            seen
        });
    }
    sleep_until(begun + CUT_AT).await;
    phase.send(Phase::Cut)?;
    sleep_until(begun + CUT_AT + AWAY).await;
    phase.send(Phase::Return)?;
    (row.check, _) = crowd.finish().await;
    let mut waits = waits.take();
    row.reconnect_p50_ms = percentile(&mut waits, 50.0);
    row.reconnect_p99_ms = percentile(&mut waits, 99.0);
    row.add_note(&format!("{} of {STREAMS} came back", waits.len()));
    server.stop().await?;
    Ok(vec![row])
}

/// A reader that leaves and comes back when told.
struct Returning {
    client: Client,
    meter: Rc<Meter>,
    index: u64,
    script: String,
    begin: Instant,
    deadline: Instant,
    phases: Receiver<Phase>,
}

impl Returning {
    /// What it saw, and how long it waited for the first token it had missed, in milliseconds.
    async fn run(mut self) -> (Seen, Option<f64>) {
        sleep_until(self.begin).await;
        let mut watch = Watch::new(self.meter.clone());
        let mut wait = None;
        let error = match timeout_at(self.deadline, self.twice(&mut watch, &mut wait)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("time was up".to_owned()),
        };
        (Seen { watch, error }, wait)
    }

    async fn twice(&mut self, watch: &mut Watch, wait: &mut Option<f64>) -> anyhow::Result<()> {
        let (mut connection, id) = self.client.start(&format!("storm-{}", self.index), &self.script).await?;
        tokio::select! {
            read = connection.read(watch) => {
                read?;
                anyhow::bail!("it ended before the cut");
            }
            cut = self.phases.wait_for(|phase| *phase >= Phase::Cut) => drop(cut?),
        }
        drop(connection);
        watch.reconnected();
        drop(self.phases.wait_for(|phase| *phase >= Phase::Return).await?);

        let left = clock::now_ns();
        let mut connection = self.client.resume(&id, watch.last_seq).await?;
        connection.read(watch).await?;
        *wait = watch.first_new_ns.map(|at| at.saturating_sub(left) as f64 / 1e6);
        Ok(())
    }
}
