//! What operators see of the instances that share a store. Each keeps an item about itself, and the store says which
//! of them have a valid lease.

use std::collections::BTreeMap;
use std::time::Duration;

use outlast_core::{Timestamp, UserId};
use outlast_store::{Item, ItemQuery, StoreError};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use crate::engine::{Engine, Shared};

const INSTANCE: &str = "instance";
/// How often an instance looks whether its item is out of date. An idle server writes nothing.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The item is written at least this often, because items that are much older belong to instances that died.
const WRITE_EVERY: Duration = Duration::from_secs(60 * 60);
/// An instance that died is shown for this long.
const SHOWN: Duration = Duration::from_secs(24 * 60 * 60);
/// The most instances that are shown, and items that are removed at a time.
const INSTANCES_MAX: usize = 100;
/// A store that does not respond must not delay the end of the process.
const REMOVE_WITHIN: Duration = Duration::from_secs(1);

/// A running server, or one that died a while ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    pub id: String,
    /// Whether it has a valid lease. What an instance without one held is taken over by the others.
    pub has_lease: bool,
    /// `None` if it has not said anything about itself.
    pub about: Option<AboutInstance>,
}

/// What an instance says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AboutInstance {
    pub version: String,
    pub started_at: Timestamp,
    /// Generations that it runs or has queued.
    pub live: usize,
    /// Conversations that have a task there.
    pub owners: usize,
    /// Streams of events that are followed there.
    pub followers: i64,
}

impl Engine {
    /// From now on, operators at any instance see this one.
    pub fn introduce(&self, version: &str) {
        let about = self.about(version, self.now());
        self.shared.spawn(self.clone().keep_introduced(about));
    }

    /// The instances of this store: this one first, then the others by name.
    pub async fn instances(&self, this: AboutInstance) -> Result<Vec<Instance>, StoreError> {
        let store = &self.shared.store;
        let alive = store.others().await?;
        let mut others: BTreeMap<String, (bool, Option<AboutInstance>)> =
            alive.into_iter().map(|instance| (instance.0, (true, None))).collect();
        for item in store.list_items(ItemQuery::newest(INSTANCE, INSTANCES_MAX)).await?.items {
            others.entry(item.id).or_default().1 = serde_json::from_str(&item.body).ok();
        }
        others.remove(self.instance());
        let this = Instance { id: self.instance().to_owned(), has_lease: true, about: Some(this) };
        let others = others.into_iter().map(|(id, (has_lease, about))| Instance { id, has_lease, about });
        Ok(std::iter::once(this).chain(others.take(INSTANCES_MAX)).collect())
    }

    /// This instance, as it is now.
    pub fn about(&self, version: &str, started_at: Timestamp) -> AboutInstance {
        AboutInstance {
            version: version.to_owned(),
            started_at,
            live: self.live(),
            owners: self.owners(),
            followers: self.shared.figures.followed(),
        }
    }

    async fn keep_introduced(self, first: AboutInstance) {
        let AboutInstance { version, started_at, .. } = first;
        let mut written: Option<(AboutInstance, Timestamp)> = None;
        loop {
            let (about, now) = (self.about(&version, started_at), self.now());
            let is_known =
                written.as_ref().is_some_and(|(known, at)| *known == about && now < at.after(WRITE_EVERY));
            if !is_known {
                match self.shared.introduce(&about, now).await {
                    Ok(()) => written = Some((about, now)),
                    Err(error) => tracing::warn!(%error, "cannot say that this instance runs; will retry"),
                }
            }
            tokio::select! {
                () = self.shared.stop.cancelled() => break,
                () = sleep(LOOK_EVERY) => {}
            }
        }
        let removed = self.shared.store.remove_item(INSTANCE, self.instance());
        if !matches!(timeout(REMOVE_WITHIN, removed).await, Ok(Ok(_))) {
            tracing::warn!("this instance will be shown for a while after it has stopped");
        }
    }
}

impl Shared {
    /// Writes the item of this instance, which nobody else writes, and removes those of instances that died long ago.
    async fn introduce(&self, about: &AboutInstance, now: Timestamp) -> Result<(), StoreError> {
        let id = self.store.instance().0.clone();
        let version = self.store.get_item(INSTANCE, &id).await?.map_or(0, |item| item.version);
        let item = Item {
            kind: INSTANCE.to_owned(),
            id,
            user: UserId::from(""),
            order: about.started_at.0,
            due: Some(now.after(SHOWN).0),
            version,
            body: serde_json::to_string(about).expect("our own types have string keys"),
        };
        if let Err(error) = self.store.put_item(item).await {
            return Err(StoreError::Unavailable(error.to_string()));
        }
        let old = ItemQuery { due_by: Some(now.0), ..ItemQuery::newest(INSTANCE, INSTANCES_MAX) };
        for item in self.store.list_items(old).await?.items {
            self.store.remove_item(INSTANCE, &item.id).await?;
        }
        Ok(())
    }
}
