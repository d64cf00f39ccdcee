//! What a program in a sandbox tries, and what becomes of it. `docs/sandboxes.md` lists these walls.

use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use outlast_engine::sandbox::{Limit, Local, Network, Outcome, SandboxSettings, Sandboxes};

use crate::{World, bash, end, helper, within};

const MIB: u64 = 1024 * 1024;

/// Every command must fail.
async fn refused(world: &World, commands: &[&str]) {
    for command in commands {
        let done = world.bash(command).await;
        assert_ne!(done.code(), 0, "{command}: {done:?}");
    }
}

#[tokio::test]
async fn a_program_sees_no_files_of_the_host() {
    let world = World::new().await;
    let secret = world.folder.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let secret = secret.display();
    let home = std::env::var("HOME").unwrap_or("/root".to_owned());
    refused(
        &world,
        &[
            &format!("cat {secret}"),
            &format!("cat /proc/1/root{secret}"),
            &format!("ls {home}/.ssh || ls {home}/.cargo || ls {home}/.profile"),
            "cat /etc/shadow",
            "ls /var/lib",
            "ls /sys/kernel",
            "cat /proc/kcore | head -c 1 | grep .",
            "dd if=/dev/mem bs=1 count=1",
            "ls /dev/sda /dev/vda",
        ],
    )
    .await;
    // Other sandboxes and the control files of its own.
    let done = world.bash(&format!("ls {}; ls /run/outlast; ls /", world.folder.path().display())).await;
    let expected =
        "executions\ntool\nbin\nagent\ndev\netc\nlib\nlib64\nproc\nrun\nsbin\ntmp\nusr\nworkspace\n";
    let expected: Vec<&str> = expected.lines().collect();
    assert!(done.stdout.lines().all(|line| expected.contains(&line) || line.starts_with("lib")), "{done:?}");
}

#[tokio::test]
async fn a_program_writes_nowhere_but_in_its_own_folders() {
    let world = World::new().await;
    refused(
        &world,
        &[
            "touch /usr/x",
            "touch /etc/x",
            "touch /x",
            "mkdir /dev/x",
            "touch /run/outlast/x",
            "echo x >> /run/outlast/tool",
            "chmod +w /usr && touch /usr/x",
            "echo 1 > /proc/sys/kernel/hostname",
            "echo '|/bin/sh' > /proc/sys/kernel/core_pattern",
            "cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern",
            "for file in $(find /proc -maxdepth 4 -type f -not -path '/proc/[0-9]*' -not -path '/proc/self/*' -not -path '/proc/thread-self/*'); do (true >> $file) 2> /dev/null && echo $file; done | grep .",
            "echo 1 > /proc/irq/default_smp_affinity",
            "head -c 1 /proc/kmsg || head -c 1 /proc/kpagecount || head -c 1 /proc/slabinfo",
            "echo 0 > /proc/self/oom_score_adj",
        ],
    )
    .await;
    assert_eq!(
        world.bash("touch /workspace/x ~/x /tmp/x /dev/shm/x && id -u && pwd").await.stdout,
        "1000\n/workspace\n"
    );
}

#[tokio::test]
async fn a_program_reaches_neither_the_network_nor_the_server() {
    let world = World::new().await;
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    server.set_nonblocking(true).unwrap();
    let connect = format!("timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'");
    refused(&world, &[&connect, "timeout 5 bash -c 'exec 3<>/dev/tcp/192.0.2.1/80'"]).await;
    assert!(server.accept().is_err(), "nobody connected");
    let interfaces = world.bash("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '").await;
    assert_eq!(interfaces.stdout, "lo\n");
    // Abstract sockets of the host belong to a network namespace as well.
    assert_eq!(world.bash("grep -c @ /proc/net/unix").await.stdout, "0\n");
}

#[tokio::test]
async fn the_network_of_the_host_is_a_setting() {
    let world = World::with(SandboxSettings { network: Network::Host, ..SandboxSettings::default() }).await;
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    assert_eq!(world.bash(&format!("echo hello > /dev/tcp/127.0.0.1/{port}")).await.code(), 0);
    let mut text = String::new();
    server.accept().unwrap().0.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello\n");
}

