//! The only source of time and ids, so that a simulation can control both.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outlast_core::Timestamp;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub enum Clock {
    System,
    /// Starts at a given time and follows the runtime's clock, which a test can pause and advance.
    Simulated {
        /// The time at the start.
        at: Timestamp,
        /// The start on the runtime's clock.
        began: Instant,
    },
}

impl Clock {
    /// A clock that shows `at` now.
    pub fn simulated(at: Timestamp) -> Clock {
        Clock::Simulated { at, began: Instant::now() }
    }

    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
                Timestamp::default().after(since)
            }
            Clock::Simulated { at, began } => at.after(began.elapsed()),
        }
    }

    /// Returns at that time.
    pub async fn sleep_until(&self, time: Timestamp) {
        tokio::time::sleep(time.since(self.now())).await;
    }
}

/// Creates unique ids.
#[derive(Debug)]
pub enum Ids {
    /// Globally unique, and roughly ordered by time, which suits database indexes.
    Random,
    /// The same in every run, for simulations.
    Counting(AtomicU64),
}

impl Ids {
    /// A new id that starts with `prefix`.
    pub fn make(&self, prefix: &str) -> String {
        match self {
            Ids::Random => format!("{prefix}_{}", uuid::Uuid::now_v7().simple()),
            Ids::Counting(count) => format!("{prefix}_{}", count.fetch_add(1, Ordering::SeqCst) + 1),
        }
    }

    /// A random number.
    pub fn jitter(&self) -> u8 {
        match self {
            Ids::Random => uuid::Uuid::now_v7().as_bytes()[15],
            Ids::Counting(count) => (count.fetch_add(1, Ordering::SeqCst).wrapping_mul(151) & 0xff) as u8,
        }
    }
}
