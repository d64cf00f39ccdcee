//! Conversations: create, find by key, name or metadata, change, delete.

use outlast_core::{
    Command, Conversation, ConversationDocument, ConversationId, ConversationStatus, Entry, Event, Refusal,
    RequestId, Seq, UserId, decode,
};
use outlast_store::{Newest, Query, StoreError, Table};
use serde_json::Value;

use crate::actor::Request;
use crate::commands::{conversation_of, digest};
use crate::documents::{status_key, to_conversation, to_state};
use crate::engine::{CommandOptions, Engine};
use crate::error::EngineError;
use crate::reading::{Page, Paging, readable};
use crate::tags::MetadataTag;

/// A conversation to be created. Nothing is required.
#[derive(Clone, Debug, Default)]
pub struct NewConversation {
    pub title: Option<String>,
    pub metadata: Option<Value>,
    /// The client's own key. At most one conversation of a user has it.
    pub key: Option<String>,
    /// The client's idempotency key.
    pub request: Option<RequestId>,
}

impl NewConversation {
    /// With a key, what is left out may be anything: a client that opens the conversation of a key need not know how
    /// it was created. A request must be the same request.
    fn agrees_with(&self, made: &NewConversation) -> bool {
        if self.key.is_none() && self.request != made.request {
            return self.title.is_none() && self.metadata.is_none();
        }
        let title = self.title == made.title || (self.title.is_none() && self.key.is_some());
        let metadata = self.metadata == made.metadata || (self.metadata.is_none() && self.key.is_some());
        title && metadata
    }
}

/// Which of a user's conversations to list.
#[derive(Clone, Debug, Default)]
pub struct ConversationFilter {
    pub key: Option<String>,
    pub metadata: Option<MetadataTag>,
}

impl Engine {
    /// A user's conversations, newest first.
    pub async fn conversations(
        &self,
        user: &UserId,
        filter: ConversationFilter,
        paging: Paging,
    ) -> Result<Page<ConversationDocument>, EngineError> {
        let tag = filter.metadata.map(MetadataTag::into_tag);
        if let Some(key) = filter.key {
            let found = self.shared.store.get(Table::Conversations, keyed(user, &key).as_str()).await?;
            let found = found.filter(|found| tag.is_none_or(|tag| found.tags.contains(&tag)));
            let data = readable(found.as_slice(), to_conversation);
            return Ok(Page { data, next_cursor: None });
        }
        let (table, user) = (Some(Table::Conversations), Some(user.clone()));
        // Children have a status of their own and are left out.
        let statuses = ConversationStatus::ALL.iter().map(|status| status_key(*status)).collect();
        self.page(Query { table, user, tag, statuses, ..Query::default() }, paging, to_conversation).await
    }

    /// Creates an empty conversation. Creating it again, with the same key or by the same request, returns the same
    /// conversation, unless what is given differs from what it was created with.
    pub async fn create_conversation(
        &self,
        user: &UserId,
        new: NewConversation,
    ) -> Result<ConversationId, EngineError> {
        let id = match (&new.key, &new.request) {
            (Some(key), _) => keyed(user, key),
            (None, Some(request)) => conversation_of("create", user, request),
            (None, None) => self.shared.ids.make("conv").into(),
        };
        let options = CommandOptions { create: true, named: false };
        let NewConversation { title, metadata, key, request } = new.clone();
        let command = Command::Create { title, metadata, key, request };
        match self.command(&id, user, command, options).await {
            Ok(_) => Ok(id),
            Err(EngineError::Refused(Refusal::AlreadyExists)) => {
                let made = self.made_with(&id).await?;
                if new.agrees_with(&made) {
                    Ok(id)
                } else {
                    Err(EngineError::MadeOtherwise { conversation: id })
                }
            }
            Err(error) => Err(error),
        }
    }

    /// What a conversation was created with, from its first event.
    async fn made_with(&self, id: &ConversationId) -> Result<NewConversation, EngineError> {
        let first = self.shared.store.read(id, Seq::ZERO, 1).await?;
        let first = first.first().map(|record| decode(&record.bytes)).transpose();
        let first = first.map_err(|error| EngineError::Broken(error.to_string()))?;
        let Some(Entry { request, event: Event::ConversationUpdated { title, metadata, key, .. }, .. }) =
            first
        else {
            return Ok(NewConversation::default());
        };
        Ok(NewConversation { title: title.flatten(), metadata, key, request })
    }

