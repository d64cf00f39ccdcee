//! Counts live generations, per user and in total.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use outlast_core::UserId;

/// The counts, shared by all owners.
#[derive(Debug, Default)]
pub(crate) struct Live {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    by_user: HashMap<UserId, usize>,
    in_all: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) per_user: usize,
    pub(crate) in_all: usize,
}

/// Whether one more may start, and if not, which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    Yes,
    UserIsFull,
    ServerIsFull,
}

impl Live {
    fn change(&self, user: &UserId, from: usize, to: usize) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.in_all = (counts.in_all + to).saturating_sub(from);
        let count = counts.by_user.entry(user.clone()).or_default();
        *count = (*count + to).saturating_sub(from);
        if *count == 0 {
            counts.by_user.remove(user);
        }
    }

    fn reserve(&self, user: &UserId, limits: Limits) -> Reserved {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.by_user.get(user).is_some_and(|count| *count >= limits.per_user) || limits.per_user == 0 {
            return Reserved::UserIsFull;
        }
        if counts.in_all >= limits.in_all {
            return Reserved::ServerIsFull;
        }
        counts.in_all += 1;
        *counts.by_user.entry(user.clone()).or_default() += 1;
        Reserved::Yes
    }
}

/// One owner's share of the counts, subtracted when it is dropped.
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

    /// Reserves one more if the limits allow it. It is counted before it is recorded, so that concurrent starts in
    /// many conversations cannot exceed the limit together.
    pub(crate) fn reserve(&mut self, limits: Limits) -> Reserved {
        let reserved = self.live.reserve(&self.user, limits);
        self.count += usize::from(reserved == Reserved::Yes);
        reserved
    }

    /// Replaces the share by the actual count.
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
    fn b4_a_user_is_limited_and_other_users_are_not_counted() {
        let live = Arc::new(Live::default());
        let limits = Limits { per_user: 2, in_all: 100 };
        let mut ann = Share::new(live.clone(), "ann".into());
        let mut also_ann = Share::new(live.clone(), "ann".into());
        let mut bob = Share::new(live.clone(), "bob".into());
        assert_eq!(ann.reserve(limits), Reserved::Yes);
        assert_eq!(also_ann.reserve(limits), Reserved::Yes);
        assert_eq!(ann.reserve(limits), Reserved::UserIsFull);
        assert_eq!(bob.reserve(limits), Reserved::Yes);
        also_ann.set(0);
        assert_eq!(ann.reserve(limits), Reserved::Yes);
        drop((ann, also_ann, bob));
        let counts = live.counts.lock().unwrap();
        assert!(counts.by_user.is_empty() && counts.in_all == 0);
    }

    #[test]
    fn b4_all_users_together_are_limited() {
        let live = Arc::new(Live::default());
        let limits = Limits { per_user: 2, in_all: 3 };
        let mut shares = ["ann", "bob", "cem"].map(|user| Share::new(live.clone(), user.into()));
        let reserved = [0, 1, 2, 0].map(|user: usize| shares[user].reserve(limits));
        assert_eq!(reserved, [Reserved::Yes, Reserved::Yes, Reserved::Yes, Reserved::ServerIsFull]);
        shares[1].set(0);
        assert_eq!(shares[0].reserve(limits), Reserved::Yes);
    }
}
