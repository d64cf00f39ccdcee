//! Which owner may write to which conversation, for stores that belong to a single process.
//!
//! All conversations share one counter for fences, so a new fence is larger than any earlier one, and
//! nothing needs to be remembered about conversations without an owner.

use std::collections::HashMap;

use outlast_core::{ConversationId, Seq};

use crate::{AppendError, Fence};

/// The current owners, and the counter for fences.
pub(crate) struct Owners {
    latest: u64,
    by_conversation: HashMap<ConversationId, Owner>,
}

struct Owner {
    fence: Fence,
    // Where the log ends, once it has been looked up. It is needed only while the conversation has an owner.
    last: Option<Seq>,
    // How often anything had been taken from this instance when the database said that this is held; see `granted`.
    as_of: i64,
}

impl Owners {
    /// All fences will be larger than `latest`.
    pub(crate) fn after(latest: u64) -> Self {
        Self { latest, by_conversation: HashMap::new() }
    }

    /// Makes later fences larger than this one, and returns the largest so far.
    pub(crate) fn raise(&mut self, fence: Fence) -> Fence {
        self.latest = self.latest.max(fence.0);
        Fence(self.latest)
    }

    /// Replaces the current owner, if any.
    pub(crate) fn claim(&mut self, conversation: &ConversationId) -> Fence {
        self.latest += 1;
        let fence = Fence(self.latest);
        self.by_conversation.insert(conversation.clone(), Owner { fence, last: None, as_of: 0 });
        fence
    }

    /// Takes in a claim that the database has granted. Claims may arrive out of order, and late: what is known `as_of` an
    /// earlier count than the writer's has to be confirmed before anything is written.
    pub(crate) fn granted(&mut self, conversation: &ConversationId, fence: Fence, last: Seq, as_of: i64) {
        self.latest = self.latest.max(fence.0);
        let newer = self.by_conversation.get(conversation).is_some_and(|owner| owner.fence > fence);
        if !newer {
            self.by_conversation.insert(conversation.clone(), Owner { fence, last: Some(last), as_of });
        }
    }

    /// Whether it is unknown if somebody has taken the conversation since.
    pub(crate) fn is_unsure(&self, conversation: &ConversationId, claims: i64) -> bool {
        self.by_conversation.get(conversation).is_some_and(|owner| owner.as_of < claims)
    }

    /// Keeps what the database says is `held` as of this count, and what was granted after it.
    pub(crate) fn confirm(&mut self, held: &HashMap<ConversationId, Fence>, claims: i64) {
        self.by_conversation.retain(|conversation, owner| {
            if owner.as_of >= claims {
                return true;
            }
            owner.as_of = claims;
            held.get(conversation) == Some(&owner.fence)
        });
    }

    /// Leaves the conversation without an owner; false if somebody else is it by now.
    pub(crate) fn release(&mut self, conversation: &ConversationId, fence: Fence) -> bool {
        let owned = self.by_conversation.get(conversation).is_some_and(|owner| owner.fence == fence);
        if owned {
            self.by_conversation.remove(conversation);
        }
        owned
    }

    pub(crate) fn is_owned(&self, conversation: &ConversationId) -> bool {
        self.by_conversation.contains_key(conversation)
    }

    /// Removes all owners.
    pub(crate) fn evict_all(&mut self) {
        self.by_conversation.clear();
    }

    /// Removes the owner, whichever it is.
    pub(crate) fn evict(&mut self, conversation: &ConversationId) {
        self.by_conversation.remove(conversation);
    }

    /// Refuses every fence but the current one. Otherwise returns where the log ends, if that is known.
    pub(crate) fn admit(
        &self,
        conversation: &ConversationId,
        fence: Fence,
    ) -> Result<Option<Seq>, AppendError> {
        match self.by_conversation.get(conversation) {
            Some(owner) if owner.fence == fence => Ok(owner.last),
            Some(owner) => Err(AppendError::Fenced { current: owner.fence }),
            // There is no owner, so no fence handed out so far is valid here.
            None => Err(AppendError::Fenced { current: Fence(self.latest) }),
        }
    }

    /// Remembers where the log ends, until the owner changes.
    pub(crate) fn advance(&mut self, conversation: &ConversationId, fence: Fence, last: Seq) {
        if let Some(owner) = self.by_conversation.get_mut(conversation)
            && owner.fence == fence
        {
            owner.last = Some(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_claim_is_admitted_and_a_stale_release_changes_nothing() {
        let mut owners = Owners::after(40);
        let a = ConversationId::from("a");
        let old = owners.claim(&a);
        let new = owners.claim(&a);
        assert!(old > Fence(40) && new > old);
        owners.release(&a, old);
        assert!(matches!(owners.admit(&a, old), Err(AppendError::Fenced { current }) if current == new));
        assert!(owners.admit(&a, new).is_ok());
        owners.release(&a, new);
        assert!(owners.admit(&a, new).is_err());
    }

    #[test]
    fn a_claim_that_arrives_after_a_takeover_is_confirmed_before_it_counts() {
        let mut owners = Owners::after(0);
        let (taken, kept, late) =
            (ConversationId::from("taken"), ConversationId::from("kept"), ConversationId::from("late"));
        owners.granted(&taken, Fence(1), Seq(0), 7);
        owners.granted(&kept, Fence(2), Seq(0), 7);
        assert!(!owners.is_unsure(&taken, 7) && owners.is_unsure(&taken, 8));
        owners.confirm(&HashMap::from([(kept.clone(), Fence(2))]), 8);
        assert!(owners.admit(&taken, Fence(1)).is_err());
        assert!(owners.admit(&kept, Fence(2)).is_ok() && !owners.is_unsure(&kept, 8));
        // Granted before the takeover, and heard of only now.
        owners.granted(&late, Fence(3), Seq(0), 7);
        assert!(owners.is_unsure(&late, 8));
        owners.confirm(&HashMap::new(), 8);
        assert!(owners.admit(&late, Fence(3)).is_err());
        // Granted after the look at the database that is taken in here.
        owners.granted(&late, Fence(4), Seq(0), 9);
        owners.confirm(&HashMap::new(), 9);
        assert!(owners.admit(&late, Fence(4)).is_ok());
    }
}
