//! Kills the server at every step of a run with tools, and compares what comes of it with a run that nobody disturbed.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};

use super::outcome::Outcome;
use super::{Agent, allowed, family, project};
use crate::api::{Api, Started};
use crate::server::{Options, Server};
use crate::upstream::Upstream;
use crate::wait::{LONG, bounded, until};

/// The points of a run with tools: before and after an event is durable, around everything that an owner has done,
/// and in the sandbox and the checkpoints.
pub fn points() -> Vec<&'static str> {
    let engine = ["append.before_commit", "record.durable", "record.visible", "recover.called"];
    let works = outlast_engine::FAULT_POINTS.iter().filter(|point| point.starts_with("work."));
    let sandbox = outlast_engine::sandbox::FAULT_POINTS.iter();
    let taking = outlast_engine::checkpoints::FAULT_POINTS.iter().filter(|point| point.starts_with("take."));
    engine.into_iter().chain(works.copied()).chain(sandbox.copied()).chain(taking.copied()).collect()
}

/// The points that a server passes when it takes up a run.
const IN_RECOVERY: [&str; 10] = [
    "recover.claimed",
    "recover.folded",
    "recover.observed",
    "recover.called",
    "append.before_commit",
    "record.durable",
    "work.begun",
    "work.done",
    "sandbox.locked",
    "sandbox.spawned",
];

/// Visits of a point at which the server dies.
#[derive(Clone, Copy, Debug)]
pub enum Visits {
    /// Each, until a run ends without reaching the next.
    Every,
    /// These.
    Only(&'static [u64]),
}

/// What came of the runs that died at one point.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub point: String,
    pub runs: u64,
    pub deaths: u64,
    /// Tools that ran more often than they were asked for.
    pub repeated: u64,
    /// Bytes of output that the log lacks, has twice or has wrong.
    pub lost_bytes: u64,
    /// Runs whose transcript, files or end differ in any way, with the difference.
    pub differences: Vec<String>,
}

/// All rows.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub rows: Vec<Row>,
}

impl Table {
    pub fn sum(&self) -> Row {
        let mut sum = Row { point: format!("{} points", self.rows.len()), ..Row::default() };
        for row in &self.rows {
            sum.add(row);
        }
        sum
    }

    pub fn clean(&self) -> anyhow::Result<()> {
        let Row { repeated, lost_bytes, differences, .. } = self.sum();
        ensure!(
            repeated == 0 && lost_bytes == 0 && differences.is_empty(),
            "{self}\n{}",
            differences.join("\n")
        );
        Ok(())
    }
}

impl Row {
    pub(super) fn add(&mut self, other: &Row) {
        self.runs += other.runs;
        self.deaths += other.deaths;
        self.repeated += other.repeated;
        self.lost_bytes += other.lost_bytes;
        self.differences.extend(other.differences.iter().cloned());
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { point, runs, deaths, repeated, lost_bytes, differences } = self;
        write!(f, "{point:<44} {runs:>5} {deaths:>7} {repeated:>9} {lost_bytes:>11} {:>9}", differences.len())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ("point", "runs", "deaths", "repeated", "lost bytes", "different");
        writeln!(
            f,
            "{:<44} {:>5} {:>7} {:>9} {:>11} {:>9}",
            heads.0, heads.1, heads.2, heads.3, heads.4, heads.5
        )?;
        for row in &self.rows {
            writeln!(f, "{row}")?;
        }
        write!(f, "{}", self.sum())
    }
}

/// Runs the same agent again and again, and kills its server.
#[derive(Clone)]
pub struct Executioner {
    agent: Agent,
    options: Options,
    reference: Outcome,
}

impl Executioner {
    /// Runs the agent once undisturbed.
    pub async fn new(upstream: &Upstream, program: Option<PathBuf>) -> anyhow::Result<Executioner> {
        Executioner::of(project(upstream), upstream, program).await
    }

    /// The same for a parent and two sub-agents.
    pub async fn of_family(upstream: &Upstream, program: Option<PathBuf>) -> anyhow::Result<Executioner> {
        Executioner::of(family(upstream), upstream, program).await
    }

