//! A private Redis server for tests, on a free port of this machine, from the distribution's packages.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that does not start in this time will not start.
const STARTED_WITHIN: Duration = Duration::from_secs(30);

/// Runs until it is dropped, or until the process that started it ends in whatever way.
pub struct Server {
    folder: PathBuf,
    port: u16,
    settings: Vec<String>,
    running: Option<Child>,
}

impl Server {
    /// An empty server that syncs its file before it answers.
    pub fn start() -> Server {
        Server::with(&["appendfsync always"])
    }

    /// An empty server with a file and these settings. Panics with the reason if that is not possible.
    pub fn with(settings: &[&str]) -> Server {
        let folder = std::env::temp_dir().join(format!("outlast-redis-{}", uuid::Uuid::now_v7().simple()));
        fs::create_dir(&folder).expect("a folder for Redis");
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut server = Server { folder, port, settings, running: None };
        server.resume();
        server
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a new, empty store.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0?prefix={}", self.port, uuid::Uuid::now_v7().simple())
    }

    /// Kills it, as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut shell) = self.running.take() {
            // The shell kills the server when its input is closed.
            drop(shell.stdin.take());
            shell.wait().expect("the server ends");
        }
    }

    /// Starts it with what it has stored.
    pub fn resume(&mut self) {
        let script = r#"port=$1; shift
             redis-server --port "$port" --bind 127.0.0.1 --save "" --appendonly yes "$@" >log 2>&1 &
             server=$!
             read order
             kill -9 $server
             wait $server"#;
        let mut command = Command::new("sh");
        command.args(["-c", script, "redis"]).arg(self.port.to_string()).current_dir(&self.folder);
        for setting in &self.settings {
            let (name, value) = setting.split_once(' ').expect("a name and a value");
            command.arg(format!("--{name}")).arg(value);
        }
        self.running = Some(command.stdin(Stdio::piped()).spawn().expect("a shell"));
        let began = Instant::now();
        while !self.answers() {
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(began.elapsed() < STARTED_WITHIN, "Redis does not start: {}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The reply to a command, as Redis writes it.
    pub fn ask(&self, command: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply)
    }

    fn answers(&self) -> bool {
        self.ask("PING").is_ok_and(|reply| reply.starts_with("+PONG"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::warn!(%error, "the folder of a test server was not removed");
        }
    }
}
