//! 1,000 readers lose their connections and reconnect at the same moment, each at its own position.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::clock;
use crate::run::candidate::{Client, Server};
use crate::run::meter::percentile;
use crate::run::reader::{Crowd, Seen, step};
use crate::run::results::Row;
use crate::run::watch::Watch;

const STREAMS: u64 = 1_000;
/// Slow, because reconnecting is measured and not streaming. Starts are spread out for the same reason, and
/// nobody is cut off before all streams have started.
const RATE: u64 = 2;
const RAMP: Duration = Duration::from_secs(10);
const BEGIN_WITHIN: Duration = Duration::from_secs(60);
/// How long everyone is away: about four tokens.
const AWAY: Duration = Duration::from_secs(2);
/// Tokens to read after reconnecting: the missed ones and the first live ones.
const READ_ON: u64 = 10;
/// Enough that no stream ends during the workload.
const TOKENS: u64 = 2 * 180;
const RETURN_WITHIN: Duration = Duration::from_secs(40);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Read,
    Cut,
    Return,
}

/// What the readers report.
#[derive(Default)]
struct Told {
    begun: Cell<u64>,
    waits_ms: RefCell<Vec<f64>>,
}

pub(super) async fn run(server: Server) -> anyhow::Result<Vec<Row>> {
    let mut row = Row::new("1000 reconnects at once", server.candidate, STREAMS);
    let begun = Instant::now();
    let (phase, phases) = tokio::sync::watch::channel(Phase::Read);
    let told = Rc::new(Told::default());
    let mut crowd = Crowd::new(TOKENS);
    for index in 0..STREAMS {
        let returning =
            Returning { client: server.client(), index, told: told.clone(), phases: phases.clone() };
        crowd.add(async move {
            sleep_until(begun + step(RAMP, index, STREAMS)).await;
            returning.run(begun + BEGIN_WITHIN + AWAY + RETURN_WITHIN).await
        });
    }
    while told.begun.get() < STREAMS && begun.elapsed() < BEGIN_WITHIN {
        sleep(Duration::from_millis(100)).await;
    }
    let started = told.begun.get();
    phase.send(Phase::Cut)?;
    sleep(AWAY).await;
    phase.send(Phase::Return)?;
    (row.check, _) = crowd.finish().await;
    let mut waits = told.waits_ms.take();
    row.reconnect_p50_ms = percentile(&mut waits, 50.0);
    row.reconnect_p99_ms = percentile(&mut waits, 99.0);
    row.add_note(&format!("{started} had started, {} reconnected", waits.len()));
    server.stop().await?;
    Ok(vec![row])
}

/// A reader that disconnects and reconnects when told.
struct Returning {
    client: Client,
    index: u64,
    told: Rc<Told>,
    phases: Receiver<Phase>,
}

impl Returning {
    async fn run(mut self, deadline: Instant) -> Seen {
        let mut watch = Watch::new(Rc::default());
        let error = match timeout_at(deadline, self.twice(&mut watch)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("deadline exceeded".to_owned()),
        };
        Seen { watch, error }
    }

    async fn twice(&mut self, watch: &mut Watch) -> anyhow::Result<()> {
        let script = format!("tokens={TOKENS} rate={RATE} seed={}", self.index);
        let (mut connection, id) = self.client.start(&format!("storm-{}", self.index), &script).await?;
        watch.until_more(1);
        connection.read(watch).await?;
        self.told.begun.set(self.told.begun.get() + 1);
        watch.until_more(TOKENS);
        tokio::select! {
            read = connection.read(watch) => {
                read?;
                anyhow::bail!("the stream ended before the cut");
            }
            cut = self.phases.wait_for(|phase| *phase >= Phase::Cut) => drop(cut?),
        }
        drop(connection);
        watch.reconnected();
        watch.until_more(READ_ON);
        drop(self.phases.wait_for(|phase| *phase >= Phase::Return).await?);

        let left = clock::now_ns();
        let mut connection = self.client.resume(&id, watch.last_seq).await?;
        connection.read(watch).await?;
        let wait = watch.first_new_ns.map(|at| at.saturating_sub(left) as f64 / 1e6);
        self.told.waits_ms.borrow_mut().extend(wait);
        Ok(())
    }
}
