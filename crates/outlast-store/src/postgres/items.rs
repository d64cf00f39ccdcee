//! Items in their table. Each write is a statement of its own: items have no owner and no order among them.

use async_trait::async_trait;
use outlast_core::UserId;
use tokio_postgres::Row;

use super::PostgresStore;
use super::connect::{is_refusal, reason};
use super::session::Value;
use crate::contract::StoreError;
use crate::items::{Item, ItemQuery, Items, ListedItems, PutError};
use crate::page::ItemPage;

const INSERT: &str = "INSERT INTO items (kind, id, user_id, ord, due, version, body) \
                      VALUES ($1, $2, $3, $4, $5, $6::bigint + 1, $7) ON CONFLICT DO NOTHING";

const UPDATE: &str = "UPDATE items SET user_id = $3, ord = $4, due = $5, version = $6::bigint + 1, body = $7 \
                      WHERE kind = $1 AND id = $2 AND version = $6";

#[async_trait]
impl Items for PostgresStore {
    async fn put_item(&self, item: Item) -> Result<u64, PutError> {
        let Item { kind, id, user, order, due, version, body } = &item;
        let (user, version) = (user.as_str(), version.cast_signed());
        let values: [&dyn Value; 7] = [kind, id, &user, order, due, &version, body];
        let refused = |error: StoreError| PutError::Unavailable(error.to_string());
        let client = self.source.shared().await.map_err(refused)?;
        let sql = if version == 0 { INSERT } else { UPDATE };
        match client.session().execute(sql, &values).await {
            Ok(0) => Err(PutError::Conflict),
            Ok(_) => Ok(item.version + 1),
            Err(error) if is_refusal(&error) => Err(PutError::Unavailable(reason(&error))),
            Err(error) => Err(PutError::Unconfirmed(reason(&error))),
        }
    }

    async fn get_item(&self, kind: &str, id: &str) -> Result<Option<Item>, StoreError> {
        let sql = format!("{SELECT} WHERE kind = $1 AND id = $2");
        let rows = self.rows(&sql, &[&kind, &id]).await?;
        Ok(rows.first().map(item))
    }

    async fn list_items(&self, query: ItemQuery) -> Result<ListedItems, StoreError> {
        let (key, order, compares) = match query.due_by {
            Some(_) => ("due", "due, id", ">"),
            None => ("ord", "ord DESC, id DESC", "<"),
        };
        let sql = format!(
            "{SELECT} WHERE kind = $1 AND ($2::text IS NULL OR user_id = $2) AND ($3::bigint IS NULL OR due <= $3) \
             AND ($4::bigint IS NULL OR ({key}, id) {compares} ($4, $5::text)) ORDER BY {order} LIMIT $6"
        );
        let user = query.user.as_ref().map(UserId::as_str);
        let (after, id) = query.after.as_ref().map(|(key, id)| (*key, id.as_str())).unzip();
        // One more than wanted tells whether there are more.
        let limit = i64::try_from(query.limit).unwrap_or(i64::MAX).saturating_add(1);
        let values: [&dyn Value; 6] = [&query.kind, &user, &query.due_by, &after, &id, &limit];
        let mut page = ItemPage::new(query.limit, query.max_bytes);
        for row in self.rows(&sql, &values).await? {
            if !page.add(item(&row)) {
                break;
            }
        }
        Ok(page.into_listed(query.due_by.is_some()))
    }

    async fn item_kinds(&self) -> Result<Vec<String>, StoreError> {
        let rows = self.rows("SELECT DISTINCT kind FROM items ORDER BY 1", &[]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    async fn remove_item(&self, kind: &str, id: &str) -> Result<bool, StoreError> {
        let sql = "DELETE FROM items WHERE kind = $1 AND id = $2 RETURNING 1";
        Ok(!self.rows(sql, &[&kind, &id]).await?.is_empty())
    }
}

const SELECT: &str = "SELECT kind, id, user_id, ord, due, version, body FROM items";

fn item(row: &Row) -> Item {
    Item {
        kind: row.get(0),
        id: row.get(1),
        user: UserId::from(row.get::<_, &str>(2)),
        order: row.get(3),
        due: row.get(4),
        version: row.get::<_, i64>(5).cast_unsigned(),
        body: row.get(6),
    }
}
