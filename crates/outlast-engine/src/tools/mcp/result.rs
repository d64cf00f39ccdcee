//! What a model reads of a tool's result.

use outlast_core::{DEPTH_MAX, depth};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use super::super::INLINE_MAX;
use super::super::elsewhere::Answer;

pub(super) fn said(result: CallToolResult) -> Answer {
    let is_error = result.is_error == Some(true);
    let texts: Vec<String> = result.content.into_iter().map(text_of).collect();
    // A server that has both says the same in both.
    let result = match (texts.is_empty(), result.structured_content) {
        (true, Some(structured)) => structured,
        _ => Value::String(texts.join("\n")),
    };
    let bytes = result.as_str().map_or_else(|| result.to_string().len(), str::len);
    if bytes > INLINE_MAX {
        return refused(format!("the result is longer than {INLINE_MAX} bytes, the most that is accepted"));
    }
    if depth(&result) > DEPTH_MAX {
        return refused(format!("the result has more than {DEPTH_MAX} levels, the most that is accepted"));
    }
    Answer::Said { result, is_error }
}

/// An error that the model reads instead of a result.
pub(super) fn refused(text: String) -> Answer {
    Answer::Said { result: Value::String(text), is_error: true }
}

fn text_of(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => left_out("image", Some(&image.mime_type), &image.data),
        ContentBlock::Audio(audio) => left_out("audio", Some(&audio.mime_type), &audio.data),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text,
            ResourceContents::BlobResourceContents { blob, mime_type, .. } => {
                left_out("file", mime_type.as_deref(), &blob)
            }
            _ => "[a resource of an unknown kind]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("{} ({})", link.uri, link.name),
        _ => "[content of an unknown kind]".to_owned(),
    }
}

fn left_out(what: &str, kind: Option<&str>, base64: &str) -> String {
    format!("[{what} of {} bytes, {}: not shown]", base64.len() / 4 * 3, kind.unwrap_or("of an unknown type"))
}
