//! Removes from the target what an earlier run has copied and the source has lost since: a server may have run on the
//! source in between, and a conversation that was deleted or a key that was revoked must not come back.

use super::{MARK, MigrateError, PAGE, conversations};
use crate::contract::{Store, Table};
use crate::items::ItemQuery;

pub(super) async fn remove_what_the_source_lacks(
    from: &dyn Store,
    to: &dyn Store,
) -> Result<(), MigrateError> {
    remove_conversations(from, to).await?;
    for kind in to.item_kinds().await? {
        if kind != MARK.0 {
            remove_items(from, to, kind).await?;
        }
    }
    Ok(())
}

async fn remove_conversations(from: &dyn Store, to: &dyn Store) -> Result<(), MigrateError> {
    let mut query = conversations();
    loop {
        let page = to.list(query.clone()).await?;
        for document in page.documents {
            if from.get(Table::Conversations, &document.id).await?.is_none() {
                to.delete(&document.conversation).await?;
            }
        }
        let Some(next) = page.next else { return Ok(()) };
        query.after = Some(next);
    }
}

async fn remove_items(from: &dyn Store, to: &dyn Store, kind: String) -> Result<(), MigrateError> {
    let mut query = ItemQuery::newest(kind, PAGE);
    loop {
        let page = to.list_items(query.clone()).await?;
        for item in page.items {
            if from.get_item(&item.kind, &item.id).await?.is_none() {
                to.remove_item(&item.kind, &item.id).await?;
            }
        }
        let Some(next) = page.next else { return Ok(()) };
        query.after = Some(next);
    }
}
