//! What an operator decides about sandboxes.

use std::time::Duration;

/// The limits of a local sandbox. A limit that this machine cannot enforce stops the start.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxSettings {
    pub network: Network,
    /// Processor cores that a sandbox may use. Absent: as many as there are.
    pub cpu: Option<f64>,
    /// Memory of a sandbox; of each process where the machine offers no control groups.
    pub memory_bytes: u64,
    /// Processes of a sandbox; of each execution where the machine offers no control groups.
    pub processes: u64,
    /// All files of a sandbox together, output included.
    pub disk_bytes: u64,
    /// What one execution may write to stdout and stderr together.
    pub output_bytes: u64,
    /// How long a tool may run when its call says nothing about it.
    pub tool_timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Only a loopback interface of its own, for each execution.
    None,
    /// The network of the host, its loopback interface included.
    Host,
}

impl Default for SandboxSettings {
    fn default() -> SandboxSettings {
        const MIB: u64 = 1024 * 1024;
        SandboxSettings {
            network: Network::None,
            cpu: None,
            memory_bytes: 2048 * MIB,
            processes: 256,
            disk_bytes: 4096 * MIB,
            output_bytes: 64 * MIB,
            tool_timeout: Duration::from_secs(120),
        }
    }
}
