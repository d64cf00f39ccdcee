//! Copies everything from one store to another while no server uses either.
//!
//! A run that was interrupted is repeated: every conversation is compared by a digest, and what differs is removed and
//! copied again. Every conversation that was copied is read back and compared, too. Mail is not copied, because no
//! instance is left to wait for a reply.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use outlast_core::{ConversationId, UserId};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::contract::{AppendError, ClaimError, Fence, Query, Store, StoreError, Table};
use crate::fault;
use crate::items::{Item, ItemQuery, PutError};

mod conversation;
mod removal;

/// Conversations that are copied at once, so that they share commits.
const AT_ONCE: usize = 32;
/// Conversations, documents and items of one page.
const PAGE: usize = 256;
/// The time between two lines of progress.
const SAY_EVERY: Duration = Duration::from_secs(1);
/// Keeps a second migration out of the target. Short, because one that was killed can only go on when it has expired.
const LEASE: Duration = Duration::from_secs(5);

/// The item that says, in the target, that a migration was begun and is not finished.
const MARK: (&str, &str) = ("migration", "unfinished");

/// What was copied, or found to be copied already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    pub conversations: u64,
    /// Of these, the ones that an earlier run had copied.
    pub found: u64,
    pub events: u64,
    pub items: u64,
    /// A digest of the digests of all conversations. Equal for equal stores, of whatever kind.
    pub digest: [u8; 32],
}

