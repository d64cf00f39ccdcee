//! One stream, from its start to its end.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::candidate::Client;
use super::meter::Meter;
use super::results::Check;
use super::watch::Watch;

/// A stream to read.
pub(crate) struct Reader {
    pub(crate) client: Client,
    pub(crate) meter: Rc<Meter>,
    pub(crate) name: String,
    pub(crate) script: String,
    pub(crate) begin: Instant,
    /// When to give up.
    pub(crate) deadline: Instant,
}

/// What a reader saw.
pub(crate) struct Seen {
    pub(crate) watch: Watch,
    pub(crate) error: Option<String>,
}

impl Reader {
    /// Waits for its turn, starts the generation and reads until it ends.
    pub(crate) async fn run(self) -> Seen {
        sleep_until(self.begin).await;
        let mut watch = Watch::new(self.meter);
        let reading = async {
            let (mut connection, _) = self.client.start(&self.name, &self.script).await?;
            connection.read(&mut watch).await
        };
        let error = match timeout_at(self.deadline, reading).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("deadline exceeded".to_owned()),
        };
        Seen { watch, error }
    }
}

/// Readers that start evenly spread over time.
pub(crate) struct Crowd {
    readers: tokio::task::JoinSet<Seen>,
    tokens: u64,
}

impl Crowd {
    pub(crate) fn new(tokens: u64) -> Self {
        Self { readers: tokio::task::JoinSet::new(), tokens }
    }

    pub(crate) fn add(&mut self, reading: impl Future<Output = Seen> + 'static) {
        self.readers.spawn_local(reading);
    }

    /// Waits for all readers, which have deadlines, and counts what they saw.
    pub(crate) async fn finish(mut self) -> (Check, Vec<Seen>) {
        let mut check = Check::default();
        let mut all = Vec::new();
        while let Some(seen) = self.readers.join_next().await {
            match seen {
                Ok(seen) => {
                    check.stream(self.tokens, &seen.watch, seen.error.clone());
                    all.push(seen);
                }
                Err(error) => {
                    check.failed += 1;
                    check.error.get_or_insert(error.to_string());
                }
            }
        }
        (check, all)
    }
}

/// The `index`-th of `count` even steps through `span`.
pub(crate) fn step(span: Duration, index: u64, count: u64) -> Duration {
    span.mul_f64(index as f64 / count.max(1) as f64)
}
