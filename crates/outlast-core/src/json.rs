//! Limits on free JSON: what clients, workers and models send is stored inside our own documents, which
//! must stay readable.

use serde_json::Value;

/// How deep a value may be nested wherever one is accepted. The JSON parser gives up at 128, and a stored
/// value stands a few levels deep in its event and in its document, so this leaves room for both.
pub const DEPTH_MAX: usize = 64;

/// How deep a value is nested: 0 for a number or a text, 1 for an empty list.
pub fn depth(value: &Value) -> usize {
    // Level by level, not by recursion: the value may be deeper than the stack allows.
    let mut level = vec![value];
    let mut depth = 0;
    loop {
        let containers = level.iter().any(|value| value.is_array() || value.is_object());
        if !containers {
            return depth;
        }
        depth += 1;
        level = level.into_iter().flat_map(children).collect();
    }
}

/// How long a value is when it is written down.
pub(crate) fn json_bytes(value: &Value) -> usize {
    value.to_string().len()
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn i20_depth_counts_lists_and_objects_along_the_deepest_path() {
        assert_eq!(depth(&json!(null)), 0);
        assert_eq!(depth(&json!([])), 1);
        assert_eq!(depth(&json!({"a": [1, {"b": "c"}], "d": 2})), 3);
        let deep = (0..10_000).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(depth(&deep), 10_000);
        std::mem::forget(deep); // dropping it would recurse
    }
}
