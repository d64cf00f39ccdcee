//! Items as Redis keeps them: a hash for each, and sorted sets that find them.

use async_trait::async_trait;
use outlast_core::UserId;
use redis::cmd;
use serde::{Deserialize, Serialize};

use super::RedisStore;
use super::documents::{Range, pair};
use crate::contract::StoreError;
use crate::items::{Item, ItemQuery, Items, ListedItems, PutError};
use crate::page::ItemPage;
use crate::sort_key::{from_sortable, sortable};

/// Id, keys, version and body.
type Stored = (String, String, u64, String);

#[derive(Serialize, Deserialize)]
struct Keys {
    user: String,
    order: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<String>,
}

#[derive(Serialize)]
struct Filter<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
}

#[async_trait]
impl Items for RedisStore {
    async fn put_item(&self, item: Item) -> Result<u64, PutError> {
        let keys = Keys {
            user: item.user.as_str().to_owned(),
            order: sortable(item.order),
            due: item.due.map(sortable),
        };
        let keys = serde_json::to_string(&keys).expect("strings can be written as JSON");
        let next = item.version + 1;
        let put = self.link.run(&self.scripts.put_item, |script| {
            script.arg(&item.kind).arg(&item.id).arg(item.version).arg(next).arg(keys).arg(&item.body);
        });
        match put.await? {
            true => Ok(next),
            false => Err(PutError::Conflict),
        }
    }

    async fn get_item(&self, kind: &str, id: &str) -> Result<Option<Item>, StoreError> {
        let asked = self.link.run(&self.scripts.get_item, |script| {
            script.arg(kind).arg(id);
        });
        let found: Option<Stored> = asked.await?;
        found.map(|stored| item(kind, stored)).transpose()
    }

    async fn list_items(&self, query: ItemQuery) -> Result<ListedItems, StoreError> {
        let user = query.user.as_ref().map(UserId::as_str);
        let filter = serde_json::to_string(&Filter { user }).expect("strings can be written as JSON");
        let index = match (query.due_by, user) {
            (Some(_), _) => format!("items:due:{}", query.kind),
            (None, Some(user)) => format!("items:user:{}", pair(&query.kind, user)),
            (None, None) => format!("items:all:{}", query.kind),
        };
        let mut range = Range::new(query.due_by, query.after.as_ref());
        let mut page = ItemPage::new(query.limit, query.max_bytes);
        let by_due = query.due_by.is_some();
        loop {
            let asked = self.link.run(&self.scripts.list_items, |script| {
                script.arg(&query.kind).arg(&index).arg(range.order).arg(&range.low).arg(&range.high);
                script.arg(&filter).arg(query.limit).arg(query.max_bytes);
            });
            let (found, rest): (Vec<Stored>, Option<Vec<u8>>) = asked.await?;
            for stored in found {
                if !page.add(item(&query.kind, stored)?) {
                    return Ok(page.into_listed(by_due));
                }
            }
            match rest {
                Some(member) => range.skip(&member),
                None => return Ok(page.into_listed(by_due)),
            }
        }
    }

    async fn item_kinds(&self) -> Result<Vec<String>, StoreError> {
        let mut kinds: Vec<String> = self.link.ask(cmd("HKEYS").arg(self.link.key("kinds"))).await?;
        kinds.sort();
        Ok(kinds)
    }

    async fn remove_item(&self, kind: &str, id: &str) -> Result<bool, StoreError> {
        let removed = self.link.run(&self.scripts.remove_item, |script| {
            script.arg(kind).arg(id);
        });
        Ok(removed.await?)
    }
}

fn item(kind: &str, (id, keys, version, body): Stored) -> Result<Item, StoreError> {
    let broken = || StoreError::Broken(format!("the item {id} of the kind {kind} cannot be read"));
    let keys: Keys = serde_json::from_str(&keys).map_err(|_| broken())?;
    let due = keys.due.as_deref().map(|due| from_sortable(due).ok_or_else(broken)).transpose()?;
    let order = from_sortable(&keys.order).ok_or_else(broken)?;
    Ok(Item { kind: kind.to_owned(), user: UserId::from(keys.user), order, due, version, body, id })
}
