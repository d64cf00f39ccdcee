//! Ends the tools of a server that is gone. They would outlive it on purpose, and their test.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

/// What bubblewrap writes about an execution: documents one after the other.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Status {
    child_pid: Option<i32>,
}

/// Kills the first process of every execution that is alive; the kernel ends the others with it.
pub(crate) fn end_below(sandboxes: &Path) {
    for sandbox in folders(sandboxes) {
        for execution in folders(&sandbox.join("executions")) {
            let text = fs::read_to_string(execution.join("status")).unwrap_or_default();
            let first = serde_json::Deserializer::from_str(&text).into_iter::<Status>().next();
            let pid = first.and_then(Result::ok).and_then(|status| status.child_pid);
            // Another process may have got the pid since: only the right one has this file open.
            if let Some(pid) =
                pid.filter(|pid| has_open(*pid, &execution.join("alive"))).and_then(Pid::from_raw)
            {
                kill_process(pid, Signal::KILL).ok(); // it may end by itself meanwhile
            }
        }
    }
}

fn folders(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn has_open(pid: i32, file: &Path) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    targets.any(|target| target == file)
}
