//! What Outlast promises, judged against the same run.

use super::results::Row;

/// A promise and what was measured.
pub(crate) struct Target {
    pub(crate) promise: String,
    pub(crate) measured: String,
    /// `None` when the run did not measure it.
    pub(crate) met: Option<bool>,
}

/// Limits for one number of streams at 50 tokens/s each.
struct Steady {
    candidate: &'static str,
    workload: &'static str,
    /// CPU per token, as a multiple of the floor's.
    cpu: f64,
    p50_ms: f64,
    p99_ms: f64,
    kilobytes: Option<f64>,
}

const SQLITE: &str = "outlast";
const POSTGRES: &str = "outlast-postgres";

const STEADY: [Steady; 6] = [
    steady(SQLITE, "50 streams", 1.8, [25.0, 50.0], Some(200.0)),
    steady(SQLITE, "200 streams", 1.5, [25.0, 50.0], None),
    steady(SQLITE, "1000 streams", 1.2, [40.0, 90.0], Some(150.0)),
    steady(POSTGRES, "50 streams", 2.5, [40.0, 90.0], None),
    steady(POSTGRES, "200 streams", 1.8, [40.0, 90.0], None),
    steady(POSTGRES, "1000 streams", 1.4, [40.0, 90.0], None),
];

const fn steady(
    candidate: &'static str,
    workload: &'static str,
    cpu: f64,
    [p50_ms, p99_ms]: [f64; 2],
    kilobytes: Option<f64>,
) -> Steady {
    Steady { candidate, workload, cpu, p50_ms, p99_ms, kilobytes }
}

/// All promises, whether measured or not.
pub(crate) fn judge(rows: &[Row]) -> Vec<Target> {
    let run = Run(rows);
    let mut targets = Vec::new();
    for steady in &STEADY {
        targets.extend(run.steady(steady));
    }
    let elsewhere = run.of(POSTGRES, "1000 readers elsewhere", |row| row.latency_p99_ms);
    let what = "p99 latency of 1,000 readers at another instance (outlast-postgres)";
    targets.push(run.at_most(what, 150.0, " ms", elsewhere));
    let flat = run.ratio(SQLITE, "flat out", |row| row.tokens_per_second);
    targets.push(run.at_least("tokens/s flat out, against the floor", 2.5, "×", flat));
    targets.push(run.nothing_lost("2000 streams"));
    for workload in ["log, finished", "log, live"] {
        let p99 = run.outlast(workload, |row| row.reconnect_p99_ms);
        let what = format!("p99 of a reconnect to 2,000 tokens ({workload})");
        targets.push(run.at_most(&what, 2.0, " ms", p99));
    }
    let storm = run.outlast("1000 reconnects at once", |row| row.reconnect_p99_ms);
    targets.push(run.at_most("p99 of 1,000 reconnects at once", 150.0, " ms", storm));
    let stalled = run.outlast("200 streams, 1000 stalled", |row| row.latency_p99_ms);
    let alone = run.outlast("200 streams, none stalled", |row| row.latency_p99_ms);
    let ratio = stalled.zip(alone).map(|(stalled, alone)| stalled / alone);
    targets.push(run.at_most("p99 latency beside 1,000 stalled readers, against without", 1.1, "×", ratio));
    let memory = run.outlast("200 streams, 1000 stalled", |row| row.kilobytes_per_stream);
    targets.push(run.at_most("memory per stalled reader", 512.0, " kB", memory));
    targets.push(run.survives());
    targets.push(run.ahead_of_node());
    targets
}

struct Run<'a>(&'a [Row]);

pub(crate) type Figure = fn(&Row) -> Option<f64>;

