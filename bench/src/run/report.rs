//! What the run prints: a line as soon as something is measured, and a Markdown page at the end.

use std::fmt::Write;
use std::time::Duration;

use super::results::Row;
use super::targets::{FIGURES, Target};

/// The head of the progress lines.
pub(crate) fn progress_head() -> String {
    format!(
        "{:26} {:16} {:>9} {:>9} {:>8} {:>16} {:>16} {:>9} {:>6} {:>16}",
        "workload",
        "who",
        "CPU s/M",
        "tokens/s",
        "kB/str",
        "latency 50/99",
        "reconnect 50/99",
        "complete",
        "server",
        "upstream+load",
    )
}

/// Prints the rows of the workload that was just measured. They are the last ones.
pub(crate) fn progress(rows: &[Row], key: &str) {
    let Some(last) = rows.last() else { return };
    let related =
        |row: &&Row| row.candidate == last.candidate && (key != "log" || row.workload.starts_with("log"));
    let count = if key == "log" { 2 } else { 1 };
    let new: Vec<&Row> = rows.iter().rev().take(count).take_while(related).collect();
    for row in new.into_iter().rev() {
        println!(
            "{:26} {:16} {:>9} {:>9} {:>8} {:>16} {:>16} {:>9} {:>6} {:>16}  {}",
            row.workload,
            row.candidate,
            number(row.cpu_per_million),
            number(row.tokens_per_second),
            number(row.kilobytes_per_stream),
            pair(row.latency_p50_ms, row.latency_p99_ms),
            pair(row.reconnect_p50_ms, row.reconnect_p99_ms),
            row.check.complete,
            percent(row.server_core_busy),
            format!(
                "{} + {} = {}",
                percent(row.upstream_share),
                percent(row.generator_share),
                percent(row.load_core_busy)
            ),
            remarks(row),
        );
    }
}

/// The whole run as a page.
pub(crate) fn markdown(rows: &[Row], targets: &[Target], took: Duration) -> String {
    let mut page = String::from("# Benchmark\n\n");
    let machine = machine();
    page.push_str(&format!(
        "{machine}; {} s in all. The floor is missing where a reader reconnects or a second one joins: \
        it keeps no log.\n",
        took.as_secs()
    ));
    let mut workloads: Vec<&str> = Vec::new();
    for row in rows {
        if !workloads.contains(&row.workload.as_str()) {
            workloads.push(&row.workload);
        }
    }
    for workload in workloads {
        let of: Vec<&Row> = rows.iter().filter(|row| row.workload == workload).collect();
        section(&mut page, workload, &of);
    }
    against_node(&mut page, rows);
    page.push_str("\n## Targets\n\n| target | measured | |\n|---|---|---|\n");
    for target in targets {
        let verdict = match target.met {
            Some(true) => "PASS",
            Some(false) => "MISS",
            None => "—",
        };
        page.push_str(&format!("| {} | {} | {verdict} |\n", target.promise, target.measured));
    }
    page
}

fn section(page: &mut String, workload: &str, rows: &[&Row]) {
    let floor = rows.iter().find(|row| row.candidate == "floor").copied();
    page.push_str(&format!("\n## {workload}\n\n"));
    page.push_str(
        "| | CPU s per M tokens | × floor | without its database | tokens/s | × floor | kB per stream | MB in all \
         | latency p50 / p99 ms | added p50 / p99 ms | reconnect p50 / p99 ms | check |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let ratio = |figure: fn(&Row) -> Option<f64>| {
            floor
                .and_then(|floor| Some(figure(row)? / figure(floor)?))
                .map_or("—".into(), |r| format!("{r:.2}"))
        };
        let added =
            |figure: fn(&Row) -> Option<f64>| floor.and_then(|floor| Some(figure(row)? - figure(floor)?));
        let line = [
            row.candidate.to_owned(),
            number(row.cpu_per_million),
            ratio(|row| row.cpu_per_million),
            number(row.cpu_per_million_without_database),
            number(row.tokens_per_second),
            ratio(|row| row.tokens_per_second),
            number(row.kilobytes_per_stream),
            number(row.megabytes),
            pair(row.latency_p50_ms, row.latency_p99_ms),
            pair(added(|row| row.latency_p50_ms), added(|row| row.latency_p99_ms)),
            pair(row.reconnect_p50_ms, row.reconnect_p99_ms),
            check(row),
        ];
        writeln!(page, "| {} |", line.join(" | ")).expect("writing to memory does not fail");
    }
    for row in rows.iter().filter(|row| !row.note.is_empty()) {
        page.push_str(&format!("\n{}: {}.\n", row.candidate, row.note));
    }
}

/// The figures that Outlast and Node both have, and how they compare.
fn against_node(page: &mut String, rows: &[Row]) {
    let find = |workload: &str, name: &str| {
        rows.iter().find(|row| row.workload == workload && row.candidate == name)
    };
    let mut lines = String::new();
    for node in rows.iter().filter(|row| row.candidate == "node") {
        let Some(outlast) = find(&node.workload, "outlast") else { continue };
        for (name, figure, more_is_better) in FIGURES {
            let (Some(ours), Some(theirs)) = (figure(outlast), figure(node)) else { continue };
            let better = if more_is_better { ours / theirs } else { theirs / ours };
            let (ours, theirs) = (number(Some(ours)), number(Some(theirs)));
            let line = format!("| {} | {name} | {ours} | {theirs} | {better:.2} × |\n", node.workload);
            lines.push_str(&line);
        }
    }
    if !lines.is_empty() {
        page.push_str(
            "\n## Outlast against Node\n\n| | | outlast | node | better by |\n|---|---|---|---|---|\n",
        );
        page.push_str(&lines);
    }
}

fn check(row: &Row) -> String {
    let check = &row.check;
    if check.perfect() {
        return format!("{} complete, nothing missed or repeated", check.complete);
    }
    format!(
        "{} complete, {} not; {} missed, {} repeated; {:.1} % delivered",
        check.complete,
        check.failed,
        check.missed,
        check.doubled,
        check.delivered as f64 / check.expected.max(1) as f64 * 100.0,
    )
}

fn remarks(row: &Row) -> String {
    let mut remarks = row.note.clone();
    if !row.check.perfect() {
        let check = &row.check;
        write!(
            remarks,
            " !! {} not complete, {} missed, {} repeated, {}",
            check.failed,
            check.missed,
            check.doubled,
            check.error.as_deref().unwrap_or("no error"),
        )
        .expect("writing to memory does not fail");
    }
    remarks
}

/// Three significant digits.
fn number(value: Option<f64>) -> String {
    match value {
        None => "—".to_owned(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

fn pair(first: Option<f64>, second: Option<f64>) -> String {
    match (first, second) {
        (None, None) => "—".to_owned(),
        _ => format!("{} / {}", number(first), number(second)),
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "—".to_owned(), |share| format!("{:.0}%", share * 100.0))
}

/// The machine that the figures belong to.
fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown processor");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']);
    format!(
        "{model}, Linux {}; the server has one core, upstream and load generator share another",
        kernel.trim()
    )
}
