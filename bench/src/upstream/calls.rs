//! Counts calls by seed, so that a test knows what a server really asked for.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Seeds remembered. A run has a few thousand; beyond this, new seeds go uncounted.
const MAX_SEEDS: usize = 200_000;
/// Requests kept for tests that look at them.
const MAX_KEPT: usize = 1_000;

/// Counts per seed.
#[derive(Default)]
pub(crate) struct Calls {
    seeds: Mutex<HashMap<u64, Counts>>,
    /// The last request of each agent that asked for it to be kept.
    asked: Mutex<HashMap<u64, Vec<u8>>>,
}

#[derive(Default, Clone, Copy)]
struct Counts {
    calls: u64,
    live: u64,
    closed_early: u64,
}

impl Calls {
    /// Counts a new call and hands out its number, from 1.
    pub(crate) fn begin(&self, seed: u64) -> Call<'_> {
        let number = self.change(seed, |counts| {
            counts.calls += 1;
            counts.live += 1;
            counts.calls
        });
        Call { calls: self, seed, number: number.unwrap_or(1), finished: false }
    }

    /// The counts of a seed as JSON.
    pub(crate) fn report(&self, seed: u64) -> String {
        let seeds = self.seeds.lock().unwrap_or_else(PoisonError::into_inner);
        let Counts { calls, live, closed_early } = seeds.get(&seed).copied().unwrap_or_default();
        format!(r#"{{"calls":{calls},"live":{live},"closed_early":{closed_early}}}"#)
    }

    pub(crate) fn keep(&self, seed: u64, body: &[u8]) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.len() < MAX_KEPT || asked.contains_key(&seed) {
            asked.insert(seed, body.to_vec());
        }
    }

    pub(crate) fn kept(&self, seed: u64) -> Option<String> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.get(&seed).map(|body| String::from_utf8_lossy(body).into_owned())
    }

    fn change<T>(&self, seed: u64, change: impl FnOnce(&mut Counts) -> T) -> Option<T> {
        let mut seeds = self.seeds.lock().unwrap_or_else(PoisonError::into_inner);
        if seeds.len() >= MAX_SEEDS && !seeds.contains_key(&seed) {
            return None;
        }
        Some(change(seeds.entry(seed).or_default()))
    }
}

/// A call in progress. Dropped without [`Call::finished`], it counts as closed early.
pub(crate) struct Call<'a> {
    calls: &'a Calls,
    seed: u64,
    number: u64,
    finished: bool,
}

impl Call<'_> {
    /// Which call of its seed this is, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The script was played to its end, good or bad.
    pub(crate) fn finished(mut self) {
        self.finished = true;
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.calls.change(self.seed, |counts| {
            counts.live = counts.live.saturating_sub(1);
            counts.closed_early += u64::from(!self.finished);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_dropped_halfway_counts_as_closed_early() {
        let calls = Calls::default();
        calls.begin(7).finished();
        drop(calls.begin(7));
        let live = calls.begin(7);
        assert_eq!(live.number(), 3);
        assert_eq!(calls.report(7), r#"{"calls":3,"live":1,"closed_early":1}"#);
        drop(live);
    }
}
