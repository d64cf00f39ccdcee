//! The end of a generation.

use crate::generation::{Phase, Segment};
use crate::{Entry, Event, Generation, MessageStatus};

impl Generation {
    /// Closes the open segment. Its status says whether its text is complete.
    pub(super) fn end(&mut self, entry: &Entry) -> Vec<Segment> {
        let (phase, status) = match &entry.event {
            Event::ChatDone { finish_reason } => {
                (Phase::Completed { finish_reason: finish_reason.clone() }, MessageStatus::Complete)
            }
            Event::ChatError { error_message, code } => {
                let (error_message, code) = (error_message.clone(), code.clone());
                (Phase::Failed { error_message, code }, MessageStatus::Error)
            }
            Event::ChatCancelled { reason } => {
                (Phase::Cancelled { reason: *reason }, MessageStatus::Cancelled)
            }
            _ => return Vec::new(),
        };
        self.progress.completed_at = Some(entry.ts);
        self.progress.phase = phase;
        let closed = self.close(status);
        self.progress.open.clear();
        closed
    }
}
