//! Readers reconnect to a log of 2,000 tokens, one after the other, as when a page is reloaded.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::timeout;

use crate::clock;
use crate::run::candidate::Server;
use crate::run::meter::{Meter, percentile};
use crate::run::results::Row;
use crate::run::watch::{Watch, ms_since};

const TOKENS: u64 = 2_000;
/// Slow enough that every token is an event of its own.
const RATE: u64 = 50;
/// Reconnects in a round. The percentiles are those of the median round, because a single hiccup of a shared
/// machine takes longer than everything that is measured here.
const RECONNECTS: usize = 200;
const ROUNDS: usize = 5;
/// The first reconnects find cold caches and are not counted.
const UNCOUNTED: usize = 10;
const PATIENCE: Duration = Duration::from_secs(10);

/// A generation to reconnect to.
struct Log {
    workload: &'static str,
    id: String,
    /// How many tokens to read from a log that does not end.
    goal: Option<u64>,
    events: u64,
}

pub(super) async fn run(server: Server) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for log in write_logs(&server).await? {
        rows.push(read_again_and_again(&server, &log).await);
    }
    server.stop().await?;
    Ok(rows)
}

/// Writes two logs. The live one has all its tokens but has not ended: its upstream sends nothing more.
async fn write_logs(server: &Server) -> anyhow::Result<[Log; 2]> {
    let client = server.client();
    let meter = Rc::new(Meter::default());
    let script = format!("tokens={TOKENS} rate={RATE} seed=1");
    let (mut finished, finished_id) = client.start("log-finished", &script).await?;
    let script = format!("tokens={} rate={RATE} seed=2 hang_after={TOKENS}", TOKENS + 1);
    let (mut live, live_id) = client.start("log-live", &script).await?;

    let mut first = Watch::new(meter.clone());
    let mut second = Watch::new(meter).until(TOKENS);
    let reading = async { tokio::join!(finished.read(&mut first), live.read(&mut second)) };
    let (one, two) = timeout(Duration::from_secs(TOKENS / RATE + 30), reading).await?;
    one?;
    two?;
    anyhow::ensure!(first.complete(TOKENS) && second.received == TOKENS, "the logs are not complete");
    Ok([
        Log { workload: "log, finished", id: finished_id, goal: None, events: first.text_events },
        Log { workload: "log, live", id: live_id, goal: Some(TOKENS), events: second.text_events },
    ])
}

async fn read_again_and_again(server: &Server, log: &Log) -> Row {
    let mut row = Row::new(log.workload, server.candidate, 1);
    row.add_note(&format!("{TOKENS} tokens in {} events", log.events));
    let mut times = Vec::with_capacity(UNCOUNTED + ROUNDS * RECONNECTS);
    for _ in 0..UNCOUNTED + ROUNDS * RECONNECTS {
        row.check.expected += TOKENS;
        match read_again(server, log, &mut row).await {
            Ok(ms) => times.push(ms),
            Err(error) => {
                row.check.failed += 1;
                row.add_note(&format!("cannot be resumed: {error}"));
                row.check.error = Some(error.to_string());
                break; // it will not say anything else the next time
            }
        }
    }
    let counted = times.get(UNCOUNTED..).unwrap_or_default();
    row.reconnect_p50_ms = middle_round(counted, 50.0);
    row.reconnect_p99_ms = middle_round(counted, 99.0);
    row
}

fn middle_round(times: &[f64], percent: f64) -> Option<f64> {
    let rounds = times.chunks(RECONNECTS);
    let mut rounds: Vec<f64> = rounds.filter_map(|round| percentile(&mut round.to_vec(), percent)).collect();
    percentile(&mut rounds, 50.0)
}

/// Milliseconds from connecting to the last token, or to the end event if there is one.
async fn read_again(server: &Server, log: &Log, row: &mut Row) -> anyhow::Result<f64> {
    let mut watch = Watch::new(Rc::default());
    if let Some(goal) = log.goal {
        watch = watch.until(goal);
    }
    let begun = clock::now_ns();
    let client = server.client();
    let reading = async {
        let mut connection = client.resume(&log.id, 0).await?;
        connection.read(&mut watch).await
    };
    timeout(PATIENCE, reading).await??;
    let ms = ms_since(begun);
    row.check.delivered += watch.received;
    row.check.missed += watch.missed + TOKENS.saturating_sub(watch.received);
    row.check.doubled += watch.doubled;
    row.check.complete += u64::from(watch.received == TOKENS);
    Ok(ms)
}