#[tokio::test]
async fn a_program_signals_nobody_outside() {
    let world = World::new().await;
    let mut bystander = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let done = world.bash(&format!("kill -9 {}; kill -9 -1; true", bystander.id())).await;
    assert!(bystander.try_wait().unwrap().is_none(), "{done:?}");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    let seen = world.bash("ls /proc | grep -c '^[0-9]'").await;
    assert!(seen.stdout.trim().parse::<u32>().unwrap() < 10, "only its own processes: {seen:?}");
}

#[tokio::test]
async fn a_program_inherits_no_descriptor() {
    let world = World::new().await;
    let secret = std::fs::File::open("/etc/hostname").unwrap();
    // As careless code would leave it: open across exec.
    rustix::io::fcntl_setfd(&secret, rustix::io::FdFlags::empty()).unwrap();
    let done = world.bash("ls /proc/self/fd | wc -l; readlink /proc/$$/fd/*; readlink /proc/1/fd/*").await;
    drop(secret);
    assert!(!done.stdout.contains("hostname"), "{}", done.stdout);
    assert!(done.stdout.starts_with("4\n"), "0, 1, 2 and the folder itself: {}", done.stdout);
}

#[tokio::test]
async fn a_program_sees_no_environment_of_the_server() {
    let world = World::new().await;
    let done = world.bash("env | sort; tr '\\0' '\\n' < /proc/1/environ").await;
    for line in done.stdout.lines() {
        let name = line.split('=').next().unwrap();
        let known = ["HOME", "LANG", "PATH", "PWD", "SHLVL", "TERM", "TMPDIR", "USER", "_"];
        assert!(known.contains(&name), "{line}");
    }
}

