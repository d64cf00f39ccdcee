//! The options of a call that clients may set, under OpenAI's names.
//!
//! Only these are passed on to an upstream. Others could select a more expensive model or route, enable tools that
//! cost money, or ask for output that Outlast cannot show. `docs/models.md` lists them.

use serde_json::{Map, Value, json};

const PASSED: &[&str] = &[
    "chat_template_kwargs",
    "frequency_penalty",
    "logit_bias",
    "max_completion_tokens",
    "max_tokens",
    "min_p",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt_cache_key",
    "reasoning",
    "reasoning_effort",
    "repetition_penalty",
    "response_format",
    "safety_identifier",
    "seed",
    "stop",
    "temperature",
    "thinking",
    "tool_choice",
    "top_k",
    "top_p",
    "user",
    "verbosity",
];
/// The two names for the limit on the tokens of an answer.
pub(super) const LIMITS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// An option that is not passed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} {reason}")]
pub struct RefusedOption {
    /// As the client wrote it.
    pub name: String,
    /// The rest of a sentence that starts with the name.
    pub reason: String,
}

/// The options that are passed on. Null values are left out, and so are values that ask for the default behaviour:
/// some clients send them with every request.
pub fn accept_options(options: Map<String, Value>) -> Result<Map<String, Value>, RefusedOption> {
    let mut accepted = Map::new();
    for (name, value) in options {
        let refused = |reason: String| Err(RefusedOption { name: name.clone(), reason });
        if value.is_null() || is_default(&name, &value) {
            continue;
        }
        if !PASSED.contains(&name.as_str()) {
            return refused("is not supported".to_owned());
        }
        if LIMITS.contains(&name.as_str()) && value.as_u64().is_none_or(|tokens| tokens == 0) {
            return refused("must be a whole number of at least 1".to_owned());
        }
        accepted.insert(name, value);
    }
    Ok(accepted)
}

fn is_default(name: &str, value: &Value) -> bool {
    match name {
        "n" => *value == 1,
        "logprobs" | "store" => *value == false,
        "top_logprobs" => *value == 0,
        "modalities" => *value == json!(["text"]),
        "service_tier" => *value == "auto" || *value == "default",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(options: Value) -> Result<Value, String> {
        let accepted = accept_options(options.as_object().unwrap().clone());
        accepted.map(Value::Object).map_err(|refused| refused.to_string())
    }

    #[test]
    fn only_known_options_are_passed_on_and_others_are_refused_by_name() {
        let known = json!({"temperature": 0.5, "response_format": {"type": "json_object"}, "top_k": 3});
        assert_eq!(accept(known.clone()), Ok(known));
        for name in ["models", "provider", "plugins", "functions", "web_search_options", "model", "stream"] {
            let refused = accept(json!({name: ["x"]})).unwrap_err();
            assert_eq!(refused, format!("{name} is not supported"));
        }
    }

    #[test]
    fn options_with_default_values_are_accepted() {
        let defaults = json!({"n": 1, "logprobs": false, "top_logprobs": 0, "store": false,
            "modalities": ["text"], "service_tier": "auto", "seed": null, "provider": null});
        assert_eq!(accept(defaults), Ok(json!({})));
        for dearer in [json!({"n": 2}), json!({"service_tier": "priority"}), json!({"logprobs": true})] {
            accept(dearer).unwrap_err();
        }
    }

    #[test]
    fn a_limit_that_is_not_a_whole_number_is_refused() {
        for limit in [json!(1e9), json!("many"), json!(-1), json!(0), json!([5]), json!(10.0)] {
            for name in LIMITS {
                let refused = accept(json!({name: limit})).unwrap_err();
                assert_eq!(refused, format!("{name} must be a whole number of at least 1"));
            }
        }
    }
}
