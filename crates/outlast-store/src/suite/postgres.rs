//! A private PostgreSQL server for tests, on a free port of this machine, from the distribution's packages.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};

mod pooler;

pub use pooler::Pooler;

/// A server that does not start in this time will not start.
const STARTED_WITHIN: Duration = Duration::from_secs(30);

/// Runs until it is dropped, or until the process that started it ends in whatever way.
pub struct Server {
    folder: PathBuf,
    port: u16,
    settings: Vec<String>,
    running: Option<Running>,
}

struct Running {
    shell: Child,
    // The shell stops the server when this is closed.
    orders: Option<ChildStdin>,
}

impl Server {
    /// Creates an empty server and starts it. Panics with the reason if that is not possible.
    pub fn start() -> Server {
        Server::with(&[], &[])
    }

    /// The same with these settings (`name=value`), and files that they may name, each with its text.
    pub fn with(settings: &[&str], files: &[(&str, &str)]) -> Server {
        let name = format!("outlast-postgres-{}", uuid::Uuid::now_v7().simple());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).expect("a folder for PostgreSQL");
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut server = Server { folder, port, settings, running: None };
        server.initialise();
        for (name, text) in files {
            server.write(name, text);
        }
        server.resume();
        server
    }

    /// The URL of a new, empty schema. A database of its own for each test would take a second.
    pub fn url(&self) -> String {
        let name = format!("test_{}", uuid::Uuid::now_v7().simple());
        self.ask(&format!("CREATE SCHEMA {name}"));
        format!("postgres://postgres@127.0.0.1:{}/postgres?options=-csearch_path%3D{name}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process that all others of the server belong to.
    pub fn pid(&self) -> u32 {
        let file = fs::read_to_string(self.folder.join("data/postmaster.pid")).expect("the server runs");
        file.lines().next().and_then(|line| line.parse().ok()).expect("its first line is a number")
    }

    /// The only value that a query returns.
    pub fn ask(&self, sql: &str) -> String {
        let done = self.psql(sql);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }

    /// Stops it as `immediate` as a crash, or in an orderly way.
    pub fn stop(&mut self, immediate: bool) {
        if let Some(mut running) = self.running.take() {
            if let Some(mut orders) = running.orders.take() {
                writeln!(orders, "{}", if immediate { "QUIT" } else { "INT" }).ok();
            }
            running.shell.wait().expect("the server ends");
        }
    }

    /// Starts it again with what it has stored.
    pub fn resume(&mut self) {
        let script = r#""$0" -D "$1/data" -c listen_addresses=127.0.0.1 -p "$2" -c unix_socket_directories= \
             -c max_connections=800 -c shared_buffers=32MB -c log_min_messages=fatal $3 >"$1/log" 2>&1 &
             server=$!
             order=INT
             read order
             kill -s "${order:-INT}" $server
             wait $server"#;
        let mut command = as_postgres(&self.folder, "sh");
        command.args(["-c", script]).arg(program("postgres")).arg(&self.folder).arg(self.port.to_string());
        command.arg(self.settings.iter().map(|setting| format!("-c {setting} ")).collect::<String>());
        let mut shell = command.stdin(Stdio::piped()).spawn().expect("a shell");
        let orders = shell.stdin.take();
        self.running = Some(Running { shell, orders });
        let began = Instant::now();
        while !self.answers() {
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(began.elapsed() < STARTED_WITHIN, "PostgreSQL does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn answers(&self) -> bool {
        self.psql("SELECT 1").status.success()
    }

    fn psql(&self, sql: &str) -> Output {
        let port = self.port.to_string();
        let ask = ["-qtA", "-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-c", sql];
        Command::new(program("psql")).args(ask).output().expect("psql")
    }

    fn initialise(&self) {
        if is_root() {
            own(&self.folder);
        }
        let data = self.folder.join("data");
        let mut command = as_postgres(&self.folder, program("initdb").to_str().expect("a path in UTF-8"));
        command.args(["-N", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D"]).arg(data);
        let done = command.output().expect("initdb");
        assert!(done.status.success(), "initdb: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// A file in the server's data folder that only it may read.
    fn write(&self, name: &str, text: &str) {
        let path = self.folder.join("data").join(name);
        fs::write(&path, text).expect("a file for PostgreSQL");
        let modes = Command::new("chmod").arg("600").arg(&path).status().expect("chmod");
        assert!(modes.success());
        if is_root() {
            own(&path);
        }
    }
}

fn own(path: &Path) {
    let owned = Command::new("chown").arg("postgres").arg(path).status().expect("chown");
    assert!(owned.success());
}

/// PostgreSQL and PgBouncer refuse to run as root.
fn as_postgres(folder: &Path, program: &str) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--", program]);
        command
    } else {
        Command::new(program)
    };
    command.current_dir(folder);
    command
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(true);
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::warn!(%error, "the folder of a test server was not removed");
        }
    }
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.starts_with(b"0"))
}

/// Debian keeps the server's programs out of the path, by version.
fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.exists());
    found.sort();
    found.pop().unwrap_or_else(|| Path::new(name).to_owned())
}