    /// Creates a conversation under an id that the caller chose, unless it exists.
    pub async fn create_if_missing(&self, user: &UserId, id: &ConversationId) -> Result<(), EngineError> {
        match self.must_own(user, id).await {
            Err(EngineError::NotFound) => {}
            known => return known,
        }
        let options = CommandOptions { create: true, named: false };
        let create = Command::Create { title: None, metadata: None, key: None, request: None };
        match self.command(id, user, create, options).await {
            Ok(_) | Err(EngineError::Refused(Refusal::AlreadyExists)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Resolves a user's own name for a conversation, or the id of one of the user's conversations. Two users
    /// can use the same name for different conversations.
    pub async fn thread(&self, user: &UserId, name: &str) -> Result<ConversationId, EngineError> {
        match self.must_own(user, &name.into()).await {
            Ok(()) => Ok(name.into()),
            Err(EngineError::NotFound) => Ok(thread_of(user, name)),
            Err(error) => Err(error),
        }
    }

    /// Sets the title or the metadata: `None` leaves a value as it is, null clears it.
    pub async fn update_conversation(
        &self,
        user: &UserId,
        id: &ConversationId,
        title: Option<Option<String>>,
        metadata: Option<Value>,
    ) -> Result<(), EngineError> {
        self.must_own(user, id).await?;
        let command = Command::Update { title, metadata };
        self.command(id, user, command, CommandOptions::default()).await?;
        Ok(())
    }

    /// Removes a conversation and everything in it.
    pub async fn delete_conversation(&self, user: &UserId, id: &ConversationId) -> Result<(), EngineError> {
        self.must_own(user, id).await?;
        let Some(state) = self.readable_state(id).await? else {
            return self.delete_family(user, vec![id.clone()]).await;
        };
        if let Some(parent) = state.parent() {
            let parent = parent.conversation_id.clone();
            if self.must_own(user, &parent).await.is_ok() {
                return Err(EngineError::Refused(Refusal::BelongsToParent { parent }));
            }
        }
        // So that it starts no further child meanwhile.
        if let Some(active) = state.active().filter(|active| active.children().next().is_some()) {
            self.cancel(user, &active.id).await?;
        }
        let mut family = vec![id.clone()];
        let mut place = 0;
        while let Some(member) = family.get(place).cloned() {
            place += 1;
            family
                .extend(self.readable_state(&member).await?.map(|state| state.children).unwrap_or_default());
        }
        self.delete_family(user, family).await
    }

    /// Children go first: if this fails half-way, the conversation is still there and can be deleted again.
    async fn delete_family(&self, user: &UserId, family: Vec<ConversationId>) -> Result<(), EngineError> {
        for (place, member) in family.iter().enumerate().rev() {
            match self.ask(member, Request::Delete { user: user.clone() }).await {
                Ok(_) => {}
                Err(EngineError::NotFound) if place > 0 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// `None` if it is gone or cannot be read. Even then it can be deleted.
    async fn readable_state(&self, id: &ConversationId) -> Result<Option<Conversation>, EngineError> {
        match self.shared.store.load(id, Newest::NONE).await {
            Ok(loaded) => Ok(loaded.and_then(|loaded| to_state(&loaded).ok())),
            Err(StoreError::Broken(_)) => Ok(None),
            Err(error @ StoreError::Unavailable(_)) => Err(error.into()),
        }
    }
}

/// The conversation of a key. Derived from it, so that no two conversations can have the same one.
pub(crate) fn keyed(user: &UserId, key: &str) -> ConversationId {
    format!("conv_{}", &digest(&("key", user, key))[..32]).into()
}

/// The user's name for it comes last, so that it can be extracted again.
fn thread_of(user: &UserId, name: &str) -> ConversationId {
    format!("thread_{}_{name}", &digest(&("thread", user, name))[..32]).into()
}

/// A user's own name for a conversation, or its id if the user gave it none.
pub fn thread_name<'a>(user: &UserId, id: &'a ConversationId) -> &'a str {
    let name = id.as_str().strip_prefix("thread_").and_then(|rest| rest.split_once('_'));
    name.map(|(_, name)| name).filter(|name| thread_of(user, name) == *id).unwrap_or(id.as_str())
}
