//! The state of a conversation: the result of folding its log, as far as the rules need it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Always, ConversationId, Entry, Generation, GenerationId, OwedNotification, OwedStop, Parent, Sandbox,
    Seq, Timestamp, UserId,
};

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
    /// The client's own key, which is unique among the user's conversations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether a user has written anything yet. The first message gives a conversation its title.
    pub begun: bool,
    /// The running generation, or the last one that ended.
    pub current: Option<Generation>,
    /// Generations that wait for their turn, oldest first.
    pub queue: VecDeque<Generation>,
    /// The sandbox, from the first one on.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
    /// What people decided once and for all.
    #[serde(default)]
    pub always: Vec<Always>,
    /// Executions of generations that ended, until they are known to be dead.
    #[serde(default)]
    pub owed_stops: Vec<OwedStop>,
    /// What the user has not been told yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owed_notifications: Vec<OwedNotification>,
    /// The files that the agent worked on.
    #[serde(default)]
    pub files: Vec<Value>,
    /// About how many bytes of messages and tool data it has. They are kept after events have been trimmed.
    #[serde(default)]
    pub said_bytes: u64,
    /// The conversations that its calls were delegated to, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ConversationId>,
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
            key: None,
            begun: false,
            current: None,
            queue: VecDeque::new(),
            sandbox: None,
            always: Vec::new(),
            owed_stops: Vec::new(),
            owed_notifications: Vec::new(),
            files: Vec::new(),
            said_bytes: 0,
            children: Vec::new(),
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

    /// The call of another conversation that this one works for. Nobody can write to such a conversation.
    pub fn parent(&self) -> Option<&Parent> {
        self.current.iter().chain(&self.queue).find_map(|generation| generation.brief.parent.as_deref())
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

    /// About how many bytes are stored for as long as the conversation exists: what was said, and the files of its
    /// newest checkpoint.
    pub fn stored_bytes(&self) -> u64 {
        let checkpoint = self.sandbox.as_ref().and_then(|sandbox| sandbox.checkpoint.as_ref());
        self.said_bytes.saturating_add(checkpoint.map_or(0, |checkpoint| checkpoint.bytes))
    }

    /// How many generations count against the limits on live ones: the running one and the queued ones. A
    /// generation that waits for a person does not count.
    pub fn live_generations(&self) -> usize {
        usize::from(self.active().is_some_and(Generation::is_at_work)) + self.queue.len()
    }
}
