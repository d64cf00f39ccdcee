//! Events of a conversation and the pure functions over them.
//!
//! There are four verbs: commands are *decided*, reports are *observed*, events are *applied*, and *next*
//! says what should be under way now. There is no clock, randomness, I/O or async, so every rule can be
//! tested in a few lines. Read `event` first, then the four verbs. Rules that several verbs share
//! are in files named after what they are about, such as `attempts` and `rounds`.

mod command;
mod conversation;
mod effect;
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
mod delegation;
mod documents;
mod entries;
mod files_summary;
mod finishing;
mod first;
mod ids;
mod json;
mod message;
mod notifications;
mod patterns;
mod policy;
mod resuming;
mod retention;
mod rounds;
mod rules;
mod sandbox;
mod sandboxes;
mod telling;
mod time;
mod view;
mod workspace;

#[cfg(test)]
mod proofs;
#[cfg(test)]
mod testing;

pub use approval::{Approval, Decided, approval_hash};
pub use brief::Brief;
pub use choices::{
    CancelReason, Decision, NotificationKind, Outcome, Producer, RetryMode, RetryOf, SandboxState, ToolStream,
};
pub use codec::{DecodeError, Head, Heads, decode, encode, head};
pub use command::{
    Command, Decide, Earlier, Facts, QUEUE_MAX, Refusal, Retry, Start, TOOL_BYTES_MAX, WhenBusy,
    WorkerAppend, WorkerEnd,
};
pub use context::{Context, ContextMessage, Prompt, Sources, ToolSpec, context};
pub use conversation::Conversation;
pub use decide::decide;
pub use delegation::{
    Child, ChildEnd, ChildNews, ChildQuestion, DELEGATE, Delegation, Memory, Parent, Reporting, UPDATE_PLAN,
    child_conversation, child_generation, delegation_of,
};
pub use documents::{
    ConversationDocument, ConversationStatus, DocumentChange, GenerationDocument, apply_with_documents,
    conversation_document, generation_document,
};
pub use effect::{Effect, Ensure};
pub use event::{Entry, Event};
pub use files_summary::{
    Change, ChangedFile, DescribedFile, files_summary, files_summary_to_append, parse_files_summary,
};
pub use first::read_state;
pub use generation::{
    Counters, Generation, GenerationStatus, Phase, Progress, Rounds, ScheduledRetry, Segment, Stage,
};
pub use ids::{
    CheckpointId, ConversationId, ExecutionId, GenerationId, MessageId, NotificationId, RequestId, SandboxId,
    Seq, UserId,
};
pub use json::{DEPTH_MAX, depth};
pub use message::{Message, MessageStatus, Part, Role, TextKind, plain_text};
pub use next::{Next, Surroundings, due, next};
pub use notifications::{OwedNotification, owe_notifications};
pub use observe::observe;
pub use patterns::{Patterns, check_patterns};
pub use policy::{
    PatternRule, Place, Policy, SERVER_SEPARATOR, ToolRule, ToolRules, rule_of, rule_of_server,
};
pub use report::{CallEnd, Output, Piece, Ran, Report, RunEnd, Streamed};
pub use retention::Retention;
pub use rules::{
    Durability, Failure, FailureClass, LOST_IN_A_ROW_MAX, RETRY_WAIT_MAX, Recovery, Rules, retry_delay,
};
pub use sandbox::{Always, Checkpoint, Execution, Offsets, OwedStop, Sandbox};
pub use time::Timestamp;
pub use view::{
    ActiveRun, ConversationView, LastEnd, QueuedRun, RunningDelegation, RunningTool, Transcript, view,
};
pub use workspace::{FileChange, may_change_files, sandbox_for_files};
