//! One generation, watched by 1,000 readers: at the instance that produces it, or at another.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::Stage;
use crate::run::candidate::{Client, Server};
use crate::run::meter::Meter;
use crate::run::reader::{Crowd, Seen, step};
use crate::run::results::Row;
use crate::run::watch::Watch;
use crate::run::window::Window;

const READERS: u64 = 1_000;
const RATE: u64 = 50;
const RAMP: Duration = Duration::from_secs(1);
const SETTLE: Duration = Duration::from_secs(2);

pub(super) async fn run(stage: &Stage, server: Server) -> anyhow::Result<Vec<Row>> {
    let readers = server.client();
    watched(stage, server, readers, "1 stream, 1000 readers").await
}

pub(super) async fn run_elsewhere(stage: &Stage, mut server: Server) -> anyhow::Result<Vec<Row>> {
    let readers = server.join(&stage.programs, stage.upstream.address()).await?;
    watched(stage, server, readers, "1000 readers elsewhere").await
}

async fn watched(stage: &Stage, server: Server, readers: Client, name: &str) -> anyhow::Result<Vec<Row>> {
    let mut row = Row::new(name, server.candidate, READERS);
    let length = RAMP + SETTLE + stage.window + Duration::from_secs(2);
    let tokens = length.as_secs() * RATE;
    let meter = Rc::new(Meter::default());
    let client = server.client();
    let memory = server.memory_kb();
    let script = format!("tokens={tokens} rate={RATE} seed=1");
    let (first, id) = client.start("fanout", &script).await?;
    // Node registers the stream only after its response has started.
    sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    let deadline = begun + length + Duration::from_secs(30);
    let mut crowd = Crowd::new(tokens);
    let mut first = Some(first);
    for index in 0..READERS {
        let (meter, id, connection) = (meter.clone(), id.clone(), first.take());
        crowd.add(async move {
            sleep_until(begun + step(RAMP, index, READERS)).await;
            let mut watch = Watch::new(meter);
            let reading = async {
                let mut connection = match connection {
                    Some(connection) => connection,
                    None => readers.resume(&id, 0).await?,
                };
                connection.read(&mut watch).await
            };
            let error = match timeout_at(deadline, reading).await {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("deadline exceeded".to_owned()),
            };
            Seen { watch, error }
        });
    }
    sleep_until(begun + RAMP + SETTLE).await;
    let window = Window::open(stage, &server, &meter);
    sleep_until(begun + RAMP + SETTLE + stage.window).await;
    window.close(stage, &server, &meter, &mut row);
    let in_use = server.memory_kb();
    row.kilobytes_per_stream = Some((in_use - memory) / READERS as f64);
    row.megabytes = Some(in_use / 1024.0);
    let all;
    (row.check, all) = crowd.finish().await;
    let same = all.iter().filter(|seen| seen.watch.digest == all[0].watch.digest).count();
    row.add_note(&format!("{same} of {READERS} readers saw the same bytes"));
    server.stop().await?;
    Ok(vec![row])
}
