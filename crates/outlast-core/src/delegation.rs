//! A delegation: a tool call whose work a child does. What parent and child know of each other.
//!
//! The child is a conversation of its own. It owes its parent news until `parent.told` says that the parent has them, and
//! the parent takes news by its call's execution id. So either may crash at any time, and nothing is told twice.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::entries::Entries;
use crate::ids::derived;
use crate::json::json_bytes;
use crate::rounds::end_call;
use crate::{
    Conversation, ConversationId, Event, ExecutionId, Generation, GenerationId, GenerationStatus, Phase,
    Refusal, RunEnd, Seq, UserId,
};

/// The tool with which a model hands a task to a sub-agent.
pub const DELEGATE: &str = "delegate";
/// The tool with which a sub-agent changes its working memory.
pub const UPDATE_PLAN: &str = "update_plan";

/// How many children a conversation may have in its life. Their ids are kept, to delete them with it.
pub(crate) const CHILDREN_MAX: usize = 256;
/// The size of a sub-agent's working memory. It is part of the state, and of every event about it.
const MEMORY_BYTES_MAX: usize = 16 * 1024;
/// The arguments of `update_plan`. Any other would be lost without a word.
const MEMORY_FIELDS: [&str; 4] = ["plan", "openTasks", "files", "errors"];
/// How many open questions of a child and its own children a parent shows, ...
const QUESTIONS_MAX: usize = 16;
/// ... and how many bytes their arguments may have together. Arguments beyond that are shown by the child alone.
const QUESTIONS_BYTES_MAX: usize = 32 * 1024;

/// The call that a child works for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Parent {
    pub conversation_id: ConversationId,
    pub generation_id: GenerationId,
    pub tool_use_id: String,
    pub execution_id: ExecutionId,
    /// 1 for the child of a conversation that a person began.
    pub depth: u32,
}

/// What a parent knows of a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delegation {
    pub generation_id: GenerationId,
    /// The position in the child's log up to which this is known.
    pub seq: Seq,
    pub status: GenerationStatus,
    #[serde(flatten)]
    pub memory: Memory,
    /// Questions to a person, of the child and of its own children, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ChildQuestion>,
}

/// The working memory of a sub-agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    #[serde(default)]
    #[schema(required)]
    pub plan: Vec<String>,
    #[serde(default)]
    #[schema(required)]
    pub open_tasks: Vec<String>,
    #[serde(default)]
    #[schema(required)]
    pub files: Vec<String>,
    #[serde(default)]
    #[schema(required)]
    pub errors: Vec<String>,
}

/// What a sub-agent has to tell its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reporting {
    pub memory: Memory,
    /// The last event that the parent must know, ...
    pub news: Seq,
    /// ... and how far it does.
    pub told: Seq,
}

/// A question that a child asks a person. It can be decided in the child, or in any parent above it by its `id`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildQuestion {
    pub id: String,
    pub conversation_id: ConversationId,
    pub generation_id: GenerationId,
    pub tool_use_id: String,
    pub tool_name: String,
    /// Null if the arguments are too long to be shown here. Then the decision belongs into the child.
    pub tool_input: Value,
    pub hash: String,
}

/// A child that a parent knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    pub conversation: ConversationId,
    pub state: Delegation,
}

/// What a child tells its parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildNews {
    pub execution: ExecutionId,
    pub conversation: ConversationId,
    pub state: Delegation,
    /// The result of the call, if the child is done.
    pub end: Option<ChildEnd>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildEnd {
    pub result: String,
    pub is_error: bool,
}

impl Delegation {
    /// Whether the child does nothing until a person decides.
    pub(crate) fn waits(&self) -> bool {
        match self.status {
            GenerationStatus::AwaitingApproval | GenerationStatus::Paused | GenerationStatus::Interrupted => {
                true
            }
            GenerationStatus::Queued
            | GenerationStatus::Running
            | GenerationStatus::Completed
            | GenerationStatus::Cancelled
            | GenerationStatus::Error => false,
        }
    }
}

/// The id of the conversation that does the work of this execution. The same for every try to start it.
pub fn child_conversation(user: &UserId, execution: &ExecutionId) -> ConversationId {
    derived("conv", &["child", user.as_str(), execution.as_str()]).into()
}

/// The id of its generation.
pub fn child_generation(user: &UserId, execution: &ExecutionId) -> GenerationId {
    derived("gen", &["child", user.as_str(), execution.as_str()]).into()
}

