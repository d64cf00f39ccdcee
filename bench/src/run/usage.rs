//! What a process uses, as the kernel counts it.

use std::fs;

use rustix::param::clock_ticks_per_second;

/// CPU seconds of a process and everything it started, what has ended included.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let ticks = clock_ticks_per_second() as f64;
    family(pid).into_iter().filter_map(cpu_ticks).map(|cpu| (cpu.own + cpu.ended) as f64 / ticks).sum()
}

/// CPU seconds of a process without its children.
pub(crate) fn own_cpu_seconds(pid: u32) -> f64 {
    cpu_ticks(pid).map_or(0, |cpu| cpu.own) as f64 / clock_ticks_per_second() as f64
}

/// Memory of a process and everything it started, in kilobytes (proportional set size).
pub(crate) fn memory_kb(pid: u32) -> f64 {
    family(pid).into_iter().filter_map(proportional_kb).sum()
}

/// Seconds that a core was busy, and seconds in total, since boot.
pub(crate) fn core_seconds(core: usize) -> (f64, f64) {
    let ticks = clock_ticks_per_second() as f64;
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let name = format!("cpu{core} ");
    let Some(line) = stat.lines().find_map(|line| line.strip_prefix(&name)) else { return (0.0, 0.0) };
    let times: Vec<f64> = line.split_whitespace().filter_map(|time| time.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; the guests' are within user and nice.
    let all: f64 = times.iter().take(8).sum();
    let idle: f64 = times.iter().skip(3).take(2).sum();
    ((all - idle) / ticks, all / ticks)
}

/// The process and its descendants. Bounded: a candidate has a handful, and PostgreSQL one for each connection.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let mut pids = vec![pid];
    let mut next = 0;
    while next < pids.len() && pids.len() < 256 {
        let pid = pids[next];
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        pids.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        next += 1;
    }
    pids
}

struct Ticks {
    own: u64,
    /// Of children that have ended.
    ended: u64,
}

fn cpu_ticks(pid: u32) -> Option<Ticks> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything; the fields are counted from its end.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    let time = |field: usize| fields.get(field)?.parse::<u64>().ok();
    Some(Ticks { own: time(11)? + time(12)?, ended: time(13)? + time(14)? })
}

fn proportional_kb(pid: u32) -> Option<f64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let pss = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    pss.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        assert!(memory_kb(std::process::id()) > 100.0);
        assert!(core_seconds(0).1 > 0.0);
        assert!(cpu_ticks(std::process::id()).is_some());
    }
}
