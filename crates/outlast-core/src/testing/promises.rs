//! What must hold for every log.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Entry, Event, ExecutionId, GenerationId, MessageId, RequestId, Role};

#[derive(Default)]
struct Seen<'a> {
    questions: u32,
    requests: BTreeSet<&'a RequestId>,
    attempt: u32,
    ended: bool,
}

/// I3 (one end, and it is last), I4 (one generation and at most one question per request), seqs without
/// gaps, numbered attempts, and segments that never interleave.
pub(crate) fn check_log(log: &[Entry]) {
    let mut generations: BTreeMap<&GenerationId, Seen<'_>> = BTreeMap::new();
    let mut requests: BTreeMap<&RequestId, &GenerationId> = BTreeMap::new();
    let mut opened: BTreeSet<&MessageId> = BTreeSet::new();
    let mut open: Option<(&GenerationId, &MessageId)> = None;
    let mut settled: BTreeSet<&MessageId> = BTreeSet::new();
    let mut executions = Executions::default();
    for (index, entry) in log.iter().enumerate() {
        assert_eq!(entry.seq.0, index as u64 + 1, "seq has a gap");
        let (Some(id), Some(request)) = (&entry.generation, &entry.request) else {
            assert!(may_stand_alone(&entry.event), "{entry:?} has no generation");
            continue;
        };
        let begins = matches!(entry.event, Event::MessageAdded { .. } | Event::GenerationQueued { .. });
        assert!(begins || generations.contains_key(id), "{entry:?} before its generation was accepted");
        let seen = generations.entry(id).or_default();
        assert!(!seen.ended, "{entry:?} after the end of {id}");
        seen.requests.insert(request);
        assert_eq!(seen.requests.len(), 1, "{id} must have one request");
        executions.check(id, &entry.event);
        match &entry.event {
            Event::MessageAdded { message, .. } => {
                assert_eq!((message.seq, message.created_at), (entry.seq, entry.ts));
                seen.questions += u32::from(message.role == Role::User);
                assert!(seen.questions <= 1, "{id} has two questions");
            }
            Event::GenerationQueued { .. } => {
                assert_eq!(requests.insert(request, id), None, "{request} started two generations");
            }
            Event::ChatStarted { attempt, .. } => {
                seen.attempt += 1;
                assert_eq!(*attempt, seen.attempt, "attempts of {id} must be numbered");
            }
            Event::AssistantSegmentStarted { message_id } => {
                assert_eq!(open.replace((id, message_id)), None, "segments interleave at {entry:?}");
                assert!(opened.insert(message_id), "{message_id} opened twice");
            }
            Event::ChatDelta { message_id, text, .. } | Event::ThinkingDelta { message_id, text, .. } => {
                assert_eq!(open, Some((id, message_id)), "text outside its segment: {entry:?}");
                assert!(
                    !text.is_empty()
                        || matches!(entry.event, Event::ThinkingDelta { signature: Some(_), .. })
                );
            }
            Event::ToolStart { message_id, .. } => {
                assert_eq!(open, None, "a tool call inside a segment: {entry:?}");
                assert!(opened.insert(message_id), "{message_id} opened twice");
            }
            Event::RoundEnded { .. } => settled.extend(opened.iter().copied()),
            Event::ToolEnd { message_id, .. } => assert!(opened.contains(message_id), "{entry:?}"),
            Event::AssistantSegmentEnded { message_id } => assert_eq!(open.take(), Some((id, message_id))),
            Event::AttemptRetracted { message_ids, .. } => {
                assert!(message_ids.iter().all(|message| opened.contains(message)));
                assert!(!message_ids.iter().any(|message| settled.contains(message)), "settled: {entry:?}");
                open = open.filter(|(_, message)| !message_ids.contains(message));
                opened.retain(|message| !message_ids.contains(message)); // the next attempt may use it again
            }
            Event::RetryScheduled { attempt, .. } => {
                assert_eq!(*attempt, seen.attempt + 1);
            }
            Event::ChatDone { .. } | Event::ChatError { .. } | Event::ChatCancelled { .. } => {
                seen.ended = true;
                open = open.filter(|(speaker, _)| *speaker != id);
            }
            _ => {}
        }
    }
}

/// Whether an event may belong to the conversation alone.
fn may_stand_alone(event: &Event) -> bool {
    matches!(
        event,
        Event::ConversationUpdated { .. }
            | Event::SandboxChanged { .. }
            | Event::FileChanged { .. }
            | Event::CheckpointTaken { .. }
            | Event::CheckpointFailed { .. }
            | Event::ToolStopped { .. }
            | Event::NotificationOwed { .. }
            | Event::NotificationMade { .. }
            | Event::ParentTold { .. }
    )
}

/// X8: no call that changes something begins twice in a sandbox that survived.
#[derive(Default)]
struct Executions<'a> {
    ids: BTreeSet<&'a ExecutionId>,
    began: BTreeMap<(&'a GenerationId, &'a str), bool>,
    lost: bool,
}

impl<'a> Executions<'a> {
    fn check(&mut self, generation: &'a GenerationId, event: &'a Event) {
        match event {
            Event::ToolBegan { tool_use_id, execution_id, read_only, .. } => {
                assert!(self.ids.insert(execution_id), "{execution_id} began twice");
                let earlier = self.began.insert((generation, tool_use_id), *read_only);
                let again = earlier == Some(false) && !self.lost;
                assert!(!again, "{tool_use_id} began twice in a sandbox that survived");
            }
            Event::SandboxChanged { state, .. } => self.lost |= state.is_gone(),
            _ => {}
        }
    }
}
