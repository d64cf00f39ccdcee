//! The small choices that events, commands and clients share, and their words on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::GenerationId;

/// Who makes an answer, if not a model of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Producer {
    /// A worker elsewhere, which appends what it makes.
    External,
}

/// Where a tool writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolStream {
    /// What it says.
    Stdout,
    /// What it complains about.
    Stderr,
}

/// How a tool ended, where that is not told by its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It began, and nobody can tell how far it came: the sandbox or its record of the execution is gone.
    Unknown,
}

/// What last happened to a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxState {
    /// Made, with an empty workspace.
    Created,
    Resumed,
    Paused,
    Killed,
    /// Found missing.
    Lost,
    /// Made, with the files of the last checkpoint.
    Restored,
}

impl SandboxState {
    /// Whether tools can run in it.
    pub fn is_running(self) -> bool {
        matches!(self, SandboxState::Created | SandboxState::Resumed | SandboxState::Restored)
    }

    /// Whether it is gone for good: the next one has another id.
    pub fn is_gone(self) -> bool {
        matches!(self, SandboxState::Killed | SandboxState::Lost)
    }
}

/// A person's decision about a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// It may run.
    Approve,
    /// It may not.
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

/// The generation that is taken up again, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetryOf {
    /// The failed one.
    pub generation_id: GenerationId,
    /// Whether its partial answer is kept.
    pub mode: RetryMode,
}

/// What becomes of a failed generation's partial answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RetryMode {
    /// Dropped: answer again from the start.
    Retry,
    /// Kept: go on from where it broke.
    Continue,
}

/// Why a generation was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CancelReason {
    /// Somebody pressed Stop.
    User,
    /// Another message took its place.
    Superseded,
    /// Nobody watched it for too long.
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