    async fn of(agent: Agent, upstream: &Upstream, program: Option<PathBuf>) -> anyhow::Result<Executioner> {
        // One of the tools waits for a person, so that the server also dies around a decision.
        let asks = "[tools.edit_file]\npolicy = \"ask\"\n[agent]\nmax_depth = 1";
        let options = allowed(upstream).toml(asks).program(program);
        let server = Server::start(options.clone()).await?;
        let started = visit(server.api(), &agent).await?;
        let reference = Outcome::read(server.api(), &started, &server.data()).await?;
        ensure!(reference.status == "completed", "the undisturbed run ended as {}", reference.status);
        Ok(Executioner { agent, options, reference })
    }

    /// Dies at a point on each of these visits, with this many servers at a time.
    pub async fn at(&self, point: &str, visits: Visits, at_once: usize) -> anyhow::Result<Row> {
        self.each(point, visits, at_once, |fault| vec![fault]).await
    }

    /// Dies first in the middle of a tool, and then at every point that the recovery passes.
    pub async fn recovering(&self, visits: Visits, at_once: usize) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for point in IN_RECOVERY {
            // After this many appends the slow tool is writing.
            let first = || "record.durable:38".to_owned();
            let row = self.each(point, visits, at_once, |fault| vec![first(), fault]).await?;
            rows.push(Row { point: format!("in recovery: {}", row.point), ..row });
        }
        Ok(rows)
    }

    /// Dies at every point of a recovery in turn: the server is restarted as often.
    pub async fn again_and_again(&self) -> anyhow::Result<Row> {
        let faults: Vec<String> = std::iter::once("record.durable:30".to_owned())
            .chain(IN_RECOVERY.iter().map(|point| format!("{point}:1")))
            .collect();
        let mut row = Row { point: format!("{} recoveries in a row", faults.len()), ..Row::default() };
        row.add(&self.die(&faults).await?);
        Ok(row)
    }

    async fn each(
        &self,
        point: &str,
        visits: Visits,
        at_once: usize,
        faults: impl Fn(String) -> Vec<String>,
    ) -> anyhow::Result<Row> {
        let mut row = Row { point: point.to_owned(), ..Row::default() };
        let mut runs = FuturesUnordered::new();
        let mut next = 1;
        let mut reached = true;
        loop {
            while reached && runs.len() < at_once {
                let visit = match visits {
                    Visits::Every => next,
                    Visits::Only(list) => match list.get(next as usize - 1) {
                        Some(visit) => *visit,
                        None => break,
                    },
                };
                next += 1;
                let faults = faults(format!("{point}:{visit}"));
                runs.push(async move {
                    let row = self.die(&faults).await.with_context(|| faults.join(", "))?;
                    anyhow::Ok((row.deaths == faults.len() as u64, row))
                });
            }
            let Some(done) = runs.next().await else { return Ok(row) };
            let (died, one) = done?;
            reached &= died;
            row.add(&one);
        }
    }

    /// Starts a server that dies at the first of these faults, restarts it with each of the others, then without any.
    async fn die(&self, faults: &[String]) -> anyhow::Result<Row> {
        let mut server = Server::start_with_fault(self.options.clone(), &faults[0]).await?;
        let api = server.api().clone();
        let mut deaths = 0;
        let started = {
            let visit = visit(&api, &self.agent);
            tokio::pin!(visit);
            let done = tokio::select! {
                done = &mut visit => Some(done),
                fallen = fall(&mut server, faults, &mut deaths) => { fallen?; None }
            };
            match done {
                Some(done) => done?,
                None => bounded("the end of the run", 3 * LONG, visit).await??,
            }
        };
        // It may die after the end of the run, even while we read.
        let read = Outcome::read(&api, &started, &server.data()).await;
        let outcome = match read {
            Ok(outcome) => outcome,
            // Its connections break a moment before the process is gone.
            Err(error) => {
                server.ended(LONG).await.context(error)?;
                deaths += 1;
                server.restart().await?;
                Outcome::read(&api, &started, &server.data()).await?
            }
        };
        if !server.is_running()? {
            deaths += 1;
            server.restart().await?;
        }
        nothing_runs(&server).await.with_context(|| faults.join(", "))?;
        Ok(self.compare(&outcome, faults, deaths))
    }

    pub(super) fn agent(&self) -> &Agent {
        &self.agent
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    pub(super) fn compare(&self, outcome: &Outcome, faults: &[String], deaths: u64) -> Row {
        let reference = &self.reference;
        let began = |outcome: &Outcome| outcome.family().flat_map(|one| one.began.values()).sum::<u64>();
        let lines = |outcome: &Outcome| {
            outcome.family().map(|one| one.file("runs").lines().count() as u64).sum::<u64>()
        };
        let repeated =
            began(outcome).saturating_sub(began(reference)) + lines(outcome).saturating_sub(lines(reference));
        let lost_bytes = reference.output.iter().map(|(stream, text)| {
            let found = outcome.stream(&stream.0, &stream.1);
            if found == text { 0 } else { found.len().abs_diff(text.len()).max(1) as u64 }
        });
        let mut row = Row { runs: 1, deaths, repeated, lost_bytes: lost_bytes.sum(), ..Row::default() };
        if outcome != reference {
            row.differences.push(format!("{}: {}", faults.join(", "), difference(outcome, reference)));
        }
        row
    }
}