#[tokio::test]
async fn a_program_gains_no_rights() {
    let world = World::new().await;
    let status =
        world.bash("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -s '\\t ' ' '").await;
    let none = "0000000000000000";
    let expected = format!(
        "CapInh: {none}\nCapPrm: {none}\nCapEff: {none}\nCapBnd: {none}\nCapAmb: {none}\nNoNewPrivs: 1\nSeccomp: 2\n"
    );
    assert_eq!(status.stdout, expected);
    refused(
        &world,
        &[
            "unshare -U true",
            "unshare -r mount -t tmpfs x /tmp",
            "mount -t proc x /tmp",
            "mount --bind / /tmp",
            "umount /usr",
            "nsenter -t 1 -m true",
            "su -c true",
            "mknod x b 8 0",
            "chroot / true",
            "hostname other",
            "dmesg",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_program_cannot_make_a_namespace_of_its_own() {
    let world = World::new().await;
    refused(
        &world,
        &[
            "unshare --user true",
            "unshare --mount true",
            "unshare --net true",
            "unshare --pid --fork true",
            "unshare --cgroup true",
            "unshare --user --map-root-user bash -c 'mount -t tmpfs x /tmp'",
            "nsenter --target 1 --user true",
            "nsenter --user=/proc/1/ns/user true",
            "bwrap --unshare-user --ro-bind / / true",
            "setpriv --reuid 0 true",
            "echo 10 > /proc/sys/user/max_user_namespaces",
            "python3 -c 'import os; os.setuid(0)'",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_program_finds_no_way_out_through_proc() {
    let world = World::new().await;
    refused(
        &world,
        &[
            // The first process inside is bubblewrap: neither its root nor its working directory leads out.
            "cd /proc/1/root && (ls var || ls srv || ls boot)",
            "ls /proc/1/cwd/var || ls /proc/1/cwd/srv || ls /proc/1/cwd/boot",
            "cat /proc/1/mem | head -c 1 | grep .",
            "cat /proc/*/environ | tr '\\0' '\\n' | grep -i -E 'cargo|secret|key'",
            "head -c 1 /proc/kallsyms | grep -v 0 | grep .",
            "cat /proc/timer_list /proc/sched_debug /proc/latency_stats | grep .",
            "echo b > /proc/sysrq-trigger",
            "echo 1 > /proc/sys/vm/drop_caches",
            "mount -o remount,rw /usr",
            "mount -t overlay -o lowerdir=/usr,upperdir=/tmp,workdir=/tmp none /usr",
            "mount --move /proc /tmp",
            "pivot_root . .",
        ],
    )
    .await;
}

#[test]
fn the_document_names_every_wall_that_is_tried_here_and_no_other() {
    let (document, tests) = (include_str!("../../../../docs/sandboxes.md"), include_str!("walls.rs"));
    let (_, walls) = document.split_once("## Walls").unwrap();
    let (walls, _) = walls.split_once("\n## ").unwrap();
    let elsewhere =
        [include_str!("tools.rs"), include_str!("../../../outlast/src/http/tests/files/changes.rs")];
    let is_a_test =
        |name: &str| [tests].iter().chain(&elsewhere).any(|source| source.contains(&format!("fn {name}(")));
    for row in walls.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let (_, tried) = row.trim_end_matches(" |").rsplit_once(" | ").unwrap();
        let names = tried.split('`').skip(1).step_by(2).filter(|name| !name.contains('/'));
        let names: Vec<&str> = names.collect();
        assert!(names.iter().all(|name| is_a_test(name)), "{row}");
        assert!(!names.is_empty() || tried.contains("hostile.rs"), "{row}");
    }
    let here = tests.lines().filter_map(|line| line.strip_prefix("async fn "));
    for name in here.filter_map(|line| line.split_once("() {").map(|(name, _)| name)) {
        assert!(walls.contains(&format!("`{name}`")), "{name} is not in the document");
    }
}

/// Calls the kernel directly, as an exploit would.
#[tokio::test]
async fn a_program_cannot_call_what_the_filter_forbids() {
    let world = World::new().await;
    let script = r#"
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
names = {"ptrace": 101, "mount": 165, "unshare": 272, "keyctl": 250, "bpf": 321, "userfaultfd": 323, "io_uring_setup": 425,
    "perf_event_open": 298, "setns": 308, "init_module": 175, "kexec_load": 246, "pidfd_getfd": 438, "open_by_handle_at": 304,
    "process_vm_readv": 310, "fsopen": 430, "x32 ptrace": 0x40000000 + 521, "x32 mount": 0x40000000 + 165}
for name, number in names.items():
    result = libc.syscall(number, 0, 0, 0, 0, 0, 0)
    print(name, result, errno.errorcode.get(ctypes.get_errno()))
for family in (40, 16 + 1, 38): # vsock, packet, alg
    result = libc.socket(family, 1, 0)
    print("socket", family, result, errno.errorcode.get(ctypes.get_errno()))
print("TIOCSTI", libc.ioctl(0, 0x5412, b"x"), errno.errorcode.get(ctypes.get_errno()))
print("inet", libc.socket(2, 1, 0) >= 0, libc.socket(1, 1, 0) >= 0)
"#;
    std::fs::write(world.workspace().join("calls.py"), script).unwrap();
    if !cfg!(target_arch = "x86_64") {
        return; // the numbers above are those of one processor
    }
    let done = world.bash("python3 calls.py").await;
    assert_eq!(done.code(), 0, "{done:?}");
    for line in done.stdout.lines().filter(|line| !line.starts_with("inet")) {
        assert!(line.ends_with("-1 EPERM"), "{line}");
    }
    assert!(done.stdout.ends_with("inet True True\n"), "{}", done.stdout);
}

#[tokio::test]
async fn a_fork_bomb_runs_into_a_limit_and_harms_nobody() {
    let world = World::with(SandboxSettings { processes: 50, ..SandboxSettings::default() }).await;
    let done = world.bash("for i in $(seq 200); do sleep 100 & done 2>&1; jobs -p | wc -l").await;
    let text = format!("{}{}", done.stdout, done.stderr);
    assert!(text.contains("Resource temporarily unavailable"), "{text}");
    let execution = world.start("bomb", "echo up; bomb() { bomb | bomb & }; bomb; sleep 1000").await;
    world.first_output(&execution).await;
    let began = Instant::now();
    assert!(std::process::Command::new("true").status().unwrap().success());
    assert!(began.elapsed() < Duration::from_secs(30));
    world.local.stop(&world.id, &execution).await.unwrap();
    assert_eq!(world.bash("echo fine").await.stdout, "fine\n");
}

#[tokio::test]
async fn memory_is_limited() {
    let world = World::with(SandboxSettings { memory_bytes: 128 * MIB, ..SandboxSettings::default() }).await;
    let done = world.bash("python3 -c 'x = bytearray(512 * 1024 * 1024); print(len(x))'").await;
    assert_ne!(done.code(), 0, "{done:?}");
    assert_eq!(world.bash("python3 -c 'print(len(bytearray(16 * 1024 * 1024)))'").await.stdout, "16777216\n");
}

#[tokio::test]
async fn processors_are_limited_or_the_setting_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let settings = SandboxSettings { cpu: Some(0.2), ..SandboxSettings::default() };
    match Local::open(folder.path(), settings.clone(), helper()).await {
        Err(error) => assert!(error.to_string().starts_with("sandbox.cpu needs"), "{error}"),
        Ok(_) => {
            let world = World::with(settings).await;
            let spin = "import time\nend = time.time() + 1\nwhile time.time() < end: pass\nprint(time.process_time())";
            let used = world.bash(&format!("python3 -c '{spin}'")).await;
            assert!(used.stdout.trim().parse::<f64>().unwrap() < 0.6, "{used:?}");
        }
    }
}

#[tokio::test]
async fn disk_is_limited_for_one_file_and_for_all() {
    let world = World::with(SandboxSettings { disk_bytes: 8 * MIB, ..SandboxSettings::default() }).await;
    let one = world.bash("head -c 20M /dev/zero > big; stat -c %s big").await;
    assert_eq!(one.stdout.trim().parse::<u64>().unwrap(), 8 * MIB, "{one:?}");
    world.bash("rm big").await;
    let many =
        world.start("many", "for i in $(seq 20); do head -c 1M /dev/zero > $i; done; sleep 1000").await;
    assert_eq!(end(&world.local, &world.id, &many).await, Outcome::OverLimit(Limit::Disk));
    world.bash("rm -f *").await;
    assert_eq!(world.bash("echo fine").await.stdout, "fine\n");
}

#[tokio::test]
async fn old_output_is_not_charged_to_the_programs_and_a_full_disk_can_be_cleared() {
    let settings =
        SandboxSettings { disk_bytes: 1024 * 1024, output_bytes: 512 * 1024, ..Default::default() };
    let world = World::with(settings).await;
    for _ in 0..24 {
        assert_eq!(world.bash("head -c 400000 /dev/zero").await.code(), 0);
    }
    let output = world.workspace().join("../output");
    let kept = || -> u64 {
        let files = walkdir::WalkDir::new(&output).into_iter().flatten();
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    };
    world.start("awake", "sleep 1000").await; // outputs are looked at while something runs
    within(async {
        while kept() > 17 * 512 * 1024 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let filled = world.bash("for i in 1 2 3 4; do head -c 900K /dev/zero > big$i; done; sleep 1000").await;
    assert_eq!(filled.outcome, Outcome::OverLimit(Limit::Disk), "{filled:?}");
    assert_eq!(world.bash("rm big*; sleep 1; echo cleared").await.stdout, "cleared\n");
}

#[tokio::test]
async fn shared_memory_is_limited() {
    let world = World::new().await;
    refused(&world, &["head -c 100M /dev/zero > /dev/shm/x"]).await;
}

#[tokio::test]
async fn a_program_cannot_forge_what_is_known_about_it() {
    let world = World::new().await;
    // The one descriptor of ours inside is that of the first process. Emptying or locking the file changes nothing.
    let script = r#"
for fd in /proc/1/fd/*; do
    case $(readlink $fd) in *alive) : > $fd; echo '{"exit-code": 0}' > $fd; (flock -n 9 || echo locked) 9<> $fd;; esac
done
ls /run/outlast/executions/*/ | grep -v : ; exit 6"#;
    let execution = bash("e1", script);
    world.local.start(&world.id, &execution).await.unwrap();
    let done = world.done(&world.local, &execution.id).await;
    assert_eq!((done.code(), done.stdout.as_str()), (6, "locked\nstderr\nstdout\n"));
    let again = world.local.start(&world.id, &execution).await.unwrap();
    assert_eq!(again, outlast_engine::sandbox::Started::Before);
    // A program may cut its own output; readers of what is gone get nothing.
    let cut = world.bash("echo long text; truncate -s 2 /proc/self/fd/1; true").await;
    assert_eq!(cut.stdout, "lo");
}
