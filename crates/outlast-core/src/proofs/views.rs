//! O4: a view can be kept up to date from the events after it. This file applies events to a view as the
//! TypeScript client does, without the state.

use super::fixtures::logs;
use crate::message::{plain_text, push_text};
use crate::testing::*;
use crate::{
    ActiveRun, Approval, ConversationStatus, ConversationView, Entry, Event, GenerationStatus, LastEnd,
    Message, MessageId, MessageStatus, Part, QueuedRun, Role, ScheduledRetry, TextKind, Transcript,
};

fn follow(view: &mut ConversationView, entry: &Entry) {
    view.last_seq = entry.seq;
    view.conversation.last_seq = entry.seq;
    if !entry.event.is_text() {
        view.conversation.updated_at = entry.ts;
    }
    match &entry.event {
        Event::ConversationUpdated { title, metadata } => {
            if let Some(title) = title {
                view.conversation.title = title.clone();
            }
            if let Some(metadata) = metadata {
                view.conversation.metadata = Some(metadata.clone()).filter(|metadata| !metadata.is_null());
            }
        }
        Event::MessageAdded { message } => view.messages.push(message.clone()),
        Event::GenerationQueued { brief, .. } => queue(view, entry, &brief.model),
        Event::ChatStarted { attempt, .. } => {
            let run = view.active_run.as_mut().unwrap();
            run.attempt = *attempt;
            run.retry = None;
            run.started_at = run.started_at.or(Some(entry.ts));
            go_on(view);
        }
        Event::AssistantSegmentStarted { message_id } => open(view, entry, message_id),
        Event::ChatDelta { message_id, text, .. } => say(view, message_id, TextKind::Answer, text),
        Event::ThinkingDelta { message_id, text, .. } => say(view, message_id, TextKind::Thinking, text),
        Event::AssistantSegmentEnded { .. } => close(view, entry, MessageStatus::Complete, None),
        Event::AttemptRetracted { message_ids, .. } => {
            view.messages.retain(|message| !message_ids.contains(&message.id));
            view.overlays.retain(|id, _| !message_ids.contains(id));
            view.overlay_parts.retain(|id, _| !message_ids.contains(id));
            if let Some(run) = view.active_run.as_mut().filter(|run| !run.pending_approvals.is_empty()) {
                run.pending_approvals.clear();
                go_on(view);
            }
        }
        Event::ChatInterrupted { .. } => {
            let run = view.active_run.as_mut().unwrap();
            (run.status, run.retry) = (GenerationStatus::Interrupted, None);
            view.conversation.generation_status = ConversationStatus::Interrupted;
        }
        Event::ChatResumed { .. } => go_on(view),
        Event::ChatDone { .. } => {
            close(view, entry, MessageStatus::Complete, None);
            end(view, entry, ConversationStatus::Complete);
        }
        Event::ChatError { error_message, .. } => {
            close(view, entry, MessageStatus::Error, Some(error_message.clone()));
            end(view, entry, ConversationStatus::Error);
        }
        Event::ChatCancelled { .. } => {
            close(view, entry, MessageStatus::Cancelled, None);
            end(view, entry, ConversationStatus::Cancelled);
        }
        Event::ToolStart { .. }
        | Event::ToolEnd { .. }
        | Event::ApprovalRequested { .. }
        | Event::ApprovalResolved { .. } => follow_tool(view, entry),
        Event::RetryScheduled { attempt, delay_ms, reason } => {
            let (attempt, delay_ms, reason, ts) = (*attempt, *delay_ms, reason.clone(), entry.ts);
            view.active_run.as_mut().unwrap().retry = Some(ScheduledRetry { attempt, delay_ms, reason, ts });
        }
        Event::ToolOutput { .. } | Event::Usage { .. } => {}
    }
}

fn follow_tool(view: &mut ConversationView, entry: &Entry) {
    match &entry.event {
        Event::ToolStart { message_id, tool_use_id, tool_name, tool_input } => {
            let (id, name) = (tool_use_id.clone(), tool_name.clone());
            let asked = Part::ToolUse { id, name, input: tool_input.clone() };
            let (role, status) = (Role::Tool, MessageStatus::Complete);
            view.messages.push(Message {
                role,
                status,
                parts: vec![asked],
                ..begun(view, entry, message_id)
            });
        }
        Event::ToolEnd { message_id, tool_use_id, result, is_error } => {
            let asked = view.messages.iter_mut().find(|message| message.id == *message_id).unwrap();
            let (tool_use_id, content) = (tool_use_id.clone(), result.clone());
            asked.parts.push(Part::ToolResult { tool_use_id, content, is_error: *is_error });
        }
        Event::ApprovalRequested { tool_use_id, tool_name, tool_input, hash } => {
            let (tool_use_id, tool_name) = (tool_use_id.clone(), tool_name.clone());
            let tool_input = tool_input.clone();
            let run = view.active_run.as_mut().unwrap();
            let (hash, attempt, decided) = (hash.clone(), 0, None);
            run.pending_approvals.push(Approval {
                tool_use_id,
                tool_name,
                tool_input,
                hash,
                attempt,
                decided,
            });
            go_on(view);
        }
        Event::ApprovalResolved { tool_use_id, .. } => {
            let run = view.active_run.as_mut().unwrap();
            run.pending_approvals.retain(|approval| approval.tool_use_id != *tool_use_id);
            go_on(view);
        }
        other => panic!("{other:?} is not about tools"),
    }
}