/// Waits for each death and restarts the server with the next fault.
async fn fall(server: &mut Server, faults: &[String], deaths: &mut u64) -> anyhow::Result<()> {
    for next in faults.iter().skip(1).map(|fault| Some(fault.as_str())).chain([None]) {
        server.ended(3 * LONG).await?;
        *deaths += 1;
        server.restart_with_fault(next).await?;
    }
    Ok(())
}

/// Starts the agent, approves what it asks about, and waits for its end, whatever happens to the server meanwhile.
async fn visit(api: &Api, agent: &Agent) -> anyhow::Result<Started> {
    let started = api.insist("/v1/generations", &request(agent)).await?.started()?;
    attend(api, &started).await?;
    Ok(started)
}

/// A start that can be repeated.
pub(super) fn request(agent: &Agent) -> Value {
    json!({"content": agent.to_string(), "requestId": "visit"})
}

/// Approves what the agent asks about, and waits for its end.
pub(super) async fn attend(api: &Api, started: &Started) -> anyhow::Result<()> {
    let path = format!("/v1/generations/{}", started.generation);
    until("the end of the run", 3 * LONG, async || {
        let Ok(answer) = api.get(&path).await else { return Ok(None) };
        let document = answer.body;
        if let Value::Object(asked) = &document["pendingApproval"] {
            let decision = json!({"decision": "approve", "hash": asked["hash"]});
            let call = asked["toolUseId"].as_str().unwrap_or_default();
            let decided = api.post(&format!("{path}/approvals/{call}"), &decision).await;
            if let Ok(answer) = decided {
                // A parent forgets the question of a sub-agent as soon as it hears of the decision.
                let of_child = call.starts_with("ask_");
                let known =
                    matches!((answer.status, answer.code()), (200, _) | (409, "already_decided") | (503, _))
                        || (of_child && answer.status == 404);
                ensure!(known, "a decision was refused: {}", answer.body);
            }
        }
        let ended =
            matches!(document["status"].as_str(), Some("completed" | "cancelled" | "error" | "interrupted"));
        Ok(ended.then_some(()))
    })
    .await
}

/// Waits until no execution of the server's sandboxes is alive.
pub async fn nothing_runs(server: &Server) -> anyhow::Result<()> {
    let running = server.data().join("sandboxes").join(".running");
    until("the end of every tool", LONG, async || {
        Ok(std::fs::read_dir(&running)?.next().is_none().then_some(()))
    })
    .await
}

fn difference(outcome: &Outcome, reference: &Outcome) -> String {
    if outcome.status != reference.status {
        return format!("it ended as {}", outcome.status);
    }
    for (place, expected) in reference.transcript.iter().enumerate() {
        match outcome.transcript.get(place) {
            Some(found) if found == expected => {}
            found => return format!("message {place} is {found:?} instead of {expected}"),
        }
    }
    if outcome.transcript.len() > reference.transcript.len() {
        return format!("one message more: {}", outcome.transcript[reference.transcript.len()]);
    }
    let text = |files: &Outcome| -> Vec<(String, String)> {
        files.files.keys().map(|path| (path.clone(), files.file(path))).collect()
    };
    if outcome.files != reference.files {
        return format!("files {:?} instead of {:?}", text(outcome), text(reference));
    }
    if outcome.listed != reference.listed {
        return format!("it lists {} instead of {}", outcome.listed, reference.listed);
    }
    if outcome.children.len() != reference.children.len() {
        return format!("{} sub-agents instead of {}", outcome.children.len(), reference.children.len());
    }
    for (call, expected) in &reference.children {
        match outcome.children.get(call) {
            Some(child) if child == expected => {}
            Some(child) => return format!("sub-agent of {call}: {}", difference(child, expected)),
            None => return format!("no sub-agent of {call}"),
        }
    }
    format!("output {:?}, began {:?}", outcome.output, outcome.began)
}
