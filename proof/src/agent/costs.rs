//! What a run with tools costs beside the model's time, measured through the real server.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use serde_json::Value;

use super::Agent;
use crate::api::Started;
use crate::server::Server;
use crate::stored::Stored;
use crate::upstream::Upstream;

/// Rounds of the run whose rounds are measured.
const ROUNDS: usize = 40;
/// Agents side by side, and the rounds of each.
const AGENTS: usize = 50;
const ROUNDS_EACH: usize = 10;

/// Times in the order of their length.
#[derive(Clone, Debug)]
pub struct Times(Vec<Duration>);

impl Times {
    fn new(mut times: Vec<Duration>) -> anyhow::Result<Times> {
        ensure!(!times.is_empty(), "nothing was measured");
        times.sort_unstable();
        Ok(Times(times))
    }

    pub fn median(&self) -> Duration {
        self.0[self.0.len() / 2]
    }

    pub fn longest(&self) -> Duration {
        self.0[self.0.len() - 1]
    }

    fn of_hundred(&self, part: usize) -> Duration {
        self.0[(self.0.len() * part / 100).min(self.0.len() - 1)]
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (median, most, longest) = (self.median(), self.of_hundred(95), self.longest());
        write!(
            f,
            "median {:.0} ms, 95 % within {:.0} ms, longest {:.0} ms",
            ms(median),
            ms(most),
            ms(longest)
        )
    }
}

/// Every measurement.
#[derive(Clone, Debug)]
pub struct Costs {
    /// From the complete answer that asks for the first tool to the start of that tool: the sandbox is made.
    pub sandbox: Duration,
    /// From the complete answer to the next call of the model, with `bash true` in between.
    pub round: Times,
    /// The whole run of each of the agents that ran side by side.
    pub side_by_side: Times,
}

pub async fn measure(upstream: &Upstream, server: &Server) -> anyhow::Result<Costs> {
    let one = run(upstream, server, ROUNDS).await?.0;
    let (sandbox, rounds) = of_rounds(server, &one).await?;
    let many = try_join_all((0..AGENTS).map(|_| run(upstream, server, ROUNDS_EACH))).await?;
    Ok(Costs {
        sandbox,
        round: Times::new(rounds)?,
        side_by_side: Times::new(many.into_iter().map(|(_, took)| took).collect())?,
    })
}

async fn run(upstream: &Upstream, server: &Server, rounds: usize) -> anyhow::Result<(Started, Duration)> {
    let agent = (0..rounds).fold(Agent::new(upstream), |agent, _| agent.runs("true")).says("Done.");
    let begun = Instant::now();
    let started = agent.start(server.api()).await?;
    let document = server.api().until_ended(&started.generation).await?;
    ensure!(document["status"] == "completed", "{document}");
    Ok((started, begun.elapsed()))
}

/// How long the sandbox took, and each round after the first, from the times in the log.
async fn of_rounds(server: &Server, started: &Started) -> anyhow::Result<(Duration, Vec<Duration>)> {
    let stored = Stored::read(server.api(), &started.conversation).await?;
    let (mut sandbox, mut rounds, mut asked) = (None, Vec::new(), None);
    for frame in stored.events_of(&started.generation) {
        let event = frame.event()?;
        match frame.kind.as_str() {
            "round.ended" => asked = Some(time(&event)?),
            "tool.began" if sandbox.is_none() => {
                sandbox = asked.map(|asked| time(&event).map(|now| now - asked))
            }
            "chat.started" => {
                let took = asked.take().map(|asked| time(&event).map(|now| now - asked));
                rounds.extend(took.transpose()?);
            }
            _ => {}
        }
    }
    let sandbox = sandbox.context("a tool began")??;
    let ms = |ms: i64| Duration::from_millis(ms.try_into().unwrap_or_default());
    Ok((ms(sandbox), rounds.into_iter().skip(1).map(ms).collect()))
}

/// The time of an event in milliseconds.
fn time(event: &Value) -> anyhow::Result<i64> {
    let text = event["ts"].as_str().context("an event has a time")?;
    Ok(text.parse::<jiff::Timestamp>()?.as_millisecond())
}
