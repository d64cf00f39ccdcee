//! The server is killed with SIGKILL in the middle of 20 streams and restarted on its data.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep, timeout_at};

use super::Stage;
use crate::run::candidate::{Client, Server};
use crate::run::meter::Meter;
use crate::run::reader::{Crowd, Seen};
use crate::run::results::Row;
use crate::run::watch::Watch;

const STREAMS: u64 = 20;
const TOKENS: u64 = 500;
const RATE: u64 = 50;
const KILL_AFTER: Duration = Duration::from_secs(4);
/// Longer than a whole generation takes, so that starting over counts as recovered.
const RECOVER_WITHIN: Duration = Duration::from_secs(30);
const RETRY_EVERY: Duration = Duration::from_millis(500);

pub(super) async fn run(stage: &Stage, server: Server) -> anyhow::Result<Vec<Row>> {
    let mut row = Row::new("kill -9", server.candidate, STREAMS);
    let meter = Rc::new(Meter::default());
    let (restarted, restarts) = tokio::sync::watch::channel(None);
    let mut crowd = Crowd::new(TOKENS);
    for index in 0..STREAMS {
        let (client, meter, restarts) = (server.client(), meter.clone(), restarts.clone());
        crowd.add(survive(client, meter, index, restarts));
    }
    sleep(KILL_AFTER).await;
    let before = meter.tokens();
    let server = server.crash_and_restart(&stage.programs, stage.upstream.address()).await?;
    let up = Instant::now();
    restarted.send(Some(server.client()))?;
    let all;
    (row.check, all) = crowd.finish().await;
    let retracted = all.iter().filter(|seen| seen.watch.retractions > 0).count();
    let interrupted = all.iter().filter(|seen| seen.watch.interrupted).count();
    row.add_note(&format!(
        "{} of {STREAMS} ended with the full text ({:.1} s after the restart), {} tokens were shown before \
         the kill",
        row.check.complete,
        up.elapsed().as_secs_f64(),
        before,
    ));
    if retracted + interrupted > 0 {
        row.add_note(&format!("{retracted} retracted and restarted, {interrupted} interrupted"));
    }
    if let Some(error) = row.check.error.clone() {
        row.add_note(&format!("the others got: {error}"));
    }
    server.stop().await?;
    Ok(vec![row])
}

/// Reads until the server dies, then reconnects to the new one until the generation is over.
async fn survive(
    client: Client,
    meter: Rc<Meter>,
    index: u64,
    mut restarts: Receiver<Option<Client>>,
) -> Seen {
    let mut watch = Watch::new(meter);
    let script = format!("tokens={TOKENS} rate={RATE} seed={index}");
    let id = match client.start(&format!("crash-{index}"), &script).await {
        Ok((mut connection, id)) => {
            // The error does not matter: the server was killed.
            drop(connection.read(&mut watch).await);
            id
        }
        Err(error) => return Seen { watch, error: Some(error.to_string()) },
    };
    let client = match restarts.wait_for(Option::is_some).await.map(|client| *client) {
        Ok(Some(client)) => client,
        Ok(None) | Err(_) => return Seen { watch, error: Some("the server did not come back".to_owned()) },
    };
    let deadline = Instant::now() + RECOVER_WITHIN;
    let mut error = None;
    while watch.end.is_none() && Instant::now() < deadline {
        watch.reconnected();
        let reading = async {
            let mut connection = client.resume(&id, watch.last_seq).await?;
            connection.read(&mut watch).await
        };
        match timeout_at(deadline, reading).await {
            Ok(Ok(_)) => {}
            Ok(Err(failure)) => error = error.or(Some(failure.to_string())),
            Err(_) => error = error.or(Some("deadline exceeded".to_owned())),
        }
        if watch.end.is_none() {
            sleep(RETRY_EVERY).await;
        }
    }
    Seen { watch, error }
}
