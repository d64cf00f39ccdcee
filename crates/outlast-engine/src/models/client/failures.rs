//! Classifies upstream failures: whether the next attempt may succeed.

use std::time::Duration;

use outlast_core::{Failure, FailureClass};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;

use super::body::Broken;
use super::settings::Secret;

/// How much of an upstream's error text is kept.
const ERROR_CHARS_MAX: usize = 500;

/// A failure that is retried.
pub(in super::super) fn transient(message: &str) -> Failure {
    Failure { class: FailureClass::Transient, message: message.to_owned(), retry_after: None }
}

/// A failure that a retry cannot fix.
pub(in super::super) fn invalid(message: &str) -> Failure {
    Failure { class: FailureClass::Invalid, ..transient(message) }
}

/// The failure of an answer that exceeds a limit.
pub(super) fn too_long(message: &str) -> Failure {
    Failure { class: FailureClass::TooLong, ..transient(message) }
}

pub(super) fn broken(broken: &Broken) -> Failure {
    transient(&broken.to_string())
}

/// The failure for a status other than 200.
pub(super) fn answered(status: u16, headers: &HeaderMap, body: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(body);
    let parsed: Option<Value> = serde_json::from_str(&text).ok();
    let message = parsed.as_ref().and_then(message).unwrap_or(&text);
    let message = format!("upstream responded with {status}: {message}");
    let retry_after = retry_after(headers, jiff::Timestamp::now());
    Failure { class: classify(Some(status), &text), message, retry_after }
}

/// The failure for an error that the upstream reports after a 200.
pub(in super::super) fn broke_off(error: &Value) -> Failure {
    let said = message(error).unwrap_or("no reason given");
    let class = classify(status(error), &error.to_string());
    Failure { class, ..transient(&format!("upstream failed: {said}")) }
}

/// Hides secrets in a message and then shortens it. In the other order, part of a key could remain at its end.
pub(super) fn without(secrets: &[Secret], message: &str) -> String {
    let mut message = message.to_owned();
    for secret in secrets {
        message = message.replace(secret.expose(), "[key]");
    }
    message.chars().take(ERROR_CHARS_MAX).collect()
}

/// Classifies by status and error text. Without a status, the upstream failed for reasons of its own.
fn classify(status: Option<u16>, words: &str) -> FailureClass {
    match status {
        Some(429) => FailureClass::RateLimited,
        Some(413) => FailureClass::ContextTooLong,
        // Some servers respond with 500 to a prompt that is too long. A retry would fail again.
        _ if holds(words, CONTEXT_TOO_LONG) => FailureClass::ContextTooLong,
        None | Some(408 | 425 | 500..) => match holds(words, REFUSED) && status.is_none() {
            true => FailureClass::Refused,
            false => FailureClass::Transient,
        },
        Some(_) if holds(words, REFUSED) => FailureClass::Refused,
        Some(_) => FailureClass::Invalid,
    }
}

/// Signs of a request that the provider refuses to answer.
const REFUSED: &[&str] = &["content_policy", "content_filter", "flagged_input", "requires moderation"];

/// Signs of a prompt that is too long for the model.
const CONTEXT_TOO_LONG: &[&str] = &[
    "context_length_exceeded",
    "maximum context length",
    "prompt is too long",
    "exceed context limit",
    "exceed_context_size_error",
    "Context size has been exceeded",
];

fn holds(words: &str, list: &[&str]) -> bool {
    list.iter().any(|wanted| words.contains(wanted))
}

/// The error message, wherever this upstream puts it.
fn message(body: &Value) -> Option<&str> {
    let error = body.get("error").unwrap_or(body);
    let places = [Some(error), error.get("message"), error.get("detail")];
    places.into_iter().flatten().find_map(Value::as_str)
}

/// The status that an error would have outside a stream.
fn status(error: &Value) -> Option<u16> {
    let code = &error["code"];
    let number = code.as_u64().or_else(|| code.as_str()?.parse().ok());
    let number = number.and_then(|number| u16::try_from(number).ok());
    let named = |value: &Value| value.as_str().and_then(named);
    number
        .filter(|number| (400..600).contains(number))
        .or_else(|| named(code))
        .or_else(|| named(&error["type"]))
}

