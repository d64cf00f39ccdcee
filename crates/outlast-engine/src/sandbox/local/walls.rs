//! What a program in a sandbox can see: the arguments of bwrap.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::super::{Network, SandboxSettings};
use super::folder::{Folder, Place};

/// Where bwrap finds the descriptors that it gets besides the standard ones.
pub(super) const SECCOMP_FD: i32 = 3;
pub(super) const ARGUMENTS_FD: i32 = 4;
pub(super) const STATUS_FD: i32 = 5;
pub(super) const ALIVE_FD: i32 = 6;
/// None above this one reaches bwrap.
pub(super) const LAST_FD: i32 = ALIVE_FD;

/// Where a program finds its own and earlier output, and where the program for the file tools is.
pub const EXECUTIONS_INSIDE: &str = "/run/outlast/executions";
pub const TOOL_INSIDE: &str = "/run/outlast/tool";

/// Shared memory lies in the sandbox's memory and is not counted where there are no control groups.
const SHARED_MEMORY_BYTES: u64 = 64 * 1024 * 1024;

/// Read-only parts of the host, besides `/usr`. Symbolic links stay links.
const SYSTEM: &[&str] = &["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Where the kernel's functions are in memory, which helps whoever attacks it. Some systems show it to everyone.
const KERNEL_ADDRESSES: &str = "/proc/kallsyms";
/// Files about the kernel that root may read even without capabilities.
const PROC_OF_ROOT: &[&str] = &[
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/slabinfo",
    "/proc/timer_list",
    "/proc/vmallocinfo",
];
/// Folders of `/etc` that programs need to start or connect, and that reveal nothing about the host.
const ETC_FOLDERS: &[&str] = &["alternatives", "ld.so.conf.d", "pki/tls/certs", "ssl/certs"];
/// Files of `/etc` of the same kind. They are copied when the server starts, because every mount makes every start slower.
const ETC_FILES: &[&str] = &["ld.so.cache", "ld.so.conf", "localtime", "mime.types", "ssl/openssl.cnf"];
/// Files that are written for all sandboxes.
const GENERATED: &[(&str, &str)] = &[
    ("passwd", "agent:x:1000:1000:agent:/agent:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
    ("group", "agent:x:1000:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
];

/// Prepares what every sandbox sees as `/etc`.
pub(super) fn prepare(place: &Place) -> io::Result<()> {
    let (host, folder) = (Path::new("/etc"), etc(place));
    for name in ETC_FOLDERS {
        fs::create_dir_all(folder.join(name))?;
    }
    for name in ETC_FILES {
        match fs::read(host.join(name)) {
            Ok(bytes) => put(&folder.join(name), &bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    for (name, text) in GENERATED {
        put(&folder.join(name), text.as_bytes())?;
    }
    put(&folder.join("resolv.conf"), b"")
}

/// Renamed into place: another server may start a sandbox at this moment.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    fs::write(&draft, bytes)?;
    fs::rename(draft, path)
}

/// The arguments of bwrap for any program in a sandbox, as it reads them from a descriptor.
pub(super) struct Walls<'a> {
    pub(super) place: &'a Place,
    pub(super) folder: &'a Folder,
    pub(super) settings: &'a SandboxSettings,
    pub(super) tool: &'a Path,
    pub(super) as_root: bool,
    pub(super) env: &'a BTreeMap<String, String>,
}

impl Walls<'_> {
    pub(super) fn arguments(&self) -> io::Result<Vec<u8>> {
        let mut all = Arguments::default();
        all.add(["--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-all", "--disable-userns"]);
        all.add(["--hostname", "sandbox", "--cap-drop", "ALL", "--new-session", "--clearenv"]);
        if self.settings.network == Network::Host {
            all.add(["--share-net"]);
        }
        self.descriptors(&mut all);
        self.system(&mut all)?;
        self.kernel(&mut all);
        all.add(["--size", &SHARED_MEMORY_BYTES.to_string(), "--tmpfs", "/dev/shm"]);
        all.bind("--bind", &self.folder.workspace(), "/workspace");
        all.bind("--bind", &self.folder.home(), "/agent");
        all.bind("--bind", &self.folder.tmp(), "/tmp");
        all.bind("--ro-bind", &self.folder.output(), EXECUTIONS_INSIDE);
        all.bind("--ro-bind", self.tool, TOOL_INSIDE);
        // The rest is in memory that no limit covers.
        all.add(["--remount-ro", "/dev", "--remount-ro", "/"]);
        all.add(["--chdir", "/workspace"]);
        self.environment(&mut all);
        Ok(all.bytes)
    }

    fn descriptors(&self, all: &mut Arguments) {
        for (option, descriptor) in
            [("--seccomp", SECCOMP_FD), ("--json-status-fd", STATUS_FD), ("--sync-fd", ALIVE_FD)]
        {
            all.add([option, &descriptor.to_string()]);
        }
    }

    fn system(&self, all: &mut Arguments) -> io::Result<()> {
        all.add(["--ro-bind", "/usr", "/usr"]);
        for path in SYSTEM {
            match fs::symlink_metadata(path) {
                Ok(metadata) if metadata.is_symlink() => {
                    all.bind("--symlink", &fs::read_link(path)?, path);
                }
                Ok(_) => all.add(["--ro-bind", path, path]),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        all.bind("--ro-bind", &etc(self.place), "/etc");
        for path in ETC_FOLDERS.iter().map(|name| format!("/etc/{name}")) {
            if Path::new(&path).exists() {
                all.add(["--ro-bind", &path, &path]);
            }
        }
        if self.settings.network == Network::Host {
            all.add(["--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf"]);
        }
        Ok(())
    }

    /// Nothing in `/proc` can be written. The kernel lets root change settings there without any capability, and if the
    /// server runs as root, so does a sandbox, seen from outside.
    fn kernel(&self, all: &mut Arguments) {
        all.add(["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]);
        if Path::new(KERNEL_ADDRESSES).exists() {
            all.add(["--ro-bind", "/dev/null", KERNEL_ADDRESSES]);
        }
        if self.as_root {
            for path in PROC_OF_ROOT.iter().filter(|path| Path::new(path).exists()) {
                all.add(["--ro-bind", "/dev/null", path]);
            }
        }
    }

    fn environment(&self, all: &mut Arguments) {
        for (name, value) in [
            ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"),
            ("HOME", "/agent"),
            ("USER", "agent"),
            ("LANG", "C.UTF-8"),
            ("TERM", "dumb"),
            ("TMPDIR", "/tmp"),
        ] {
            all.add(["--setenv", name, value]);
        }
        for (name, value) in self.env {
            all.add(["--setenv", name, value]);
        }
    }
}

fn etc(place: &Place) -> PathBuf {
    place.root.join(".etc")
}

#[derive(Default)]
struct Arguments {
    /// Each with a NUL behind it.
    bytes: Vec<u8>,
}

impl Arguments {
    fn add<const N: usize>(&mut self, arguments: [&str; N]) {
        for argument in arguments {
            self.push(argument.as_bytes());
        }
    }

    fn bind(&mut self, option: &str, source: &Path, target: &str) {
        self.push(option.as_bytes());
        self.push(OsString::from(source).into_vec().as_slice());
        self.push(Path::new(target).as_os_str().as_bytes());
    }

    fn push(&mut self, argument: &[u8]) {
        self.bytes.extend_from_slice(argument);
        self.bytes.push(0);
    }
}
