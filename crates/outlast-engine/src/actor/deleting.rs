//! Deletes a conversation, and what it leaves outside of the store. See `removals.rs` for what a crash in between means.

use std::time::Duration;

use outlast_core::{ConversationId, UserId};
use outlast_store::fault;
use tokio::time::timeout;

use super::sandboxes::Workshop;
use super::{Actor, STORE_WAIT};
use crate::error::EngineError;
use crate::removals::Removal;

/// How long a person waits for the removal. It is finished later if it takes longer.
const CLEAR_WITHIN: Duration = Duration::from_secs(10);

impl Actor {
    pub(super) async fn delete(&mut self, user: &UserId) -> Result<(), EngineError> {
        let state = match &self.state {
            Some(state) if state.user == *user => state,
            // An owner that died may have deleted it and not replied. Whoever sent the letter has seen it.
            None if self.answering.is_some() => return Ok(()),
            Some(_) | None => return Err(EngineError::NotFound),
        };
        let may_leave_something = state.sandbox.is_some() || self.shared.workshop.is_ok();
        if may_leave_something {
            self.shared.owe_removal(&self.id, user, Removal::of(state)).await?;
            fault::point("remove.owed");
        }
        let is_idle = self.works.is_idle();
        self.works.keep(&[]);
        self.sweeping = None;
        self.shared.forget_notifications(user, &self.id).await?;
        // If it fails, it is unknown whether it was deleted, so reload.
        let deleted = self.shared.store.delete(&self.id).await;
        deleted.map_err(|error| EngineError::Lost(error.to_string()))?;
        fault::point("remove.deleted");
        self.refund();
        self.start_over().await?;
        // A file of what was under way may still be on its way to the disk. Then it stays owed, and is removed once more later.
        let cleared = match may_leave_something {
            true if is_idle => self.clear_former().await,
            true => self.clear_away().await.map(drop),
            false => Ok(()),
        };
        if let Err(error) = cleared {
            tracing::warn!(conversation = ?self.id, %error, "cannot remove what a conversation has left; will retry");
        }
        Ok(())
    }

    /// Finishes a removal that is still owed.
    pub(super) async fn clear(&mut self) -> Result<(), EngineError> {
        let Some(removal) = self.shared.owed_removal(&self.id).await? else { return Ok(()) };
        match &self.state {
            // The server died before it could delete the conversation.
            Some(state) if removal.is_about(state) => {
                let user = state.user.clone();
                self.delete(&user).await
            }
            // Before it creates a sandbox, it finishes the removal itself.
            Some(state) if state.active().is_some() => Ok(()),
            Some(_) | None => self.clear_former().await,
        }
    }

    /// Removes what a deleted conversation with this id has left. Its checkpoints would be taken for those of this one.
    pub(super) async fn clear_former(&mut self) -> Result<(), EngineError> {
        if self.clear_away().await? {
            fault::point("remove.cleared");
            self.shared.removed(&self.id).await?;
        }
        Ok(())
    }

    /// Returns whether a removal was owed and nothing is left.
    async fn clear_away(&mut self) -> Result<bool, EngineError> {
        let Some(removal) = self.shared.owed_removal(&self.id).await? else { return Ok(false) };
        if self.state.as_ref().is_some_and(|state| removal.is_about(state) || state.sandbox.is_some()) {
            return Ok(false);
        }
        let workshop = self.shared.workshop.as_ref();
        let workshop = workshop.map_err(|reason| EngineError::Unavailable(reason.clone()))?;
        let unavailable = |reason: String| EngineError::Unavailable(reason);
        match timeout(CLEAR_WITHIN, workshop.remove(&self.id, &removal)).await {
            Ok(removed) => removed.map(|()| true).map_err(unavailable),
            Err(_) => Err(unavailable("removing its files takes long".to_owned())),
        }
    }
}

impl Actor {
    /// The label of this conversation's sandboxes. The first one may be created only when nothing of a former conversation
    /// is left. `None` if that cannot be found out or done now; it is tried again in a moment.
    pub(super) async fn label(&mut self) -> Option<String> {
        let labelled = match self.clear_former().await {
            Ok(()) => self.shared.label(&self.id).await.map_err(EngineError::from),
            Err(error) => Err(error),
        };
        match labelled {
            Ok(label) => Some(label),
            Err(error) => {
                tracing::error!(conversation = ?self.id, %error, "cannot create a sandbox; will retry");
                self.store_again = Some(self.shared.clock.now().after(STORE_WAIT));
                None
            }
        }
    }
}

impl Workshop {
    async fn remove(&self, conversation: &ConversationId, removal: &Removal) -> Result<(), String> {
        for sandbox in &removal.sandboxes {
            self.sandboxes.kill(sandbox).await.map_err(|error| error.to_string())?;
        }
        while !self.checkpoints.forget(conversation).await.map_err(|error| error.to_string())? {}
        Ok(())
    }
}
