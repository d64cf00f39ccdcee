//! The workloads. Each starts a fresh server, so that memory and caches do not depend on the one before.

mod crash;
mod fanout;
mod flat;
mod log;
mod stalled;
mod steady;
mod storm;

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::candidate::{Candidate, Programs, Server};
use super::meter::Meter;
use super::process::Process;
use super::reader::{Crowd, Reader};
use super::results::Row;

/// What every workload needs.
pub(crate) struct Stage {
    pub(crate) programs: Programs,
    pub(crate) upstream: Process,
    /// Length of a measured window.
    pub(crate) window: Duration,
}

/// The workloads by the names that `--only` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// This many streams at 50 tokens/s.
    Steady(u64),
    /// 50 streams as fast as they can go.
    Flat,
    /// Reconnects to a log of 2,000 tokens, one after the other.
    Log,
    /// 1,000 readers that reconnect at once.
    Storm,
    /// One generation, 1,000 readers.
    Fanout,
    /// The same, with the readers at another instance than the generation.
    Elsewhere,
    /// 200 streams, without and with 1,000 readers beside them that read nothing.
    Stalled,
    /// The server is killed in the middle of streams.
    Crash,
}

impl Workload {
    pub(crate) const ALL: [Self; 11] = [
        Self::Steady(50),
        Self::Steady(200),
        Self::Steady(1_000),
        Self::Steady(2_000),
        Self::Flat,
        Self::Log,
        Self::Storm,
        Self::Fanout,
        Self::Elsewhere,
        Self::Stalled,
        Self::Crash,
    ];

    /// The name on the command line.
    pub(crate) fn key(self) -> String {
        match self {
            Self::Steady(streams) => format!("s{streams}"),
            Self::Flat => "flat".to_owned(),
            Self::Log => "log".to_owned(),
            Self::Storm => "storm".to_owned(),
            Self::Fanout => "fanout".to_owned(),
            Self::Elsewhere => "elsewhere".to_owned(),
            Self::Stalled => "stalled".to_owned(),
            Self::Crash => "crash".to_owned(),
        }
    }

    /// Whether the candidate can run this: nobody can reconnect to the floor. On PostgreSQL only what depends on the
    /// store is measured, because everything else is the same program.
    pub(crate) fn suits(self, candidate: Candidate) -> bool {
        if candidate == Candidate::OutlastPostgres {
            return matches!(self, Self::Steady(50 | 200 | 1_000) | Self::Elsewhere);
        }
        match self {
            // Several instances need a database that they share.
            Self::Elsewhere => false,
            Self::Steady(_) | Self::Flat => true,
            Self::Log | Self::Storm | Self::Fanout | Self::Crash => candidate.resumes(),
            // Only a reader with a position can show that it missed nothing.
            Self::Stalled => candidate == Candidate::Outlast,
        }
    }

    pub(crate) async fn run(self, stage: &Stage, candidate: Candidate) -> anyhow::Result<Vec<Row>> {
        let server = stage.server(candidate).await?;
        match self {
            Self::Steady(streams) => steady::run(stage, server, streams).await,
            Self::Flat => flat::run(stage, server).await,
            Self::Log => log::run(server).await,
            Self::Storm => storm::run(server).await,
            Self::Fanout => fanout::run(stage, server).await,
            Self::Elsewhere => fanout::run_elsewhere(stage, server).await,
            Self::Stalled => stalled::run(stage, server).await,
            Self::Crash => crash::run(stage, server).await,
        }
    }
}

/// The warm-up: code is paged in, V8 has compiled what is hot, pools are open. It is paced, because buffers that
/// grow flat out would be in the baseline and hide what streams need.
const WARM_UP_STREAMS: u64 = 20;
const WARM_UP_TOKENS: u64 = 1_000;
const WARM_UP_RATE: u64 = 300;

impl Stage {
    /// A fresh server, warmed up.
    async fn server(&self, candidate: Candidate) -> anyhow::Result<Server> {
        let server = Server::start(candidate, &self.programs, self.upstream.address()).await?;
        let mut crowd = Crowd::new(WARM_UP_TOKENS);
        for index in 0..WARM_UP_STREAMS {
            crowd.add(
                Reader {
                    client: server.client(),
                    meter: Rc::new(Meter::default()),
                    name: format!("warm-{index}"),
                    script: format!("tokens={WARM_UP_TOKENS} rate={WARM_UP_RATE} seed={index}"),
                    begin: Instant::now(),
                    deadline: Instant::now() + Duration::from_secs(20),
                }
                .run(),
            );
        }
        let (check, _) = crowd.finish().await;
        anyhow::ensure!(check.perfect(), "{} failed its warm-up: {check:?}", candidate.name());
        Ok(server)
    }
}
