//! Items in memory: a sorted map, searched as a whole.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use async_trait::async_trait;

use super::MemoryStore;
use crate::contract::StoreError;
use crate::items::{Item, ItemQuery, Items, ListedItems, PutError};
use crate::page::ItemPage;

/// By kind and id.
pub(super) type KeptItems = BTreeMap<(String, String), Item>;

#[async_trait]
impl Items for MemoryStore {
    async fn put_item(&self, item: Item) -> Result<u64, PutError> {
        let mut kept = self.shared.items.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (item.kind.clone(), item.id.clone());
        let stored = kept.get(&key).map_or(0, |item| item.version);
        if stored != item.version {
            return Err(PutError::Conflict);
        }
        let version = stored + 1;
        kept.insert(key, Item { version, ..item });
        Ok(version)
    }

    async fn get_item(&self, kind: &str, id: &str) -> Result<Option<Item>, StoreError> {
        let kept = self.shared.items.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(kept.get(&(kind.to_owned(), id.to_owned())).cloned())
    }

    async fn list_items(&self, query: ItemQuery) -> Result<ListedItems, StoreError> {
        let kept = self.shared.items.lock().unwrap_or_else(PoisonError::into_inner);
        let of_kind = kept.range((query.kind.clone(), String::new())..);
        let of_kind = of_kind.map(|(_, item)| item).take_while(|item| item.kind == query.kind);
        let mut matching: Vec<&Item> = of_kind.filter(|item| matches(item, &query)).collect();
        match query.due_by {
            Some(_) => matching.sort_by_key(|item| (item.due, &item.id)),
            None => matching.sort_by(|a, b| (b.order, &b.id).cmp(&(a.order, &a.id))),
        }
        let mut page = ItemPage::new(query.limit, query.max_bytes);
        for item in matching {
            if !page.add(item.clone()) {
                break;
            }
        }
        Ok(page.into_listed(query.due_by.is_some()))
    }

    async fn item_kinds(&self) -> Result<Vec<String>, StoreError> {
        let kept = self.shared.items.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kinds: Vec<String> = kept.keys().map(|(kind, _)| kind.clone()).collect();
        kinds.dedup();
        Ok(kinds)
    }

    async fn remove_item(&self, kind: &str, id: &str) -> Result<bool, StoreError> {
        let mut kept = self.shared.items.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(kept.remove(&(kind.to_owned(), id.to_owned())).is_some())
    }
}

fn matches(item: &Item, query: &ItemQuery) -> bool {
    query.user.as_ref().is_none_or(|user| *user == item.user)
        && query.due_by.is_none_or(|by| item.due.is_some_and(|due| due <= by))
        && query.after.as_ref().is_none_or(|(key, id)| match query.due_by {
            Some(_) => (item.due, &item.id) > (Some(*key), id),
            None => (item.order, &item.id) < (*key, id),
        })
}
