//! The messages of a chat completion. Unknown fields are ignored, because libraries send back whole answers with
//! all fields that the provider added.

use outlast_core::{ContextMessage, DEPTH_MAX, Part, Role, depth};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use utoipa::ToSchema;

use super::super::super::error::Problem;

#[derive(Deserialize, ToSchema)]
#[schema(as = CompletionMessage)]
pub(super) struct MessageBody {
    role: RoleName,
    #[schema(value_type = Option<ContentForm>)]
    content: Option<Content>,
    tool_calls: Option<Vec<ToolCall>>,
    tool_call_id: Option<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = CompletionRole)]
enum RoleName {
    System,
    Developer,
    User,
    Assistant,
    Tool,
}

/// Text, or a list of text and images.
struct Content(Vec<Part>);

#[derive(ToSchema)]
#[serde(untagged)]
#[schema(as = CompletionContent)]
#[allow(dead_code)] // only its schema is used; hand-written errors are clearer
enum ContentForm {
    Text(String),
    Parts(Vec<PartBody>),
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Content, D::Error> {
        let wrong = |detail: String| serde::de::Error::custom(detail);
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Content(vec![Part::Text { text }])),
            parts @ Value::Array(_) => {
                let parts = Vec::<PartBody>::deserialize(parts).map_err(|error| wrong(error.to_string()))?;
                Ok(Content(parts.into_iter().map(Part::from).collect()))
            }
            _ => Err(wrong("must be a string or a list of parts".to_owned())),
        }
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = CompletionPart)]
enum PartBody {
    Text { text: String },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Deserialize, ToSchema)]
struct ImageUrl {
    url: String,
}

impl From<PartBody> for Part {
    fn from(part: PartBody) -> Part {
        match part {
            PartBody::Text { text } => Part::Text { text },
            PartBody::ImageUrl { image_url: ImageUrl { url } } => Part::Image { url },
        }
    }
}

#[derive(Deserialize, ToSchema)]
#[schema(as = CompletionToolCall)]
struct ToolCall {
    id: String,
    function: FunctionCall,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = CompletionFunctionCall)]
struct FunctionCall {
    name: String,
    #[serde(default)]
    arguments: String,
}

impl From<ToolCall> for Part {
    fn from(call: ToolCall) -> Part {
        let ToolCall { id, function: FunctionCall { name, arguments } } = call;
        // Models sometimes write arguments that are not an object or are nested too deep to be stored. They are
        // returned to the model as text.
        let storable = |input: &Value| input.is_object() && depth(input) <= DEPTH_MAX;
        let input = serde_json::from_str(&arguments).ok().filter(storable);
        Part::ToolUse { id, name, input: input.unwrap_or(Value::String(arguments)) }
    }
}

pub(super) fn to_context(messages: Vec<MessageBody>) -> Result<Vec<ContextMessage>, Problem> {
    messages.into_iter().enumerate().map(|(place, message)| to_message(place, message)).collect()
}

fn to_message(place: usize, message: MessageBody) -> Result<ContextMessage, Problem> {
    let missing = |field: &str| Problem::wrong(&format!("messages[{place}].{field}"), "is missing");
    let content = message.content.map(|Content(parts)| parts);
    let (role, parts) = match message.role {
        RoleName::System | RoleName::Developer => (Role::System, content),
        RoleName::User => (Role::User, content),
        RoleName::Assistant => {
            let calls: Vec<Part> =
                message.tool_calls.unwrap_or_default().into_iter().map(Part::from).collect();
            let nothing = content.is_none() && calls.is_empty();
            let said = content.into_iter().flatten().chain(calls).collect();
            (Role::Assistant, (!nothing).then_some(said))
        }
        RoleName::Tool => {
            let tool_use_id = message.tool_call_id.ok_or_else(|| missing("tool_call_id"))?;
            let result = |parts: Vec<Part>| {
                let content = Value::String(outlast_core::plain_text(&parts));
                vec![Part::tool_result(tool_use_id, content, false)]
            };
            (Role::Tool, content.map(result))
        }
    };
    Ok(ContextMessage { role, parts: parts.ok_or_else(|| missing("content"))? })
}
