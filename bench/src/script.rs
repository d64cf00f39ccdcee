//! What the upstream should send, written by the client into its own message.
//!
//! The script travels as the user's text (`tokens=500 rate=50 seed=7`), so it passes unchanged through
//! every candidate and needs no side channel between the load generator and the upstream.

use std::str::FromStr;
use std::time::Duration;

/// One call to the upstream: how many tokens, how fast, and how it fails.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Script {
    /// Length of the complete answer.
    pub(crate) tokens: u64,
    /// Tokens per second; 0 is as fast as the socket takes them.
    pub(crate) rate: f64,
    /// Tokens per write. 1 is what a provider's stream looks like on the wire.
    pub(crate) burst: u64,
    /// Names the caller in `GET /calls`; calls of one seed are counted together.
    pub(crate) seed: u64,
    /// How this call fails, if it does.
    pub(crate) fault: Option<Fault>,
    /// How many calls of the seed go wrong, from the first.
    pub(crate) fails: Option<u64>,
}

/// The ways a provider fails.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// Responds with this status instead of a stream.
    Status {
        /// The HTTP status.
        code: u16,
        /// Seconds for the `Retry-After` header.
        retry_after: Option<u64>,
    },
    /// Resets the connection after this many tokens.
    Reset(u64),
    /// Ends the body cleanly after this many tokens, without a finish reason.
    End(u64),
    /// Sends an error event after this many tokens of a 200.
    Error(u64),
    /// Keeps the connection open after this many tokens and sends nothing more.
    Hang(u64),
}

/// More tokens than any workload needs: a mistyped script must not run for hours.
const MAX_TOKENS: u64 = 10_000_000;

impl Script {
    /// Reads the `key=value` words of a message. Other words are prose and ignored; a known key with a
    /// bad value is an error, so that a mistyped test fails instead of passing by accident.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut script = Self { tokens: 20, rate: 0.0, burst: 1, seed: 0, fault: None, fails: None };
        let mut status = None;
        let mut retry_after = None;
        for word in text.split_whitespace() {
            let Some((key, value)) = word.split_once('=') else { continue };
            match key {
                "tokens" => script.tokens = number(key, value)?,
                "rate" => script.rate = number(key, value)?,
                "burst" => script.burst = number(key, value)?,
                "seed" => script.seed = number(key, value)?,
                "fails" => script.fails = Some(number(key, value)?),
                "fail" => status = Some(number(key, value)?),
                "retry_after" => retry_after = Some(number(key, value)?),
                "reset_after" => script.fault = Some(Fault::Reset(number(key, value)?)),
                "end_after" => script.fault = Some(Fault::End(number(key, value)?)),
                "error_after" => script.fault = Some(Fault::Error(number(key, value)?)),
                "hang_after" => script.fault = Some(Fault::Hang(number(key, value)?)),
                _ => {}
            }
        }
        if let Some(code) = status {
            script.fault = Some(Fault::Status { code, retry_after });
        }
        script.check()?;
        Ok(script)
    }

    /// The fault of the seed's `call`-th call, counted from 1.
    pub(crate) fn fault_of(&self, call: u64) -> Option<&Fault> {
        if self.fails.is_some_and(|fails| call > fails) {
            return None;
        }
        self.fault.as_ref()
    }

    /// The time between two tokens; `None` is flat out.
    pub(crate) fn period(&self) -> Option<Duration> {
        (self.rate > 0.0).then(|| Duration::from_secs_f64(1.0 / self.rate))
    }

    fn check(&self) -> Result<(), String> {
        if self.tokens > MAX_TOKENS {
            return Err(format!("tokens={} is more than {MAX_TOKENS}", self.tokens));
        }
        if !(self.rate == 0.0 || (0.001..=1_000_000.0).contains(&self.rate)) {
            return Err(format!("rate={} is not 0 or within 0.001 to 1000000", self.rate));
        }
        if !(1..=1_000).contains(&self.burst) {
            return Err(format!("burst={} is not within 1 to 1000", self.burst));
        }
        Ok(())
    }
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key}={value} is not a number it can take"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_around_the_script_is_ignored() {
        let script = Script::parse("please play tokens=7 rate=2.5 seed=9 colour=red now").unwrap();
        assert_eq!((script.tokens, script.rate, script.seed), (7, 2.5, 9));
        assert_eq!(script.fault, None);
    }

    #[test]
    fn a_bad_value_is_refused_and_named() {
        assert!(Script::parse("tokens=many").unwrap_err().contains("tokens=many"));
        assert!(Script::parse("rate=-1").is_err());
        assert!(Script::parse("burst=0").is_err());
    }

    #[test]
    fn only_the_first_calls_of_a_seed_fail() {
        let script = Script::parse("fail=429 retry_after=1 fails=2").unwrap();
        let fault = Fault::Status { code: 429, retry_after: Some(1) };
        assert_eq!(script.fault_of(2), Some(&fault));
        assert_eq!(script.fault_of(3), None);
    }
}
