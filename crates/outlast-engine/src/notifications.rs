//! What users are told while nobody watches: a list for each user, and deliveries to their webhooks and browsers.
//!
//! A conversation owes a notification until it is made; see `outlast_core::owe_notifications`. Making it stores an item
//! whose id follows from the cause, so making it twice changes nothing, here or at another instance.

mod bells;
mod endpoints;
mod make;
mod outbox;
mod push;
mod sending;

use std::time::Duration;

use outlast_core::{ConversationId, GenerationId, NotificationId, NotificationKind, Timestamp, UserId};
use outlast_store::{Item, ItemQuery, PutError, StoreError};
use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::error::EngineError;

pub use bells::Bell;
pub use endpoints::{Delivery, DeliveryState, PushSubscription, Webhook};
pub use push::{VapidKey, is_valid as is_push_key};

pub(crate) use bells::Bells;
pub(crate) use make::make;
pub(crate) use outbox::Outbox;

const NOTIFICATION: &str = "notification";
/// More than a notification can have: most of it is the title, of which every character may be escaped.
const NOTIFICATION_BYTES_MAX: usize = 8 * 1024;
/// How often a change that another writer made at the same time is tried again.
const WRITE_TRIES: usize = 20;

#[derive(Clone, Debug)]
pub struct NotificationSettings {
    /// How long a notification is kept.
    pub kept: Duration,
    /// The maximum number of notifications of one user. Older ones are removed. It also limits what it costs to list
    /// and count them.
    pub per_user: usize,
    /// Webhooks of one user, and browsers that get push messages.
    pub webhooks_per_user: usize,
    pub push_per_user: usize,
    /// How often a delivery is attempted.
    pub attempts: u32,
    /// The delay before the second attempt. It quadruples with each one.
    pub backoff: Duration,
    /// Where people open the web app; links in deliveries begin with it.
    pub public_url: String,
    /// How a push service can reach the operator.
    pub contact: String,
}

impl Default for NotificationSettings {
    fn default() -> NotificationSettings {
        NotificationSettings {
            kept: Duration::from_secs(30 * 24 * 60 * 60),
            per_user: 200,
            webhooks_per_user: 10,
            push_per_user: 20,
            attempts: 8,
            backoff: Duration::from_secs(5),
            public_url: String::new(),
            contact: "mailto:outlast@example.com".to_owned(),
        }
    }
}

/// A notification, as it is stored and as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notification {
    pub id: NotificationId,
    pub kind: NotificationKind,
    pub conversation_id: ConversationId,
    pub generation_id: GenerationId,
    /// The conversation's title.
    pub title: Option<String>,
    pub created_at: Timestamp,
    pub read_at: Option<Timestamp>,
    /// The tool call that waits for a decision, and the hash of the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// When the link of this notification was used to decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
}

/// A user's notifications, newest first.
#[derive(Clone, Debug, Default)]
pub struct Inbox {
    pub notifications: Vec<Notification>,
    pub unread: usize,
}

impl Engine {
    /// All notifications of a user, newest first. There are at most as many as the settings say.
    pub async fn notifications(&self, user: &UserId) -> Result<Inbox, StoreError> {
        let items = self.shared.notification_items(user).await?;
        let notifications: Vec<Notification> = items.iter().filter_map(read).collect();
        let unread = notifications.iter().filter(|one| one.read_at.is_none()).count();
        Ok(Inbox { notifications, unread })
    }

    /// The newest notification of a user: a cheap way to see that nothing has arrived.
    pub async fn newest_notification(&self, user: &UserId) -> Result<Option<NotificationId>, StoreError> {
        let newest = ItemQuery { limit: 1, ..self.shared.newest_notifications(user) };
        let item = self.shared.store.list_items(newest).await?.items.pop();
        Ok(item.map(|item| NotificationId::from(item.id.as_str())))
    }

