//! Tells one listener which generations have ended here, for traces.

use std::sync::OnceLock;

use outlast_core::{Entry, GenerationId, UserId};
use tokio::sync::mpsc;

use crate::engine::Engine;

/// How many the listener may be behind. Beyond that, endings are not told: nothing waits for a listener.
const BEHIND_MAX: usize = 1_024;

/// A generation that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    pub user: UserId,
    pub generation: GenerationId,
}

#[derive(Debug, Default)]
pub(crate) struct Endings(OnceLock<mpsc::Sender<Ending>>);

impl Endings {
    /// Called when events are durable.
    pub(crate) fn tell(&self, user: &UserId, entries: &[Entry]) {
        let Some(listener) = self.0.get() else { return };
        for generation in
            entries.iter().filter(|entry| entry.event.is_end()).filter_map(|entry| entry.generation.clone())
        {
            if listener.try_send(Ending { user: user.clone(), generation }).is_err() {
                tracing::debug!("the listener is too far behind; an ending is not told");
            }
        }
    }
}

impl Engine {
    /// What ends from now on. There is one listener: `None` if there is one already.
    pub fn endings(&self) -> Option<mpsc::Receiver<Ending>> {
        let (sender, receiver) = mpsc::channel(BEHIND_MAX);
        self.shared.endings.0.set(sender).ok().map(|()| receiver)
    }
}
