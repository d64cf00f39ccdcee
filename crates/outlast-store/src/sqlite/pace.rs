//! How long the writer gathers before it commits again.
//!
//! A commit costs the same for one append or a thousand. At low load it should follow at once. At high
//! load a writer that never pauses commits a handful at a time and takes the processor from those who
//! produce; if it pauses, text gathers meanwhile and leaves as fewer, larger records.

use std::time::Duration;

/// How long one append of the last batch delays the next batch.
const GATHER_PER_APPEND: Duration = Duration::from_micros(20);

/// Nobody notices text that is this much later.
const GATHER_AT_MOST: Duration = Duration::from_millis(40);

/// Smaller batches are low load: no pause.
const BUSY_FROM: u32 = 32;

/// The least time from the beginning of a batch of so many appends to the beginning of the next.
pub(super) fn gather(appends: usize) -> Duration {
    let appends = u32::try_from(appends).unwrap_or(u32::MAX);
    if appends < BUSY_FROM {
        return Duration::ZERO;
    }
    GATHER_PER_APPEND.saturating_mul(appends).min(GATHER_AT_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_load_never_waits_and_high_load_not_for_long() {
        assert_eq!(gather(0), Duration::ZERO);
        assert_eq!(gather(31), Duration::ZERO);
        assert_eq!(gather(1000), Duration::from_millis(20));
        assert_eq!(gather(1_000_000), GATHER_AT_MOST);
    }
}
