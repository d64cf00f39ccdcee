//! How long the writer gathers before it commits again.
//!
//! A commit costs nearly the same for one append or a hundred. A writer that never pauses commits a handful
//! at a time and takes the processor from those who produce and read; if it pauses, text gathers meanwhile
//! and leaves as fewer, larger records. So the writer takes a small share of a processor, and a smaller one
//! the larger its commits are: with little to do it is not noticed, and the more there is to do, the more
//! is done at once.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// One part in this many of a processor is the writer's while its commits are small, ...
const SHARE_SMALL: u32 = 10;
/// ... and one in this many when they take so much time of it.
const SHARE_LARGE: u32 = 20;
const LARGE: Duration = Duration::from_millis(4);

/// A reader hardly notices text that is this much later, and only a server that is busy pauses for so long.
const PAUSE_AT_MOST: Duration = Duration::from_millis(100);

/// The processor time that this thread has used. Waiting for the disk does not count.
pub(super) fn used() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(used.tv_sec), u32::try_from(used.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// How long to rest after a commit that took this much of the processor, if the round took this long in
/// all. Tidying is not counted: it is rare, and a long rest after it would be felt.
pub(super) fn rest(used: Duration, took: Duration) -> Duration {
    let size = used.min(LARGE).as_secs_f64() / LARGE.as_secs_f64();
    let share = f64::from(SHARE_SMALL) + size * f64::from(SHARE_LARGE - SHARE_SMALL);
    used.min(PAUSE_AT_MOST).mul_f64(share).min(PAUSE_AT_MOST).saturating_sub(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_work_is_not_noticed_and_much_work_does_not_wait_for_long() {
        let ms = Duration::from_millis;
        assert_eq!(rest(Duration::from_micros(40), ms(1)), Duration::ZERO);
        assert_eq!(rest(ms(1), ms(2)).as_micros(), 10_500);
        assert_eq!(rest(ms(4), ms(5)), ms(75));
        assert_eq!(rest(ms(30), ms(10)), ms(90));
        assert_eq!(rest(ms(30), ms(150)), Duration::ZERO);
    }

    #[test]
    fn work_uses_time_and_sleep_does_not() {
        let before = used();
        std::thread::sleep(Duration::from_millis(20));
        let slept = used();
        assert!(slept - before < Duration::from_millis(10));
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(20) {}
        assert!(used() > slept);
    }
}
