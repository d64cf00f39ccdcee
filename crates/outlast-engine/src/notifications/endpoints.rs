//! Where deliveries go: the webhooks and browsers of a user, each with its own queue of deliveries.
//!
//! An endpoint is an item, and its deliveries are items of a kind of its own, so a receiver with a long queue costs
//! the others nothing. The endpoint's `due` says when its queue needs attention.

use outlast_core::{NotificationKind, Timestamp, UserId};
use outlast_store::{Item, ItemQuery, PutError, StoreError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Notification, WRITE_TRIES, body, sending};
use crate::engine::{Engine, Shared};
use crate::error::EngineError;
use crate::reading::{Page, Paging, cursor};

pub(super) const WEBHOOK: &str = "webhook";
pub(super) const PUSH: &str = "push";
/// The most endpoints of one user that are read at once; the limits are lower.
const ENDPOINTS_MAX: usize = 100;

/// How many deliveries are looked through for one page of those in a state.
const LOOKED_AT: usize = 1_000;

/// A webhook, as it is stored. Its secret signs every delivery and is shown once.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    pub id: String,
    pub url: String,
    /// What it is told about.
    pub events: Vec<NotificationKind>,
    pub secret: String,
    pub created_at: Timestamp,
    #[serde(default)]
    pub(super) removed: bool,
}

/// A browser's push subscription, as the Push API gives it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushSubscription {
    pub id: String,
    pub endpoint: String,
    pub p256dh: String,
    pub auth: String,
    pub created_at: Timestamp,
    #[serde(default)]
    pub(super) removed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryState {
    Pending,
    Delivered,
    /// Given up.
    Dead,
}

/// One notification on its way to one endpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// The notification's id, which the receiver sees as the event's id.
    pub id: String,
    pub kind: NotificationKind,
    pub state: DeliveryState,
    pub attempts: u32,
    pub created_at: Timestamp,
    /// What went wrong last. Nothing that the receiver sent is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The next attempt, while it is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
    /// The exact bytes that are sent.
    pub(super) payload: String,
}

/// The kind of the deliveries of an endpoint.
pub(super) fn queue(endpoint: &str) -> String {
    format!("delivery/{endpoint}")
}

impl Engine {
    /// Adds a webhook. Its URL has been checked, and is checked again for every delivery.
    pub async fn add_webhook(
        &self,
        user: &UserId,
        url: String,
        events: Vec<NotificationKind>,
        secret: String,
    ) -> Result<Webhook, EngineError> {
        let limit = self.shared.settings.notifications.webhooks_per_user;
        if self.webhooks(user).await?.len() >= limit {
            return Err(EngineError::TooManyWebhooks { limit });
        }
        let (id, created_at) = (self.shared.ids.make("wh"), self.now());
        let webhook = Webhook { id, url, events, secret, created_at, removed: false };
        self.shared.put_endpoint(WEBHOOK, &webhook.id, user, created_at, body(&webhook)).await?;
        // Others may have been added at the same time. The oldest stay, so all of them agree on who has to go.
        let known = self.shared.endpoints(WEBHOOK, user).await?;
        let place = known.live().rev().position(|known| known.id == webhook.id);
        if known.has_more || place.is_none_or(|place| place >= limit) {
            self.shared.remove_endpoint(WEBHOOK, user, &webhook.id).await?;
            return Err(EngineError::TooManyWebhooks { limit });
        }
        Ok(webhook)
    }

    pub async fn webhooks(&self, user: &UserId) -> Result<Vec<Webhook>, StoreError> {
        Ok(self.shared.endpoints(WEBHOOK, user).await?.read())
    }

    pub async fn remove_webhook(&self, user: &UserId, id: &str) -> Result<(), EngineError> {
        self.shared.remove_endpoint(WEBHOOK, user, id).await
    }

