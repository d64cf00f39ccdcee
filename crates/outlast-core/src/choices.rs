//! Small enums that events, commands and clients share, with their wire names.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::GenerationId;

/// Who produces an answer, if not a model of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Producer {
    /// A worker, which appends what it produces.
    External,
}

/// The stream that a tool writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolStream {
    Stdout,
    Stderr,
}

/// A person's decision about a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// The tool may run.
    Approve,
    /// The tool must not run.
    Deny,
}

impl Decision {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Decision::Approve => "approve",
            Decision::Deny => "deny",
        }
    }
}

/// The generation that is retried or continued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetryOf {
    /// The generation that failed or was cancelled.
    pub generation_id: GenerationId,
    /// Whether its partial answer is kept.
    pub mode: RetryMode,
}

/// What happens to the partial answer of the failed generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RetryMode {
    /// It is withdrawn, and the answer starts over.
    Retry,
    /// It is kept, and the answer continues from there.
    Continue,
}

/// Why a generation was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CancelReason {
    /// Somebody cancelled it.
    User,
    /// Another message took its place.
    Superseded,
    /// Nobody followed it for too long.
    Abandoned,
    /// It was interrupted and somebody dismissed it.
    Dismissed,
}

impl CancelReason {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            CancelReason::User => "user",
            CancelReason::Superseded => "superseded",
            CancelReason::Abandoned => "abandoned",
            CancelReason::Dismissed => "dismissed",
        }
    }
}
