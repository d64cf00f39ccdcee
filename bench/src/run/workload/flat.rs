//! 50 streams as fast as upstream, server and readers can go together.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::Stage;
use crate::run::candidate::{Candidate, Server};
use crate::run::meter::Meter;
use crate::run::reader::{Crowd, Reader};
use crate::run::results::Row;
use crate::run::window::Window;

const STREAMS: u64 = 50;

pub(super) async fn run(stage: &Stage, server: Server) -> anyhow::Result<Vec<Row>> {
    let mut row = Row::new("flat out", server.candidate, STREAMS);
    // A fixed number, so that the end of every stream is checked too. Node is slower and takes about as long
    // for fewer.
    let tokens: u64 = match server.candidate {
        Candidate::Floor | Candidate::Outlast | Candidate::OutlastPostgres => 20_000,
        Candidate::Node => 2_000,
    };
    let meter = Rc::new(Meter::default());
    let memory = server.memory_kb();
    let mut crowd = Crowd::new(tokens);
    let window = Window::open(stage, &server, &meter);
    for index in 0..STREAMS {
        crowd.add(
            Reader {
                client: server.client(),
                meter: meter.clone(),
                name: format!("flat-{index}"),
                script: format!("tokens={tokens} rate=0 seed={index}"),
                begin: Instant::now(),
                deadline: Instant::now() + Duration::from_secs(180),
            }
            .run(),
        );
    }
    (row.check, _) = crowd.finish().await;
    window.close(stage, &server, &meter, &mut row);
    let in_use = server.memory_kb();
    row.kilobytes_per_stream = Some((in_use - memory) / STREAMS as f64);
    row.megabytes = Some(in_use / 1024.0);
    server.stop().await?;
    Ok(vec![row])
}
