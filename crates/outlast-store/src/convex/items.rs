//! Items as Convex keeps them.

use async_trait::async_trait;
use outlast_core::UserId;
use serde::Deserialize;
use serde_json::json;

use super::documents::{STEP, end_of, number, sort_key};
use super::{ConvexStore, integer};
use crate::contract::StoreError;
use crate::items::{Item, ItemQuery, Items, ListedItems, PutError};
use crate::page::ItemPage;

#[derive(Deserialize)]
struct Stored {
    id: String,
    user: String,
    place: String,
    due: Option<String>,
    version: String,
    body: String,
}

#[derive(Deserialize)]
struct Found {
    items: Vec<Stored>,
    rest: Option<String>,
}

#[async_trait]
impl Items for ConvexStore {
    async fn put_item(&self, item: Item) -> Result<u64, PutError> {
        let args = json!({
            "kind": item.kind,
            "id": item.id,
            "user": item.user.as_str(),
            "place": sort_key(item.order, &item.id),
            "due": item.due.map(|due| sort_key(due, &item.id)),
            "version": integer(item.version),
            "bytes": item.body.len(),
            "body": item.body,
        });
        let stored: Option<String> = self.deployment.mutation("items:put", &args).await?;
        let stored = stored.ok_or(PutError::Conflict)?;
        stored.parse().map_err(|_| PutError::Unconfirmed(format!("{stored} is not a version")))
    }

    async fn get_item(&self, kind: &str, id: &str) -> Result<Option<Item>, StoreError> {
        let args = json!({ "kind": kind, "id": id });
        let found: Option<Stored> = self.deployment.query("items:get", &args).await?;
        found.map(|stored| stored.item(kind)).transpose()
    }

    async fn list_items(&self, query: ItemQuery) -> Result<ListedItems, StoreError> {
        let (limit, max_bytes) = STEP.within(query.limit, query.max_bytes);
        let mut after = query.after.as_ref().map(|(number, id)| sort_key(*number, id));
        let mut page = ItemPage::new(query.limit, query.max_bytes);
        loop {
            let args = json!({
                "kind": query.kind,
                "user": query.user.as_ref().map(UserId::as_str),
                "dueUntil": query.due_by.map(end_of),
                "after": after,
                "limit": limit,
                "maxBytes": max_bytes,
            });
            let found: Found = self.deployment.query("items:list", &args).await?;
            for stored in found.items {
                if !page.add(stored.item(&query.kind)?) {
                    return Ok(page.into_listed(query.due_by.is_some()));
                }
            }
            match found.rest {
                Some(rest) => after = Some(rest),
                None => return Ok(page.into_listed(query.due_by.is_some())),
            }
        }
    }

    async fn item_kinds(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.deployment.query("items:kinds", &json!({})).await?)
    }

    async fn remove_item(&self, kind: &str, id: &str) -> Result<bool, StoreError> {
        Ok(self.deployment.mutation("items:remove", &json!({ "kind": kind, "id": id })).await?)
    }
}

impl Stored {
    fn item(self, kind: &str) -> Result<Item, StoreError> {
        let broken = |_| StoreError::Broken(format!("{} is not a version", self.version));
        Ok(Item {
            kind: kind.to_owned(),
            user: UserId::from(self.user),
            order: number(&self.place)?,
            due: self.due.as_deref().map(number).transpose()?,
            version: self.version.parse().map_err(broken)?,
            body: self.body,
            id: self.id,
        })
    }
}
