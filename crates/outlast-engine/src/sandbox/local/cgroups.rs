//! Control groups: limits for a whole sandbox, and a freezer.
//!
//! A machine may have one version 2 hierarchy with all controllers, version 1 hierarchies, a mixture, or none that this
//! user may write. Each limit goes to the hierarchy that has its controller.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::SandboxSettings;

/// The kernel freezes within milliseconds; a process in uninterruptible sleep may take longer.
const FREEZE_MAX: Duration = Duration::from_secs(5);
/// A process gives up its locks a moment before it leaves its group. On a busy machine that moment is long.
const REMOVE_MAX: Duration = Duration::from_secs(10);
/// The period over which CPU time is limited: the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;
/// Hexadecimal digits: enough to tell the data folders of one machine apart.
const PLACE_LENGTH: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Controller {
    Cpu,
    Memory,
    Pids,
}

#[derive(Clone, Debug)]
struct Hierarchy {
    /// The group of this process. Sandboxes get groups beside its other children.
    base: PathBuf,
    version: u8,
    controllers: Vec<Controller>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Cgroups {
    hierarchies: Vec<Hierarchy>,
    /// In the name of every group. Sandboxes of another data folder on this machine may have the same ids.
    place: String,
}

impl Cgroups {
    /// What this process may use and the settings require, for the sandboxes in a folder.
    pub(super) fn find(settings: &SandboxSettings, root: &Path) -> Cgroups {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut hierarchies: Vec<Hierarchy> =
            mounts.lines().filter_map(|line| Hierarchy::parse(line, &own)).collect();
        for hierarchy in &mut hierarchies {
            hierarchy.controllers.retain(|one| *one != Controller::Cpu || settings.cpu.is_some());
        }
        // Joining a group can take milliseconds. A version 1 hierarchy without a limit of ours is of no use; version 2
        // always has the freezer.
        hierarchies.retain(|one| one.version == 2 || !one.controllers.is_empty());
        hierarchies.retain(Hierarchy::is_writable);
        let place = blake3::hash(root.as_os_str().as_encoded_bytes()).to_hex()[..PLACE_LENGTH].to_owned();
        Cgroups { hierarchies, place }
    }

    pub(super) fn has(&self, controller: Controller) -> bool {
        self.hierarchies.iter().any(|hierarchy| hierarchy.controllers.contains(&controller))
    }

    /// Where the groups of a sandbox are, if this process made them.
    pub(super) fn groups(&self, name: &str) -> Vec<PathBuf> {
        let name = format!("outlast-{}-{name}", self.place);
        self.hierarchies.iter().map(|hierarchy| hierarchy.base.join(&name)).collect()
    }

    /// Makes the groups of a sandbox, with their limits.
    pub(super) fn create(&self, name: &str, settings: &SandboxSettings) -> io::Result<Vec<PathBuf>> {
        let groups = self.groups(name);
        for (hierarchy, group) in self.hierarchies.iter().zip(&groups) {
            match fs::create_dir(group) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                // Always: the server may have died in between, or the settings have changed.
                Ok(()) | Err(_) => hierarchy.limit(group, settings)?,
            }
        }
        Ok(groups)
    }
}

impl Hierarchy {
    /// A line of `mountinfo`, if it is a hierarchy that we can use.
    fn parse(line: &str, own: &str) -> Option<Hierarchy> {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let version = match after.next()? {
            "cgroup2" => 2,
            "cgroup" => 1,
            _ => return None,
        };
        let options: Vec<&str> = after.nth(1)?.split(',').collect();
        let mut before = before.split(' ').skip(3);
        let (root, mount) = (before.next()?, Path::new(before.next()?));
        let group = own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
            let same = match version {
                2 => number == "0",
                _ => names.split(',').all(|name| !name.is_empty() && options.contains(&name)),
            };
            same.then_some(path)
        })?;
        let base = mount.join(Path::new(group).strip_prefix(root).ok()?);
        let controllers = match version {
            2 => enabled(&base),
            _ => known(options.into_iter()),
        };
        Some(Hierarchy { base, version, controllers })
    }

    fn is_writable(&self) -> bool {
        let probe = self.base.join(format!("outlast-probe-{}", std::process::id()));
        fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe)).is_ok()
    }

    fn limit(&self, group: &Path, settings: &SandboxSettings) -> io::Result<()> {
        for controller in &self.controllers {
            match (controller, self.version) {
                (Controller::Pids, _) => write(group, "pids.max", settings.processes)?,
                (Controller::Memory, 1) => write(group, "memory.limit_in_bytes", settings.memory_bytes)?,
                (Controller::Memory, _) => {
                    write(group, "memory.max", settings.memory_bytes)?;
                    // Kernels without swap do not have this file.
                    if group.join("memory.swap.max").exists() {
                        write(group, "memory.swap.max", 0)?;
                    }
                }
                (Controller::Cpu, version) => {
                    let Some(cores) = settings.cpu else { continue };
                    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                    let quota = (cores * CPU_PERIOD_US as f64) as u64;
                    match version {
                        1 => {
                            write(group, "cpu.cfs_period_us", CPU_PERIOD_US)?;
                            write(group, "cpu.cfs_quota_us", quota)?;
                        }
                        _ => write(group, "cpu.max", format!("{quota} {CPU_PERIOD_US}"))?,
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether a group belongs to the hierarchy that can freeze.
pub(super) fn can_freeze(group: &Path) -> bool {
    group.join("cgroup.freeze").exists()
}

/// Freezes or thaws every process of the group.
pub(super) fn freeze(group: &Path, frozen: bool) -> io::Result<()> {
    write(group, "cgroup.freeze", u8::from(frozen))?;
    let wanted = format!("frozen {}", u8::from(frozen));
    let deadline = Instant::now() + FREEZE_MAX;
    while !fs::read_to_string(group.join("cgroup.events"))?.lines().any(|line| line == wanted) {
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the control group does not freeze"));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// Kills every process of the group, also those that we know nothing about. Kernels before 5.14 and version 1 cannot; there
/// the executions are ended one by one.
pub(super) fn kill(group: &Path) -> io::Result<()> {
    // Opened and not created: in version 1 this would make a file with that name.
    match fs::OpenOptions::new().write(true).open(group.join("cgroup.kill")) {
        Ok(mut file) => io::Write::write_all(&mut file, b"1"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes a group whose processes have ended. The kernel may need a moment to notice that they have.
pub(super) fn remove(group: &Path) -> io::Result<()> {
    let deadline = Instant::now() + REMOVE_MAX;
    loop {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

/// Enables the controllers that we use for the children of a group. This fails where the group holds processes
/// and is not the root; then its children have none.
fn enabled(base: &Path) -> Vec<Controller> {
    let read = |file| fs::read_to_string(base.join(file)).unwrap_or_default();
    for name in known(read("cgroup.controllers").split_whitespace()).into_iter().map(name) {
        if let Err(error) = write(base, "cgroup.subtree_control", format!("+{name}")) {
            tracing::debug!(name, %error, "cannot enable this controller");
        }
    }
    known(read("cgroup.subtree_control").split_whitespace())
}

fn known<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Controller> {
    names
        .filter_map(|found| {
            [Controller::Cpu, Controller::Memory, Controller::Pids]
                .into_iter()
                .find(|one| name(*one) == found)
        })
        .collect()
}

fn name(controller: Controller) -> &'static str {
    match controller {
        Controller::Cpu => "cpu",
        Controller::Memory => "memory",
        Controller::Pids => "pids",
    }
}

fn write(group: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    fs::write(group.join(file), value.to_string())
}
