//! Events of a conversation and the pure functions over them.
//!
//! There are four verbs: commands are *decided*, reports are *observed*, events are *applied*, and *next*
//! says what should be under way now. There is no clock, randomness, I/O or async, so every rule can be
//! tested in three lines. Read `event` first, then the four verbs. `attempts` and `telling` hold the rules
//! that two verbs share.

mod command;
mod conversation;
mod event;
mod generation;
mod report;

mod apply;
mod decide;
mod next;
mod observe;

mod approval;
mod attempts;
mod brief;
mod choices;
mod codec;
mod context;
mod documents;
mod entries;
mod first;
mod ids;
mod json;
mod message;
mod retention;
mod rules;
mod telling;
mod time;
mod view;

#[cfg(test)]
mod proofs;
#[cfg(test)]
mod testing;

pub use approval::{Approval, Decided, approval_hash};
pub use brief::Brief;
pub use choices::{CancelReason, Decision, Producer, RetryMode, RetryOf, ToolStream};
pub use codec::{DecodeError, Head, Heads, decode, encode, head};
pub use command::{
    Command, Decide, Earlier, Facts, QUEUE_MAX, Refusal, Retry, Start, TOOL_BYTES_MAX, WhenBusy,
    WorkerAppend, WorkerEnd,
};
pub use context::{Context, ContextMessage, Prompt, Sources, ToolSpec, context};
pub use conversation::Conversation;
pub use decide::decide;
pub use documents::{
    ConversationDocument, ConversationStatus, DocumentChange, GenerationDocument, apply_with_documents,
    conversation_document, generation_document,
};
pub use event::{Entry, Event};
pub use first::read_state;
pub use generation::{Counters, Generation, GenerationStatus, Phase, Progress, ScheduledRetry, Segment};
pub use ids::{ConversationId, GenerationId, MessageId, RequestId, Seq, UserId};
pub use json::{DEPTH_MAX, depth};
pub use message::{Message, MessageStatus, Part, Role, TextKind, plain_text};
pub use next::{Effect, Next, Surroundings, due, next};
pub use observe::observe;
pub use report::{CallEnd, Piece, Report, Streamed};
pub use retention::Retention;
pub use rules::{
    Durability, Failure, FailureClass, LOST_IN_A_ROW_MAX, RETRY_WAIT_MAX, Recovery, Rules, retry_delay,
};
pub use time::Timestamp;
pub use view::{ActiveRun, ConversationView, LastEnd, QueuedRun, Transcript, view};
