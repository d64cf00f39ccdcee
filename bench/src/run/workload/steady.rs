//! Many streams at 50 tokens a second, each with its own reader from the start.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Stage;
use crate::run::candidate::Server;
use crate::run::meter::Meter;
use crate::run::reader::{Crowd, Reader, step};
use crate::run::results::Row;
use crate::run::window::Window;

const RATE: u64 = 50;
/// The time between the last start and the window, so that starts are not measured.
const SETTLE: Duration = Duration::from_secs(2);
/// How long a candidate that has fallen behind may take to finish.
const GRACE: Duration = Duration::from_secs(20);

pub(super) async fn run(stage: &Stage, server: Server, streams: u64) -> anyhow::Result<Vec<Row>> {
    let mut row = Row::new(&format!("{streams} streams"), server.candidate, streams);
    let ramp = Duration::from_millis(streams);
    let length = ramp + SETTLE + stage.window + Duration::from_secs(1);
    let tokens = (length.as_secs_f64() * RATE as f64) as u64;
    let meter = Rc::new(Meter::default());
    let memory = server.memory_kb();
    let begun = Instant::now();
    let mut crowd = Crowd::new(tokens);
    for index in 0..streams {
        crowd.add(
            Reader {
                client: server.client(),
                meter: meter.clone(),
                name: format!("steady-{index}"),
                script: format!("tokens={tokens} rate={RATE} seed={index}"),
                begin: begun + step(ramp, index, streams),
                deadline: begun + ramp + length + GRACE,
            }
            .run(),
        );
    }
    sleep_until(begun + ramp + SETTLE).await;
    let window = Window::open(stage, &server, &meter);
    sleep_until(begun + ramp + SETTLE + stage.window).await;
    window.close(stage, &server, &meter, &mut row);
    let in_use = server.memory_kb();
    row.kilobytes_per_stream = Some((in_use - memory) / streams as f64);
    row.megabytes = Some(in_use / 1024.0);
    let asked = (streams * RATE) as f64;
    let delivered = row.tokens_per_second.unwrap_or(0.0);
    if delivered < asked * 0.98 {
        row.add_note(&format!("did not keep up: {:.0} % of {asked:.0} tokens/s", delivered / asked * 100.0));
    }
    (row.check, _) = crowd.finish().await;
    server.stop().await?;
    Ok(vec![row])
}
