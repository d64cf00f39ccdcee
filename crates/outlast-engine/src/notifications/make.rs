//! Makes a notification that a conversation owes: the list first, then the outbox. Every step can be repeated.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Conversation, ConversationId, NotificationId, UserId};
use outlast_store::{Item, ItemQuery, PutError, StoreError, fault, remove_due};

use super::{NOTIFICATION, Notification, body, read};
use crate::engine::Shared;

/// How long to leave a store alone that cannot write: at first, and at most.
const STORE_WAIT: Duration = Duration::from_millis(500);
const STORE_WAIT_MAX: Duration = Duration::from_secs(30);

impl Notification {
    /// What is to be told, from the state that owes it.
    pub(crate) fn owed_by(state: &Conversation, id: &NotificationId) -> Option<Notification> {
        let owed = state.owed_notifications.iter().find(|owed| owed.id == *id)?;
        Some(Notification {
            id: owed.id.clone(),
            kind: owed.kind,
            conversation_id: state.id.clone(),
            generation_id: owed.generation.clone(),
            title: state.title.clone(),
            created_at: owed.at,
            read_at: None,
            tool_use_id: owed.tool_use_id.clone(),
            hash: owed.hash.clone(),
            decided_at: None,
        })
    }
}

/// Makes it, however long the store takes to become available.
pub(crate) async fn make(shared: Arc<Shared>, user: UserId, notification: Notification) {
    let mut wait = STORE_WAIT;
    while let Err(error) = try_to_make(&shared, &user, &notification).await {
        tracing::warn!(notification = %notification.id, %error, "cannot store a notification; will retry");
        tokio::time::sleep(wait).await;
        wait = (2 * wait).min(STORE_WAIT_MAX);
    }
}

async fn try_to_make(shared: &Shared, user: &UserId, one: &Notification) -> Result<(), StoreError> {
    let kept = shared.settings.notifications.kept;
    let item = Item {
        kind: NOTIFICATION.to_owned(),
        id: one.id.as_str().to_owned(),
        user: user.clone(),
        order: one.created_at.0,
        due: Some(one.created_at.after(kept).0),
        version: 0,
        body: body(one),
    };
    match shared.store.put_item(item).await {
        // A conflict: it was made before a crash, and may have been read since.
        Ok(_) | Err(PutError::Conflict) => {}
        Err(error @ (PutError::Unavailable(_) | PutError::Unconfirmed(_))) => {
            return Err(StoreError::Unavailable(error.to_string()));
        }
    }
    fault::point("notify.listed");
    shared.enqueue(user, one).await?;
    fault::point("notify.queued");
    shared.bells.ring(user);
    forget_the_oldest(shared, user).await
}

/// A user has a limited number of notifications.
async fn forget_the_oldest(shared: &Shared, user: &UserId) -> Result<(), StoreError> {
    let newest = shared.newest_notifications(user);
    let Some(after) = shared.store.list_items(newest.clone()).await?.next else { return Ok(()) };
    for item in shared.store.list_items(ItemQuery { after: Some(after), ..newest }).await?.items {
        shared.store.remove_item(NOTIFICATION, &item.id).await?;
    }
    Ok(())
}

impl Shared {
    /// Removes what a user was told about a conversation, which is about to be deleted.
    pub(crate) async fn forget_notifications(
        &self,
        user: &UserId,
        conversation: &ConversationId,
    ) -> Result<(), StoreError> {
        for item in self.notification_items(user).await? {
            if read(&item).is_some_and(|one| one.conversation_id == *conversation) {
                self.store.remove_item(NOTIFICATION, &item.id).await?;
            }
        }
        self.bells.ring(user);
        Ok(())
    }

    /// Removes notifications that have been kept long enough.
    pub(crate) async fn sweep_notifications(&self) -> Result<(), StoreError> {
        remove_due(&*self.store, NOTIFICATION, self.clock.now().0).await
    }
}
