//! How many generations each user has under way here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use outlast_core::UserId;

/// Counts by user. Shared by all owners.
#[derive(Debug, Default)]
pub(crate) struct Live {
    counts: Mutex<HashMap<UserId, usize>>,
}

impl Live {
    fn change(&self, user: &UserId, from: usize, to: usize) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(user.clone()).or_default();
        *count = (*count + to).saturating_sub(from);
        if *count == 0 {
            counts.remove(user);
        }
    }

    fn reserve(&self, user: &UserId, limit: usize) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(user.clone()).or_default();
        if *count >= limit {
            return false;
        }
        *count += 1;
        true
    }
}

/// One owner's share of the count; given back when the owner goes.
#[derive(Debug)]
pub(crate) struct Share {
    live: Arc<Live>,
    user: UserId,
    count: usize,
}

impl Share {
    pub(crate) fn new(live: Arc<Live>, user: UserId) -> Share {
        Share { live, user, count: 0 }
    }

    /// Takes one more if the user may have it. Counted before it is written, so that starts in many
    /// conversations at once cannot pass the limit together.
    pub(crate) fn reserve(&mut self, limit: usize) -> bool {
        let reserved = self.live.reserve(&self.user, limit);
        self.count += usize::from(reserved);
        reserved
    }

    /// What it really is.
    pub(crate) fn set(&mut self, count: usize) {
        if count != self.count {
            self.live.change(&self.user, self.count, count);
            self.count = count;
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b4_a_user_has_no_more_than_the_limit_and_others_are_not_counted() {
        let live = Arc::new(Live::default());
        let mut ann = Share::new(live.clone(), "ann".into());
        let mut also_ann = Share::new(live.clone(), "ann".into());
        let mut bob = Share::new(live.clone(), "bob".into());
        assert!(ann.reserve(2) && also_ann.reserve(2) && !ann.reserve(2) && bob.reserve(2));
        also_ann.set(0);
        assert!(ann.reserve(2));
        drop((ann, also_ann, bob));
        assert!(live.counts.lock().unwrap().is_empty());
    }
}
