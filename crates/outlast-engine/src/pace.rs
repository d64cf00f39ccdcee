//! How often the text of a call is recorded.
//!
//! Each event wakes its owner, the store and every follower, and ends in a write to every follower's socket. That
//! costs the same for one token or ten, so the more calls share a core, the more of its text a call gathers before
//! it is recorded. Text waits here and not in the store, because an append that was handed to the store cannot grow.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

/// Each call on a core adds this much to the time between two events of every call. Recording an event takes about
/// a fifth of it, which leaves the rest of the core for reading from upstreams.
const PER_CALL: Duration = Duration::from_micros(125);
/// Text is never held back for longer than three frames of a screen, however many calls there are.
const SPACING_MAX: Duration = Duration::from_millis(48);

/// Counts the calls that are under way. Shared by all owners.
#[derive(Debug)]
pub(crate) struct Pace {
    calls: AtomicU32,
    cores: u32,
}

impl Default for Pace {
    fn default() -> Pace {
        let cores = available_parallelism().map_or(1, NonZero::get);
        Pace { calls: AtomicU32::new(0), cores: u32::try_from(cores).unwrap_or(1) }
    }
}

/// One call's share of the count.
#[derive(Debug)]
pub(crate) struct Paced(Arc<Pace>);

impl Paced {
    pub(crate) fn new(pace: Arc<Pace>) -> Paced {
        pace.calls.fetch_add(1, Ordering::Relaxed);
        Paced(pace)
    }

    /// The least time between two events that only carry text.
    pub(crate) fn spacing(&self) -> Duration {
        let calls = self.0.calls.load(Ordering::Relaxed);
        (PER_CALL * calls / self.0.cores).min(SPACING_MAX)
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_calls_there_are_the_more_text_each_of_them_gathers() {
        let pace = Arc::new(Pace { calls: AtomicU32::new(0), cores: 2 });
        let first = Paced::new(pace.clone());
        assert!(first.spacing() < Duration::from_millis(1));
        let mut others: Vec<Paced> = (0..399).map(|_| Paced::new(pace.clone())).collect();
        assert_eq!(first.spacing(), Duration::from_millis(25));
        others.extend((0..10_000).map(|_| Paced::new(pace.clone())));
        assert_eq!(first.spacing(), SPACING_MAX);
        drop(others);
        assert!(first.spacing() < Duration::from_millis(1));
    }
}
