//! The measured window of a workload: what was used and delivered between two moments.

use tokio::time::Instant;

use super::candidate::Server;
use super::meter::Meter;
use super::process::{LOAD_CORE, SERVER_CORE};
use super::results::Row;
use super::usage;
use super::workload::Stage;

/// The first of the two moments.
pub(crate) struct Window {
    at: Instant,
    cpu: (f64, f64),
    tokens: u64,
    server_core: (f64, f64),
    load_core: (f64, f64),
    upstream: f64,
    generator: f64,
}

/// A core that is busier than this is saturated: its figures show the limit of the machine.
const SATURATED: f64 = 0.97;

/// More of a core than interrupts and rounding can explain.
const FOREIGN: f64 = 0.15;

impl Window {
    pub(crate) fn open(stage: &Stage, server: &Server, meter: &Meter) -> Self {
        meter.open(true);
        Self {
            at: Instant::now(),
            cpu: server.cpu_seconds(),
            tokens: meter.tokens(),
            server_core: usage::core_seconds(SERVER_CORE),
            load_core: usage::core_seconds(LOAD_CORE),
            upstream: usage::own_cpu_seconds(stage.upstream.pid()),
            generator: usage::own_cpu_seconds(std::process::id()),
        }
    }

    /// Closes the window and writes what happened in it into the row.
    pub(crate) fn close(self, stage: &Stage, server: &Server, meter: &Meter, row: &mut Row) {
        meter.open(false);
        let cpu = server.cpu_seconds();
        let tokens = (meter.tokens() - self.tokens) as f64;
        if tokens > 0.0 {
            row.cpu_per_million = Some((cpu.1 - self.cpu.1) / tokens * 1e6);
            if cpu.0 != cpu.1 {
                row.cpu_per_million_without_database = Some((cpu.0 - self.cpu.0) / tokens * 1e6);
            }
        }
        let passed = self.at.elapsed().as_secs_f64();
        row.tokens_per_second = Some(tokens / passed);
        row.upstream_share = Some((usage::own_cpu_seconds(stage.upstream.pid()) - self.upstream) / passed);
        row.generator_share = Some((usage::own_cpu_seconds(std::process::id()) - self.generator) / passed);
        row.latency_p50_ms = meter.latency_ms(50.0);
        row.latency_p99_ms = meter.latency_ms(99.0);
        row.server_core_busy = busy(self.server_core, usage::core_seconds(SERVER_CORE));
        row.load_core_busy = busy(self.load_core, usage::core_seconds(LOAD_CORE));
        let ours = |share: Option<f64>| share.unwrap_or(0.0);
        remark(row, "server core", row.server_core_busy, (cpu.1 - self.cpu.1) / passed);
        let harness = ours(row.upstream_share) + ours(row.generator_share);
        remark(row, "load core", row.load_core_busy, harness);
    }
}

/// Notes when a core was saturated, or when other processes used it: then the figures are not the candidate's.
fn remark(row: &mut Row, core: &str, busy: Option<f64>, ours: f64) {
    let Some(busy) = busy else { return };
    if busy - ours > FOREIGN {
        row.add_note(&format!("others used {:.0} % of the {core}", (busy - ours) * 100.0));
    } else if busy > SATURATED {
        row.add_note(&format!("{core} saturated"));
    }
}

fn busy(before: (f64, f64), after: (f64, f64)) -> Option<f64> {
    let passed = after.1 - before.1;
    (passed > 0.0).then(|| (after.0 - before.0) / passed)
}
