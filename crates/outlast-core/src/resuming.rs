//! How an interrupted agent continues: the model is told where the run stands, and finished work is not repeated.

use crate::attempts::{begin_attempt, retract};
use crate::entries::Entries;
use crate::generation::Stage;
use crate::ids::derived;
use crate::message::plain_text;
use crate::{Conversation, Event, Generation, Message, MessageStatus, Part, Role};

/// How much of a partial answer the model is shown again, in bytes from its end.
const PARTIAL_BYTES_MAX: usize = 8 * 1024;

/// How much of the working memory of each sub-agent it is shown, in bytes from its start: the plan comes first.
const CHILD_BYTES_MAX: usize = 4 * 1024;

/// Whether the sandbox must report the state of its files before an interrupted generation continues.
pub(crate) fn asks_the_sandbox(state: &Conversation, generation: &Generation) -> bool {
    generation.is_agent() && (state.sandbox.is_some() || generation.progress.rounds.stage != Stage::Answering)
}

/// The sandbox has reported the state of its files: the model is told, and the run continues.
pub(crate) fn go_on(state: &Conversation, generation: &Generation, truth: &str, entries: &mut Entries) {
    let progress = &generation.progress;
    if progress.rounds.stage == Stage::Answering {
        retract(generation, progress.shown.clone(), "resumed", entries);
    }
    let answers = progress.rounds.stage == Stage::Answering;
    let said = standing(state, generation, truth);
    system_message(state, generation, said, !answers, entries); // an answer continues with its next attempt
    if answers {
        begin_attempt(generation, entries);
    }
}

/// Where a run stands, for the model.
fn standing(state: &Conversation, generation: &Generation, truth: &str) -> String {
    let rounds = &generation.progress.rounds;
    let mut said = format!(
        "[SESSION_RESUMED] The run was interrupted in round {} and goes on now. What the tools did before is done: do \
         not repeat it.\n",
        rounds.round
    );
    let resumed_at = generation.progress.at_work_since.unwrap_or_default();
    let new = state.sandbox.as_ref().filter(|sandbox| sandbox.since >= resumed_at);
    if let Some(sandbox) = new.filter(|sandbox| !sandbox.reason.is_empty()) {
        said.push_str(&format!("\nSandbox: {}\n", sandbox.reason));
    }
    if !rounds.unknown.is_empty() {
        said.push_str(&format!("\nOutcome unknown: {}\n", rounds.unknown.join(", ")));
    }
    for (call, child) in generation.children() {
        let memory = serde_json::to_string(&child.state.memory).unwrap_or_default();
        let (status, memory) = (child.state.status.as_str(), head(&memory, CHILD_BYTES_MAX));
        said.push_str(&format!("\nSub-agent of call {call}, which goes on by itself ({status}): {memory}\n"));
    }
    if !truth.trim().is_empty() {
        said.push_str(&format!("\nState of the workspace:\n{}\n", truth.trim_end()));
    }
    let partial = generation.open_segment().map(|segment| plain_text(&segment.parts)).unwrap_or_default();
    if rounds.stage == Stage::Answering && !partial.trim().is_empty() {
        said.push_str(&format!("\nYour answer was cut off. It ended with:\n{}\n", tail(&partial)));
    }
    said.trim_end().to_owned()
}

/// The start of a text, up to the end of a character.
fn head(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The end of a text, from the start of a character.
fn tail(text: &str) -> &str {
    let mut start = text.len().saturating_sub(PARTIAL_BYTES_MAX);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// A message from the server in the transcript.
pub(crate) fn system_message(
    state: &Conversation,
    generation: &Generation,
    text: String,
    resumes: bool,
    entries: &mut Entries,
) {
    let seq = entries.next_seq();
    let message = Message {
        id: derived("msg", &[generation.id.as_str(), &seq.to_string()]).into(),
        conversation_id: state.id.clone(),
        generation_id: Some(generation.id.clone()),
        role: Role::System,
        content: text.clone(),
        parts: vec![Part::Text { text }],
        status: MessageStatus::Complete,
        error_message: None,
        seq,
        created_at: entries.now(),
    };
    entries.of(generation, Event::MessageAdded { message, resumes });
}

#[cfg(test)]
mod tests;
