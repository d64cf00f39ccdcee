//! 200 streams with a reader each, without and with 1,000 readers beside them that read nothing.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::Stage;
use crate::run::candidate::{Client, Server};
use crate::run::meter::Meter;
use crate::run::reader::{Crowd, Reader, Seen, step};
use crate::run::results::Row;
use crate::run::watch::Watch;
use crate::run::window::Window;
use crate::run::wire::Connection;

const FAST: u64 = 200;
const RATE: u64 = 50;
const STALLED: u64 = 1_000;
/// The generations that the stalled readers follow: a conversation has a limited number of followers.
const LONG: u64 = 4;
/// Longer than what the buffers of a stalled reader hold.
const LONG_TOKENS: u64 = 60_000;
/// What a reader that wakes up reads of its old connection before it loses that one, too.
const READ_BEFORE: u64 = 100;
/// How many readers wake up at the same time.
const WAKE_AT_ONCE: usize = 50;
const RAMP: Duration = Duration::from_secs(2);
const SETTLE: Duration = Duration::from_secs(2);
/// The server drops a reader that has read nothing for 30 s, and they must all be there until the window closes.
const WINDOW_MAX: Duration = Duration::from_secs(15);
const GRACE: Duration = Duration::from_secs(20);
const WAKE_WITHIN: Duration = Duration::from_secs(120);

pub(super) async fn run(stage: &Stage, server: Server) -> anyhow::Result<Vec<Row>> {
    let mut without = Row::new("200 streams, none stalled", server.candidate, FAST);
    let (crowd, meter, ready) = fast(stage, &server, "alone");
    sleep_until(ready).await;
    measure(stage, &server, &meter, &mut without).await;
    (without.check, _) = crowd.finish().await;

    let long = long_generations(server.client()).await?;
    let mut with = Row::new("200 streams, 1000 stalled", server.candidate, FAST);
    let memory = server.memory_kb();
    let mut stalled = Vec::new();
    for index in 0..STALLED {
        let id = long[(index % LONG) as usize].clone();
        stalled.push((server.client().stall(&id).await?, id));
    }
    sleep(SETTLE).await; // until their buffers are full
    with.kilobytes_per_stream = Some((server.memory_kb() - memory) / STALLED as f64);
    let (crowd, meter, ready) = fast(stage, &server, "beside");
    sleep_until(ready).await;
    measure(stage, &server, &meter, &mut with).await;
    with.megabytes = Some(server.memory_kb() / 1024.0);
    (with.check, _) = crowd.finish().await;
    let exact = wake(server.client(), stalled, &mut with).await;
    if let (Some(alone), Some(beside)) = (without.latency_p99_ms, with.latency_p99_ms) {
        with.add_note(&format!(
            "p99 {:.2}× of that without; {exact} of {STALLED} resumed exactly",
            beside / alone
        ));
    }
    server.stop().await?;
    Ok(vec![without, with])
}

/// Starts the streams. Returns when all of them are under way.
fn fast(stage: &Stage, server: &Server, name: &str) -> (Crowd, Rc<Meter>, Instant) {
    let length = RAMP + SETTLE + window(stage) + Duration::from_secs(1);
    let tokens = length.as_secs() * RATE;
    let (meter, begun) = (Rc::new(Meter::default()), Instant::now());
    let mut crowd = Crowd::new(tokens);
    for index in 0..FAST {
        crowd.add(
            Reader {
                client: server.client(),
                meter: meter.clone(),
                name: format!("{name}-{index}"),
                script: format!("tokens={tokens} rate={RATE} seed={index}"),
                begin: begun + step(RAMP, index, FAST),
                deadline: begun + RAMP + length + GRACE,
            }
            .run(),
        );
    }
    (crowd, meter, begun + RAMP + SETTLE)
}

fn window(stage: &Stage) -> Duration {
    stage.window.min(WINDOW_MAX)
}

async fn measure(stage: &Stage, server: &Server, meter: &Meter, row: &mut Row) {
    let opened = Window::open(stage, server, meter);
    sleep(window(stage)).await;
    opened.close(stage, server, meter, row);
}

/// Answers that are complete before anybody stalls on them.
async fn long_generations(client: Client) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::new();
    for index in 0..LONG {
        let mut watch = Watch::new(Rc::default());
        let script = format!("tokens={LONG_TOKENS} rate=0 seed={index}");
        let (mut connection, id) = client.start(&format!("long-{index}"), &script).await?;
        connection.read(&mut watch).await?;
        anyhow::ensure!(watch.complete(LONG_TOKENS), "a long answer has {} tokens", watch.received);
        ids.push(id);
    }
    Ok(ids)
}

/// Lets the stalled readers read a little, lose their connections, and resume. Returns how many got everything.
async fn wake(client: Client, stalled: Vec<(Connection, String)>, row: &mut Row) -> usize {
    let deadline = Instant::now() + WAKE_WITHIN;
    let (mut exact, mut waiting) = (0, stalled.into_iter());
    loop {
        let mut crowd = Crowd::new(LONG_TOKENS);
        for (connection, id) in waiting.by_ref().take(WAKE_AT_ONCE) {
            crowd.add(async move {
                let mut watch = Watch::new(Rc::default());
                let error = match timeout_at(deadline, resume(client, connection, &id, &mut watch)).await {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(error.to_string()),
                    Err(_) => Some("deadline exceeded".to_owned()),
                };
                Seen { watch, error }
            });
        }
        let (check, seen) = crowd.finish().await;
        if seen.is_empty() {
            return exact;
        }
        exact += seen.iter().filter(|seen| seen.watch.complete(LONG_TOKENS)).count();
        row.check.add(check);
    }
}

async fn resume(client: Client, mut old: Connection, id: &str, watch: &mut Watch) -> std::io::Result<()> {
    watch.until_more(READ_BEFORE);
    old.read(watch).await?;
    drop(old);
    watch.reconnected();
    watch.until_the_end();
    client.resume(id, watch.last_seq).await?.read(watch).await?;
    Ok(())
}