    pub async fn notification(
        &self,
        user: &UserId,
        id: &NotificationId,
    ) -> Result<Notification, EngineError> {
        let item = self.shared.store.get_item(NOTIFICATION, id.as_str()).await?;
        let item = item.filter(|item| item.user == *user).ok_or(EngineError::NotFound)?;
        read(&item).ok_or(EngineError::NotFound)
    }

    /// Marks a notification as read. The first time counts.
    pub async fn mark_read(&self, user: &UserId, id: &NotificationId) -> Result<Notification, EngineError> {
        let now = self.now();
        let read = self.change_notification(user, id, |one| {
            let unread = one.read_at.is_none();
            one.read_at.get_or_insert(now);
            Ok(unread)
        });
        read.await
    }

    /// Marks all notifications of a user as read, and returns how many were not.
    pub async fn mark_all_read(&self, user: &UserId) -> Result<usize, EngineError> {
        let mut marked = 0;
        for one in self.notifications(user).await?.notifications {
            if one.read_at.is_none() {
                match self.mark_read(user, &one.id).await {
                    Ok(_) => marked += 1,
                    Err(EngineError::NotFound) => {} // removed meanwhile
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(marked)
    }

    /// Uses the link of a notification to decide about its question, once. The caller then decides with the hash.
    pub async fn use_link(&self, user: &UserId, id: &NotificationId) -> Result<Notification, EngineError> {
        let now = self.now();
        let used = self.change_notification(user, id, |one| {
            if one.decided_at.is_some() {
                return Err(EngineError::LinkUsed);
            }
            (one.decided_at, one.read_at) = (Some(now), one.read_at.or(Some(now)));
            Ok(true)
        });
        used.await
    }

    /// Rings when the list of this user may have changed.
    pub fn bell(&self, user: &UserId) -> Result<Bell, EngineError> {
        self.shared.bells.listen(user).ok_or(EngineError::TooManyReaders { limit: bells::LISTENERS_MAX })
    }

    /// Reads, changes and writes a notification, again if another writer was faster.
    async fn change_notification(
        &self,
        user: &UserId,
        id: &NotificationId,
        change: impl Fn(&mut Notification) -> Result<bool, EngineError>,
    ) -> Result<Notification, EngineError> {
        for _ in 0..WRITE_TRIES {
            let item = self.shared.store.get_item(NOTIFICATION, id.as_str()).await?;
            let item = item.filter(|item| item.user == *user).ok_or(EngineError::NotFound)?;
            let mut one = read(&item).ok_or(EngineError::NotFound)?;
            if !change(&mut one)? {
                return Ok(one);
            }
            match self.shared.store.put_item(Item { body: body(&one), ..item }).await {
                Ok(_) => {
                    self.shared.bells.ring(user);
                    return Ok(one);
                }
                Err(PutError::Conflict | PutError::Unconfirmed(_)) => {}
                Err(PutError::Unavailable(reason)) => return Err(EngineError::Unavailable(reason)),
            }
        }
        Err(EngineError::Unavailable("the notification keeps changing; try again".to_owned()))
    }
}

/// The notification, or `None` if it was written by a newer version: one bad row must not hide the others.
fn read(item: &Item) -> Option<Notification> {
    serde_json::from_str(&item.body)
        .inspect_err(|error| tracing::error!(id = item.id, %error, "skipped an unreadable notification"))
        .ok()
}

fn body(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("our own types have string keys")
}

impl crate::engine::Shared {
    async fn notification_items(&self, user: &UserId) -> Result<Vec<Item>, StoreError> {
        Ok(self.store.list_items(self.newest_notifications(user)).await?.items)
    }

    /// As many as a user may have. Their number is limited, and with it their size: a page that ended earlier would
    /// hide some of them, or forget them.
    fn newest_notifications(&self, user: &UserId) -> ItemQuery {
        let limit = self.settings.notifications.per_user;
        let max_bytes = limit.saturating_mul(NOTIFICATION_BYTES_MAX);
        ItemQuery { user: Some(user.clone()), max_bytes, ..ItemQuery::newest(NOTIFICATION, limit) }
    }
}

#[cfg(test)]
mod tests;
