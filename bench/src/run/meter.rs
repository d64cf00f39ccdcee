//! What all streams of a workload measure together.

use std::cell::{Cell, RefCell};

/// Shared by the readers of one workload, which all run on one thread.
#[derive(Default)]
pub(crate) struct Meter {
    tokens: Cell<u64>,
    open: Cell<bool>,
    latency: RefCell<Histogram>,
}

impl Meter {
    /// One token was received for the first time by its reader.
    pub(crate) fn token(&self, latency_ns: u64) {
        self.tokens.set(self.tokens.get() + 1);
        if self.open.get() {
            self.latency.borrow_mut().record(latency_ns / 1_000);
        }
    }

    /// Tokens so far.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens.get()
    }

    /// Latency counts only while the window is open: every stream has started and none has ended.
    pub(crate) fn open(&self, open: bool) {
        self.open.set(open);
    }

    /// The latency that `percent` of the tokens did not exceed, in milliseconds.
    pub(crate) fn latency_ms(&self, percent: f64) -> Option<f64> {
        self.latency.borrow().percentile(percent).map(|micros| micros as f64 / 1_000.0)
    }
}

/// Counts in buckets, 64 for each doubling, so a percentile is at most 1.6 % off.
struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

const STEPS: u64 = 64;

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; 60 * STEPS as usize], total: 0 }
    }
}

impl Histogram {
    fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
    }

    fn percentile(&self, percent: f64) -> Option<u64> {
        let wanted = (self.total as f64 * percent / 100.0).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= wanted {
                return Some(lower_edge(index as u64));
            }
        }
        None
    }
}

fn bucket(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let doublings = u64::from(value.ilog2()) - 6;
    ((doublings + 1) * STEPS + ((value >> doublings) & (STEPS - 1))) as usize
}

fn lower_edge(index: u64) -> u64 {
    if index < STEPS {
        return index;
    }
    (STEPS + index % STEPS) << (index / STEPS - 1)
}

/// The value that `percent` of the values do not exceed.
pub(crate) fn percentile(values: &mut [f64], percent: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * percent / 100.0).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_at_most_two_percent_off() {
        for value in (0..64).chain([64, 65, 127, 128, 1_000, 65_535, 1_000_000, 9_999_999_999]) {
            let edge = lower_edge(bucket(value) as u64);
            assert!(edge <= value && (value - edge) as f64 <= value as f64 * 0.016, "{value} {edge}");
        }
    }

    #[test]
    fn percentiles_are_by_rank() {
        let mut histogram = Histogram::default();
        (1..=50).for_each(|value| histogram.record(value));
        assert_eq!(histogram.percentile(50.0), Some(25));
        assert_eq!(histogram.percentile(99.0), Some(50));
        assert_eq!(percentile(&mut [3.0, 1.0, 2.0], 50.0), Some(2.0));
        assert_eq!(percentile(&mut [], 50.0), None);
    }
}
