//! One clock for all processes of the benchmark.
//!
//! `Instant` cannot be written into a token and read in another process. `CLOCK_MONOTONIC` can, and unlike
//! the wall clock it is never set back during a measurement.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the machine's monotonic clock, the same in every process.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Both parts are non-negative for this clock, and its seconds start at boot.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
