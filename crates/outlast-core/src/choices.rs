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

/// What a notification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NotificationKind {
    Completed,
    Error,
    Cancelled,
    Interrupted,
    /// A tool call waits for a decision.
    Approval,
}

impl NotificationKind {
    pub const ALL: &'static [NotificationKind] = &[
        NotificationKind::Completed,
        NotificationKind::Error,
        NotificationKind::Cancelled,
        NotificationKind::Interrupted,
        NotificationKind::Approval,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            NotificationKind::Completed => "completed",
            NotificationKind::Error => "error",
            NotificationKind::Cancelled => "cancelled",
            NotificationKind::Interrupted => "interrupted",
            NotificationKind::Approval => "approval",
        }
    }
}

/// The stream that a tool writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolStream {
    Stdout,
    Stderr,
}

/// How a tool ended, if its result does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ToolOutcome)]
pub enum Outcome {
    /// It was started, and it cannot be known how far it got: the sandbox or its record of the execution is gone.
    Unknown,
    /// It did not run: a person or a rule denied it.
    Denied,
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
    /// The call that it worked for has ended.
    #[serde(rename = "parent_ended")]
    ParentEnded,
}

impl CancelReason {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            CancelReason::User => "user",
            CancelReason::Superseded => "superseded",
            CancelReason::Abandoned => "abandoned",
            CancelReason::Dismissed => "dismissed",
            CancelReason::ParentEnded => "parent_ended",
        }
    }
}
