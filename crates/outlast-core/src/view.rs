//! The view that a client renders, and how events change it. The TypeScript client folds the same way; both
//! are tested with the logs in `fixtures/`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::documents::{ConversationDocument, conversation_document};
use crate::{
    Approval, Child, Conversation, ConversationId, Delegation, Entry, Event, Execution, ExecutionId,
    Generation, GenerationId, GenerationStatus, Message, MessageId, Part, Place, RequestId, ScheduledRetry,
    Seq, Timestamp,
};

/// Everything needed to show a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversationView {
    pub conversation: ConversationDocument,
    /// The newest messages, in ascending order.
    pub messages: Vec<Message>,
    pub has_more: bool,
    #[schema(required)]
    pub active_run: Option<ActiveRun>,
    /// How the last generation ended; null while one is live.
    #[schema(required)]
    pub last_end: Option<LastEnd>,
    /// The generations that wait behind it, oldest first. The first becomes the active run when this one ends.
    pub queue: Vec<QueuedRun>,
    /// The text of the open segment, by message id.
    pub overlays: BTreeMap<MessageId, String>,
    /// The same as parts, with thinking and text separate.
    pub overlay_parts: BTreeMap<MessageId, Vec<Part>>,
    /// The last event in this view. Continue with the events after it.
    pub last_seq: Seq,
}

/// A summary of the active generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRun {
    pub generation_id: GenerationId,
    pub request_id: RequestId,
    pub status: GenerationStatus,
    pub model: String,
    pub attempt: u32,
    /// The round of an agent, from 1. Absent if there are no tools.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub round: u32,
    #[schema(required)]
    pub started_at: Option<Timestamp>,
    /// How many generations wait behind it.
    pub queued: usize,
    /// The undecided questions, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_approvals: Vec<Approval>,
    /// The tool calls that are running, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running_tools: Vec<RunningTool>,
    /// The sub-agents that work for it, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegations: Vec<RunningDelegation>,
    /// The next attempt, while the generation waits to retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<ScheduledRetry>,
}

/// A tool call that is running.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningTool {
    pub tool_use_id: String,
    pub execution_id: ExecutionId,
    pub started_at: Timestamp,
    /// Where it runs; absent if that is the sandbox.
    #[serde(default, skip_serializing_if = "Place::is_sandbox")]
    pub place: Place,
}

/// A sub-agent that works for a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningDelegation {
    pub tool_use_id: String,
    pub conversation_id: ConversationId,
    pub state: Delegation,
}

/// How a generation ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastEnd {
    pub generation_id: GenerationId,
    pub status: GenerationStatus,
    /// Why the model stopped, why it was cancelled, or the code of the failure.
    #[schema(required)]
    pub reason: Option<String>,
    #[schema(required)]
    pub error_message: Option<String>,
}

/// A summary of a queued generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueuedRun {
    pub generation_id: GenerationId,
    pub request_id: RequestId,
    pub model: String,
}

/// The view of a state, given the stored messages at its position.
pub fn view(state: &Conversation, mut messages: Vec<Message>, has_more: bool) -> ConversationView {
    let mut overlays = BTreeMap::new();
    let mut overlay_parts = BTreeMap::new();
    if let Some(segment) = state.active().and_then(|active| active.open_segment()) {
        overlays.insert(segment.message.clone(), crate::message::plain_text(&segment.parts));
        overlay_parts.insert(segment.message.clone(), segment.parts.clone());
        // The text is only in the overlay, even if an interruption has stored it in the message.
        for message in messages.iter_mut().filter(|message| message.id == segment.message) {
            *message = Message { content: String::new(), parts: Vec::new(), ..message.clone() };
        }
    }
    let foremost = state.foremost().filter(|run| !run.ended());
    let behind = |waiting: &&Generation| foremost.is_some_and(|run| run.id != waiting.id);
    let queue: Vec<QueuedRun> = state.queue.iter().filter(behind).map(QueuedRun::from).collect();
    let active_run = foremost.map(|run| ActiveRun {
        generation_id: run.id.clone(),
        request_id: run.request.clone(),
        status: run.status(),
        model: run.brief.model.clone(),
        attempt: run.progress.attempt,
        round: run.progress.rounds.round,
        started_at: run.progress.started_at,
        queued: queue.len(),
        pending_approvals: run.pending_approvals().map(Approval::shown).collect(),
        running_tools: run.progress.rounds.executions.iter().map(RunningTool::from).collect(),
        delegations: run.children().map(RunningDelegation::from).collect(),
        retry: run.progress.retry.clone(),
    });
    ConversationView {
        conversation: conversation_document(state),
        messages,
        has_more,
        active_run,
        last_end: state.foremost().filter(|run| run.ended()).map(last_end),
        queue,
        overlays,
        overlay_parts,
        last_seq: state.seq,
    }
}

fn last_end(ended: &Generation) -> LastEnd {
    let (reason, error_message) = ended.end_reason();
    LastEnd { generation_id: ended.id.clone(), status: ended.status(), reason, error_message }
}

fn is_zero(round: &u32) -> bool {
    *round == 0
}

impl From<&Execution> for RunningTool {
    fn from(execution: &Execution) -> RunningTool {
        RunningTool {
            tool_use_id: execution.tool_use_id.clone(),
            execution_id: execution.id.clone(),
            started_at: execution.began_at,
            place: execution.runs_in(),
        }
    }
}

impl From<(&str, &Child)> for RunningDelegation {
    fn from((tool_use_id, child): (&str, &Child)) -> RunningDelegation {
        RunningDelegation {
            tool_use_id: tool_use_id.to_owned(),
            conversation_id: child.conversation.clone(),
            state: child.state.clone(),
        }
    }
}

impl From<&Generation> for QueuedRun {
    fn from(waiting: &Generation) -> QueuedRun {
        QueuedRun {
            generation_id: waiting.id.clone(),
            request_id: waiting.request.clone(),
            model: waiting.brief.model.clone(),
        }
    }
}

/// The transcript of a whole log: what the message documents must be, and what a client that applied every
/// event shows.
#[derive(Clone, Debug)]
pub struct Transcript {
    pub state: Conversation,
    pub messages: Vec<Message>,
}

impl Transcript {
    pub fn new(state: Conversation) -> Transcript {
        Transcript { state, messages: Vec::new() }
    }

    pub fn apply(&mut self, entry: &Entry) {
        if let Event::AttemptRetracted { message_ids, .. } = &entry.event {
            self.messages.retain(|message| !message_ids.contains(&message.id));
        }
        for message in self.state.apply_and_tell(entry).messages {
            match self.messages.iter_mut().find(|known| known.id == message.id) {
                Some(known) => *known = message,
                None => self.messages.push(message),
            }
        }
    }

    /// What a client shows now.
    pub fn view(&self) -> ConversationView {
        view(&self.state, self.messages.clone(), false)
    }
}

#[cfg(test)]
mod tests;
