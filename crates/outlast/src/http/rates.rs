//! How often something may be done: starts by one user, by one key and in all, and failed log-ins.
//!
//! A server without keys has one user on its own machine, and nobody to be fair to: starts are not counted.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, NotUntil, Quota, RateLimiter};
use outlast_core::UserId;

use super::error::Problem;
use crate::auth::{Principal, Source};

/// Users and keys that were idle long enough to have all of their quota again are forgotten when there are
/// more than this many, and then each time their number has doubled.
const REMEMBERED: usize = 10_000;

/// Each is a number per minute. All of it may be used at once; then it is refilled evenly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimits {
    pub(crate) starts_per_user: NonZeroU32,
    pub(crate) starts_per_key: NonZeroU32,
    pub(crate) starts: NonZeroU32,
    pub(crate) login_failures: NonZeroU32,
}

pub(crate) struct Rates {
    clock: DefaultClock,
    starts_per_user: Keyed<UserId>,
    starts_per_key: Keyed<Source>,
    starts: DefaultDirectRateLimiter,
    login_failures: DefaultDirectRateLimiter,
}

impl Rates {
    pub(crate) fn new(limits: RateLimits) -> Rates {
        Rates {
            clock: DefaultClock::default(),
            starts_per_user: Keyed::new(limits.starts_per_user),
            starts_per_key: Keyed::new(limits.starts_per_key),
            starts: RateLimiter::direct(Quota::per_minute(limits.starts)),
            login_failures: RateLimiter::direct(Quota::per_minute(limits.login_failures)),
        }
    }

    /// Counts a start. The narrowest limit comes first, so that one user cannot use up what all share.
    pub(super) fn start(&self, principal: &Principal) -> Result<(), Problem> {
        if principal.is_local() {
            return Ok(());
        }
        self.starts_per_user.forget();
        self.starts_per_key.forget();
        let (of_key, of_user) = (&self.starts_per_key.limiter, &self.starts_per_user.limiter);
        self.judge(of_key.check_key(principal.credential()), "limits.starts_per_minute_per_key")?;
        self.judge(of_user.check_key(principal.user()), "limits.starts_per_minute_per_user")?;
        let all = self.judge(self.starts.check(), "limits.starts_per_minute");
        all.map_err(Problem::of_everybody)
    }

    /// Counts a log-in that failed.
    pub(super) fn login_failure(&self) -> Result<(), Problem> {
        self.judge(self.login_failures.check(), "limits.login_failures_per_minute")
    }

    fn judge(
        &self,
        checked: Result<(), NotUntil<governor::clock::QuantaInstant>>,
        limit: &'static str,
    ) -> Result<(), Problem> {
        checked.map_err(|not_until| {
            let wait = not_until.wait_time_from(self.clock.now());
            Problem::too_often(limit, wait.as_secs() + 1)
        })
    }
}

/// One rate for each key, and one entry for each key that was used lately.
struct Keyed<K: Hash + Eq + Clone> {
    limiter: DefaultKeyedRateLimiter<K>,
    /// When there are more entries than this, it is time to forget some.
    forget_above: AtomicUsize,
}

impl<K: Hash + Eq + Clone> Keyed<K> {
    fn new(per_minute: NonZeroU32) -> Keyed<K> {
        let limiter = RateLimiter::keyed(Quota::per_minute(per_minute));
        Keyed { limiter, forget_above: AtomicUsize::new(REMEMBERED) }
    }

    /// Forgets those that were idle, if there are many. That takes a look at each, so it happens only when their number
    /// has doubled: the cost of one start does not grow with the number of others. Returns whether it looked.
    fn forget(&self) -> bool {
        if self.limiter.len() <= self.forget_above.load(Ordering::Relaxed) {
            return false;
        }
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
        self.forget_above.store(REMEMBERED.max(2 * self.limiter.len()), Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i18_a_hundred_thousand_keys_in_a_minute_are_looked_through_a_few_times() {
        let keyed: Keyed<u32> = Keyed::new(NonZeroU32::MIN);
        let looks = (0..100_000).filter(|key| {
            let looked = keyed.forget();
            assert!(keyed.limiter.check_key(key).is_ok());
            looked
        });
        assert_eq!(looks.count(), 4, "at 10, 20, 40 and 80 thousand");
        assert!(keyed.limiter.check_key(&0).is_err(), "it was not idle");
    }
}