#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error(
        "the {side} is in use by the instance {instance}: stop every server and every other migration that uses it; \
         if one was killed, try again in a minute"
    )]
    Served { side: &'static str, instance: String },
    #[error(
        "the source has changed while it was copied: stop every server that uses it, and run the migration again"
    )]
    Changed,
    #[error("the source is empty: there is nothing to copy, so check its URL")]
    Empty,
    /// Only an empty store, or one that an earlier run has begun to fill, can be the target.
    #[error("the target already has data, and not from an unfinished migration: use an empty store")]
    NotEmpty,
    #[error("the conversation {0} differs in the target after it was copied: run the migration again")]
    Differs(ConversationId),
    #[error("the migration is not finished; run it again to continue: {0}")]
    Store(#[from] StoreError),
    #[error("cannot write to the target; run the migration again to continue: {0}")]
    Append(#[from] AppendError),
    #[error("cannot write to the target; run the migration again to continue: {0}")]
    Claim(#[from] ClaimError),
    #[error("cannot write to the target; run the migration again to continue: {0}")]
    Put(#[from] PutError),
}

/// Whether a migration into this store was begun and not finished. A server must not use it then.
pub async fn is_unfinished(store: &dyn Store) -> Result<bool, StoreError> {
    Ok(store.get_item(MARK.0, MARK.1).await?.is_some())
}

/// Copies everything, or goes on where an earlier run was interrupted. Reports progress line by line.
pub async fn migrate(
    from: &dyn Store,
    to: &dyn Store,
    say: &mut (dyn FnMut(String) + Send),
) -> Result<Migrated, MigrateError> {
    // A lease first: of two that begin at once, each then sees the other.
    to.renew(LEASE).await?;
    let done = tokio::select! {
        done = run(from, to, say) => done,
        lost = keep_lease(to) => Err(lost.into()),
    };
    if let Err(error) = to.leave().await {
        tracing::warn!(%error, "the lease in the target was not ended; it expires by itself");
    }
    done
}

async fn keep_lease(to: &dyn Store) -> StoreError {
    loop {
        tokio::time::sleep(LEASE / 5).await;
        if let Err(error) = to.renew(LEASE).await {
            return error;
        }
    }
}

async fn run(
    from: &dyn Store,
    to: &dyn Store,
    say: &mut (dyn FnMut(String) + Send),
) -> Result<Migrated, MigrateError> {
    refuse_if_served(from, to).await?;
    let resumed = begin(from, to).await?;
    if resumed {
        say("continuing a migration that was not finished; what it has copied is compared".to_owned());
    }
    // Every fence of the source stays smaller than those that the target will hand out.
    let fence = from.raise_fences(Fence(0)).await?;
    to.raise_fences(fence).await?;
    let mut migrated = copy_conversations(from, to, resumed, say).await?;
    migrated.items = copy_items(from, to).await?;
    if resumed {
        removal::remove_what_the_source_lacks(from, to).await?;
    }
    refuse_if_served(from, to).await?;
    // Who changes a conversation has claimed it, and every claim takes a fence.
    if from.raise_fences(Fence(0)).await? != fence {
        return Err(MigrateError::Changed);
    }
    to.remove_item(MARK.0, MARK.1).await?;
    Ok(migrated)
}

async fn refuse_if_served(from: &dyn Store, to: &dyn Store) -> Result<(), MigrateError> {
    for (side, store) in [("source", from), ("target", to)] {
        if let Some(instance) = store.others().await?.pop() {
            return Err(MigrateError::Served { side, instance: instance.0 });
        }
    }
    Ok(())
}

/// Marks the target, and returns whether an earlier run had done so.
async fn begin(from: &dyn Store, to: &dyn Store) -> Result<bool, MigrateError> {
    if is_empty(from).await? {
        return Err(MigrateError::Empty);
    }
    if is_unfinished(to).await? {
        return Ok(true);
    }
    if !is_empty(to).await? {
        return Err(MigrateError::NotEmpty);
    }
    let mark = Item {
        kind: MARK.0.to_owned(),
        id: MARK.1.to_owned(),
        user: UserId::from(""),
        order: 0,
        due: None,
        version: 0,
        body: "{}".to_owned(),
    };
    to.put_item(mark).await?;
    Ok(false)
}

async fn is_empty(store: &dyn Store) -> Result<bool, StoreError> {
    let any = Query { limit: 1, ..conversations() };
    Ok(store.list(any).await?.documents.is_empty() && store.item_kinds().await?.is_empty())
}

fn conversations() -> Query {
    Query { table: Some(Table::Conversations), limit: PAGE, ..Query::default() }
}

async fn copy_conversations(
    from: &dyn Store,
    to: &dyn Store,
    resumed: bool,
    say: &mut (dyn FnMut(String) + Send),
) -> Result<Migrated, MigrateError> {
    let (mut migrated, mut digest) = (Migrated::default(), Sha256::new());
    let mut said = Instant::now();
    let mut query = conversations();
    loop {
        let page = from.list(query.clone()).await?;
        let copies = page
            .documents
            .iter()
            .map(|document| conversation::copy(from, to, &document.conversation, resumed));
        // In the order of the list, which is the same in every store, and so is the digest then.
        let mut copies = stream::iter(copies).buffered(AT_ONCE);
        while let Some(copied) = copies.try_next().await? {
            fault::point(fault::MIGRATE);
            migrated.conversations += 1;
            migrated.found += u64::from(copied.found);
            migrated.events += copied.events;
            digest.update(copied.digest);
            if said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                say(format!("{} conversations, {} events", migrated.conversations, migrated.events));
            }
        }
        let Some(next) = page.next else { break };
        query.after = Some(next);
    }
    migrated.digest = digest.finalize().into();
    Ok(migrated)
}

/// Versions begin again, because nobody is left who has read one.
async fn copy_items(from: &dyn Store, to: &dyn Store) -> Result<u64, MigrateError> {
    let mut copied = 0;
    for kind in from.item_kinds().await? {
        let mut query = ItemQuery::newest(kind, PAGE);
        loop {
            let page = from.list_items(query.clone()).await?;
            copied += page.items.len() as u64;
            let copies = stream::iter(page.items.into_iter().map(|item| copy_item(to, item)));
            copies.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
            let Some(next) = page.next else { break };
            query.after = Some(next);
        }
    }
    Ok(copied)
}

async fn copy_item(to: &dyn Store, item: Item) -> Result<(), MigrateError> {
    let there = to.get_item(&item.kind, &item.id).await?;
    let version = there.as_ref().map_or(0, |there| there.version);
    let item = Item { version, ..item };
    if there.as_ref() != Some(&item) {
        to.put_item(item).await?;
    }
    Ok(())
}
