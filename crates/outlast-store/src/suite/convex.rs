//! A Convex deployment for tests: the functions in `convex`, which run on `convex-test` behind a small Node server.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const KEY: &str = "test:key|eyJ2MiI6";

/// Runs until it is dropped, or until the process that started it ends in whatever way.
pub struct Server {
    running: Child,
    port: u16,
}

impl Server {
    /// Panics with the reason if that is not possible.
    pub fn start() -> Server {
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../convex/node_modules/.cache/main.mjs");
        assert!(built.is_file(), "the Convex functions are not built: run ./scripts/convex");
        let mut command = Command::new("node");
        command.arg(built).arg(KEY).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = command.spawn().expect("Node.js 20 or later");
        let mut line = String::new();
        let output = running.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("the server says its port");
        let port = line.trim().parse().expect("the server says its port");
        Server { running, port }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a new, empty deployment.
    pub fn url(&self) -> String {
        format!("convex+http://key:{KEY}@127.0.0.1:{}/{}", self.port, uuid::Uuid::now_v7().simple())
    }

    /// Ends it, with everything that it has stored.
    pub fn kill(&mut self) {
        // An error means that it has ended already.
        self.running.kill().ok();
        self.running.wait().expect("the server ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
