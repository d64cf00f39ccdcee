//! The state of one generation: a user's message and everything done to answer it.
//!
//! It holds only what is still open. What was said is in messages and in the log, so the state stays small
//! however long the answer is.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    Approval, Brief, CancelReason, CheckpointId, Execution, ExecutionId, GenerationId, MessageId,
    MessageStatus, Part, Reporting, RequestId, RetryOf, Role, SandboxId, Seq, Timestamp,
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generation {
    pub id: GenerationId,
    /// The client's idempotency key.
    pub request: RequestId,
    /// Fingerprint of the request.
    pub digest: String,
    /// The user's message it answers.
    pub message: MessageId,
    /// The failed generation that this one retries or continues.
    pub retry_of: Option<RetryOf>,
    /// Without the prompt, which may be long. It is read from the log for each call.
    pub brief: Brief,
    /// Where the log holds the prompt, if there is one.
    pub prompt_seq: Option<Seq>,
    pub progress: Progress,
    pub counters: Counters,
}

/// The progress of a generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    pub phase: Phase,
    /// The current attempt; 0 before the first.
    pub attempt: u32,
    /// The position at which the current attempt started. An owner that took over later did not make that call.
    pub attempt_seq: Seq,
    /// The next attempt, while the generation waits to retry.
    pub retry: Option<ScheduledRetry>,
    pub first_seq: Seq,
    pub last_seq: Seq,
    /// The last event that a worker appended. Its next batch must start after it.
    pub produced: Seq,
    pub queued_at: Timestamp,
    /// When the first attempt began.
    pub started_at: Option<Timestamp>,
    /// When it last started to work: at its first attempt, or when it was last resumed or decided about.
    pub at_work_since: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    /// Messages of the failed generations that this one continues. They are the beginning of its answer.
    pub kept: Vec<MessageId>,
    /// Its own messages that were not withdrawn, oldest first.
    pub shown: Vec<MessageId>,
    /// The first of them with role `assistant`.
    pub first_answer: Option<MessageId>,
    /// Whether it consists of text only. A model cannot continue after thinking or tool calls.
    pub only_text: bool,
    /// Messages that may still change: the one whose text is arriving, and tool calls without a result.
    pub open: Vec<Segment>,
    /// The questions to a person, decided or not, oldest first.
    pub approvals: Vec<Approval>,
    /// How far the rounds of an agent have come.
    #[serde(default)]
    pub rounds: Rounds,
    /// What a sub-agent has to tell its parent.
    #[serde(default)]
    pub reporting: Reporting,
}

/// The rounds of an agent: one model answer and the tools it asked for, again and again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rounds {
    /// The current round, from 1; 0 before the first attempt, and always if there are no tools.
    pub round: u32,
    /// Rounds of the failed generations that this one takes up.
    pub inherited: u32,
    pub stage: Stage,
    /// Where each settled round ended, oldest first: of this generation and of those it takes up.
    pub ends: Vec<Seq>,
    /// The failed generations that this one takes up, oldest first: their settled rounds are part of its context.
    pub of: Vec<GenerationId>,
    /// How many messages the settled rounds have, and what the server told the model in between.
    pub messages: usize,
    /// Tool calls that have begun and not ended.
    pub executions: Vec<Execution>,
    /// The ids of all tool calls, which models repeat.
    pub call_ids: Vec<String>,
    /// Tool calls of the current round whose outcome is unknown.
    pub unknown: Vec<String>,
    /// How often the sandbox was lost in the current round.
    pub lost: u32,
    /// How many calls were delegated.
    #[serde(default)]
    pub delegated: u32,
    /// Whether a tool call that may change files has begun.
    pub touched: bool,
    /// Why the model stopped, in stage `Finishing`.
    pub finish_reason: Option<String>,
    /// Whether the last answer has its summary and is closed, in stage `Finishing`.
    pub summarized: bool,
    /// A person resumed it: the sandbox reports the state of its files before the run continues.
    pub resuming: bool,
    /// A person wants the paused sandbox awake.
    pub woken: bool,
    /// The sandbox it works in, and whether that sleeps.
    pub sandbox: Option<SandboxId>,
    pub paused: bool,
    /// The newest checkpoint before it changed anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<CheckpointId>,
}

impl Rounds {
    /// How many rounds are settled, those of the generations that it takes up included.
    pub fn settled(&self) -> u32 {
        match (self.round, self.stage) {
            (0, _) => self.inherited,
            (round, Stage::Answering) => round - 1,
            (round, Stage::Tools | Stage::Finishing) => round,
        }
    }
}

