//! Sends what is in the queues of the endpoints: one delivery at a time for each, many endpoints at once.
//!
//! Before an attempt the endpoint and the delivery are leased: their `due` moves beyond the end of the attempt. The
//! version of an item lets only one instance do that. If the server dies, the lease runs out and the attempt is made
//! again, so a receiver may see an event twice after a crash, and knows it by its id.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outlast_core::Timestamp;
use outlast_store::{Item, ItemQuery, PutError, StoreError, fault};
use tokio::sync::{Notify, Semaphore};

use super::endpoints::{Delivery, DeliveryState, PUSH, WEBHOOK, is_removed, queue};
use super::sending::{Sender, Sent};
use super::{NotificationSettings, body};
use crate::engine::{Engine, Shared};
use crate::outside::Outside;

/// How often the store is asked what is due, besides when something changes here.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Endpoints that are served at once. One that does not answer holds a place until its attempt times out.
const ENDPOINTS_AT_ONCE: usize = 64;
/// Longer than an attempt can take.
const LEASE: Duration = Duration::from_secs(20);
/// The longest delay between two attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// How long a delivery may wait in its queue besides its attempts. A receiver that is slower than what it is told would
/// otherwise have a queue without end.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// How long deliveries are kept that succeeded, and those that were given up.
const DELIVERED_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const DEAD_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Deliveries of a removed endpoint that are removed at once.
const REMOVE: usize = 200;

#[derive(Default)]
pub(crate) struct Outbox {
    changed: Notify,
    /// The endpoints that are served now. What is added to the queue of one makes it due again at once, and must not
    /// lead to a second call to a receiver that is slow already.
    busy: Mutex<HashSet<String>>,
}

/// Frees the place of an endpoint, even if serving it panics.
struct Served {
    shared: Arc<Shared>,
    endpoint: String,
}

impl Served {
    /// `None` if it is being served already.
    fn begin(shared: &Arc<Shared>, endpoint: &str) -> Option<Served> {
        let mut busy = shared.outbox.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if !busy.insert(endpoint.to_owned()) {
            return None;
        }
        Some(Served { shared: shared.clone(), endpoint: endpoint.to_owned() })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let outbox = &self.shared.outbox;
        outbox.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.endpoint);
        outbox.wake();
    }
}

impl Outbox {
    pub(super) fn wake(&self) {
        self.changed.notify_one();
    }
}

impl Engine {
    /// Delivers to webhooks and browsers from now on, also what an earlier server left in the outbox.
    pub async fn deliver(&self, outside: Outside) -> Result<(), StoreError> {
        let vapid = self.vapid_key().await?;
        let sender = Arc::new(Sender { outside, vapid });
        self.shared.spawn(run(self.shared.clone(), sender));
        Ok(())
    }
}

async fn run(shared: Arc<Shared>, sender: Arc<Sender>) {
    let places = Arc::new(Semaphore::new(ENDPOINTS_AT_ONCE));
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = shared.outbox.changed.notified() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        for kind in [WEBHOOK, PUSH] {
            if let Err(error) = begin_due(&shared, &sender, &places, kind).await {
                tracing::warn!(%error, "cannot read the outbox; will retry");
            }
        }
    }
}

