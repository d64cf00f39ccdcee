//! Wakes those who show a user's notifications.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outlast_core::UserId;
use tokio::sync::watch;

/// Another instance rings no bell here, so a listener looks again after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Streams of one user: more than anybody has open pages.
pub(super) const LISTENERS_MAX: usize = 100;

/// One entry for each user with a listener.
#[derive(Clone, Default)]
pub(crate) struct Bells(Arc<Mutex<HashMap<UserId, watch::Sender<()>>>>);

/// A listener. Its entry goes with the last one of its user.
pub struct Bell {
    user: UserId,
    bells: Bells,
    rung: watch::Receiver<()>,
}

impl Bells {
    pub(crate) fn ring(&self, user: &UserId) {
        let bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bell) = bells.get(user) {
            bell.send_replace(());
        }
    }

    /// `None` if too many listen already.
    pub(super) fn listen(&self, user: &UserId) -> Option<Bell> {
        let mut bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bell = bells.entry(user.clone()).or_default();
        if bell.receiver_count() >= LISTENERS_MAX {
            return None;
        }
        Some(Bell { user: user.clone(), bells: self.clone(), rung: bell.subscribe() })
    }
}

impl Bell {
    /// Returns true when the list has changed here, and false from time to time: it may have changed elsewhere.
    pub async fn rung(&mut self) -> bool {
        // The sender is in the map as long as this listener is.
        tokio::time::timeout(LOOK_AGAIN, self.rung.changed()).await.is_ok()
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        let mut bells = self.bells.0.lock().unwrap_or_else(PoisonError::into_inner);
        if bells.get(&self.user).is_some_and(|bell| bell.receiver_count() <= 1) {
            bells.remove(&self.user);
        }
    }
}