/// What is left to do in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// The model answers.
    #[default]
    Answering,
    /// The answer is settled, and its tools run.
    Tools,
    /// The last answer is settled; the workspace is saved and what changed is summarised.
    Finishing,
}

/// Counters. Attempts that were lost with their owner do not count as failures, because they say nothing
/// about the upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Attempts that failed and were retried.
    pub failures: u32,
    /// Attempts lost with their owners since the start, the last upstream failure or the last resume.
    pub lost_in_a_row: u32,
    /// The size of the answer since anything was last withdrawn, in bytes: text and tool data, plus a fixed
    /// amount for each event, part and message.
    pub answer_bytes: usize,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Pieces received from the upstream.
    pub chunks_received: u64,
    /// How many times it continued: after a person resumed it, or after its server was gone.
    #[serde(default)]
    pub resumed: u32,
    /// Time at work that is over: what it waited for people does not count.
    #[serde(default)]
    pub worked_ms: u64,
}

/// The next attempt, and why the last one failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledRetry {
    pub attempt: u32,
    pub delay_ms: u64,
    /// What went wrong with the last attempt.
    pub reason: String,
    /// When the delay started.
    pub ts: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Waits until the generations before it have ended.
    Queued,
    /// An attempt is running, or should be.
    Running,
    /// The last attempt failed, and the next one starts at this time.
    Retrying {
        until: Timestamp,
    },
    /// Waits for a person to resume or dismiss it, or for a worker to claim it.
    Interrupted,
    Completed {
        finish_reason: String,
    },
    Cancelled {
        reason: CancelReason,
    },
    Failed {
        error_message: String,
        code: String,
    },
}

/// A contiguous piece of assistant text, or a tool call: one message of the transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    pub message: MessageId,
    /// The position at which it began.
    pub seq: Seq,
    pub created_at: Timestamp,
    pub role: Role,
    pub parts: Vec<Part>,
    /// `Streaming` while text may still be added.
    pub status: MessageStatus,
}

impl Segment {
    pub fn is_streaming(&self) -> bool {
        self.status == MessageStatus::Streaming
    }

    /// The id of the tool call, if this is one.
    pub(crate) fn tool_use_id(&self) -> Option<&str> {
        self.parts.iter().find_map(|part| match part {
            Part::ToolUse { id, .. } => Some(id.as_str()),
            Part::Text { .. } | Part::Thinking { .. } | Part::Image { .. } | Part::ToolResult { .. } => None,
        })
    }
}

impl Generation {
    pub fn ended(&self) -> bool {
        match self.progress.phase {
            Phase::Completed { .. } | Phase::Cancelled { .. } | Phase::Failed { .. } => true,
            Phase::Queued | Phase::Running | Phase::Retrying { .. } | Phase::Interrupted => false,
        }
    }

    pub fn status(&self) -> GenerationStatus {
        match self.progress.phase {
            Phase::Queued => GenerationStatus::Queued,
            Phase::Running if self.waits_for_a_decision() && self.progress.rounds.paused => {
                GenerationStatus::Paused
            }
            Phase::Running if self.waits_for_a_decision() => GenerationStatus::AwaitingApproval,
            Phase::Running | Phase::Retrying { .. } => GenerationStatus::Running,
            Phase::Interrupted => GenerationStatus::Interrupted,
            Phase::Completed { .. } => GenerationStatus::Completed,
            Phase::Cancelled { .. } => GenerationStatus::Cancelled,
            Phase::Failed { .. } => GenerationStatus::Error,
        }
    }

    /// Whether the server runs its tools, in rounds.
    pub fn is_agent(&self) -> bool {
        self.brief.is_agent() && self.prompt_seq.is_none()
    }

    /// Whether another owner can continue what it does now as it stands: anything but a call to a model.
    pub(crate) fn survives_its_owner(&self) -> bool {
        let rounds = &self.progress.rounds;
        rounds.stage != Stage::Answering || rounds.resuming
    }

    /// Whether it uses the server or its upstream now. One that waits for a person does not.
    pub fn is_at_work(&self) -> bool {
        matches!(self.progress.phase, Phase::Running | Phase::Retrying { .. }) && !self.is_blocked()
    }

    /// Whether nothing can be done before a person decides. An agent runs the calls before the first undecided one.
    pub(crate) fn is_blocked(&self) -> bool {
        let rounds = &self.progress.rounds;
        if !self.is_agent() {
            return self.waits_for_a_decision();
        }
        let first = self.open_calls().next();
        let undecided = |id: &str| self.pending_approvals().any(|asked| asked.tool_use_id == id);
        let undecided = first.is_some_and(|(id, _)| undecided(id));
        // Children that wait for a person do not keep it at work.
        let waits = |run: &Execution| run.child.as_ref().is_some_and(|child| child.state.waits());
        let running = !rounds.executions.is_empty();
        let waits = rounds.executions.iter().all(waits) && (running || undecided);
        rounds.stage == Stage::Tools && !rounds.resuming && waits
    }

