//! Scripts for the upstream, and how to recognise their tokens in the resulting text.

use std::fmt;

/// A script, written as the user's message.
#[derive(Clone, Debug)]
pub struct Script {
    seed: u64,
    tokens: u64,
    rate: u64,
    fault: String,
}

impl Script {
    pub(crate) fn new(seed: u64, tokens: u64) -> Script {
        Script { seed, tokens, rate: 0, fault: String::new() }
    }

    /// Sets the tokens per second. Without it, they are sent as fast as they are read.
    pub fn rate(mut self, rate: u64) -> Script {
        self.rate = rate;
        self
    }

    /// Adds a fault in the upstream's notation, such as `reset_after=3 fails=1`.
    pub fn fault(mut self, fault: &str) -> Script {
        self.fault = fault.to_owned();
        self
    }

    /// Identifies the script at the upstream.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The number of tokens in the whole answer.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Script { seed, tokens, rate, fault } = self;
        write!(f, "seed={seed} tokens={tokens} rate={rate} {fault}")
    }
}

/// The indices of the markers `<17:1731700000123456789> ` in a text, or an error if there is anything else.
pub fn markers(text: &str) -> Result<Vec<u64>, String> {
    let mut indices = Vec::new();
    for marker in text.split_inclusive("> ") {
        let index = marker.strip_prefix('<').and_then(|rest| rest.strip_suffix("> ")).and_then(index_of);
        indices.push(index.ok_or_else(|| format!("{marker:?} is not a marker"))?);
    }
    Ok(indices)
}

fn index_of(inside: &str) -> Option<u64> {
    let (index, sent) = inside.split_once(':')?;
    sent.parse::<u64>().ok()?;
    index.parse().ok()
}

/// The number of tokens in a text, if they are the first ones of a script in order: no gaps, no duplicates, none
/// incomplete.
pub fn count_from_first(text: &str) -> Result<u64, String> {
    let mut expected = 0;
    for index in markers(text)? {
        if index != expected {
            return Err(format!("token {index} instead of {expected}"));
        }
        expected += 1;
    }
    Ok(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_a_repeated_and_an_incomplete_token_are_noticed() {
        assert_eq!(count_from_first("<0:5> <1:6> "), Ok(2));
        assert_eq!(count_from_first(""), Ok(0));
        for wrong in ["<1:5> ", "<0:5> <0:5> ", "<0:5> <2:6> ", "<0:5> <1:6", "<0:5> x"] {
            assert!(count_from_first(wrong).is_err(), "{wrong}");
        }
    }
}
