//! What a deleted conversation leaves outside of the store: sandboxes, checkpoints and kept output.
//!
//! Before a conversation is deleted, an item says what has to go. It stays until all of that is gone, so a crash, or a
//! sandbox that cannot be killed, only delays the removal: the server tries again when it starts and every few minutes.
//!
//! A sandbox is labelled with its store and conversation. One whose conversation no longer exists, or has another sandbox
//! by now, is killed as well. Those of another store are left alone: the data folder may serve several.

use std::time::Duration;

use outlast_core::{Conversation, ConversationId, SandboxId, Timestamp, UserId};
use outlast_store::{Item, ItemQuery, Newest, PutError, StoreError, Table};
use serde::{Deserialize, Serialize};

use crate::actor::{Answer, Mail};
use crate::documents::{to_conversation, to_state};
use crate::engine::{Engine, Shared};

const REMOVAL: &str = "removal";
/// The kind and id of the item that names the store.
const STORE: (&str, &str) = ("store", "name");
/// How many removals are read at once.
const PAGE: usize = 100;
/// How often what could not be removed is tried again.
const EVERY: Duration = Duration::from_secs(5 * 60);
/// How often a write is tried that others were faster with.
const WRITE_TRIES: usize = 5;

/// What has to go with a conversation. Its checkpoints and outputs are found by its id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Removal {
    /// When the conversation was created, if it could be read. A later one can have its id.
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) sandboxes: Vec<SandboxId>,
}

#[derive(Serialize, Deserialize)]
struct StoreName {
    name: String,
}

impl Removal {
    pub(crate) fn of(state: &Conversation) -> Removal {
        let known = state.sandbox.as_ref().map(|sandbox| sandbox.id.clone());
        // The next one may have been created, and not recorded yet.
        let sandboxes = known.into_iter().chain([state.next_sandbox_id()]).collect();
        Removal { created_at: Some(state.created_at), sandboxes }
    }

    /// Whether this conversation is the one that was to be deleted, and not a later one with its id.
    pub(crate) fn is_about(&self, state: &Conversation) -> bool {
        self.created_at == Some(state.created_at)
    }
}

impl Shared {
    /// Notes what has to go, durably. An earlier removal under the same id may still be owed.
    pub(crate) async fn owe_removal(
        &self,
        conversation: &ConversationId,
        user: &UserId,
        removal: Removal,
    ) -> Result<(), StoreError> {
        for _ in 0..WRITE_TRIES {
            let found = self.store.get_item(REMOVAL, conversation.as_str()).await?;
            let version = found.as_ref().map_or(0, |item| item.version);
            let mut owed = removal.clone();
            owed.sandboxes.extend(found.map(|item| read(&item).sandboxes).unwrap_or_default());
            owed.sandboxes.sort_unstable();
            owed.sandboxes.dedup();
            let now = self.clock.now().0;
            let item = Item {
                kind: REMOVAL.to_owned(),
                id: conversation.to_string(),
                user: user.clone(),
                order: now,
                due: Some(now),
                version,
                body: serde_json::to_string(&owed).expect("ids and times can be written"),
            };
            match self.store.put_item(item).await {
                Ok(_) => return Ok(()),
                Err(PutError::Conflict | PutError::Unconfirmed(_)) => {}
                Err(PutError::Unavailable(reason)) => return Err(StoreError::Unavailable(reason)),
            }
        }
        Err(StoreError::Unavailable("cannot note what has to be removed".to_owned()))
    }