    /// Why it ended, for programs, and the error message, for people.
    pub(crate) fn end_reason(&self) -> (Option<String>, Option<String>) {
        match &self.progress.phase {
            Phase::Completed { finish_reason } => (Some(finish_reason.clone()), None),
            Phase::Cancelled { reason } => (Some(reason.as_str().to_owned()), None),
            Phase::Failed { error_message, code } => (Some(code.clone()), Some(error_message.clone())),
            Phase::Queued | Phase::Running | Phase::Retrying { .. } | Phase::Interrupted => (None, None),
        }
    }

    /// Tool calls without a result, oldest first: the id of the call and its message.
    pub(crate) fn open_calls(&self) -> impl Iterator<Item = (&str, &MessageId)> {
        self.progress.open.iter().filter_map(|open| Some((open.tool_use_id()?, &open.message)))
    }

    /// A tool call without a result: its name and its input.
    pub fn call(&self, tool_use_id: &str) -> Option<(&str, &Value)> {
        let parts = self.progress.open.iter().flat_map(|open| &open.parts);
        parts.into_iter().find_map(|part| match part {
            Part::ToolUse { id, name, input } if id == tool_use_id => Some((name.as_str(), input)),
            Part::ToolUse { .. }
            | Part::Text { .. }
            | Part::Thinking { .. }
            | Part::Image { .. }
            | Part::ToolResult { .. } => None,
        })
    }

    /// An execution that has not ended.
    pub fn execution(&self, id: &ExecutionId) -> Option<&Execution> {
        self.progress.rounds.executions.iter().find(|execution| execution.id == *id)
    }

    /// The questions that nobody has decided yet, oldest first.
    pub fn pending_approvals(&self) -> impl Iterator<Item = &Approval> {
        self.progress.approvals.iter().filter(|approval| approval.decided.is_none() && !self.ended())
    }

    /// Whether a person must decide before it can continue.
    pub fn waits_for_a_decision(&self) -> bool {
        self.pending_approvals().next().is_some() || (!self.ended() && self.questions().next().is_some())
    }

    /// The segment that text is being added to.
    pub fn open_segment(&self) -> Option<&Segment> {
        self.progress.open.iter().find(|open| open.is_streaming())
    }

    /// The id for the next text, if it is determined: that of the open message, or for the first message the
    /// one that the client chose.
    pub fn next_message(&self) -> Option<&MessageId> {
        let rounds = &self.progress.rounds;
        let is_used = rounds.settled() > rounds.inherited; // by the first round
        let wanted = self.brief.answer_id.as_ref().filter(|id| !is_used && !self.progress.shown.contains(id));
        self.open_segment().map(|segment| &segment.message).or(wanted)
    }

    /// How many of the newest messages the model is given beside the history and the question.
    pub fn answer_length(&self) -> usize {
        self.progress.kept.len() + self.progress.shown.len() + self.progress.rounds.messages
    }

    /// The messages that answer its question: those it continues, then its own.
    pub fn answer_messages(&self) -> Vec<MessageId> {
        self.progress.kept.iter().chain(&self.progress.shown).cloned().collect()
    }
}

/// The status of a generation as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GenerationStatus {
    Queued,
    Running,
    /// A tool call waits for a person's decision.
    AwaitingApproval,
    /// A tool call waits for a decision, and the sandbox is paused.
    Paused,
    /// Stopped in the middle. A person may resume or dismiss it; a worker may claim it.
    Interrupted,
    Completed,
    Cancelled,
    Error,
}

impl GenerationStatus {
    /// The statuses of a generation that has not ended.
    pub const LIVE: &'static [Self] =
        &[Self::Queued, Self::Running, Self::AwaitingApproval, Self::Paused, Self::Interrupted];
    /// The statuses of one that has.
    pub const OVER: &'static [Self] = &[Self::Completed, Self::Cancelled, Self::Error];

    pub fn is_live(self) -> bool {
        GenerationStatus::LIVE.contains(&self)
    }

    /// The inverse of `as_str`.
    pub fn from_name(name: &str) -> Option<GenerationStatus> {
        GenerationStatus::LIVE
            .iter()
            .chain(GenerationStatus::OVER)
            .copied()
            .find(|status| status.as_str() == name)
    }

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