    /// The deliveries of a webhook, newest first: pending ones, delivered ones for a while, and those given up. With a
    /// state, only a limited number is looked through at a time: a page may then be short, or empty, and another follows.
    pub async fn deliveries(
        &self,
        user: &UserId,
        webhook: &str,
        state: Option<DeliveryState>,
        paging: Paging,
    ) -> Result<Page<Delivery>, EngineError> {
        if !self.webhooks(user).await?.iter().any(|known| known.id == webhook) {
            return Err(EngineError::NotFound);
        }
        let mut after = paging.after()?;
        let (mut data, mut looked_at): (Vec<Delivery>, usize) = (Vec::new(), 0);
        loop {
            let limit = if state.is_some() { LOOKED_AT } else { paging.limit };
            let query = ItemQuery { after, ..ItemQuery::newest(queue(webhook), limit) };
            let listed = self.shared.store.list_items(query).await?;
            looked_at += listed.items.len();
            let last = listed.items.last().map(|item| item.id.clone());
            for item in listed.items {
                let read: Option<Delivery> = serde_json::from_str(&item.body).ok();
                data.extend(read.filter(|one| state.is_none_or(|state| one.state == state)));
                if data.len() == paging.limit && Some(&item.id) != last.as_ref() {
                    return Ok(Page { data, next_cursor: Some(cursor(&(item.order, item.id))) });
                }
            }
            after = listed.next;
            if after.is_none() || data.len() == paging.limit || looked_at >= LOOKED_AT {
                return Ok(Page { data, next_cursor: after.as_ref().map(cursor) });
            }
        }
    }

