//! One generation as the log tells it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::message::{TextKind, push_text};
use crate::{
    CancelReason, Decision, GenerationId, MessageId, MessageStatus, Part, Producer, RequestId, RetryOf, Role,
    Seq, Timestamp,
};

/// A user's message and everything done to answer it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generation {
    /// Its id.
    pub id: GenerationId,
    /// The client's name for the request.
    pub request: RequestId,
    /// Fingerprint of the request.
    pub digest: String,
    /// The user's message it answers.
    pub message: MessageId,
    /// The model's name in the settings.
    pub model: String,
    /// Instructions for the model.
    pub system: Option<String>,
    /// Free JSON of the client.
    pub metadata: Option<Value>,
    /// The failed generation that this one takes up again.
    pub retry_of: Option<RetryOf>,
    /// Where the log holds what the model is given instead of the transcript, if anything. It may be long
    /// and is read for a call alone.
    #[serde(default)]
    pub prompt_seq: Option<Seq>,
    /// The id that the client wants its answer's first message to have.
    #[serde(default)]
    pub answer_id: Option<MessageId>,
    /// Who makes the answer, if not a model of the settings.
    #[serde(default)]
    pub producer: Option<Producer>,
    /// The last event that its producer brought: where the next batch must begin.
    #[serde(default)]
    pub produced: Seq,
    /// Its first event.
    pub first_seq: Seq,
    /// Its newest event.
    pub last_seq: Seq,
    /// When it was accepted.
    pub queued_at: Timestamp,
    /// Messages of the failed generations that this one continues: the beginning of its answer.
    pub kept: Vec<MessageId>,
    /// When the first call began.
    pub started_at: Option<Timestamp>,
    /// Since when it has been at work: its first call, or the last time a person let it go on.
    pub at_work_since: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// How far it has come.
    pub phase: Phase,
    /// The current attempt; 0 before the first.
    pub attempt: u32,
    /// Where the current attempt began. An owner that came later did not make that call.
    pub attempt_seq: Seq,
    /// Attempts that failed and were retried. Attempts lost to a crash do not count: they say nothing
    /// about the upstream.
    pub failures: u32,
    /// Attempts lost with their owners since the start, the last failure of the upstream or the last resume.
    #[serde(default)]
    pub lost_in_a_row: u32,
    /// The attempt that waits for its time, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<ScheduledRetry>,
    /// What the assistant said that was not withdrawn.
    pub segments: Vec<Segment>,
    /// What a person was asked to decide about, oldest first.
    #[serde(default)]
    pub approvals: Vec<Approval>,
    /// What tools were asked, wrote and answered since anything was last withdrawn, in bytes.
    #[serde(default)]
    pub tool_bytes: usize,
    /// Tokens read, all attempts together.
    pub input_tokens: u64,
    /// Tokens written, all attempts together.
    pub output_tokens: u64,
    /// Pieces received from the upstream, all attempts together.
    pub chunks_received: u64,
}

/// An attempt that waits for its time, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledRetry {
    /// Which attempt.
    pub attempt: u32,
    /// How long it waits.
    pub delay_ms: u64,
    /// What went wrong with the last one.
    pub reason: String,
    /// From when on it waits.
    pub ts: Timestamp,
}

/// How far a generation has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Another one runs first.
    Queued,
    /// A call is, or should be, under way.
    Running,
    /// The last call failed; the next begins at that time.
    Retrying {
        /// When.
        until: Timestamp,
    },
    /// It waits for a person to resume or dismiss it.
    Interrupted,
    /// Answered.
    Completed {
        /// Why the model stopped.
        finish_reason: String,
    },
    /// Cancelled.
    Cancelled {
        /// By whom or why.
        reason: CancelReason,
    },
    /// Failed.
    Failed {
        /// For a person.
        error_message: String,
        /// For a program.
        code: String,
    },
}

/// A tool about which a person is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Which call.
    pub tool_use_id: String,
    /// Which tool.
    pub tool_name: String,
    /// Its arguments.
    pub tool_input: Value,
    /// What was decided, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
}

/// What a person decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    /// How.
    pub decision: Decision,
    /// Who.
    pub by: String,
    /// Why, if they said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether it is meant for every further call of this tool.
    #[serde(default)]
    pub always: bool,
}

/// A contiguous piece of what the assistant said, or a tool it asked for: one message of the transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Its message.
    pub message: MessageId,
    /// Where it began.
    pub seq: Seq,
    /// When it began.
    pub created_at: Timestamp,
    /// The attempt that said it.
    pub attempt: u32,
    /// The assistant, or the tool that was asked for.
    #[serde(default = "assistant")]
    pub role: Role,
    /// What was said.
    pub parts: Vec<Part>,
    /// Whether text may still be added, else how it ended.
    pub status: MessageStatus,
}

/// A call of a tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToolUse<'a> {
    pub(crate) id: &'a str,
    /// The message that asks.
    pub(crate) message: &'a MessageId,
    /// Whether its result is there.
    pub(crate) ended: bool,
}

fn assistant() -> Role {
    Role::Assistant
}

impl Segment {
    /// Whether text may still be added.
    pub fn is_open(&self) -> bool {
        self.status == MessageStatus::Streaming
    }
}

impl Generation {
    /// Whether nothing more can happen to it.
    pub fn ended(&self) -> bool {
        match self.phase {
            Phase::Completed { .. } | Phase::Cancelled { .. } | Phase::Failed { .. } => true,
            Phase::Queued | Phase::Running | Phase::Retrying { .. } | Phase::Interrupted => false,
        }
    }

