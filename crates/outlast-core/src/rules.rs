//! The settings that rules depend on, and the arithmetic of retrying.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ToolRules;

/// What an operator may set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What becomes of a run that a crash cut short.
    pub recovery: Recovery,
    /// How often a transient failure is retried.
    pub retries: u32,
    /// The wait before the first retry; each further one doubles it.
    pub backoff: Duration,
    /// How long a generation may run with nobody watching.
    pub unwatched: Duration,
    /// How long the worker that makes an answer may be silent.
    pub worker_silence: Duration,
    /// How long an answer may become, in bytes of text. An endless one must not take the server with it.
    pub answer_bytes: usize,
    /// The models that can go on from the last word of a partial answer. Their attempts are not withdrawn.
    pub prefill: BTreeSet<String>,
    /// What holds for each tool that the server runs.
    pub tools: ToolRules,
    /// How many rounds an agent may take.
    pub max_rounds: u32,
    /// How many tokens all its model calls may cost together.
    pub max_tokens: Option<u64>,
    /// How long it may work. Waiting for a person does not count.
    pub max_time: Option<Duration>,
    /// How long the sandbox stays awake while a person is asked.
    pub approval_pause: Duration,
    /// How long the sandbox stays awake while nothing is under way.
    pub sandbox_idle_pause: Duration,
    /// How long a paused sandbox is kept.
    pub sandbox_kill: Duration,
    /// How old a checkpoint may be when an interrupted run whose sandbox is gone is resumed.
    pub checkpoint_age: Duration,
}

impl Rules {
    /// Whether a person is asked before a model is called again for a run that a crash cut short.
    pub(crate) fn ask_first(&self) -> bool {
        match self.recovery {
            // Without tools nothing has an unknown outcome, so `safe` goes on like `auto`.
            Recovery::Safe | Recovery::Auto => false,
            Recovery::Ask => true,
        }
    }
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            recovery: Recovery::Safe,
            retries: 2,
            backoff: Duration::from_millis(500),
            unwatched: Duration::from_secs(30 * 60),
            worker_silence: Duration::from_secs(30),
            answer_bytes: 8 * 1024 * 1024,
            prefill: BTreeSet::new(),
            tools: ToolRules::new(),
            max_rounds: 50,
            max_tokens: None,
            max_time: None,
            approval_pause: Duration::from_secs(5 * 60),
            sandbox_idle_pause: Duration::from_secs(15 * 60),
            sandbox_kill: Duration::from_secs(24 * 60 * 60),
            checkpoint_age: Duration::from_secs(25 * 60),
        }
    }
}

/// What becomes of a run that a crash cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Goes on by itself, unless a tool's outcome is unknown.
    Safe,
    /// Always goes on by itself.
    Auto,
    /// Always waits for a person.
    Ask,
}

/// When events reach the disk. A trade between writes and what a crash may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before anybody sees them: a crash takes nothing that anybody saw.
    Commit,
    /// Text at most that much later; everything else before anybody sees it.
    Debounce(Duration),
    /// Text when its segment closes; everything else before anybody sees it.
    Boundary,
}

/// Why a call to a model failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure.
    pub class: FailureClass,
    /// For a person; never holds a key.
    pub message: String,
    /// How long the upstream asks to be left alone.
    pub retry_after: Option<Duration>,
}

/// The kinds of failure, by what to do about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// Connection, 408, 5xx, an error in the middle of a stream: may pass.
    Transient,
    /// Nothing came for too long: may pass.
    Timeout,
    /// 429: passes when the upstream says so.
    RateLimited,
    /// The provider will not answer this.
    Refused,
    /// The request is wrong; another try would be as well.
    Invalid,
    /// The conversation is longer than the model can read; another try would be as well.
    ContextTooLong,
    /// The answer is longer than is allowed here; another would be as well.
    TooLong,
}

impl FailureClass {
    /// Whether another try may succeed.
    pub fn may_pass(self) -> bool {
        match self {
            FailureClass::Transient | FailureClass::Timeout | FailureClass::RateLimited => true,
            FailureClass::Refused
            | FailureClass::Invalid
            | FailureClass::ContextTooLong
            | FailureClass::TooLong => false,
        }
    }

    /// The stable name in `chat.error`.
    pub fn code(self) -> &'static str {
        match self {
            FailureClass::Transient => "upstream_failed",
            FailureClass::Timeout => "upstream_timed_out",
            FailureClass::RateLimited => "upstream_rate_limited",
            FailureClass::Refused => "upstream_refused",
            FailureClass::Invalid => "upstream_invalid_request",
            FailureClass::ContextTooLong => "context_too_long",
            FailureClass::TooLong => "answer_too_long",
        }
    }
}

/// So many attempts in a row may be lost with their owners. One more would be lost too: perhaps it is this
/// very answer that the server dies of, and each of them costs a call. A person may let it go on.
pub const LOST_IN_A_ROW_MAX: u32 = 10;

/// Nobody is kept waiting longer than this, whatever an upstream asks for: a `Retry-After` of a year
/// is a broken upstream, not a promise.
pub const RETRY_WAIT_MAX: Duration = Duration::from_secs(5 * 60);

/// How long to wait before the retry that follows `failures` earlier ones. `jitter` is at random from
/// 0 to 255 and spreads the callers that failed together over half of the usual wait. An upstream that names
/// a time is left alone for that long at least, and one that names none or too little for the usual one.
pub fn retry_delay(rules: &Rules, failures: u32, failure: &Failure, jitter: u8) -> Duration {
    let full = rules.backoff.saturating_mul(2u32.saturating_pow(failures)).min(RETRY_WAIT_MAX);
    let least = failure.retry_after.unwrap_or_default().clamp(full / 2, RETRY_WAIT_MAX);
    let spread = (full / 2).mul_f64(f64::from(jitter) / 255.0);
    least.saturating_add(spread).min(RETRY_WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(retry_after: Option<Duration>) -> Failure {
        Failure { class: FailureClass::RateLimited, message: "slow down".into(), retry_after }
    }

    #[test]
    fn g11_waits_double_and_are_spread() {
        let rules = Rules::default();
        let wait = |failures, jitter| retry_delay(&rules, failures, &failure(None), jitter).as_millis();
        assert_eq!((wait(0, 0), wait(0, 255)), (250, 500));
        assert_eq!((wait(1, 0), wait(1, 255)), (500, 1_000));
        assert_eq!(wait(40, 255), RETRY_WAIT_MAX.as_millis());
    }

    #[test]
    fn g11_retry_after_is_honoured_up_to_a_limit() {
        let rules = Rules::default();
        let asked = |seconds, jitter| {
            retry_delay(&rules, 0, &failure(Some(Duration::from_secs(seconds))), jitter).as_millis()
        };
        assert_eq!((asked(7, 0), asked(7, 255)), (7_000, 7_250), "those who were told the same are spread");
        assert_eq!((asked(0, 0), asked(0, 255)), (250, 500), "at once is not what anybody means");
        assert_eq!(asked(u64::MAX, 255), RETRY_WAIT_MAX.as_millis());
    }

    #[test]
    fn g11_what_is_too_long_is_not_tried_again() {
        for class in [FailureClass::ContextTooLong, FailureClass::TooLong] {
            assert!(!class.may_pass(), "{}", class.code());
        }
    }
}