impl Run<'_> {
    fn row(&self, workload: &str, candidate: &str) -> Option<&Row> {
        self.0.iter().find(|row| row.workload == workload && row.candidate == candidate)
    }

    fn outlast(&self, workload: &str, figure: Figure) -> Option<f64> {
        self.of(SQLITE, workload, figure)
    }

    fn of(&self, candidate: &str, workload: &str, figure: Figure) -> Option<f64> {
        figure(self.row(workload, candidate)?)
    }

    fn ratio(&self, candidate: &str, workload: &str, figure: Figure) -> Option<f64> {
        Some(self.of(candidate, workload, figure)? / figure(self.row(workload, "floor")?)?)
    }

    fn steady(&self, steady: &Steady) -> Vec<Target> {
        let Steady { candidate, workload, cpu, p50_ms, p99_ms, kilobytes } = *steady;
        let store = if candidate == POSTGRES { " (outlast-postgres)" } else { "" };
        let named = |what: &str| format!("{what} at {workload}{store}");
        let ratio = self.ratio(candidate, workload, |row| row.cpu_per_million);
        let p50 = self.of(candidate, workload, |row| row.latency_p50_ms);
        let p99 = self.of(candidate, workload, |row| row.latency_p99_ms);
        let mut targets = vec![
            self.at_most(&named("CPU per token, against the floor,"), cpu, "×", ratio),
            self.at_most(&named("p50 latency"), p50_ms, " ms", p50),
            self.at_most(&named("p99 latency"), p99_ms, " ms", p99),
        ];
        if let Some(limit) = kilobytes {
            let memory = self.of(candidate, workload, |row| row.kilobytes_per_stream);
            targets.push(self.at_most(&named("memory per stream"), limit, " kB", memory));
        }
        targets
    }

    fn at_most(&self, what: &str, limit: f64, unit: &str, value: Option<f64>) -> Target {
        Target {
            promise: format!("{what}: at most {limit}{unit}"),
            measured: value.map_or_else(|| "not measured".to_owned(), |value| format!("{value:.2}{unit}")),
            met: value.map(|value| value <= limit),
        }
    }

    fn at_least(&self, what: &str, limit: f64, unit: &str, value: Option<f64>) -> Target {
        Target {
            promise: format!("{what}: at least {limit}{unit}"),
            measured: value.map_or_else(|| "not measured".to_owned(), |value| format!("{value:.2}{unit}")),
            met: value.map(|value| value >= limit),
        }
    }

    fn nothing_lost(&self, workload: &str) -> Target {
        let row = self.row(workload, "outlast");
        let measured = row.map_or_else(
            || "not measured".to_owned(),
            |row| {
                let check = &row.check;
                format!(
                    "{} of {} complete, {} missed, {} repeated{}",
                    check.complete,
                    row.streams,
                    check.missed,
                    check.doubled,
                    if keeps_up(row) { "" } else { ", did not keep up" },
                )
            },
        );
        let met = row.map(|row| row.check.perfect() && keeps_up(row));
        Target { promise: format!("{workload} at 50 tokens/s held, nothing lost"), measured, met }
    }

    fn survives(&self) -> Target {
        let row = self.row("kill -9", "outlast");
        let measured = |row: &Row| format!("{} of {}", row.check.complete, row.streams);
        Target {
            promise: "streams that end with their full text after kill -9: all".to_owned(),
            measured: row.map_or_else(|| "not measured".to_owned(), measured),
            met: row.map(|row| row.check.perfect()),
        }
    }

    /// Compares every figure that both have and names those where Outlast is behind. Where Node does not keep up, its
    /// figures belong to a smaller load and are not compared.
    fn ahead_of_node(&self) -> Target {
        let mut compared = 0;
        let mut behind = Vec::new();
        let mut not_held = Vec::new();
        for node in self.0.iter().filter(|row| row.candidate == "node") {
            let Some(outlast) = self.row(&node.workload, "outlast") else { continue };
            if !holds(node) {
                not_held.push(node.workload.as_str());
                if !holds(outlast) {
                    behind.push(format!("neither keeps up with {}", node.workload));
                }
                continue;
            }
            for (name, figure, more_is_better) in FIGURES {
                let (Some(ours), Some(theirs)) = (figure(outlast), figure(node)) else { continue };
                compared += 1;
                // Where both keep up, their tokens/s differ by chance.
                let close = more_is_better && ours >= theirs * 0.99;
                let ahead = if more_is_better { ours >= theirs } else { ours <= theirs };
                if !ahead && !close {
                    behind.push(format!("{name} at {} ({ours:.2} against {theirs:.2})", node.workload));
                }
            }
        }
        Target {
            promise: "every figure ahead of Node with resumable-stream".to_owned(),
            measured: match (compared, behind.as_slice()) {
                (0, _) => "not measured".to_owned(),
                (compared, []) if not_held.is_empty() => format!("all {compared}"),
                (compared, []) => {
                    format!("all {compared}; Node does not keep up with: {}", not_held.join(", "))
                }
                (compared, behind) => format!("{} of {compared} behind: {}", behind.len(), behind.join(", ")),
            },
            met: (compared > 0).then_some(behind.is_empty()),
        }
    }
}

/// What is compared: its name, the figure, and whether more is better.
pub(crate) const FIGURES: [(&str, Figure, bool); 7] = [
    ("CPU per token", |row| row.cpu_per_million, false),
    ("tokens/s", |row| row.tokens_per_second, true),
    ("memory", |row| row.megabytes, false),
    ("p50 latency", |row| row.latency_p50_ms, false),
    ("p99 latency", |row| row.latency_p99_ms, false),
    ("p50 reconnect", |row| row.reconnect_p50_ms, false),
    ("p99 reconnect", |row| row.reconnect_p99_ms, false),
];

/// Whether everything was delivered, and in time if the workload has a rate.
fn holds(row: &Row) -> bool {
    let steady = row.workload.ends_with(" streams");
    row.check.perfect() && (!steady || keeps_up(row))
}

fn keeps_up(row: &Row) -> bool {
    row.tokens_per_second.is_some_and(|rate| rate >= row.streams as f64 * 50.0 * 0.98)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::candidate::Candidate;

    fn row(workload: &str, candidate: Candidate, cpu: f64) -> Row {
        Row { cpu_per_million: Some(cpu), ..Row::new(workload, candidate, 1_000) }
    }

    #[test]
    fn a_target_is_judged_against_the_floor_of_the_same_run() {
        let rows =
            [row("1000 streams", Candidate::Floor, 10.0), row("1000 streams", Candidate::Outlast, 13.0)];
        let targets = judge(&rows);
        let target = |promise: &str| targets.iter().find(|target| target.promise == promise).unwrap();
        let cpu = target("CPU per token, against the floor, at 1000 streams: at most 1.2×");
        assert_eq!((cpu.met, cpu.measured.as_str()), (Some(false), "1.30×"));
        assert_eq!(target("p50 latency at 1000 streams: at most 40 ms").met, None);
    }

    #[test]
    fn a_figure_behind_node_is_named() {
        let rows = [row("50 streams", Candidate::Outlast, 9.0), row("50 streams", Candidate::Node, 8.0)];
        let [ours, mut theirs] = rows;
        theirs.tokens_per_second = Some(50_000.0);
        let target = judge(&[ours.clone(), theirs.clone()]).pop().unwrap();
        assert_eq!(target.met, Some(false));
        assert!(target.measured.contains("CPU per token at 50 streams"));
        theirs.tokens_per_second = Some(10_000.0);
        let target = judge(&[Row { tokens_per_second: Some(50_000.0), ..ours }, theirs]).pop().unwrap();
        assert!(target.measured.contains("not measured"), "a load that was not held compares to nothing");
    }
}
