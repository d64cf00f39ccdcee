//! When the writer commits: at once while there is little to do, otherwise about once per screen frame.
//!
//! A commit costs nearly the same for one append or a hundred, and every append wakes an owner and its
//! followers. Commits less than a frame apart use CPU for speed that nobody can see; commits further apart
//! make text arrive in jerks. Text that accumulates between two commits becomes fewer, larger records.

use std::time::{Duration, Instant};

/// One frame at 60 frames a second.
pub(super) const FRAME: Duration = Duration::from_millis(16);

/// Larger appends than this wait proportionally less. They already combine many pieces, and a fast stream
/// must not be slowed down to one append per frame.
const SMALL_BYTES: usize = 1024;

/// How many commits may come early after a quiet period. A command causes a few appends in a row, and its
/// client waits for all of them.
const EARLY_COMMITS: u32 = 8;

/// A summary of what waits for the next commit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting {
    /// The size of the largest append.
    largest: usize,
    /// Whether a caller waits for something other than text.
    prompt: bool,
}

impl Waiting {
    pub(super) fn text(bytes: usize) -> Self {
        Self { largest: bytes, prompt: false }
    }

    /// A change to a document, or a call that is not an append: somebody waits for the result.
    pub(super) fn prompt() -> Self {
        Self { largest: 0, prompt: true }
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self { largest: self.largest.max(other.largest), prompt: self.prompt || other.prompt }
    }

    /// Whether it may have to be committed before the frame ends.
    pub(super) fn may_hurry(self) -> bool {
        self.prompt || self.largest > SMALL_BYTES
    }
}

/// Decides when to commit, from the times at which earlier commits began.
pub(super) struct Pace {
    frame: Duration,
    last: Option<Instant>,
    /// Time that passed without a commit and has not been used by an early one.
    saved: Duration,
}

impl Pace {
    pub(super) fn new(frame: Duration) -> Self {
        Self { frame, last: None, saved: frame * EARLY_COMMITS }
    }

    /// How long the next commit still has to wait.
    pub(super) fn wait(&self, waiting: Waiting, now: Instant) -> Duration {
        let Some(last) = self.last else { return Duration::ZERO };
        let passed = now.saturating_duration_since(last);
        if waiting.prompt && self.saved + passed >= self.frame {
            return Duration::ZERO;
        }
        let smaller = u32::try_from(waiting.largest / SMALL_BYTES).unwrap_or(u32::MAX).max(1);
        (self.frame / smaller).saturating_sub(passed)
    }

    /// Records that a commit begins. An early one uses up saved time, so that the average stays at one per
    /// frame.
    pub(super) fn begin(&mut self, now: Instant) {
        if let Some(last) = self.last.replace(now) {
            let passed = now.saturating_duration_since(last);
            let saved = (self.saved + passed).saturating_sub(self.frame);
            self.saved = saved.min(self.frame * EARLY_COMMITS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn text_alone_is_committed_at_once_and_then_once_per_frame() {
        let mut pace = Pace::new(FRAME);
        let start = Instant::now();
        let text = Waiting::text(150);
        assert_eq!(pace.wait(text, start), Duration::ZERO);
        pace.begin(start);
        assert_eq!(pace.wait(text, start + 4 * MS), 12 * MS);
        assert_eq!(pace.wait(text, start + FRAME), Duration::ZERO);
        // A stream with a token every 20 ms never waits.
        for n in 1..100 {
            let now = start + n * 20 * MS;
            assert_eq!(pace.wait(text, now), Duration::ZERO);
            pace.begin(now);
        }
    }

    #[test]
    fn a_command_does_not_wait_unless_the_writer_is_busy() {
        let mut pace = Pace::new(FRAME);
        let mut now = Instant::now();
        pace.begin(now);
        let mut early = 0;
        while pace.wait(Waiting::prompt(), now + MS).is_zero() {
            now += MS;
            pace.begin(now);
            early += 1;
        }
        assert_eq!(early, EARLY_COMMITS, "a burst after a quiet time");
        // While text is committed in every frame, no time is saved.
        for _ in 0..10 {
            now += FRAME;
            pace.begin(now);
        }
        assert!(pace.wait(Waiting::prompt(), now + MS) > FRAME / 2);
        // A quiet frame allows one early commit again.
        now += 2 * FRAME;
        pace.begin(now);
        assert_eq!(pace.wait(Waiting::prompt(), now + MS), Duration::ZERO);
    }

    #[test]
    fn a_large_append_hardly_waits() {
        let mut pace = Pace::new(FRAME);
        let start = Instant::now();
        pace.begin(start);
        assert_eq!(pace.wait(Waiting::text(SMALL_BYTES), start), FRAME);
        assert_eq!(pace.wait(Waiting::text(16 * SMALL_BYTES), start), MS);
        assert!(pace.wait(Waiting::text(100).and(Waiting::text(1 << 20)), start) < MS / 10);
        assert!(!Waiting::text(150).may_hurry() && Waiting::text(16 << 10).may_hurry());
    }
}
