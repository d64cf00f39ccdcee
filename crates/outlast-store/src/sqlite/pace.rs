//! How long the writer gathers before it commits again.
//!
//! A commit costs nearly the same for one append or a hundred, and every append wakes an owner and its
//! readers. A writer that never pauses commits a handful at a time and takes the processor from those who
//! produce and read; if it pauses, text gathers meanwhile and leaves as fewer, larger records. So it rests
//! the longer, the more appends it just had: with little to do the rest is over before it begins, and with
//! much to do the rest grows until all have something to say. Appends that are large already gain nothing.

use std::time::Duration;

/// The rest for each small append of the commit before. Those who append faster than one in this time
/// make it grow, and others are not noticed.
const EACH: Duration = Duration::from_micros(85);

/// An append of so many bytes is small; one of twice as many adds half as much.
const SMALL_BYTES: usize = 1024;

/// A reader hardly notices text that is this much later, and only a server that is busy rests for so long.
const PAUSE_AT_MOST: Duration = Duration::from_millis(100);

/// How long to rest after a commit of so many appends with so many bytes in all, which took so long.
pub(super) fn rest(appends: usize, bytes: usize, took: Duration) -> Duration {
    let average = bytes / appends.max(1);
    let small = appends.saturating_mul(SMALL_BYTES) / average.max(SMALL_BYTES);
    let rest = EACH.saturating_mul(u32::try_from(small).unwrap_or(u32::MAX));
    rest.min(PAUSE_AT_MOST).saturating_sub(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_work_is_not_noticed_and_much_work_does_not_wait_for_long() {
        let ms = Duration::from_millis;
        assert_eq!(rest(0, 0, Duration::ZERO), Duration::ZERO);
        assert_eq!(rest(5, 1_000, ms(1)), Duration::ZERO);
        assert_eq!(rest(100, 20_000, ms(2)).as_micros(), 6_500);
        assert_eq!(rest(1_000, 250_000, ms(5)), ms(80));
        assert_eq!(rest(5_000, 1_000_000, ms(10)), ms(90));
        assert_eq!(rest(5_000, 1_000_000, ms(150)), Duration::ZERO);
    }

    #[test]
    fn what_is_gathered_already_does_not_wait() {
        assert_eq!(rest(8, 8 * 16 * SMALL_BYTES, Duration::ZERO), Duration::ZERO);
        assert_eq!(rest(64, 64 * 16 * SMALL_BYTES, Duration::ZERO), 4 * EACH);
    }
}