/// Serves the endpoints that are due, as many as there are places.
async fn begin_due(
    shared: &Arc<Shared>,
    sender: &Arc<Sender>,
    places: &Arc<Semaphore>,
    kind: &'static str,
) -> Result<(), StoreError> {
    let now = shared.clock.now();
    let due = ItemQuery { due_by: Some(now.0), ..ItemQuery::newest(kind, ENDPOINTS_AT_ONCE) };
    let mut after = None;
    loop {
        let page = shared.store.list_items(ItemQuery { after, ..due.clone() }).await?;
        for endpoint in page.items {
            let Ok(place) = places.clone().try_acquire_owned() else { return Ok(()) };
            let Some(turn) = Served::begin(shared, &endpoint.id) else { continue };
            let leased = Item { due: Some(now.after(LEASE).0), ..endpoint };
            let Some(endpoint) = put(shared, leased).await? else { continue };
            let (shared, sender) = (shared.clone(), sender.clone());
            shared.clone().spawn(async move {
                let served = tokio::select! {
                    () = shared.stop.cancelled() => Ok(()), // its lease runs out
                    served = serve(&shared, &sender, endpoint) => served,
                };
                if let Err(error) = served {
                    tracing::warn!(%error, "cannot update the outbox; will retry");
                }
                drop((place, turn));
            });
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

/// Writes an item that was just read. `None` if somebody else changed it: then they look after it.
async fn put(shared: &Shared, item: Item) -> Result<Option<Item>, StoreError> {
    match shared.store.put_item(item.clone()).await {
        Ok(version) => Ok(Some(Item { version, ..item })),
        Err(PutError::Conflict) => Ok(None),
        Err(error @ (PutError::Unavailable(_) | PutError::Unconfirmed(_))) => {
            Err(StoreError::Unavailable(error.to_string()))
        }
    }
}

/// Does the next thing in the queue of a leased endpoint, and says when the one after it is due.
async fn serve(shared: &Shared, sender: &Sender, endpoint: Item) -> Result<(), StoreError> {
    let queue = queue(&endpoint.id);
    if is_removed(&endpoint) {
        return remove(shared, &endpoint, &queue).await;
    }
    let now = shared.clock.now();
    let due = ItemQuery { due_by: Some(now.0), ..ItemQuery::newest(queue.clone(), 1) };
    for item in shared.store.list_items(due).await?.items {
        if attempt(shared, sender, &endpoint, item).await? == Some(Sent::Gone) && endpoint.kind == PUSH {
            return remove(shared, &endpoint, &queue).await;
        }
    }
    let all = ItemQuery { due_by: Some(i64::MAX), ..ItemQuery::newest(queue, 1) };
    let due = shared.store.list_items(all).await?.items.first().and_then(|next| next.due);
    // After a conflict the endpoint is due at once, because something was added to its queue.
    put(shared, Item { due, ..endpoint }).await.map(|_| ())
}

async fn attempt(
    shared: &Shared,
    sender: &Sender,
    endpoint: &Item,
    item: Item,
) -> Result<Option<Sent>, StoreError> {
    let delivery = serde_json::from_str::<Delivery>(&item.body);
    let Some(mut delivery) = delivery.ok().filter(|one| one.state == DeliveryState::Pending) else {
        // It has been kept long enough, or nobody can read it.
        shared.store.remove_item(&item.kind, &item.id).await?;
        return Ok(None);
    };
    let now = shared.clock.now();
    if delivery.created_at.after(patience(&shared.settings.notifications)) <= now {
        (delivery.state, delivery.next_attempt_at) = (DeliveryState::Dead, None);
        delivery.error = Some("it waited too long behind others".to_owned());
        put(shared, Item { due: Some(now.after(DEAD_KEPT).0), body: body(&delivery), ..item }).await?;
        return Ok(None);
    }
    delivery.attempts += 1;
    let leased = Item { due: Some(shared.clock.now().after(LEASE).0), body: body(&delivery), ..item };
    let Some(leased) = put(shared, leased).await? else { return Ok(None) };
    fault::point("outbox.leased");
    let sent = sender.send(endpoint, &delivery, shared.clock.now()).await;
    fault::point("outbox.sent");
    let due = record(shared, &mut delivery, &sent);
    put(shared, Item { due: Some(due.0), body: body(&delivery), ..leased }).await?;
    Ok(Some(sent))
}

/// Writes down how an attempt ended, and returns when the delivery needs attention again.
fn record(shared: &Shared, delivery: &mut Delivery, sent: &Sent) -> Timestamp {
    let (settings, now) = (&shared.settings.notifications, shared.clock.now());
    let (state, kept) = match sent {
        Sent::Accepted => (DeliveryState::Delivered, DELIVERED_KEPT),
        Sent::Failed(_) if delivery.attempts < settings.attempts => {
            let delay = backoff(settings.backoff, delivery.attempts, shared.ids.jitter());
            (DeliveryState::Pending, delay)
        }
        Sent::Failed(_) | Sent::Gone => (DeliveryState::Dead, DEAD_KEPT),
    };
    delivery.state = state;
    delivery.error = match sent {
        Sent::Accepted => None,
        Sent::Gone => Some("the receiver is gone".to_owned()),
        Sent::Failed(why) => Some(why.clone()),
    };
    let due = now.after(kept);
    delivery.next_attempt_at = (state == DeliveryState::Pending).then_some(due);
    due
}

/// Four times longer with each attempt, and up to half as long again by chance, so that receivers that come back do
/// not get everything at once.
fn backoff(first: Duration, attempts: u32, jitter: u8) -> Duration {
    let delay = first.saturating_mul(4_u32.saturating_pow(attempts.saturating_sub(1))).min(BACKOFF_MAX);
    delay + delay.mul_f64(f64::from(jitter) / 512.0)
}

/// How old a delivery can become.
fn patience(settings: &NotificationSettings) -> Duration {
    let attempts = (1..settings.attempts).map(|attempt| backoff(settings.backoff, attempt, u8::MAX));
    attempts.fold(PATIENCE, Duration::saturating_add)
}

/// Removes a part of the queue, and the endpoint once it is empty.
async fn remove(shared: &Shared, endpoint: &Item, queue: &str) -> Result<(), StoreError> {
    let some = shared.store.list_items(ItemQuery::newest(queue, REMOVE)).await?.items;
    for delivery in &some {
        shared.store.remove_item(queue, &delivery.id).await?;
    }
    if some.len() < REMOVE {
        shared.store.remove_item(&endpoint.kind, &endpoint.id).await?;
        return Ok(());
    }
    put(shared, Item { due: Some(0), ..endpoint.clone() }).await.map(|_| ())
}

#[cfg(test)]
mod tests;
