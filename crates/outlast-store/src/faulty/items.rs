//! The same faults for items.

use async_trait::async_trait;

use super::{Fate, FaultyStore};
use crate::contract::StoreError;
use crate::items::{Item, ItemQuery, Items, ListedItems, PutError};

#[async_trait]
impl Items for FaultyStore {
    async fn put_item(&self, item: Item) -> Result<u64, PutError> {
        self.delay().await;
        self.arrivals().await;
        let fate = self.lock().fate();
        match fate {
            Fate::Healthy => {
                let reply = self.inner.put_item(item).await;
                self.delay().await;
                reply
            }
            Fate::Refused => Err(PutError::Unavailable("fault: refused".into())),
            Fate::Unanswered => match self.inner.put_item(item).await {
                Ok(_) => Err(PutError::Unconfirmed("fault: written, reply lost".into())),
                Err(refusal) => Err(refusal),
            },
            // A late write is dropped, because by then its version would only cause a conflict.
            Fate::Lost | Fate::Late => Err(PutError::Unconfirmed("fault: request lost".into())),
        }
    }

    async fn get_item(&self, kind: &str, id: &str) -> Result<Option<Item>, StoreError> {
        self.before_call().await?;
        self.inner.get_item(kind, id).await
    }

    async fn list_items(&self, query: ItemQuery) -> Result<ListedItems, StoreError> {
        self.before_call().await?;
        self.inner.list_items(query).await
    }

    async fn item_kinds(&self) -> Result<Vec<String>, StoreError> {
        self.before_call().await?;
        self.inner.item_kinds().await
    }

    async fn remove_item(&self, kind: &str, id: &str) -> Result<bool, StoreError> {
        self.before_call().await?;
        self.inner.remove_item(kind, id).await
    }
}
