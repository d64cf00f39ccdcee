//! How long the writer gathers before it commits again.
//!
//! A commit costs nearly the same for one append or a hundred, and every append wakes an owner and its
//! readers. A writer that never pauses commits a handful at a time and takes the processor from those who
//! produce and read; if it pauses, text gathers meanwhile and leaves as fewer, larger records. So it rests
//! the longer, the more appends it just had: with little to do the rest is over before it begins, and with
//! much to do the rest grows until all have something to say. Appends that are large already gain nothing.

use std::time::Duration;

/// What a small append adds to the rest. Below about 10,000 appends a second they do not fill the time that
/// they add, and the rest shrinks to nothing; above, it grows until everybody who writes is in every commit.
/// So 200 answers at 50 tokens a second each are shown at once, and of 1,000 every event holds a few tokens:
/// `make bench` shows both.
const EACH: Duration = Duration::from_micros(85);

/// An append of so many bytes is small; one of twice as many adds half as much.
const SMALL_BYTES: usize = 1024;

/// A reader hardly notices text that is this much later, and only a server that is busy rests for so long.
const PAUSE_AT_MOST: Duration = Duration::from_millis(100);

/// How long to rest for an append of so many bytes.
pub(super) fn rest_for(bytes: usize) -> Duration {
    EACH / u32::try_from(bytes / SMALL_BYTES).unwrap_or(u32::MAX).max(1)
}

/// How long to pause after a commit that took so long, if its appends want so much rest together.
pub(super) fn pause(rest: Duration, took: Duration) -> Duration {
    rest.min(PAUSE_AT_MOST).saturating_sub(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_work_is_not_noticed_and_much_work_does_not_wait_for_long() {
        let ms = Duration::from_millis;
        let pause = |appends, took| pause(rest_for(200) * appends, took);
        assert_eq!(pause(0, ms(0)), ms(0));
        assert_eq!(pause(5, ms(1)), ms(0));
        assert_eq!(pause(100, ms(2)).as_micros(), 6_500);
        assert_eq!(pause(1_000, ms(5)), ms(80));
        assert_eq!(pause(5_000, ms(10)), ms(90));
        assert_eq!(pause(5_000, ms(150)), ms(0));
    }

    #[test]
    fn what_is_gathered_already_hardly_waits() {
        assert_eq!(rest_for(0), EACH);
        assert_eq!(rest_for(SMALL_BYTES), EACH);
        assert_eq!(rest_for(2 * SMALL_BYTES), EACH / 2);
        assert!(rest_for(16 * SMALL_BYTES) < EACH / 15);
    }
}