    /// Adds a browser. The same subscription again replaces the old one.
    pub async fn add_push(
        &self,
        user: &UserId,
        endpoint: String,
        p256dh: String,
        auth: String,
    ) -> Result<PushSubscription, EngineError> {
        let limit = self.shared.settings.notifications.push_per_user;
        let known = self.push_subscriptions(user).await?;
        for same in known.iter().filter(|known| known.endpoint == endpoint) {
            if same.p256dh == p256dh && same.auth == auth {
                return Ok(same.clone());
            }
            self.shared.remove_endpoint(PUSH, user, &same.id).await?;
        }
        let (id, created_at) = (self.shared.ids.make("push"), self.now());
        let push = PushSubscription { id, endpoint, p256dh, auth, created_at, removed: false };
        self.shared.put_endpoint(PUSH, &push.id, user, created_at, body(&push)).await?;
        // A browser that was set up again leaves its old subscription behind, so the oldest ones make room. Others that
        // were added at the same time may have removed them already.
        let known = self.shared.endpoints(PUSH, user).await?;
        for old in known.live().skip(limit) {
            match self.shared.remove_endpoint(PUSH, user, &old.id).await {
                Ok(()) | Err(EngineError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        if known.has_more {
            self.shared.remove_endpoint(PUSH, user, &push.id).await?;
            return Err(EngineError::TooManyBrowsers { limit });
        }
        Ok(push)
    }

    pub async fn push_subscriptions(&self, user: &UserId) -> Result<Vec<PushSubscription>, StoreError> {
        Ok(self.shared.endpoints(PUSH, user).await?.read())
    }

    /// Removes the subscription of this browser.
    pub async fn remove_push(&self, user: &UserId, endpoint: &str) -> Result<(), EngineError> {
        let known = self.push_subscriptions(user).await?;
        let known = known.iter().find(|known| known.endpoint == endpoint).ok_or(EngineError::NotFound)?;
        self.shared.remove_endpoint(PUSH, user, &known.id).await
    }
}

/// The endpoints of a user, newest first, with those that are being removed.
struct Endpoints {
    items: Vec<Item>,
    /// Somebody adds and removes them faster than they can be removed.
    has_more: bool,
}

impl Endpoints {
    fn live(&self) -> impl DoubleEndedIterator<Item = &Item> {
        self.items.iter().filter(|item| !is_removed(item))
    }

    /// Those that are not being removed.
    fn read<T: DeserializeOwned>(&self) -> Vec<T> {
        self.live().filter_map(|item| serde_json::from_str(&item.body).ok()).collect()
    }
}

pub(super) fn is_removed(item: &Item) -> bool {
    #[derive(Deserialize)]
    struct Removed {
        #[serde(default)]
        removed: bool,
    }
    serde_json::from_str(&item.body).is_ok_and(|Removed { removed }| removed)
}

impl Shared {
    async fn endpoints(&self, kind: &str, user: &UserId) -> Result<Endpoints, StoreError> {
        let query = ItemQuery { user: Some(user.clone()), ..ItemQuery::newest(kind, ENDPOINTS_MAX) };
        let listed = self.store.list_items(query).await?;
        Ok(Endpoints { items: listed.items, has_more: listed.next.is_some() })
    }

    async fn put_endpoint(
        &self,
        kind: &str,
        id: &str,
        user: &UserId,
        now: Timestamp,
        body: String,
    ) -> Result<(), EngineError> {
        let (kind, id, user) = (kind.to_owned(), id.to_owned(), user.clone());
        let item = Item { kind, id, user, order: now.0, due: None, version: 0, body };
        let put = self.store.put_item(item).await;
        put.map(|_| ()).map_err(|error| EngineError::Unavailable(error.to_string()))
    }

    /// Marks the endpoint as removed. The outbox then removes its deliveries, and the endpoint last, so a crash in
    /// between leaves nothing behind.
    async fn remove_endpoint(&self, kind: &str, user: &UserId, id: &str) -> Result<(), EngineError> {
        let removed = self.change_endpoint(kind, id, |item| {
            let mut value: serde_json::Value = serde_json::from_str(&item.body).unwrap_or_default();
            let is_theirs = item.user == *user && value["removed"] != true;
            value["removed"] = true.into();
            (item.body, item.due) = (value.to_string(), Some(0));
            is_theirs
        });
        match removed.await? {
            true => Ok(()),
            false => Err(EngineError::NotFound),
        }
    }

    /// Reads, changes and writes an endpoint. Returns whether it exists and `change` wanted it written.
    pub(super) async fn change_endpoint(
        &self,
        kind: &str,
        id: &str,
        change: impl Fn(&mut Item) -> bool,
    ) -> Result<bool, StoreError> {
        for _ in 0..WRITE_TRIES {
            let Some(mut item) = self.store.get_item(kind, id).await? else { return Ok(false) };
            if !change(&mut item) {
                return Ok(false);
            }
            match self.store.put_item(item).await {
                Ok(_) => {
                    self.outbox.wake();
                    return Ok(true);
                }
                Err(PutError::Conflict | PutError::Unconfirmed(_)) => {}
                Err(PutError::Unavailable(reason)) => return Err(StoreError::Unavailable(reason)),
            }
        }
        Err(StoreError::Unavailable("the endpoint keeps changing; try again".to_owned()))
    }

    /// Puts a notification into the queue of each endpoint that wants it. Repeating it changes nothing, even after it
    /// was delivered, because deliveries are kept for a while.
    pub(super) async fn enqueue(&self, user: &UserId, one: &Notification) -> Result<(), StoreError> {
        for kind in [WEBHOOK, PUSH] {
            for endpoint in self.endpoints(kind, user).await?.live() {
                if kind == PUSH || wants(endpoint, one.kind) {
                    self.enqueue_at(kind, endpoint, one).await?;
                }
            }
        }
        Ok(())
    }

    async fn enqueue_at(&self, kind: &str, endpoint: &Item, one: &Notification) -> Result<(), StoreError> {
        let now = self.clock.now();
        let delivery = Delivery {
            id: one.id.as_str().to_owned(),
            kind: one.kind,
            state: DeliveryState::Pending,
            attempts: 0,
            created_at: one.created_at,
            error: None,
            next_attempt_at: Some(now),
            payload: sending::payload(one, &self.settings.notifications.public_url),
        };
        let item = Item {
            kind: queue(&endpoint.id),
            id: delivery.id.clone(),
            user: endpoint.user.clone(),
            order: one.created_at.0,
            due: Some(now.0),
            version: 0,
            body: body(&delivery),
        };
        match self.store.put_item(item).await {
            Ok(_) | Err(PutError::Conflict) => {}
            Err(error @ (PutError::Unavailable(_) | PutError::Unconfirmed(_))) => {
                return Err(StoreError::Unavailable(error.to_string()));
            }
        }
        let sooner = |item: &mut Item| {
            item.due = Some(item.due.map_or(now.0, |due| due.min(now.0)));
            true
        };
        self.change_endpoint(kind, &endpoint.id, sooner).await.map(|_| ())
    }
}

fn wants(endpoint: &Item, kind: NotificationKind) -> bool {
    let webhook: Result<Webhook, _> = serde_json::from_str(&endpoint.body);
    webhook.is_ok_and(|webhook| webhook.events.contains(&kind))
}
