//! What a client asks of a generation. One struct travels from the request through command, event and
//! state to the document, so that a new wish is added in one place.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{MessageId, Producer, Prompt};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Brief {
    /// By its name in the settings. A worker's generation may name any.
    pub model: String,
    /// Instructions for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Free JSON of the client.
    #[serde(default)]
    pub metadata: Option<Value>,
    /// What the model is given instead of the transcript. Stays in the log: the state only remembers where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Prompt>,
    /// The id that the client wants the first message of the answer to have.
    #[serde(default)]
    pub answer_id: Option<MessageId>,
    /// Who produces the answer, if not a model of the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer: Option<Producer>,
    /// The tools that the server offers to the model and runs itself, by name. With none there are no rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
}

impl Brief {
    /// The model that answers when a client names none.
    pub const DEFAULT_MODEL: &'static str = "default";

    /// Whether a worker elsewhere produces the answer.
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
        }
    }
}
