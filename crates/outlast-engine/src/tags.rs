//! The fields of a conversation's metadata that it can be found by, as tags of its document.

use outlast_store::{TAG_BYTES_MAX, TAGS_MAX};
use serde_json::Value;

/// A field of the metadata and its value, as a filter.
#[derive(Clone, Debug)]
pub struct MetadataTag(String);

impl MetadataTag {
    /// `None` if field and value together are too long to be found.
    pub fn new(field: &str, value: &str) -> Option<MetadataTag> {
        tag(field, value).map(MetadataTag)
    }

    pub(crate) fn into_tag(self) -> String {
        self.0
    }
}

/// The tags of these metadata: the first [`TAGS_MAX`] fields with text, a number or a boolean, in alphabetical order.
/// What is too long is left out.
pub(crate) fn tags_of(metadata: Option<&Value>) -> Vec<String> {
    let fields = metadata.and_then(Value::as_object).into_iter().flatten();
    let mut tags: Vec<String> = fields.filter_map(|(field, value)| tag(field, &plain(value)?)).collect();
    tags.sort_unstable();
    tags.truncate(TAGS_MAX);
    tags
}

/// Queries have no types, so a number and its digits are the same.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// JSON, because no two pairs look the same in it and it has no control characters, which some stores refuse.
fn tag(field: &str, value: &str) -> Option<String> {
    let tag = serde_json::to_string(&(field, value)).expect("a pair of strings can be written");
    (tag.len() <= TAG_BYTES_MAX).then_some(tag)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn s1_plain_fields_become_tags_and_others_do_not() {
        let metadata = json!({
            "projectId": "p1", "count": 3, "done": true, "nothing": null, "list": [1], "nested": {"a": 1},
        });
        let expected = [r#"["count","3"]"#, r#"["done","true"]"#, r#"["projectId","p1"]"#];
        assert_eq!(tags_of(Some(&metadata)), expected);
        assert!(tags_of(None).is_empty() && tags_of(Some(&json!("text"))).is_empty());
    }

    #[test]
    fn s1_a_tag_says_what_is_field_and_what_is_value() {
        assert_ne!(tag("a", "b=c"), tag("a=b", "c"));
        assert_ne!(tag("a\",\"b", "c"), tag("a", "b\",\"c"));
        assert!(!tag("a", "\u{0}").unwrap().contains('\u{0}'));
    }

    #[test]
    fn s1_tags_are_limited_in_number_and_size() {
        let many: serde_json::Map<_, _> = (0..1000).map(|n| (format!("f{n:04}"), json!(n))).collect();
        assert_eq!(tags_of(Some(&many.into())).len(), TAGS_MAX);
        let long = "x".repeat(TAG_BYTES_MAX);
        assert!(MetadataTag::new("a", &long).is_none());
        assert!(tags_of(Some(&json!({"a": long}))).is_empty());
    }
}
