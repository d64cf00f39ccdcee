//! What a user must be told because nobody was watching: that a generation ended, or that it waits for a person.
//!
//! The notification is owed by an event in the same append as its cause. So it is owed exactly if the cause is
//! durable, and it is owed until another event says that it was made, whatever happens to the server in between.

use serde::{Deserialize, Serialize};

use crate::ids::derived;
use crate::{
    Conversation, Effect, Entry, Event, Generation, GenerationId, GenerationStatus, NotificationId,
    NotificationKind, Seq, Timestamp,
};

/// A notification that has not been made yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwedNotification {
    pub id: NotificationId,
    pub kind: NotificationKind,
    pub generation: GenerationId,
    /// The tool call that waits for a decision, and the hash of the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// When the cause happened.
    pub at: Timestamp,
}

/// Adds what is owed for `entries`, which are about to be recorded while nobody watches. A generation that asks
/// several questions at once waits only once.
pub fn owe_notifications(state: &Conversation, entries: &mut Vec<Entry>) {
    if state.parent().is_some() {
        return; // people watch its parent, which owes what they must know
    }
    let mut waiting: Vec<&GenerationId> = Vec::new();
    let mut causes = Vec::new();
    for entry in entries.iter() {
        let Some(generation) = &entry.generation else { continue };
        let kind = match &entry.event {
            Event::ChatDone { .. } => NotificationKind::Completed,
            Event::ChatError { .. } => NotificationKind::Error,
            Event::ChatCancelled { .. } => NotificationKind::Cancelled,
            Event::ChatInterrupted { .. } => NotificationKind::Interrupted,
            Event::DelegationChanged { tool_use_id, state: child, .. }
                if child.status == GenerationStatus::Interrupted =>
            {
                let run = state.generation(generation);
                let mut known = run.into_iter().flat_map(Generation::children);
                if known.any(|(call, known)| call == tool_use_id && known.state.status == child.status) {
                    continue;
                }
                NotificationKind::Interrupted
            }
            event if question(event).is_some() => {
                let asked_before = state.generation(generation).is_some_and(|run| run.waits_for_a_decision());
                if asked_before || waiting.contains(&generation) {
                    continue;
                }
                waiting.push(generation);
                NotificationKind::Approval
            }
            _ => continue,
        };
        causes.push((kind, entry.clone()));
    }
    for (kind, cause) in causes {
        let place = entries.last().map_or(state.seq, |last| last.seq).next();
        entries.push(owed(state, kind, &cause, place));
    }
}

/// The question that an event asks a person, by id and hash. That of a child is decided in its parent too.
fn question(event: &Event) -> Option<(&str, &str)> {
    match event {
        Event::ApprovalRequested { tool_use_id, hash, .. } => Some((tool_use_id, hash)),
        Event::DelegationChanged { state, .. } => {
            state.approvals.first().map(|asked| (asked.id.as_str(), asked.hash.as_str()))
        }
        _ => None,
    }
}

fn owed(state: &Conversation, kind: NotificationKind, cause: &Entry, place: Seq) -> Entry {
    let asked = question(&cause.event).filter(|_| kind == NotificationKind::Approval);
    let (tool_use_id, hash) = asked.map(|(id, hash)| (id.to_owned(), hash.to_owned())).unzip();
    // The time of creation tells apart two conversations that had the same id, one after the other.
    let (created, seq) = (state.created_at.0.to_string(), cause.seq.to_string());
    let notification_id = derived("ntf", &[state.id.as_str(), &created, &seq]).into();
    let generation_id = cause.generation.clone().unwrap_or_else(|| "".into());
    let event = Event::NotificationOwed { notification_id, kind, generation_id, tool_use_id, hash };
    Entry { seq: place, ts: cause.ts, generation: None, request: None, event }
}

pub(crate) fn effects(state: &Conversation) -> impl Iterator<Item = Effect> {
    state.owed_notifications.iter().map(|owed| Effect::Notify { notification: owed.id.clone() })
}

pub(crate) fn due(state: &Conversation) -> Option<Timestamp> {
    (!state.owed_notifications.is_empty()).then(Timestamp::default)
}

impl Conversation {
    pub(crate) fn apply_to_notifications(&mut self, entry: &Entry) {
        match &entry.event {
            Event::NotificationOwed { notification_id, kind, generation_id, tool_use_id, hash } => {
                self.owed_notifications.push(OwedNotification {
                    id: notification_id.clone(),
                    kind: *kind,
                    generation: generation_id.clone(),
                    tool_use_id: tool_use_id.clone(),
                    hash: hash.clone(),
                    at: entry.ts,
                });
            }
            Event::NotificationMade { notification_id } => {
                self.owed_notifications.retain(|owed| owed.id != *notification_id);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