/// Sets the status to running, or to awaiting approval if a question is open.
fn go_on(view: &mut ConversationView) {
    let run = view.active_run.as_mut().unwrap();
    (run.status, view.conversation.generation_status) = match run.pending_approvals.is_empty() {
        true => (GenerationStatus::Running, ConversationStatus::Generating),
        false => (GenerationStatus::AwaitingApproval, ConversationStatus::AwaitingApproval),
    };
}

fn queue(view: &mut ConversationView, entry: &Entry, model: &str) {
    view.queue.push(QueuedRun {
        generation_id: entry.generation.clone().unwrap(),
        request_id: entry.request.clone().unwrap(),
        model: model.to_owned(),
    });
    if view.active_run.is_none() {
        next_in_turn(view);
    }
    count_the_queue(view);
}

/// The first queued generation becomes the active run before it has started.
fn next_in_turn(view: &mut ConversationView) {
    let next = view.queue.remove(0);
    view.conversation.generation_status = ConversationStatus::Generating;
    view.conversation.current_generation_id = Some(next.generation_id.clone());
    view.last_end = None;
    view.active_run = Some(ActiveRun {
        generation_id: next.generation_id,
        request_id: next.request_id,
        status: GenerationStatus::Queued,
        model: next.model,
        attempt: 0,
        started_at: None,
        queued: 0,
        pending_approvals: Vec::new(),
        retry: None,
    });
}

fn count_the_queue(view: &mut ConversationView) {
    if let Some(run) = &mut view.active_run {
        run.queued = view.queue.len();
    }
}

fn open(view: &mut ConversationView, entry: &Entry, message: &MessageId) {
    view.messages.push(begun(view, entry, message));
    view.overlays.insert(message.clone(), String::new());
    view.overlay_parts.insert(message.clone(), Vec::new());
}

fn begun(view: &ConversationView, entry: &Entry, message: &MessageId) -> Message {
    Message {
        id: message.clone(),
        conversation_id: view.conversation.id.clone(),
        generation_id: entry.generation.clone(),
        role: Role::Assistant,
        content: String::new(),
        parts: Vec::new(),
        status: MessageStatus::Streaming,
        error_message: None,
        seq: entry.seq,
        created_at: entry.ts,
    }
}

fn say(view: &mut ConversationView, message: &MessageId, kind: TextKind, text: &str) {
    let parts = view.overlay_parts.get_mut(message).unwrap();
    push_text(parts, kind, text);
    view.overlays.insert(message.clone(), plain_text(parts));
}

/// Moves the text from the overlay into the message.
fn close(view: &mut ConversationView, entry: &Entry, status: MessageStatus, error: Option<String>) {
    for message in view.messages.iter_mut().filter(|message| message.generation_id == entry.generation) {
        if let Some(parts) = view.overlay_parts.remove(&message.id) {
            view.overlays.remove(&message.id);
            message.content = plain_text(&parts);
            message.parts = parts;
            message.status = status;
            message.error_message = error.clone();
        }
    }
}

fn how(entry: &Entry) -> LastEnd {
    let (status, reason, error_message) = match &entry.event {
        Event::ChatDone { finish_reason } => (GenerationStatus::Completed, finish_reason.clone(), None),
        Event::ChatCancelled { reason } => (GenerationStatus::Cancelled, reason.as_str().to_owned(), None),
        Event::ChatError { error_message, code } => {
            (GenerationStatus::Error, code.clone(), Some(error_message.clone()))
        }
        other => panic!("{other:?} is not an end"),
    };
    let generation_id = entry.generation.clone().unwrap();
    LastEnd { generation_id, status, reason: Some(reason), error_message }
}

fn end(view: &mut ConversationView, entry: &Entry, status: ConversationStatus) {
    let ended = entry.generation.as_ref().unwrap();
    if view.active_run.as_ref().is_some_and(|run| run.generation_id == *ended) {
        view.active_run = None;
        view.last_end = Some(how(entry));
        view.conversation.generation_status = status;
        if !view.queue.is_empty() {
            next_in_turn(view);
        }
    }
    view.queue.retain(|waiting| waiting.generation_id != *ended);
    count_the_queue(view);
}

#[test]
fn o4_a_view_at_any_event_can_be_kept_up_to_date() {
    for (name, log) in logs() {
        let mut transcript = Transcript::new(nothing_yet());
        let mut views = vec![transcript.view()];
        for entry in &log {
            transcript.apply(entry);
            views.push(transcript.view());
        }
        for start in 0..=log.len() {
            let bytes = serde_json::to_vec(&views[start]).unwrap();
            let mut view: ConversationView = serde_json::from_slice(&bytes).unwrap();
            for end in start + 1..=log.len() {
                follow(&mut view, &log[end - 1]);
                assert_eq!(view, views[end], "{name}: from {start} to {end}");
            }
        }
    }
}
