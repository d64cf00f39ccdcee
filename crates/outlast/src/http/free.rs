//! Values that the client chooses freely. They are stored and sent to every follower, so their size and depth are
//! limited.

use outlast_core::{DEPTH_MAX, Patterns, check_patterns, depth};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The maximum size of a title, which lists show on one line.
pub(crate) const TITLE_BYTES_MAX: usize = 1024;
/// The maximum size of metadata. It is part of every conversation or generation document, so it is for labels, not
/// for content.
pub(crate) const METADATA_BYTES_MAX: usize = 16 * 1024;
/// Names of models and tools and codes of ends are words: documents and lists carry them.
pub(crate) const WORD_BYTES_MAX: usize = 200;
/// So are reasons and error messages, which are sentences.
pub(crate) const SENTENCES_BYTES_MAX: usize = 2048;
/// Patterns are kept with the conversation and compared with every later call, so they are lines, not programs.
pub(crate) const PATTERNS_BYTES_MAX: usize = 4 * 1024;
/// Longer than any vendor allows.
pub(crate) const TOOL_NAME_BYTES_MAX: usize = 256;
/// The maximum length of a tool call's id, which is part of the path of its approval.
pub(crate) const TOOL_USE_ID_BYTES_MAX: usize = 256;

pub(crate) fn too_deep() -> String {
    format!("is nested deeper than {DEPTH_MAX} levels")
}

/// Any JSON that is not nested too deep.
#[derive(Clone, Debug, ToSchema)]
#[schema(value_type = Value)]
pub(crate) struct Free(pub(crate) Value);

impl<'de> Deserialize<'de> for Free {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Free, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if depth(&value) > DEPTH_MAX {
            return Err(D::Error::custom(too_deep()));
        }
        Ok(Free(value))
    }
}

/// Text of at most that many bytes.
#[derive(Clone, Debug)]
pub(crate) struct Short<const BYTES_MAX: usize>(pub(crate) String);

pub(crate) type Word = Short<WORD_BYTES_MAX>;
pub(crate) type Sentences = Short<SENTENCES_BYTES_MAX>;

impl<'de, const BYTES_MAX: usize> Deserialize<'de> for Short<BYTES_MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Short<BYTES_MAX>, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() > BYTES_MAX {
            return Err(D::Error::custom(format!("is longer than {BYTES_MAX} bytes")));
        }
        Ok(Short(text))
    }
}

/// The client's own labels: an object of at most 16 KB.
#[derive(Clone, Debug, ToSchema)]
#[schema(value_type = BTreeMap<String, Value>)]
pub(crate) struct Metadata(Value);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Metadata, D::Error> {
        let fields = Map::<String, Value>::deserialize(deserializer)?;
        let value = Value::Object(fields);
        if depth(&value) > DEPTH_MAX {
            return Err(D::Error::custom(too_deep()));
        }
        if value.to_string().len() > METADATA_BYTES_MAX {
            return Err(D::Error::custom(format!("is larger than {METADATA_BYTES_MAX} bytes")));
        }
        Ok(Metadata(value))
    }
}

impl From<Metadata> for Value {
    fn from(metadata: Metadata) -> Value {
        metadata.0
    }
}

/// The client's own key for a conversation.
#[derive(Clone, Debug, ToSchema)]
#[schema(as = ConversationKey, value_type = String, min_length = 1, max_length = 200)]
pub(crate) struct Key(pub(crate) String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        let Short(key) = Word::deserialize(deserializer)?;
        if key.is_empty() {
            return Err(D::Error::custom("must not be empty"));
        }
        Ok(Key(key))
    }
}

/// Glob patterns over arguments, by the argument's name.
#[derive(Clone, Debug, ToSchema)]
#[schema(value_type = BTreeMap<String, String>)]
pub(crate) struct ArgumentPatterns(pub(crate) Patterns);

impl<'de> Deserialize<'de> for ArgumentPatterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ArgumentPatterns, D::Error> {
        let patterns = Patterns::deserialize(deserializer)?;
        let bytes: usize = patterns.iter().map(|(argument, pattern)| argument.len() + pattern.len()).sum();
        if patterns.is_empty() {
            return Err(D::Error::custom("must name an argument"));
        }
        if bytes > PATTERNS_BYTES_MAX {
            return Err(D::Error::custom(format!("is larger than {PATTERNS_BYTES_MAX} bytes")));
        }
        check_patterns(&patterns).map_err(D::Error::custom)?;
        Ok(ArgumentPatterns(patterns))
    }
}

