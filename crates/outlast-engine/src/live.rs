//! Counts the live generations that this instance owns, for its figures. Limits are checked by the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The count, shared by all owners.
#[derive(Debug, Default)]
pub(crate) struct Live(AtomicUsize);

impl Live {
    pub(crate) fn in_all(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// One owner's share of the count, subtracted when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    live: Arc<Live>,
    count: usize,
}

impl Share {
    pub(crate) fn new(live: Arc<Live>) -> Share {
        Share { live, count: 0 }
    }

    /// Replaces the share by the actual count.
    pub(crate) fn set(&mut self, count: usize) {
        self.live.0.fetch_add(count, Ordering::Relaxed);
        self.live.0.fetch_sub(self.count, Ordering::Relaxed);
        self.count = count;
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
    fn a_share_is_counted_until_it_is_dropped() {
        let live = Arc::new(Live::default());
        let (mut one, mut other) = (Share::new(live.clone()), Share::new(live.clone()));
        one.set(2);
        other.set(1);
        one.set(1);
        assert_eq!(live.in_all(), 2);
        drop(one);
        assert_eq!(live.in_all(), 1);
    }
}