fn named(name: &str) -> Option<u16> {
    Some(match name {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" | "rate_limit_exceeded" => 429,
        "api_error" | "server_error" => 500,
        "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => return None,
    })
}

/// How long the upstream asks us to wait: milliseconds, seconds or a date. Anything else is ignored, and so is a
/// time in the past. The core limits the wait.
fn retry_after(headers: &HeaderMap, now: jiff::Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(number) {
        return Some(seconds(millis / 1000.0));
    }
    let text = text(RETRY_AFTER.as_str())?;
    if let Some(count) = number(text) {
        return Some(seconds(count));
    }
    let date =
        jiff::fmt::rfc2822::parse(text).ok().map(|date| date.timestamp()).or_else(|| old_date(text))?;
    Duration::try_from(date.duration_since(now)).ok()
}

/// The two obsolete date formats that must still be accepted (RFC 9110, 5.6.7).
fn old_date(text: &str) -> Option<jiff::Timestamp> {
    let forms = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    let date = forms.iter().find_map(|form| jiff::civil::DateTime::strptime(form, text).ok())?;
    Some(date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
}

/// A plain number. Rust would also parse `inf`, `NaN` and a sign.
fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|_| text.starts_with(|first: char| first.is_ascii_digit()))
}

fn seconds(count: f64) -> Duration {
    Duration::try_from_secs_f64(count).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use outlast_core::{RETRY_WAIT_MAX, Rules, retry_delay};
    use reqwest::header::{HeaderName, HeaderValue};
    use serde_json::json;

    use super::*;

    fn wait(name: &'static str, value: &str) -> Option<Duration> {
        let value = HeaderValue::from_str(value).unwrap();
        let headers = HeaderMap::from_iter([(HeaderName::from_static(name), value)]);
        retry_after(&headers, "2026-01-01T00:00:00Z".parse().unwrap())
    }

    #[test]
    fn g11_every_form_of_retry_after_is_understood() {
        let ms = |name, value| wait(name, value).map(|wait| wait.as_millis());
        assert_eq!(ms("retry-after", "7"), Some(7_000));
        assert_eq!(ms("retry-after", " 7 "), Some(7_000));
        assert_eq!(ms("retry-after", "0"), Some(0));
        assert_eq!(ms("retry-after", "1.5"), Some(1_500));
        assert_eq!(ms("retry-after-ms", "250"), Some(250));
        assert_eq!(ms("retry-after", "Thu, 01 Jan 2026 00:00:09 GMT"), Some(9_000));
        assert_eq!(ms("retry-after", "Thursday, 01-Jan-26 00:00:09 GMT"), Some(9_000));
        assert_eq!(ms("retry-after", "Thu Jan  1 00:00:09 2026"), Some(9_000));
    }

    #[test]
    fn g11_an_absurd_retry_after_is_ignored_or_limited() {
        for nothing in
            ["", "-1", "soon", "NaN", "inf", "1e", "Wed, 31 Dec 2025 23:59:59 GMT", "Thu, 99 Jan 2026"]
        {
            assert_eq!(wait("retry-after", nothing), None, "{nothing:?}");
        }
        for endless in ["18446744073709551616", "1e300", "99999999999", "Fri, 01 Jan 2100 00:00:00 GMT"] {
            let retry_after = wait("retry-after", endless);
            assert!(retry_after.is_some(), "{endless}");
            let failure = Failure { retry_after, ..transient("") };
            assert_eq!(retry_delay(&Rules::default(), 0, &failure, 0), RETRY_WAIT_MAX, "{endless}");
        }
    }

    #[test]
    fn g11_statuses_are_classified() {
        let class = |status| answered(status, &HeaderMap::new(), b"{}").class;
        for transient in [408, 425, 500, 502, 503, 504, 529, 599] {
            assert_eq!(class(transient), FailureClass::Transient, "{transient}");
        }
        for invalid in [204, 301, 302, 400, 401, 402, 403, 404, 409, 422] {
            assert_eq!(class(invalid), FailureClass::Invalid, "{invalid}");
        }
        assert_eq!(class(429), FailureClass::RateLimited);
        assert_eq!(class(413), FailureClass::ContextTooLong);
    }

    #[test]
    fn g11_refusals_and_long_contexts_are_recognised_by_their_text() {
        let class =
            |status, body: Value| answered(status, &HeaderMap::new(), body.to_string().as_bytes()).class;
        let long = [
            (400, json!({"error": {"code": "context_length_exceeded", "message": "too many"}})),
            (400, json!({"error": {"message": "This model's maximum context length is 8192 tokens."}})),
            (400, json!({"type": "error", "error": {"message": "prompt is too long: 2 tokens > 1 maximum"}})),
            (
                400,
                json!({"error": {"message": "input length and `max_tokens` exceed context limit: 1 + 2 > 2"}}),
            ),
            (400, json!({"error": {"type": "exceed_context_size_error", "message": "try increasing it"}})),
            (500, json!({"error": {"message": "Context size has been exceeded.", "type": "server_error"}})),
        ];
        for (status, body) in long {
            assert_eq!(class(status, body.clone()), FailureClass::ContextTooLong, "{body}");
        }
        for body in [
            json!({"error": {"code": "content_filter", "message": "no"}}),
            json!({"error": {"code": "content_policy_violation", "message": "no"}}),
            json!({"error": {"code": 403, "message": "no", "metadata": {"flagged_input": "x"}}}),
        ] {
            assert_eq!(class(400, body.clone()), FailureClass::Refused, "{body}");
        }
    }

    #[test]
    fn g11_errors_after_a_200_are_classified_by_code_or_by_name() {
        let class = |error: Value| broke_off(&error).class;
        assert_eq!(class(json!({"code": 429, "message": "x"})), FailureClass::RateLimited);
        assert_eq!(class(json!({"code": "429"})), FailureClass::RateLimited);
        assert_eq!(class(json!({"code": "rate_limit_exceeded"})), FailureClass::RateLimited);
        assert_eq!(class(json!({"type": "rate_limit_error"})), FailureClass::RateLimited);
        assert_eq!(class(json!({"code": 408})), FailureClass::Transient);
        assert_eq!(class(json!({"code": 502, "message": "provider is down"})), FailureClass::Transient);
        assert_eq!(class(json!({"type": "overloaded_error"})), FailureClass::Transient);
        assert_eq!(class(json!({"type": "api_error"})), FailureClass::Transient);
        assert_eq!(class(json!({"code": "nobody knows"})), FailureClass::Transient);
        assert_eq!(class(json!("only words")), FailureClass::Transient);
        assert_eq!(class(json!({"code": 400})), FailureClass::Invalid);
        assert_eq!(class(json!({"code": null, "type": "invalid_request_error"})), FailureClass::Invalid);
        assert_eq!(class(json!({"code": "content_filter"})), FailureClass::Refused);
        assert_eq!(class(json!({"type": "request_too_large"})), FailureClass::ContextTooLong);
    }

    #[test]
    fn the_message_is_found_wherever_it_is() {
        let told = |body: &str| answered(400, &HeaderMap::new(), body.as_bytes()).message;
        assert_eq!(told(r#"{"error":{"message":"a"}}"#), "upstream responded with 400: a");
        assert_eq!(told(r#"{"error":"a"}"#), "upstream responded with 400: a");
        assert_eq!(told(r#"{"object":"error","message":"a"}"#), "upstream responded with 400: a");
        assert_eq!(told(r#"{"detail":"a"}"#), "upstream responded with 400: a");
        assert_eq!(told("<h1>a</h1>"), "upstream responded with 400: <h1>a</h1>");
    }

    #[test]
    fn i14_a_key_is_hidden_before_the_message_is_shortened() {
        let secrets = [Secret::new("sk-canary-0123456789")];
        for place in 470..510 {
            let message = format!("{}sk-canary-0123456789", "x".repeat(place));
            let shown = without(&secrets, &message);
            assert!(!shown.contains("sk-") && shown.chars().count() <= ERROR_CHARS_MAX, "{shown}");
        }
    }
}