/// A conversation's title.
#[derive(Clone, Debug, ToSchema)]
#[schema(value_type = String, max_length = 1024)]
pub(crate) struct Title(pub(crate) String);

impl<'de> Deserialize<'de> for Title {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Title, D::Error> {
        let Short(title) = Short::<TITLE_BYTES_MAX>::deserialize(deserializer)?;
        Ok(Title(title))
    }
}

#[derive(Clone, Debug, ToSchema)]
#[schema(value_type = String, min_length = 1, max_length = 256)]
pub(crate) struct ToolName(pub(crate) String);

impl<'de> Deserialize<'de> for ToolName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ToolName, D::Error> {
        let Short(name) = Short::<TOOL_NAME_BYTES_MAX>::deserialize(deserializer)?;
        if name.is_empty() {
            return Err(D::Error::custom("must not be empty"));
        }
        Ok(ToolName(name))
    }
}

/// The id of a tool call. It must be usable in a path, and browsers and proxies resolve `.` and `..`.
#[derive(Clone, Debug, ToSchema)]
#[schema(value_type = String, min_length = 1, max_length = 256, pattern = r"^(?!\.{1,2}$)[^\x00-\x1f\x7f-\x9f]+$")]
pub(crate) struct ToolUseId(pub(crate) String);

impl<'de> Deserialize<'de> for ToolUseId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ToolUseId, D::Error> {
        let id = String::deserialize(deserializer)?;
        let dots = id == "." || id == "..";
        if id.is_empty() || id.len() > TOOL_USE_ID_BYTES_MAX || dots || id.contains(char::is_control) {
            let detail = format!(
                "must have 1 to {TOOL_USE_ID_BYTES_MAX} bytes, no control characters, and not be `.` or `..`"
            );
            return Err(D::Error::custom(detail));
        }
        Ok(ToolUseId(id))
    }
}

#[cfg(test)]
mod tests {
    use super::super::body::parse;
    use super::*;

    #[derive(Deserialize)]
    #[allow(dead_code)] // the test only checks whether it can be parsed
    struct Body {
        metadata: Option<Metadata>,
        free: Option<Free>,
        title: Option<Title>,
        id: Option<ToolUseId>,
    }

    fn refused(body: &str) -> Option<(u64, String)> {
        let problem = parse::<Body>(body.as_bytes()).err()?.to_json();
        Some((problem["status"].as_u64().unwrap(), problem["field"].as_str().unwrap_or_default().to_owned()))
    }

    fn nested(levels: usize) -> String {
        format!("{}1{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn i20_a_value_nested_deeper_than_64_levels_is_refused_and_named() {
        for levels in [65, 126, 128, 200, 10_000] {
            let (status, field) = refused(&format!("{{\"free\": {}}}", nested(levels))).unwrap();
            assert_eq!((status, field.split('[').next().unwrap()), (422, "free"), "{levels}");
            let metadata = format!("{{\"metadata\": {{\"a\": {}}}}}", nested(levels - 1));
            let (status, field) = refused(&metadata).unwrap();
            assert_eq!((status, field.split('.').next().unwrap()), (422, "metadata"), "{levels}");
        }
        assert_eq!(refused(&format!("{{\"free\": {}}}", nested(64))), None);
        assert_eq!(refused(&format!("{{\"metadata\": {{\"a\": {}}}}}", nested(63))), None);
    }

    #[test]
    fn i20_title_and_metadata_have_a_size_limit() {
        let text = |bytes: usize| "x".repeat(bytes);
        let title = |bytes| refused(&format!("{{\"title\": \"{}\"}}", text(bytes)));
        assert_eq!((title(1024), title(1025)), (None, Some((422, "title".to_owned()))));
        let metadata = |bytes| refused(&format!("{{\"metadata\": {{\"a\": \"{}\"}}}}", text(bytes)));
        assert_eq!((metadata(16_000), metadata(17_000)), (None, Some((422, "metadata".to_owned()))));
    }

    #[test]
    fn a_tool_use_id_that_cannot_be_used_in_a_path_is_refused() {
        let id = |id: &str| refused(&serde_json::json!({"id": id}).to_string());
        for wrong in ["", ".", "..", "a\nb", "\u{7f}", "\u{85}", &"x".repeat(257)] {
            assert_eq!(id(wrong), Some((422, "id".to_owned())), "{wrong:?}");
        }
        for fine in ["call_1", "...", "functions.bash:0", "ä/b", &"x".repeat(256)] {
            assert_eq!(id(fine), None, "{fine:?}");
        }
    }
}
