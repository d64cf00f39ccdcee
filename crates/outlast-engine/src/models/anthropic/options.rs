//! Translates options from OpenAI's names. One without a translation is refused, because a client would rely on
//! an option that is dropped silently.

use outlast_core::Failure;
use serde_json::{Map, Value, json};

use super::super::client::invalid;

pub(super) fn translate(options: &Map<String, Value>) -> Result<Map<String, Value>, Failure> {
    let mut body = Map::new();
    for (name, wish) in options.iter().filter(|(_, wish)| !wish.is_null()) {
        let untold = || invalid(&format!("the option {name} is not supported by this model"));
        match name.as_str() {
            // Set by the server.
            "model" | "messages" | "stream" | "stream_options" | "tools" => {}
            "temperature" | "top_p" | "top_k" | "thinking" => {
                body.insert(name.clone(), wish.clone());
            }
            "max_tokens" | "max_completion_tokens" => {
                let tokens = wish.as_u64().ok_or_else(untold)?;
                let other = body.get("max_tokens").and_then(Value::as_u64);
                body.insert("max_tokens".to_owned(), other.map_or(tokens, |other| other.min(tokens)).into());
            }
            "stop" => {
                let list = if wish.is_string() { json!([wish]) } else { wish.clone() };
                body.insert("stop_sequences".to_owned(), list);
            }
            "user" => {
                body.insert("metadata".to_owned(), json!({"user_id": wish}));
            }
            "tool_choice" | "parallel_tool_calls" => {}
            _ if asks_for_nothing(name, wish) => {}
            _ => return Err(untold()),
        }
    }
    if let Some(choice) = tool_choice(options)? {
        body.insert("tool_choice".to_owned(), choice);
    }
    Ok(body)
}

/// Which tool to call, and whether several at once. Two options share one field.
fn tool_choice(options: &Map<String, Value>) -> Result<Option<Value>, Failure> {
    let wish = options.get("tool_choice").filter(|wish| !wish.is_null());
    let one_at_a_time = options.get("parallel_tool_calls") == Some(&Value::Bool(false));
    let named = |wish: &Value| wish["function"]["name"].as_str().map(str::to_owned);
    let mut choice = match wish {
        None if one_at_a_time => json!({"type": "auto"}),
        None => return Ok(None),
        Some(wish) => match (wish.as_str(), named(wish)) {
            (Some("auto"), _) => json!({"type": "auto"}),
            (Some("required"), _) => json!({"type": "any"}),
            (Some("none"), _) => return Ok(Some(json!({"type": "none"}))),
            (None, Some(name)) => json!({"type": "tool", "name": name}),
            _ => return Err(invalid("the option tool_choice is not supported by this model")),
        },
    };
    if one_at_a_time {
        choice["disable_parallel_tool_use"] = true.into();
    }
    Ok(Some(choice))
}

/// Many clients also send options with their default values.
fn asks_for_nothing(name: &str, wish: &Value) -> bool {
    match name {
        "n" => *wish == 1,
        "frequency_penalty" | "presence_penalty" => wish.as_f64() == Some(0.0),
        "logprobs" | "store" => *wish == false,
        "logit_bias" => wish.as_object().is_some_and(Map::is_empty),
        "response_format" => wish["type"] == "text",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(options: Value) -> Result<Value, String> {
        let translated = translate(options.as_object().unwrap());
        translated.map(Value::Object).map_err(|failure| failure.message)
    }

    #[test]
    fn b2_options_are_translated() {
        let wishes = json!({
            "temperature": 0.5, "top_p": 0.9, "stop": "END", "max_completion_tokens": 7, "user": "ann",
            "model": "other", "stream": false, "n": 1, "presence_penalty": 0, "seed": null,
            "response_format": {"type": "text"},
        });
        let expected = json!({
            "temperature": 0.5, "top_p": 0.9, "stop_sequences": ["END"], "max_tokens": 7,
            "metadata": {"user_id": "ann"},
        });
        assert_eq!(told(wishes), Ok(expected));
        assert_eq!(told(json!({"stop": ["a", "b"]})), Ok(json!({"stop_sequences": ["a", "b"]})));
    }

    #[test]
    fn b2_tool_choice_is_translated() {
        let choice = |wish: Value| told(json!({"tool_choice": wish})).map(|body| body["tool_choice"].clone());
        assert_eq!(choice(json!("auto")), Ok(json!({"type": "auto"})));
        assert_eq!(choice(json!("required")), Ok(json!({"type": "any"})));
        assert_eq!(choice(json!("none")), Ok(json!({"type": "none"})));
        let named = json!({"type": "function", "function": {"name": "read"}});
        assert_eq!(choice(named), Ok(json!({"type": "tool", "name": "read"})));
        assert!(choice(json!("whatever")).unwrap_err().contains("tool_choice"));
        let one = told(json!({"tool_choice": "required", "parallel_tool_calls": false}));
        assert_eq!(one, Ok(json!({"tool_choice": {"type": "any", "disable_parallel_tool_use": true}})));
        let one = told(json!({"parallel_tool_calls": false}));
        assert_eq!(one, Ok(json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}})));
        assert_eq!(told(json!({"parallel_tool_calls": true})), Ok(json!({})));
    }

    #[test]
    fn b2_an_option_without_a_translation_is_refused_by_name() {
        for (name, wish) in [
            ("seed", json!(7)),
            ("logprobs", json!(true)),
            ("n", json!(2)),
            ("response_format", json!({"type": "json_object"})),
            ("max_tokens", json!("many")),
            ("reasoning_effort", json!("high")),
        ] {
            let refused = told(json!({name: wish})).unwrap_err();
            assert_eq!(refused, format!("the option {name} is not supported by this model"));
        }
    }
}
