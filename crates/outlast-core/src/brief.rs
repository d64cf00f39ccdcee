//! What a client asks of a generation. The same struct is used in the request, the command, the event, the
//! state and the document, so that a new field is added in one place.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{MessageId, Producer, Prompt};

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
}

impl Brief {
    /// The model that is used when a client names none.
    pub const DEFAULT_MODEL: &'static str = "default";

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
        }
    }
}
