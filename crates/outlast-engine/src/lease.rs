//! This instance's lease, which keeps others from taking over what it holds.
//!
//! An owner must end its effects before the lease runs out, so the time that counts here is earlier: it is measured
//! from before the store was asked, and a part of the lease is not used.

use std::sync::Arc;
use std::time::Duration;

use outlast_store::StoreError;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::engine::Shared;

/// This part of a lease is not used: ending effects takes time, and clocks differ in speed.
const MARGIN_PART: u32 = 5;
/// The wait before a renewal that failed is tried again.
const RETRY_WAIT: Duration = Duration::from_millis(500);
/// How long a renewal may take once there is nothing left to lose.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Lease(watch::Sender<Standing>);

#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    state: State,
    /// How often it has lapsed. A lease that was renewed late looks held again, and what was under way must still end.
    lapses: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum State {
    /// Nobody renews it: this engine has not taken up its work.
    #[default]
    Unkept,
    Held {
        safe_until: Instant,
    },
    Lapsed,
}

impl Lease {
    pub(crate) fn is_kept(&self) -> bool {
        self.0.borrow().state != State::Unkept
    }

    /// Whether conversations may be claimed and effects begin now. A process that was stopped and continued asks before
    /// anybody has noticed.
    pub(crate) fn is_safe(&self) -> bool {
        match self.0.borrow().state {
            State::Unkept => true,
            State::Held { safe_until } => Instant::now() < safe_until,
            State::Lapsed => false,
        }
    }

    /// Whether an owner may begin an effect that has claimed when the lease had lapsed this many times.
    pub(crate) fn is_safe_since(&self, lapses: u64) -> bool {
        self.lapses() == lapses && self.is_safe()
    }

    /// How often it has lapsed.
    pub(crate) fn lapses(&self) -> u64 {
        self.0.borrow().lapses
    }

    /// Returns when the effects of an owner must end that has claimed when the lease had lapsed this many times.
    pub(crate) async fn lapsed_since(&self, lapses: u64) {
        self.become_as(|standing| standing.lapses != lapses).await;
    }

    /// Returns when conversations may be claimed.
    pub(crate) async fn held(&self) {
        self.become_as(|standing| standing.state != State::Lapsed).await;
    }

    async fn become_as(&self, wanted: impl FnMut(&Standing) -> bool) {
        // This fails only without a sender, which is here.
        self.0.subscribe().wait_for(wanted).await.ok();
    }

    fn safe_for(&self) -> Duration {
        match self.0.borrow().state {
            State::Held { safe_until } => safe_until.saturating_duration_since(Instant::now()),
            State::Unkept | State::Lapsed => Duration::ZERO,
        }
    }

    /// Takes in what became of a renewal, or that there was none in time.
    fn settle(&self, renewed: Option<Instant>) {
        let now = Instant::now();
        self.0.send_modify(|standing| {
            if let Some(safe_until) = renewed {
                standing.state = State::Held { safe_until };
            }
            if matches!(standing.state, State::Held { safe_until } if safe_until <= now) {
                *standing = Standing { state: State::Lapsed, lapses: standing.lapses + 1 };
            }
        });
    }
}

impl Shared {
    /// Renews the lease once. If there is no time left before or after that, the lease has lapsed.
    pub(crate) async fn renew(&self) -> Result<(), StoreError> {
        // A process that was stopped and continued has not noticed that its time ran out: others may have taken over.
        self.lease.settle(None);
        let asked = Instant::now();
        let lease = self.settings.lease;
        let left = self.lease.safe_for();
        let patience = if left.is_zero() { PATIENCE } else { left };
        let renewed = match timeout(patience, self.store.renew(lease)).await {
            Ok(renewed) => renewed,
            Err(_) => Err(StoreError::Unavailable("the store does not respond".to_owned())),
        };
        self.lease.settle(renewed.as_ref().ok().map(|()| asked + (lease - lease / MARGIN_PART)));
        renewed
    }

    /// Renews the lease until the engine stops.
    pub(crate) async fn keep_lease(self: Arc<Self>) {
        let mut wait = self.settings.renew;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = sleep(wait) => {}
            }
            let renewed = self.renew().await;
            let left = self.lease.safe_for();
            wait = match renewed {
                Ok(()) if !left.is_zero() => self.settings.renew,
                Ok(()) => RETRY_WAIT, // it came too late
                Err(error) => {
                    tracing::warn!(%error, "cannot renew the lease of this instance; will retry");
                    if left.is_zero() { RETRY_WAIT } else { RETRY_WAIT.min(left) }
                }
            };
        }
    }
}
