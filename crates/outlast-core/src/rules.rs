//! The settings that rules depend on, and how long to wait before a retry.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::policy::rule_of;
use crate::{ToolRule, ToolRules};

/// What an operator may set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What happens to a generation that a crash interrupted.
    pub recovery: Recovery,
    /// How many times a transient failure is retried.
    pub retries: u32,
    /// The delay before the first retry. It doubles with each one.
    pub backoff: Duration,
    /// How long a generation may run without followers.
    pub unwatched: Duration,
    /// How long a worker may be silent.
    pub worker_silence: Duration,
    /// The maximum size of an answer in bytes, so that an endless one does not exhaust the server.
    pub answer_bytes: usize,
    /// The models that can continue a partial answer. Their failed attempts are not withdrawn.
    pub prefill: BTreeSet<String>,
    /// What holds for each tool that the server runs.
    pub tools: ToolRules,
    /// How many rounds an agent may take.
    pub max_rounds: u32,
    /// How many conversations may delegate in turn; 0 for no sub-agents.
    pub max_depth: u32,
    /// How many sub-agents one run may start.
    pub max_children: u32,
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
    /// How large all files of a workspace together may become by what people put there.
    pub workspace_bytes: u64,
    /// How old a checkpoint may be when an interrupted run whose sandbox is gone is resumed.
    pub checkpoint_age: Duration,
}

impl Rules {
    pub(crate) fn tool(&self, name: &str) -> Option<&ToolRule> {
        rule_of(&self.tools, name)
    }

    /// Whether a person is asked before a model is called again after a crash.
    pub(crate) fn ask_first(&self) -> bool {
        match self.recovery {
            // Without tools no outcome is unknown, so `safe` continues like `auto`.
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
            max_depth: 0,
            max_children: 8,
            max_tokens: None,
            max_time: None,
            approval_pause: Duration::from_secs(5 * 60),
            sandbox_idle_pause: Duration::from_secs(15 * 60),
            sandbox_kill: Duration::from_secs(24 * 60 * 60),
            workspace_bytes: 4 << 30,
            checkpoint_age: Duration::from_secs(25 * 60),
        }
    }
}

/// What happens to a generation that a crash interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// It continues, unless the outcome of a tool call is unknown.
    Safe,
    /// It always continues.
    Auto,
    /// It always waits for a person.
    Ask,
}

/// When events reach the disk: a trade-off between writes and what a crash may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before anyone sees them. A crash loses nothing that anyone saw.
    Commit,
    /// Text at most this much later; everything else before anyone sees it.
    Debounce(Duration),
    /// Text when its segment closes; everything else before anyone sees it.
    Boundary,
}

/// Why a call to a model failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub class: FailureClass,
    /// For people. Never contains a key.
    pub message: String,
    /// How long the upstream asks us to wait.
    pub retry_after: Option<Duration>,
}

/// The kinds of failure, by what to do about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// A connection error, 408, 5xx, or an error in the middle of a stream. Retried.
    Transient,
    /// Nothing arrived for too long. Retried.
    Timeout,
    /// 429. Retried, after the delay that the upstream asks for.
    RateLimited,
    /// The provider will not answer this.
    Refused,
    /// The upstream rejected the request, and would reject it again.
    Invalid,
    /// The conversation is longer than the model can read.
    ContextTooLong,
    /// The answer exceeds the limit of this server.
    TooLong,
}

impl FailureClass {
    /// Whether a retry may succeed.
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

/// After this many attempts in a row were lost with their owners, a person must resume the generation. This
/// answer may be what crashes the server, and every attempt costs a call.
pub const LOST_IN_A_ROW_MAX: u32 = 10;

/// The maximum delay, whatever an upstream asks for. A `Retry-After` of a year is a bug in the upstream.
pub const RETRY_WAIT_MAX: Duration = Duration::from_secs(5 * 60);

/// The delay before the next retry, after `failures` earlier ones. `jitter` is random, from 0 to 255, and
/// spreads callers that failed together over half of the usual delay. If the upstream asks for a longer delay
/// than the usual one, that is used.
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
        assert_eq!(
            (asked(7, 0), asked(7, 255)),
            (7_000, 7_250),
            "callers with the same Retry-After are spread too"
        );
        assert_eq!((asked(0, 0), asked(0, 255)), (250, 500), "a Retry-After of zero gets the usual delay");
        assert_eq!(asked(u64::MAX, 255), RETRY_WAIT_MAX.as_millis());
    }

    #[test]
    fn g11_a_context_or_answer_that_is_too_long_is_not_retried() {
        for class in [FailureClass::ContextTooLong, FailureClass::TooLong] {
            assert!(!class.may_pass(), "{}", class.code());
        }
    }
}
