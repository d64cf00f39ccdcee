//! The state of a conversation: the result of folding its log, as far as the rules need it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ConversationId, Entry, Generation, GenerationId, Seq, Timestamp, UserId};

/// The transcript is not part of it, because it may be long and no rule reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    pub id: ConversationId,
    pub user: UserId,
    pub created_at: Timestamp,
    /// The last change other than text.
    pub updated_at: Timestamp,
    /// The last event applied.
    pub seq: Seq,
    pub title: Option<String>,
    pub metadata: Option<Value>,
    /// Whether a user has written anything yet. The first message gives a conversation its title.
    pub begun: bool,
    /// The running generation, or the last one that ended.
    pub current: Option<Generation>,
    /// Generations that wait for their turn, oldest first.
    pub queue: VecDeque<Generation>,
}

impl Conversation {
    /// A conversation before its first event.
    pub fn new(id: ConversationId, user: UserId, created_at: Timestamp) -> Conversation {
        Conversation {
            id,
            user,
            created_at,
            updated_at: created_at,
            seq: Seq::ZERO,
            title: None,
            metadata: None,
            begun: false,
            current: None,
            queue: VecDeque::new(),
        }
    }

    pub fn apply_all(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.apply(entry);
        }
    }

    /// The generation with this id, if it is live or was the last to end.
    pub fn generation(&self, id: &GenerationId) -> Option<&Generation> {
        self.current.iter().chain(&self.queue).find(|generation| generation.id == *id)
    }

    /// The generation that is not over and not queued, if there is one.
    pub fn active(&self) -> Option<&Generation> {
        self.current.as_ref().filter(|generation| !generation.ended())
    }

    /// The generation that clients see as current: the active one, else the next in the queue, else the last
    /// that ended.
    pub(crate) fn foremost(&self) -> Option<&Generation> {
        self.active().or(self.queue.front()).or(self.current.as_ref())
    }

    /// How many generations count against the limits on live ones: the running one and the queued ones. A
    /// generation that waits for a person does not count.
    pub fn live_generations(&self) -> usize {
        usize::from(self.active().is_some_and(Generation::is_at_work)) + self.queue.len()
    }
}