/// The working memory in a call of `update_plan`. The error is for the model.
pub(crate) fn memory_in(input: &Value) -> Result<Memory, String> {
    if json_bytes(input) > MEMORY_BYTES_MAX {
        return Err(format!("the plan is longer than {MEMORY_BYTES_MAX} bytes; shorten it"));
    }
    let mut named = input.as_object().into_iter().flat_map(|fields| fields.keys());
    if let Some(unknown) = named.find(|name| !MEMORY_FIELDS.contains(&name.as_str())) {
        return Err(format!("invalid arguments: unknown field {unknown:?}; there are {MEMORY_FIELDS:?}"));
    }
    Memory::deserialize(input).map_err(|error| format!("invalid arguments: {error}"))
}

/// What a child has to tell its parent, if it is one.
pub fn delegation_of(state: &Conversation) -> Option<(Parent, Delegation)> {
    let generation = state.current.as_ref()?;
    let parent = generation.brief.parent.as_deref().cloned()?;
    let delegation = Delegation {
        generation_id: generation.id.clone(),
        seq: generation.progress.reporting.news,
        status: generation.status(),
        memory: generation.progress.reporting.memory.clone(),
        approvals: questions_of(&state.id, generation),
    };
    Some((parent, delegation))
}

/// What a child and its own children ask. A decision about one leads to the next, so the first ones are enough.
fn questions_of(conversation: &ConversationId, generation: &Generation) -> Vec<ChildQuestion> {
    let own = generation.pending_approvals().map(|asked| ChildQuestion {
        id: derived("ask", &[generation.id.as_str(), &asked.tool_use_id, &asked.hash]),
        conversation_id: conversation.clone(),
        generation_id: generation.id.clone(),
        tool_use_id: asked.tool_use_id.clone(),
        tool_name: asked.tool_name.clone(),
        tool_input: asked.tool_input.clone(),
        hash: asked.hash.clone(),
    });
    let mut room = QUESTIONS_BYTES_MAX;
    let shown = |question: ChildQuestion| match room.checked_sub(json_bytes(&question.tool_input)) {
        Some(left) => {
            room = left;
            question
        }
        None => ChildQuestion { tool_input: Value::Null, ..question },
    };
    own.chain(generation.questions().cloned()).take(QUESTIONS_MAX).map(shown).collect()
}

/// The position up to which the parent must be told, if it has not been.
pub(crate) fn owed_news(state: &Conversation) -> Option<(&Generation, Seq)> {
    let child = state.current.as_ref().filter(|generation| generation.brief.parent.is_some())?;
    let Reporting { news, told, .. } = child.progress.reporting;
    (told < news).then_some((child, news))
}

/// Whether this changes what a parent knows.
pub(crate) fn is_news(event: &Event) -> bool {
    match event {
        Event::ChatStarted { attempt, .. } => *attempt == 1,
        Event::ApprovalRequested { .. }
        | Event::ApprovalResolved { .. }
        | Event::ChatInterrupted { .. }
        | Event::ChatResumed { .. }
        | Event::DelegationChanged { .. } => true,
        event => event.is_end(),
    }
}

/// A child has news. What the parent knows already is not recorded again, and neither is what is older than that.
pub(crate) fn hear(state: &Conversation, news: ChildNews, entries: &mut Entries) -> Result<(), Refusal> {
    let ChildNews { execution, conversation, state: delegation, end } = news;
    let waits = |run: &&Generation| matches!(run.progress.phase, Phase::Running | Phase::Interrupted);
    let generation = state.active().filter(waits).ok_or(Refusal::NotDelegated)?;
    let run = generation.execution(&execution).ok_or(Refusal::NotDelegated)?;
    let (id, child) = (run.tool_use_id.clone(), Child { conversation, state: delegation });
    if run.child.as_ref().is_none_or(|known| known.state.seq < child.state.seq) {
        let (tool_use_id, conversation_id) = (id.clone(), child.conversation);
        entries.of(generation, Event::DelegationChanged { tool_use_id, conversation_id, state: child.state });
    }
    let message = generation.open_calls().find(|(call, _)| *call == id).map(|(_, message)| message.clone());
    if let (Some(ChildEnd { result, is_error }), Some(message)) = (end, message) {
        let end = RunEnd::Ended { result: result.into(), is_error, exit_code: None };
        end_call(generation, &id, &message, end, entries);
    }
    Ok(())
}

impl Generation {
    /// The questions of its children.
    pub(crate) fn questions(&self) -> impl Iterator<Item = &ChildQuestion> {
        let children = self.progress.rounds.executions.iter().filter_map(|run| run.child.as_deref());
        children.flat_map(|child| &child.state.approvals)
    }

    /// The children that work for it, by their call.
    pub fn children(&self) -> impl Iterator<Item = (&str, &Child)> {
        let running = self.progress.rounds.executions.iter();
        running.filter_map(|run| Some((run.tool_use_id.as_str(), run.child.as_deref()?)))
    }
}
