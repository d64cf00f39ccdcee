//! A private PgBouncer in front of a test server. It gives every transaction another connection.

use std::fmt::Write as _;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{STARTED_WITHIN, Server, as_postgres};

/// Its settings name every store beforehand.
const STORES: usize = 200;

/// Runs until it is dropped, or until the process that started it ends in whatever way.
pub struct Pooler {
    port: u16,
    stores: AtomicUsize,
    shell: Child,
    // The shell stops the pooler when this is closed.
    orders: Option<ChildStdin>,
}

impl Pooler {
    /// Panics with the reason if it does not start.
    pub fn start(server: &Server) -> Pooler {
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let settings = server.folder.join("pgbouncer.ini");
        fs::write(&settings, ini(server.port(), port)).expect("a file for PgBouncer");
        let script = r#"PATH="$PATH:/usr/sbin" pgbouncer "$0" >"$0.log" 2>&1 &
             pooler=$!
             read order
             kill -s INT $pooler
             wait $pooler"#;
        let mut command = as_postgres(&server.folder, "sh");
        command.args(["-c", script]).arg(&settings);
        let mut shell = command.stdin(Stdio::piped()).spawn().expect("a shell");
        let orders = shell.stdin.take();
        let pooler = Pooler { port, stores: AtomicUsize::new(0), shell, orders };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = || fs::read_to_string(server.folder.join("pgbouncer.ini.log")).unwrap_or_default();
            assert!(began.elapsed() < STARTED_WITHIN, "PgBouncer does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
        pooler
    }

    /// The URL of a new, empty store.
    pub fn url(&self, server: &Server) -> String {
        let number = self.stores.fetch_add(1, Ordering::Relaxed);
        assert!(number < STORES, "a test server's pooler has {STORES} stores");
        server.ask(&format!("CREATE SCHEMA pooled_{number}"));
        format!("postgres://postgres@127.0.0.1:{}/pooled_{number}?pooler=transaction", self.port)
    }
}

/// Few connections, so that transactions of one client really get different ones.
fn ini(server: u16, port: u16) -> String {
    let mut text = String::from("[databases]\n");
    for number in 0..STORES {
        writeln!(
            text,
            "pooled_{number} = host=127.0.0.1 port={server} dbname=postgres user=postgres \
             connect_query='SET search_path TO pooled_{number}'"
        )
        .expect("writing to memory does not fail");
    }
    write!(
        text,
        "[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
         pool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 500\nserver_round_robin = 1\n\
         server_idle_timeout = 2\n"
    )
    .expect("writing to memory does not fail");
    text
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Err(error) = self.shell.wait() {
            tracing::warn!(%error, "a test pooler did not end");
        }
    }
}
