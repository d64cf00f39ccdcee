//! What a client asks of a generation. The same struct is used in the request, the command, the event, the
//! state and the document, so that a new field is added in one place.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{MessageId, Parent, Producer, Prompt};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Brief {
    /// The model's name in the settings. For a worker's generation it may be any name.
    pub model: String,
    /// Instructions for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// JSON of the client's choice.
    #[serde(default)]
    pub metadata: Option<Value>,
    /// What the model is given instead of the transcript. The state holds only its position in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Prompt>,
    /// The id that the client chose for the first message of the answer.
    #[serde(default)]
    pub answer_id: Option<MessageId>,
    /// Who produces the answer, if not a model of this server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer: Option<Producer>,
    /// The tools that the server offers to the model and runs itself, by name. With none there are no rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// The id of the API key that asked for it. Its tokens count against the limits of that key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_id: Option<String>,
    /// The call that it works for, if another conversation delegated to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<Parent>>,
}

impl Brief {
    /// The model that is used when a client names none.
    pub const DEFAULT_MODEL: &'static str = "default";

    /// Whether the server runs tools for it, in rounds. Whoever sends a prompt runs the tools itself.
    pub fn is_agent(&self) -> bool {
        !self.tools.is_empty() && !self.is_for_worker() && self.prompt.is_none()
    }

    /// Whether a worker produces the answer.
    pub fn is_for_worker(&self) -> bool {
        self.producer.is_some()
    }
}

impl Default for Brief {
    fn default() -> Brief {
        Brief {
            model: Brief::DEFAULT_MODEL.to_owned(),
            system: None,
            metadata: None,
            prompt: None,
            answer_id: None,
            producer: None,
            tools: Vec::new(),
            api_key_id: None,
            parent: None,
        }
    }
}
