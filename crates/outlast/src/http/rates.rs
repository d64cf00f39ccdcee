//! How often something may be done: starts by one user, by one key and in all, and failed log-ins.
//!
//! A server without keys has one user on its own machine, and nobody to be fair to: starts are not counted.

use std::num::NonZeroU32;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, NotUntil, Quota, RateLimiter};
use outlast_core::UserId;

use super::error::Problem;
use crate::auth::{Principal, Source};

/// Users and keys that were idle long enough to have all of their quota again are forgotten when there are
/// more than this many.
const REMEMBERED: usize = 10_000;

/// Each is a number per minute. All of it may be used at once; then it comes back evenly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimits {
    pub(crate) starts_per_user: NonZeroU32,
    pub(crate) starts_per_key: NonZeroU32,
    pub(crate) starts: NonZeroU32,
    pub(crate) login_failures: NonZeroU32,
}

pub(crate) struct Rates {
    clock: DefaultClock,
    starts_per_user: DefaultKeyedRateLimiter<UserId>,
    starts_per_key: DefaultKeyedRateLimiter<Source>,
    starts: DefaultDirectRateLimiter,
    login_failures: DefaultDirectRateLimiter,
}

impl Rates {
    pub(crate) fn new(limits: RateLimits) -> Rates {
        Rates {
            clock: DefaultClock::default(),
            starts_per_user: RateLimiter::keyed(Quota::per_minute(limits.starts_per_user)),
            starts_per_key: RateLimiter::keyed(Quota::per_minute(limits.starts_per_key)),
            starts: RateLimiter::direct(Quota::per_minute(limits.starts)),
            login_failures: RateLimiter::direct(Quota::per_minute(limits.login_failures)),
        }
    }

    /// Counts a start. The narrowest limit comes first, so that one user cannot use up what all share.
    pub(super) fn start(&self, principal: &Principal) -> Result<(), Problem> {
        if principal.is_local() {
            return Ok(());
        }
        forget(&self.starts_per_user);
        forget(&self.starts_per_key);
        self.judge(self.starts_per_key.check_key(principal.source()), "limits.starts_per_minute_per_key")?;
        self.judge(self.starts_per_user.check_key(principal.user()), "limits.starts_per_minute_per_user")?;
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

fn forget<K: std::hash::Hash + Eq + Clone>(limiter: &DefaultKeyedRateLimiter<K>) {
    if limiter.len() > REMEMBERED {
        limiter.retain_recent();
    }
}
