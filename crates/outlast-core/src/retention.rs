//! How long events are kept. Messages are kept until their conversation is deleted.

use std::time::Duration;

use crate::{GenerationStatus, Timestamp};

/// How long the events of ended generations are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// For generations that completed or were cancelled.
    pub completed: Duration,
    /// For generations that failed. Longer, because somebody may want to know why.
    pub error: Duration,
}

impl Retention {
    /// Whether the events of a generation may be removed now.
    pub fn is_over(&self, status: GenerationStatus, completed_at: Option<Timestamp>, now: Timestamp) -> bool {
        let kept = if status == GenerationStatus::Error { self.error } else { self.completed };
        !status.is_live() && completed_at.is_some_and(|ended| ended.after(kept) <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g13_completed_ones_are_removed_before_failed_ones_and_live_ones_never() {
        let day = Duration::from_secs(86_400);
        let retention = Retention { completed: 7 * day, error: 30 * day };
        let ended = Some(Timestamp(0));
        let over = |status, days: u32| retention.is_over(status, ended, Timestamp(0).after(day * days));
        assert!(!over(GenerationStatus::Completed, 6) && over(GenerationStatus::Completed, 7));
        assert!(!over(GenerationStatus::Cancelled, 6) && over(GenerationStatus::Cancelled, 7));
        assert!(!over(GenerationStatus::Error, 29) && over(GenerationStatus::Error, 30));
        for live in GenerationStatus::LIVE {
            assert!(!over(*live, 9_999));
        }
    }
}
