//! What can happen to a conversation. A log is a list of events, and all other state is computed from it.
//!
//! The log outlives the code: an event may gain an optional field; it never loses, renames or reuses one.

mod kinds;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    Brief, CancelReason, Change, CheckpointId, ConversationId, Decision, Delegation, ExecutionId,
    GenerationId, Message, MessageId, NotificationId, NotificationKind, Outcome, Patterns, Place, RequestId,
    RetryOf, SandboxId, SandboxState, Seq, Timestamp, ToolStream,
};

/// One event at its position.
#[derive(Clone, Debug, PartialEq, ToSchema)]
#[schema(as = LogEvent)]
pub struct Entry {
    pub seq: Seq,
    /// When it happened.
    pub ts: Timestamp,
    #[schema(rename = "generationId", required)]
    pub generation: Option<GenerationId>,
    /// The idempotency key of the request that started that generation.
    #[schema(rename = "requestId", required)]
    pub request: Option<RequestId>,
    #[serde(flatten)]
    pub event: Event,
}

/// What happened. Each variant has its wire name; PROTOCOL.md explains them to clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", content = "payload", rename_all_fields = "camelCase")]
pub enum Event {
    /// The conversation was created, or its title or metadata changed.
    #[serde(rename = "conversation.updated")]
    ConversationUpdated {
        /// The new title, if it changed. Null clears it.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
        title: Option<Option<String>>,
        /// The new metadata, if it changed. Null clears it.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
        metadata: Option<Value>,
        /// The files that the agent worked on, if they changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        files: Option<Vec<Value>>,
        /// The client's own key, if the conversation was created with one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// A user's or system message was added to the transcript.
    #[serde(rename = "message.added")]
    MessageAdded {
        message: Message,
        /// Whether this message tells the model where an interrupted run stands, after which the run continues.
        #[serde(default, skip_serializing_if = "is_false")]
        resumes: bool,
    },
    /// A generation was accepted. It runs when its turn comes.
    #[serde(rename = "generation.queued")]
    GenerationQueued {
        /// The user's message it answers.
        message_id: MessageId,
        /// Fingerprint of the request, to detect the same request id with a different body.
        digest: String,
        /// The failed generation that this one retries or continues.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_of: Option<RetryOf>,
        #[serde(flatten)]
        brief: Box<Brief>,
    },
    /// An attempt begins: the model is called, or a worker has claimed the generation. After the tools of a round
    /// it begins the next round.
    #[serde(rename = "chat.started")]
    ChatStarted {
        model: String,
        attempt: u32,
        /// The round of an agent, from 1.
        #[serde(default, skip_serializing_if = "is_zero")]
        round: u32,
    },
    /// The assistant starts a new message.
    #[serde(rename = "assistant.segment.started")]
    AssistantSegmentStarted { message_id: MessageId },
    /// The message is complete.
    #[serde(rename = "assistant.segment.ended")]
    AssistantSegmentEnded { message_id: MessageId },
    /// A piece of the answer.
    #[serde(rename = "chat.delta")]
    ChatDelta {
        message_id: MessageId,
        text: String,
        /// How many pieces from the upstream this event combines.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        chunks: u32,
    },
    /// A piece of the model's thinking.
    #[serde(rename = "thinking.delta")]
    ThinkingDelta {
        message_id: MessageId,
        text: String,
        /// How many pieces from the upstream this event combines.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        chunks: u32,
        /// The vendor's signature of the thinking that ends here. It is sent back to the vendor with the thinking.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// The model calls a tool. The call is a message of its own.
    #[serde(rename = "tool.start")]
    ToolStart {
        message_id: MessageId,
        tool_use_id: String,
        tool_name: String,
        /// Its arguments: an object, or the model's literal text if that is not a JSON object.
        tool_input: Value,
    },
    /// The answer of this round is complete and can no longer be retracted.
    #[serde(rename = "round.ended")]
    RoundEnded {
        round: u32,
        /// Why the model stopped, if it asked for no tools: only the summary of the files is left to do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        finish_reason: Option<String>,
    },
    /// A tool call is about to run. Recorded before anything starts; a sandbox runs each execution id at most once.
    #[serde(rename = "tool.began")]
    ToolBegan {
        tool_use_id: String,
        execution_id: ExecutionId,
        /// Whether the tool changes nothing.
        #[serde(default, skip_serializing_if = "is_false")]
        read_only: bool,
        /// Where the tool runs.
        #[serde(default, skip_serializing_if = "Place::is_sandbox")]
        place: Place,
        /// Whether a request to a tool elsewhere may be repeated with the same execution id.
        #[serde(default, skip_serializing_if = "is_false")]
        idempotent: bool,
    },
    /// A tool wrote something while it ran.
    #[serde(rename = "tool.output")]
    ToolOutput {
        tool_use_id: String,
        stream: ToolStream,
        text: String,
        /// Where this begins in its stream, in bytes. Absent for tools that a worker runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offset: Option<u64>,
        /// How many bytes of the stream this is, if the text has a different length because they are not all UTF-8.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
    },
    /// A tool has finished. Its result is added to the message of the call.
    #[serde(rename = "tool.end")]
    ToolEnd {
        /// The message of the call.
        message_id: MessageId,
        tool_use_id: String,
        result: Value,
        is_error: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// `unknown` if the tool was started and it cannot be known how far it got; `denied` if it did not run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
    },
    /// A tool that was running when its generation ended has been stopped.
    #[serde(rename = "tool.stopped")]
    ToolStopped { tool_use_id: String, execution_id: ExecutionId },
    /// The sandbox of the conversation was created, paused, resumed, killed, found missing, or restored.
    #[serde(rename = "sandbox.changed")]
    SandboxChanged { sandbox_id: SandboxId, state: SandboxState, reason: String },
    /// A person put a file into the workspace, or took one away.
    #[serde(rename = "file.changed")]
    FileChanged {
        /// Relative to the workspace.
        path: String,
        change: Change,
        /// Absent if the file was taken away.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
        by: String,
    },
    /// A sub-agent started, changed its plan, asks a person, or ended.
    #[serde(rename = "delegation.changed")]
    DelegationChanged {
        tool_use_id: String,
        /// The conversation in which the sub-agent works.
        conversation_id: ConversationId,
        state: Delegation,
    },
    /// The parent of this conversation knows what happened here up to this position.
    #[serde(rename = "parent.told")]
    ParentTold { seq: Seq },
    /// The workspace was saved.
    #[serde(rename = "checkpoint.taken")]
    CheckpointTaken {
        checkpoint_id: CheckpointId,
        files: u64,
        bytes: u64,
        /// What `git`, or a comparison with the checkpoint before, says about the files.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        truth: Option<String>,
        /// What was in the workspace and could not be saved.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left_out: Option<String>,
    },
    /// The workspace could not be saved, or could not be restored from the checkpoint that is named.
    #[serde(rename = "checkpoint.failed")]
    CheckpointFailed {
        reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checkpoint_id: Option<CheckpointId>,
    },
    /// A tool call waits for a person's decision.
    #[serde(rename = "approval.requested")]
    ApprovalRequested {
        tool_use_id: String,
        tool_name: String,
        /// The decision applies to these arguments and no others.
        tool_input: Value,
        /// Identifies the tool, its arguments and the attempt. A decision may carry it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        hash: String,
    },
    /// A person decided.
    #[serde(rename = "approval.resolved")]
    ApprovalResolved {
        tool_use_id: String,
        decision: Decision,
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Whether the decision applies to every later call of this tool in this conversation.
        #[serde(default, skip_serializing_if = "is_false")]
        always: bool,
        /// The arguments that `always` is limited to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(inline)]
        pattern: Option<Patterns>,
    },
    /// The token counts of the attempt, as reported by the upstream.
    #[serde(rename = "usage")]
    Usage { input_tokens: u64, output_tokens: u64 },
    /// What the attempt showed is withdrawn.
    #[serde(rename = "attempt.retracted")]
    AttemptRetracted { attempt: u32, message_ids: Vec<MessageId>, reason: String },
    /// The last attempt failed, and the next one starts after a delay.
    #[serde(rename = "retry.scheduled")]
    RetryScheduled {
        attempt: u32,
        /// Counted from this event's time.
        delay_ms: u64,
        /// What went wrong with the last attempt.
        reason: String,
        /// Nothing went wrong: a server that stopped gave it to another one.
        #[serde(default, skip_serializing_if = "is_false")]
        handed_over: bool,
    },
    /// The generation stopped in the middle and waits for a person or a worker.
    #[serde(rename = "chat.interrupted")]
    ChatInterrupted {
        reason: String,
        /// The round it stopped in; 0 if it has no tools.
        round: u32,
    },
    /// An interrupted generation continues.
    #[serde(rename = "chat.resumed")]
    ChatResumed { by: String },
    /// The end: completed.
    #[serde(rename = "chat.done")]
    ChatDone {
        /// Why the model stopped, in the upstream's words.
        finish_reason: String,
    },
    /// The end: failed. What was said is kept.
    #[serde(rename = "chat.error")]
    ChatError { error_message: String, code: String },
    /// The end: cancelled. What was said is kept.
    #[serde(rename = "chat.cancelled")]
    ChatCancelled { reason: CancelReason },
    /// Nobody was watching when a generation ended or began to wait for a person, so its user must be told.
    #[serde(rename = "notification.owed")]
    NotificationOwed {
        notification_id: NotificationId,
        kind: NotificationKind,
        /// The generation that the user is told about.
        generation_id: GenerationId,
        /// The tool call that waits for a decision, and the hash of the question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_use_id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hash: Option<String>,
    },
    /// The notification is in the user's list, and its deliveries are in the outbox.
    #[serde(rename = "notification.made")]
    NotificationMade { notification_id: NotificationId },
}

/// Serde reads null as "absent"; here it is a value that somebody set.
pub(crate) fn even_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn is_zero(round: &u32) -> bool {
    *round == 0
}

fn one() -> u32 {
    1
}

fn is_one(chunks: &u32) -> bool {
    *chunks == 1
}
