//! The settled rounds of an agent as the model sees them: its answer and tool calls, then their results.

use serde_json::Value;

use super::ContextMessage;
use crate::json::json_bytes;
use crate::message::plain_text;
use crate::{Generation, Message, Part, Role, Seq};

/// What the model reads about a call that has no result, because its generation ended first.
const NO_RESULT: &str = "[no result: the run was stopped before this tool had finished]";

/// The settled rounds of this generation and of those it continues, with the server's messages to the model in between.
/// If the last answer was complete, because it was cancelled while it was being finished, this asks for more.
pub(super) fn settled(generation: &Generation, messages: &[Message]) -> Vec<ContextMessage> {
    let rounds = &generation.progress.rounds;
    let part_of = |message: &&Message| {
        let id = message.generation_id.as_ref();
        id.is_some_and(|id| *id == generation.id || rounds.of.contains(id))
            && message.id != generation.message
    };
    let own: Vec<&Message> = messages.iter().filter(part_of).collect();
    let between =
        |after: Seq, upto: Seq| own.iter().filter(move |message| after < message.seq && message.seq <= upto);
    let mut list = Vec::new();
    let mut after = Seq::ZERO;
    for end in &rounds.ends {
        list.extend(between(after, *end).filter_map(|message| told(message)));
        let in_round: Vec<&Message> = between(after, *end).copied().collect();
        list.extend(round(&in_round));
        after = *end;
    }
    list.extend(between(after, Seq(u64::MAX)).filter_map(|message| told(message)));
    list
}

/// A message from the server keeps its place and is given the user's role, because not every vendor accepts instructions in
/// the middle of a conversation.
fn told(message: &Message) -> Option<ContextMessage> {
    let parts = || vec![Part::Text { text: message.content.clone() }];
    (message.role == Role::System).then(|| ContextMessage { role: Role::User, parts: parts() })
}

fn round(messages: &[&Message]) -> Vec<ContextMessage> {
    let (mut asked, mut results) = (Vec::new(), Vec::new());
    for part in
        messages.iter().filter(|message| message.role != Role::System).flat_map(|message| &message.parts)
    {
        match part {
            Part::Text { text } if text.trim().is_empty() => {}
            Part::Text { .. } | Part::Thinking { .. } | Part::ToolUse { .. } => asked.push(part.clone()),
            Part::ToolResult { .. } => results.push(part.clone()),
            Part::Image { .. } => {}
        }
    }
    let called = |part: &Part| match part {
        Part::ToolUse { id, .. } => Some(id.clone()),
        _ => None,
    };
    for id in asked.iter().filter_map(called) {
        let has = |part: &Part| matches!(part, Part::ToolResult { tool_use_id, .. } if *tool_use_id == id);
        if !results.iter().any(has) {
            let content = Value::from(NO_RESULT);
            results.push(Part::tool_result(id, content, true));
        }
    }
    let spoken = ContextMessage { role: Role::Assistant, parts: asked };
    let results = ContextMessage { role: Role::Tool, parts: results };
    [spoken, results].into_iter().filter(|message| !message.parts.is_empty()).collect()
}

/// Shortens a context that is longer than the model can read: the oldest tool results first, each replaced by a line that
/// says so. Never the question, and never the last round.
pub(super) fn shorten(messages: &mut [ContextMessage], budget: usize) {
    let mut bytes: usize = messages.iter().flat_map(|message| &message.parts).map(size).sum();
    let last = messages.iter().rposition(|message| message.role == Role::Tool).unwrap_or(0);
    for part in messages[..last].iter_mut().flat_map(|message| &mut message.parts) {
        if bytes <= budget {
            return;
        }
        let Part::ToolResult { content, .. } = part else { continue };
        let before = json_bytes(content);
        let line = Value::from(format!("[result of {before} bytes left out]"));
        if json_bytes(&line) < before {
            bytes = bytes - before + json_bytes(&line);
            *content = line;
        }
    }
}

fn size(part: &Part) -> usize {
    match part {
        Part::Text { text } | Part::Image { url: text } => text.len(),
        Part::Thinking { text, signature } => text.len() + signature.as_ref().map_or(0, String::len),
        Part::ToolUse { input, .. } => json_bytes(input),
        Part::ToolResult { content, .. } => json_bytes(content),
    }
}

/// Whether the context ends with a complete answer that needs no continuation.
pub(super) fn ends_with_an_answer(list: &[ContextMessage]) -> bool {
    let last = list.last().filter(|message| message.role == Role::Assistant);
    last.is_some_and(|message| !plain_text(&message.parts).is_empty())
}