    pub(crate) async fn owed_removal(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<Removal>, StoreError> {
        Ok(self.store.get_item(REMOVAL, conversation.as_str()).await?.as_ref().map(read))
    }

    pub(crate) async fn removed(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        self.store.remove_item(REMOVAL, conversation.as_str()).await.map(drop)
    }

    /// What a sandbox of a conversation is labelled with.
    pub(crate) async fn label(&self, conversation: &ConversationId) -> Result<String, StoreError> {
        for _ in 0..WRITE_TRIES {
            if let Some(name) = self.store_name().await? {
                return Ok(format!("{name}/{conversation}"));
            }
            let name = StoreName { name: self.ids.make("store") };
            let item = Item {
                kind: STORE.0.to_owned(),
                id: STORE.1.to_owned(),
                user: UserId::from(""),
                order: 0,
                due: None,
                version: 0,
                body: serde_json::to_string(&name).expect("a name can be written"),
            };
            match self.store.put_item(item).await {
                Ok(_) | Err(PutError::Conflict | PutError::Unconfirmed(_)) => {}
                Err(PutError::Unavailable(reason)) => return Err(StoreError::Unavailable(reason)),
            }
        }
        Err(StoreError::Unavailable("cannot name the store".to_owned()))
    }

    /// `None` before the first sandbox.
    async fn store_name(&self) -> Result<Option<String>, StoreError> {
        let Some(item) = self.store.get_item(STORE.0, STORE.1).await? else { return Ok(None) };
        let name: StoreName =
            serde_json::from_str(&item.body).map_err(|error| StoreError::Broken(error.to_string()))?;
        Ok(Some(name.name))
    }

    /// The conversation that a sandbox with this label belongs to, if it is one of this store.
    pub(crate) async fn labelled(&self, label: &str) -> Result<Option<ConversationId>, StoreError> {
        let Some(store) = self.store_name().await? else { return Ok(None) };
        let conversation = label.strip_prefix(&store).and_then(|rest| rest.strip_prefix('/'));
        Ok(conversation.map(ConversationId::from))
    }

    /// Whether nobody will use this sandbox again. Call it after the sandbox was listed.
    async fn is_orphan(&self, id: &SandboxId, conversation: &ConversationId) -> Result<bool, StoreError> {
        let Some(found) = self.store.get(Table::Conversations, conversation.as_str()).await? else {
            return Ok(true);
        };
        if to_conversation(&found).is_ok_and(|found| found.sandbox_id.as_deref() == Some(id.as_str())) {
            return Ok(false);
        }
        let Some(loaded) = self.store.load(conversation, Newest::NONE).await? else { return Ok(true) };
        // One that cannot be read may need it.
        Ok(to_state(&loaded).is_ok_and(|state| !Removal::of(&state).sandboxes.contains(id)))
    }
}

impl Engine {
    /// Removes what deleted conversations have left, again and again.
    pub(crate) async fn keep_clear(self) {
        loop {
            if self.shared.lease.is_safe()
                && let Err(error) = self.clear_leftovers().await
            {
                tracing::warn!(%error, "cannot remove what deleted conversations have left; will retry");
            }
            tokio::select! {
                () = self.shared.stop.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    }

    pub(crate) async fn clear_leftovers(&self) -> Result<(), StoreError> {
        if self.shared.workshop.is_err() {
            return Ok(()); // a server that has sandboxes does it
        }
        self.finish_removals().await?;
        self.kill_orphans().await
    }

    async fn finish_removals(&self) -> Result<(), StoreError> {
        let now = self.shared.clock.now();
        let mut after = None;
        loop {
            let due = ItemQuery { due_by: Some(now.0), after, ..ItemQuery::newest(REMOVAL, PAGE) };
            let page = self.shared.store.list_items(due).await?;
            for item in &page.items {
                let conversation = ConversationId::from(item.id.as_str());
                match self.ask_here(&conversation, |reply| Mail::Clear { reply }).await {
                    Ok(Answer::Done(Ok(()))) => {}
                    Ok(Answer::Elsewhere) => {} // its owner does it before it creates a sandbox
                    Ok(Answer::Done(Err(error))) | Err(error) => {
                        tracing::warn!(?conversation, %error, "cannot remove what a conversation has left");
                    }
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    async fn kill_orphans(&self) -> Result<(), StoreError> {
        let Ok(workshop) = &self.shared.workshop else { return Ok(()) };
        let labels = match workshop.sandboxes.labels().await {
            Ok(labels) => labels,
            Err(error) => {
                tracing::warn!(%error, "cannot list the sandboxes");
                return Ok(());
            }
        };
        for (id, label) in labels {
            let Some(conversation) = self.shared.labelled(&label).await? else { continue };
            if !self.shared.is_orphan(&id, &conversation).await? {
                continue;
            }
            match workshop.sandboxes.kill(&id).await {
                Ok(()) => tracing::info!(sandbox = ?id, ?conversation, "removed a sandbox that nobody needs"),
                Err(error) => tracing::warn!(sandbox = ?id, %error, "cannot remove a sandbox; will retry"),
            }
        }
        Ok(())
    }
}

/// One that cannot be read still says whose checkpoints have to go.
fn read(item: &Item) -> Removal {
    serde_json::from_str(&item.body).unwrap_or_default()
}
