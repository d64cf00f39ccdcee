//! How long events are kept. Messages stay for ever.

use std::time::Duration;

use crate::{GenerationStatus, Timestamp};

/// How long the events of generations that ended are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Of those that were answered or cancelled.
    pub completed: Duration,
    /// Of those that failed: somebody may want to know why.
    pub error: Duration,
}

impl Retention {
    /// Whether the events of such a generation may go now.
    pub fn is_over(&self, status: GenerationStatus, completed_at: Option<Timestamp>, now: Timestamp) -> bool {
        let kept = if status == GenerationStatus::Error { self.error } else { self.completed };
        !status.is_live() && completed_at.is_some_and(|ended| ended.after(kept) <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g13_completed_ones_go_before_failed_ones_and_live_ones_never() {
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