    /// The status clients see.
    pub fn status(&self) -> GenerationStatus {
        match self.phase {
            Phase::Queued => GenerationStatus::Queued,
            Phase::Running if self.waits_for_a_decision() => GenerationStatus::AwaitingApproval,
            Phase::Running | Phase::Retrying { .. } => GenerationStatus::Running,
            Phase::Interrupted => GenerationStatus::Interrupted,
            Phase::Completed { .. } => GenerationStatus::Completed,
            Phase::Cancelled { .. } => GenerationStatus::Cancelled,
            Phase::Failed { .. } => GenerationStatus::Error,
        }
    }

    /// Why it ended, for a program, and why it failed, for a person.
    pub(crate) fn end_reason(&self) -> (Option<String>, Option<String>) {
        match &self.phase {
            Phase::Completed { finish_reason } => (Some(finish_reason.clone()), None),
            Phase::Cancelled { reason } => (Some(reason.as_str().to_owned()), None),
            Phase::Failed { error_message, code } => (Some(code.clone()), Some(error_message.clone())),
            Phase::Queued | Phase::Running | Phase::Retrying { .. } | Phase::Interrupted => (None, None),
        }
    }

    /// The tools it asked for, oldest first.
    pub(crate) fn tool_calls(&self) -> impl Iterator<Item = ToolUse<'_>> {
        self.segments.iter().filter_map(|segment| {
            let id = segment.parts.iter().find_map(|part| match part {
                Part::ToolUse { id, .. } => Some(id.as_str()),
                _ => None,
            })?;
            let ended = segment.parts.iter().any(|part| matches!(part, Part::ToolResult { .. }));
            Some(ToolUse { id, message: &segment.message, ended })
        })
    }

    /// The questions that nobody has answered yet, oldest first.
    pub fn pending_approvals(&self) -> impl Iterator<Item = &Approval> {
        self.approvals.iter().filter(|approval| approval.decided.is_none() && !self.ended())
    }

    /// Whether a person has to decide before it can go on.
    pub fn waits_for_a_decision(&self) -> bool {
        self.pending_approvals().next().is_some()
    }

    /// The segment that text is being added to.
    pub fn open_segment(&self) -> Option<&Segment> {
        self.segments.last().filter(|segment| segment.is_open())
    }

    /// The id that the next message must have, if that is settled: while one is open there is no other, and
    /// the first has the one that the client wants.
    pub fn next_message(&self) -> Option<&MessageId> {
        let taken = |id: &&MessageId| self.segments.iter().any(|segment| segment.message == **id);
        let wanted = self.answer_id.as_ref().filter(|id| !taken(id));
        self.open_segment().map(|segment| &segment.message).or(wanted)
    }

    /// The messages that it has shown and not withdrawn.
    pub fn shown(&self) -> Vec<MessageId> {
        self.segments.iter().map(|segment| segment.message.clone()).collect()
    }

    /// The messages that answer its question: those it continues, then its own.
    pub fn answer_messages(&self) -> Vec<MessageId> {
        self.kept.iter().chain(self.segments.iter().map(|segment| &segment.message)).cloned().collect()
    }

    /// How long the answer is, with everything that tools add to it.
    pub fn answer_bytes(&self) -> usize {
        let bytes = |part: &Part| match part {
            Part::Text { text } | Part::Thinking { text } => text.len(),
            // Counted when they came: to write them down for every report would cost more than they do.
            Part::ToolUse { .. } | Part::ToolResult { .. } | Part::Image { .. } => 0,
        };
        let said: usize = self.segments.iter().flat_map(|segment| &segment.parts).map(bytes).sum();
        said.saturating_add(self.tool_bytes)
    }

    /// Everything said, in the order of the log.
    pub fn content_parts(&self) -> Vec<Part> {
        self.segments.iter().flat_map(|segment| segment.parts.iter().cloned()).collect()
    }

    pub(crate) fn add_text(&mut self, message: &MessageId, kind: TextKind, text: &str, chunks: u32) {
        self.chunks_received += u64::from(chunks);
        // Text for a segment that is not open cannot be recorded by `observe`; a log that has it is
        // folded without it rather than not at all.
        if let Some(segment) =
            self.segments.last_mut().filter(|segment| segment.is_open() && segment.message == *message)
        {
            push_text(&mut segment.parts, kind, text);
        }
    }
}

/// The status of a generation as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GenerationStatus {
    /// Accepted, waiting for its turn.
    Queued,
    /// Under way.
    Running,
    /// A tool waits for a person's decision.
    AwaitingApproval,
    /// The same, and its sandbox sleeps.
    Paused,
    /// Stopped in the middle; a person may resume or dismiss it.
    Interrupted,
    /// Answered.
    Completed,
    /// Cancelled.
    Cancelled,
    /// Failed.
    Error,
}

impl GenerationStatus {
    /// The statuses of a generation that is not over: what a starting server must look at.
    pub const LIVE: &'static [GenerationStatus] = &[
        GenerationStatus::Queued,
        GenerationStatus::Running,
        GenerationStatus::AwaitingApproval,
        GenerationStatus::Paused,
        GenerationStatus::Interrupted,
    ];

    /// As the API and the tables write it.
    pub fn as_str(self) -> &'static str {
        match self {
            GenerationStatus::Queued => "queued",
            GenerationStatus::Running => "running",
            GenerationStatus::AwaitingApproval => "awaiting_approval",
            GenerationStatus::Paused => "paused",
            GenerationStatus::Interrupted => "interrupted",
            GenerationStatus::Completed => "completed",
            GenerationStatus::Cancelled => "cancelled",
            GenerationStatus::Error => "error",
        }
    }
}
