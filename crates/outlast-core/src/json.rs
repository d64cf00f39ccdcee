//! Limits on JSON from clients, workers and models. It is stored inside our own documents, which must stay
//! readable.

use serde::Serialize;
use serde_json::Value;

/// The maximum nesting of a value that is accepted. The JSON parser refuses more than 128 levels, and a
/// stored value is a few levels deep in its event and its document, so this leaves room.
pub const DEPTH_MAX: usize = 64;

/// How deep a value is nested: 0 for a number or a string, 1 for an empty list.
pub fn depth(value: &Value) -> usize {
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

/// The length of a value as JSON text.
pub(crate) fn json_bytes(value: &Value) -> usize {
    value.to_string().len()
}

/// The length of a value of ours as JSON text.
pub(crate) fn serialized_bytes(value: &impl Serialize) -> usize {
    serde_json::to_string(value).expect("our own types have string keys").len()
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
        let deep = (0..1_000).fold(json!(1), |inner, _| Value::Array(vec![inner]));
        assert_eq!(depth(&deep), 1_000);
    }
}
