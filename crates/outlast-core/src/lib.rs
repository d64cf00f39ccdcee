//! Events of a conversation and the pure functions over them.
//!
//! Four verbs: commands are *decided*, reports are *observed*, events are *applied*, and *next* says
//! what the world owes a state. No clock, no randomness, no I/O, no async: every rule here can be
//! tested in three lines.

mod choices;
mod codec;
mod command;
mod context;
mod conversation;
mod decide;
mod documents;
mod entries;
mod event;
mod generation;
mod ids;
mod json;
mod message;
mod next;
mod observe;
mod retention;
mod rules;
mod telling;
mod time;
mod view;

#[cfg(test)]
mod proofs;
#[cfg(test)]
mod testing;

pub use choices::{CancelReason, Decision, Producer, RetryMode, RetryOf, ToolStream};
pub use codec::{DecodeError, Head, Heads, decode, encode, head};
pub use command::{
    Command, Earlier, Produce, ProducedEnd, QUEUE_MAX, Refusal, Retry, Start, TOOL_BYTES_MAX, WhenBusy,
};
pub use context::{Context, ContextMessage, Prompt, Sources, ToolSpec, context};
pub use conversation::Conversation;
pub use decide::decide;
pub use documents::{
    ConversationDocument, ConversationStatus, DocumentChange, GenerationDocument, apply_with_documents,
    conversation_document, generation_document,
};
pub use event::{Entry, Event};
pub use generation::{Approval, Decided, Generation, GenerationStatus, Phase, ScheduledRetry, Segment};
pub use ids::{ConversationId, GenerationId, MessageId, RequestId, Seq, UserId};
pub use json::{DEPTH_MAX, depth};
pub use message::{Message, MessageStatus, Part, Role, TextKind, plain_text};
pub use next::{Effect, Next, Surroundings, next};
pub use observe::{CallEnd, Piece, Report, Streamed, observe};
pub use retention::Retention;
pub use rules::{
    Durability, Failure, FailureClass, LOST_IN_A_ROW_MAX, RETRY_WAIT_MAX, Recovery, Rules, retry_delay,
};
pub use time::Timestamp;
pub use view::{ActiveRun, ConversationView, LastEnd, QueuedRun, Transcript, view};
