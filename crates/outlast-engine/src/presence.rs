//! Who watches a conversation at another instance than its owner's. The owner cannot see them, so each instance notes in
//! the store that it has followers. A note counts for as long as the lease of whoever made it.

use std::collections::BTreeSet;
use std::time::Duration;

use outlast_core::{ConversationId, Timestamp, UserId};
use outlast_store::{Document, Item, PutError, StoreError, Table};
use serde::{Deserialize, Serialize};

use crate::engine::Shared;

/// The kind of the items that say which instances have followers of a conversation.
const WATCHED: &str = "watched";
/// A note is kept for this long, ...
const NOTE_LIVES: Duration = Duration::from_secs(24 * 60 * 60);
/// ... and is made again this often while somebody watches.
pub(crate) const NOTE_EVERY: Duration = Duration::from_secs(6 * 60 * 60);
/// How often a note is written again because another instance has changed it meanwhile.
const TRIES: usize = 5;

#[derive(Deserialize, Serialize)]
struct Note {
    /// When it was made.
    at: Timestamp,
    /// The instances that have followers.
    #[serde(default)]
    by: BTreeSet<String>,
}

/// Whether anybody watches at another instance.
pub(crate) enum Watched {
    Now,
    /// Nobody does since then.
    Until(Timestamp),
    Never,
}

impl Shared {
    pub(crate) async fn watched_elsewhere(
        &self,
        conversation: &ConversationId,
    ) -> Result<Watched, StoreError> {
        let Some((item, note)) = self.noted(conversation).await? else { return Ok(Watched::Never) };
        let me = &self.store.instance().0;
        if note.by.iter().all(|by| by == me) {
            return Ok(Watched::Until(note.at));
        }
        let live = self.store.others().await?;
        if live.iter().any(|other| note.by.contains(&other.0)) {
            return Ok(Watched::Now);
        }
        // The instance is gone. Those who watched there come back to another one, and have the usual time for it.
        let at = self.clock.now();
        self.write(&item, Note { at, by: BTreeSet::new() }).await?;
        Ok(Watched::Until(at))
    }

    /// Notes that somebody watches here, if there is something to watch. Returns whether there is.
    pub(crate) async fn note_followers(&self, conversation: &ConversationId) -> Result<bool, StoreError> {
        let document = self.store.get(Table::Conversations, conversation.as_str()).await?;
        let Some(Document { due: Some(_), user, .. }) = document else { return Ok(false) };
        self.change(conversation, Some(user), |by, me| by.insert(me)).await?;
        Ok(true)
    }

    /// Notes that nobody watches here any more.
    pub(crate) async fn note_no_followers(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        self.change(conversation, None, |by, me| by.remove(&me)).await
    }

    /// Removes old notes.
    pub(crate) async fn sweep_notes(&self, now: Timestamp) -> Result<(), StoreError> {
        outlast_store::remove_due(&*self.store, WATCHED, now.0).await
    }

    /// Changes the note. Without a user, one that does not exist is not made.
    async fn change(
        &self,
        conversation: &ConversationId,
        user: Option<UserId>,
        change: impl Fn(&mut BTreeSet<String>, String) -> bool,
    ) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            let at = self.clock.now();
            let (item, mut note) = match (self.noted(conversation).await?, &user) {
                (Some(noted), _) => noted,
                (None, Some(user)) => {
                    (new_item(conversation, user.clone()), Note { at, by: BTreeSet::new() })
                }
                (None, None) => return Ok(()),
            };
            let changed = change(&mut note.by, self.store.instance().0.clone());
            let is_fresh = note.at.after(NOTE_EVERY) > at;
            if !changed && (is_fresh || user.is_none()) {
                return Ok(());
            }
            if self.write(&item, Note { at, ..note }).await? {
                return Ok(());
            }
        }
        Err(StoreError::Unavailable("others change the same note all the time".to_owned()))
    }

    async fn noted(&self, conversation: &ConversationId) -> Result<Option<(Item, Note)>, StoreError> {
        let item = self.store.get_item(WATCHED, conversation.as_str()).await?;
        // A note that cannot be read says nothing.
        let unreadable = || Note { at: Timestamp::default(), by: BTreeSet::new() };
        Ok(item.map(|item| {
            let note = serde_json::from_str(&item.body).unwrap_or_else(|_| unreadable());
            (item, note)
        }))
    }

    /// Returns false if another instance has changed it meanwhile.
    async fn write(&self, item: &Item, note: Note) -> Result<bool, StoreError> {
        let item = Item {
            order: note.at.0,
            due: Some(note.at.after(NOTE_LIVES).0),
            body: serde_json::to_string(&note).expect("a note can be written"),
            ..item.clone()
        };
        match self.store.put_item(item).await {
            Ok(_) => Ok(true),
            Err(PutError::Conflict | PutError::Unconfirmed(_)) => Ok(false),
            Err(PutError::Unavailable(reason)) => Err(StoreError::Unavailable(reason)),
        }
    }
}

fn new_item(conversation: &ConversationId, user: UserId) -> Item {
    let (kind, id) = (WATCHED.to_owned(), conversation.as_str().to_owned());
    Item { kind, id, user, order: 0, due: None, version: 0, body: String::new() }
}
