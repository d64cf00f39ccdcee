//! Time and names come from here and nowhere else, so that a simulation can own both.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outlast_core::Timestamp;
use tokio::time::Instant;

/// Tells the time.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The machine's.
    System,
    /// Begins at a given time and follows the runtime's clock, which a test may pause and advance.
    Simulated {
        /// What it showed when it began.
        at: Timestamp,
        /// When it began, as the runtime counts.
        began: Instant,
    },
}

impl Clock {
    /// A clock that shows `at` now.
    pub fn simulated(at: Timestamp) -> Clock {
        Clock::Simulated { at, began: Instant::now() }
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
                Timestamp::default().after(since)
            }
            Clock::Simulated { at, began } => at.after(began.elapsed()),
        }
    }

    /// Returns when that time has come.
    pub async fn sleep_until(&self, time: Timestamp) {
        tokio::time::sleep(time.since(self.now())).await;
    }
}

/// Makes names that were never used before.
#[derive(Debug)]
pub enum Ids {
    /// Unique everywhere, and roughly in the order of time for the comfort of databases.
    Random,
    /// The same for every run: for simulations.
    Counting(AtomicU64),
}

impl Ids {
    /// A new name that begins with `prefix`.
    pub fn make(&self, prefix: &str) -> String {
        match self {
            Ids::Random => format!("{prefix}_{}", uuid::Uuid::now_v7().simple()),
            Ids::Counting(count) => format!("{prefix}_{}", count.fetch_add(1, Ordering::SeqCst) + 1),
        }
    }

    /// A number at random.
    pub fn jitter(&self) -> u8 {
        match self {
            Ids::Random => uuid::Uuid::now_v7().as_bytes()[15],
            Ids::Counting(count) => (count.fetch_add(1, Ordering::SeqCst).wrapping_mul(151) & 0xff) as u8,
        }
    }
}
