//! What depends on the kind of an event alone.

use crate::Event;
use crate::json::{json_bytes, serialized_bytes};

/// What an event costs its answer beside its bytes, and what a message does: a flood of tiny ones must meet
/// the limit on an answer too.
const EVENT_BYTES: usize = 16;
const MESSAGE_BYTES: usize = 1024;

/// Writes down what depends on the kind of an event alone, once for each kind. The compiler reports a missing row.
macro_rules! kinds {
    ($($variant:ident $name:literal $by:ident $in_lists:ident;)*) => {
        impl Event {
            /// Every name that can stand in `type`.
            pub const KINDS: &'static [&'static str] = &[$($name),*];

            /// Its name on the wire.
            pub fn kind(&self) -> &'static str {
                match self { $(Event::$variant { .. } => $name),* }
            }

            /// Whether a worker appends this, or its claim.
            pub(crate) fn is_produced(&self) -> bool {
                match self { $(Event::$variant { .. } => columns::$by),* }
            }

            /// Whether somebody who lists generations would see a difference: their status, attempt or question.
            pub(crate) fn changes_generation(&self) -> bool {
                match self { $(Event::$variant { .. } => columns::$in_lists),* }
            }
        }
    };
}

/// The words of the table below.
mod columns {
    pub(super) const WORKER: bool = true;
    pub(super) const SERVER: bool = false;
    pub(super) const LISTED: bool = true;
    pub(super) const UNLISTED: bool = false;
}

kinds! {
    ConversationUpdated     "conversation.updated"      SERVER UNLISTED;
    MessageAdded            "message.added"             SERVER UNLISTED;
    GenerationQueued        "generation.queued"         SERVER LISTED;
    ChatStarted             "chat.started"              WORKER LISTED;
    AssistantSegmentStarted "assistant.segment.started" WORKER UNLISTED;
    AssistantSegmentEnded   "assistant.segment.ended"   WORKER UNLISTED;
    ChatDelta               "chat.delta"                WORKER UNLISTED;
    ThinkingDelta           "thinking.delta"            WORKER UNLISTED;
    ToolStart               "tool.start"                WORKER UNLISTED;
    RoundEnded              "round.ended"               SERVER UNLISTED;
    ToolBegan               "tool.began"                SERVER UNLISTED;
    ToolOutput              "tool.output"               WORKER UNLISTED;
    ToolEnd                 "tool.end"                  WORKER UNLISTED;
    ToolStopped             "tool.stopped"              SERVER UNLISTED;
    SandboxChanged          "sandbox.changed"           SERVER LISTED;
    FileChanged             "file.changed"              SERVER UNLISTED;
    DelegationChanged       "delegation.changed"        SERVER LISTED;
    ParentTold              "parent.told"               SERVER UNLISTED;
    CheckpointTaken         "checkpoint.taken"          SERVER UNLISTED;
    CheckpointFailed        "checkpoint.failed"         SERVER UNLISTED;
    ApprovalRequested       "approval.requested"        WORKER LISTED;
    ApprovalResolved        "approval.resolved"         SERVER LISTED;
    Usage                   "usage"                     WORKER UNLISTED;
    AttemptRetracted        "attempt.retracted"         SERVER LISTED;
    RetryScheduled          "retry.scheduled"           SERVER LISTED;
    ChatInterrupted         "chat.interrupted"          SERVER LISTED;
    ChatResumed             "chat.resumed"              SERVER LISTED;
    ChatDone                "chat.done"                 WORKER LISTED;
    ChatError               "chat.error"                WORKER LISTED;
    ChatCancelled           "chat.cancelled"            SERVER LISTED;
    NotificationOwed        "notification.owed"         SERVER UNLISTED;
    NotificationMade        "notification.made"         SERVER UNLISTED;
}

impl Event {
    /// Whether nothing of this generation can follow.
    pub fn is_end(&self) -> bool {
        matches!(self, Event::ChatDone { .. } | Event::ChatError { .. } | Event::ChatCancelled { .. })
    }

    /// What this adds to the cost of its answer.
    pub(crate) fn answer_bytes(&self) -> usize {
        match self {
            Event::ChatDelta { text, .. }
            | Event::ThinkingDelta { text, .. }
            | Event::ToolOutput { text, .. } => text.len() + EVENT_BYTES,
            Event::AssistantSegmentStarted { .. } => MESSAGE_BYTES,
            Event::ToolStart { tool_use_id, tool_name, tool_input, .. }
            | Event::ApprovalRequested { tool_use_id, tool_name, tool_input, .. } => {
                tool_use_id.len() + tool_name.len() + json_bytes(tool_input) + MESSAGE_BYTES
            }
            Event::ToolEnd { result, .. } => json_bytes(result) + EVENT_BYTES,
            _ => 0,
        }
    }

    /// About how many bytes this adds to what a conversation keeps.
    pub(crate) fn said_bytes(&self) -> u64 {
        let bytes = match self {
            Event::MessageAdded { message, .. } => serialized_bytes(&message.parts) + MESSAGE_BYTES,
            Event::GenerationQueued { brief, .. } => serialized_bytes(brief) + MESSAGE_BYTES,
            Event::ConversationUpdated { title, metadata, files, .. } => {
                // Even an empty one: it is an event that stays, and the first of them is a conversation.
                serialized_bytes(title) + serialized_bytes(metadata) + serialized_bytes(files) + MESSAGE_BYTES
            }
            other => other.answer_bytes().max(EVENT_BYTES),
        };
        bytes as u64
    }

    /// Whether this only adds text to the open segment.
    pub fn is_text(&self) -> bool {
        matches!(self, Event::ChatDelta { .. } | Event::ThinkingDelta { .. })
    }

    /// Whether this is one of many small pieces: text, or output of a tool. Such events change no document
    /// and may be saved late where the durability setting says so.
    pub fn is_stream(&self) -> bool {
        self.is_text() || matches!(self, Event::ToolOutput { .. })
    }
}
