//! Which fault a call meets, by random numbers that are the same everywhere.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Faults, Rates};
use crate::contract::{Append, StoreError};

/// The maximum number of delayed appends; one more and the oldest is lost.
const LATE_AT_MOST: usize = 64;

pub(super) struct Dice {
    pub(super) random: SplitMix64,
    pub(super) rates: Rates,
    pub(super) faults: Faults,
    pub(super) late: VecDeque<Append>,
    /// Calls that are being delayed, and the most there were.
    pub(super) delaying: usize,
    pub(super) most: usize,
}

pub(super) enum Fate {
    Healthy,
    Refused,
    Unanswered,
    Lost,
    Late,
}

pub(super) enum Failure {
    Before,
    After,
}

impl Dice {
    fn strikes(&mut self, per_thousand: u32) -> bool {
        // A fault that is switched off takes no random number.
        per_thousand > 0 && self.random.below(1000) < u64::from(per_thousand)
    }

    pub(super) fn fate(&mut self) -> Fate {
        let rates = self.rates;
        if self.strikes(rates.append_refused) {
            self.faults.append_refused += 1;
            return Fate::Refused;
        }
        if self.strikes(rates.append_unanswered) {
            self.faults.append_unanswered += 1;
            return Fate::Unanswered;
        }
        if self.strikes(rates.append_lost) {
            self.faults.append_lost += 1;
            return Fate::Lost;
        }
        if self.strikes(rates.append_late) {
            self.faults.append_late += 1;
            return Fate::Late;
        }
        Fate::Healthy
    }

    pub(super) fn refuse_call(&mut self) -> Result<(), StoreError> {
        if !self.strikes(self.rates.call_refused) {
            return Ok(());
        }
        self.faults.call_refused += 1;
        Err(StoreError::Unavailable("fault: call refused".into()))
    }

    pub(super) fn fail_claim(&mut self) -> Option<Failure> {
        if !self.strikes(self.rates.claim_failed) {
            return None;
        }
        self.faults.claim_failed += 1;
        Some(if self.random.below(2) == 0 { Failure::Before } else { Failure::After })
    }

    pub(super) fn fail_send(&mut self) -> Option<Failure> {
        if !self.strikes(self.rates.send_failed) {
            return None;
        }
        self.faults.send_failed += 1;
        Some(if self.random.below(2) == 0 { Failure::Before } else { Failure::After })
    }

    pub(super) fn delay(&mut self) -> Option<Duration> {
        if !self.strikes(self.rates.delayed) {
            return None;
        }
        self.faults.delayed += 1;
        let at_most = u64::try_from(self.rates.delay_at_most.as_micros()).unwrap_or(u64::MAX - 1);
        Some(Duration::from_micros(self.random.below(at_most + 1)))
    }

    pub(super) fn postpone(&mut self, append: Append) {
        self.late.push_back(append);
        if self.late.len() > LATE_AT_MOST {
            self.late.pop_front();
        }
    }

    /// Each late append arrives now or later at random, so they overtake one another.
    pub(super) fn arriving(&mut self) -> Vec<Append> {
        let mut arriving = Vec::new();
        for _ in 0..self.late.len() {
            let Some(append) = self.late.pop_front() else { break };
            if self.random.below(2) == 0 {
                arriving.push(append);
            } else {
                self.late.push_back(append);
            }
        }
        arriving
    }
}

/// A small, fast and portable generator; see Steele, Lea and Flood, 2014.
pub(super) struct SplitMix64(pub(super) u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
