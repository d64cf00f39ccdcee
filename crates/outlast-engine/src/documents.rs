//! Documents of the core as the store carries them, and back.

use outlast_core::{
    Conversation, ConversationId, DocumentChange, Entry, Event, GenerationDocument, Message, MessageId,
    Prompt,
};
use outlast_store::{Change, Document, Loaded, Record, StoreError, Table};
use serde::de::DeserializeOwned;

/// The store's changes for the core's.
pub(crate) fn to_changes(state: &Conversation, changes: Vec<DocumentChange>) -> Vec<Change> {
    changes.into_iter().map(|change| to_change(state, change)).collect()
}

fn to_change(state: &Conversation, change: DocumentChange) -> Change {
    let blank = |table, id: &str, body| Document {
        table,
        id: id.to_owned(),
        conversation: state.id.clone(),
        user: state.user.clone(),
        seq: state.seq,
        order: 0,
        due: None,
        status: String::new(),
        request: String::new(),
        body,
        state: None,
    };
    match change {
        DocumentChange::Conversation(document) => Change::Put(Document {
            order: document.created_at.0,
            status: json(&document.generation_status).trim_matches('"').to_owned(),
            state: Some(json(&state.clone().compact())),
            ..blank(Table::Conversations, document.id.as_str(), json(&document))
        }),
        DocumentChange::Message(message) => Change::Put(Document {
            seq: message.seq,
            order: i64::try_from(message.seq.0).unwrap_or(i64::MAX),
            ..blank(Table::Messages, &message_key(&state.id, &message.id), json(&message))
        }),
        DocumentChange::MessageRemoved(id) => Change::Remove(Table::Messages, message_key(&state.id, &id)),
        DocumentChange::Generation(document) => Change::Put(Document {
            order: document.created_at.0,
            status: document.status.as_str().to_owned(),
            request: document.request_id.as_str().to_owned(),
            ..blank(Table::Generations, document.id.as_str(), json(&document))
        }),
    }
}

/// What the store calls a message. Clients may choose ids, so they are unique in their conversation alone.
pub(crate) fn message_key(conversation: &ConversationId, message: &MessageId) -> String {
    format!("{conversation}/{message}")
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("our own documents have string keys")
}

/// A conversation as it was loaded: the state at its document, brought forward by the records after it.
pub(crate) fn to_state(loaded: &Loaded) -> Result<Conversation, StoreError> {
    let mut state: Conversation = parse(loaded.conversation.state.as_deref().unwrap_or_default())?;
    for record in &loaded.records {
        let entry: Entry = outlast_core::decode(&record.bytes).map_err(|error| broken(&error))?;
        state.apply(&entry);
    }
    Ok(state)
}

/// A stored message.
pub(crate) fn to_message(document: &Document) -> Result<Message, StoreError> {
    parse(&document.body)
}

/// A stored generation.
pub(crate) fn to_generation(document: &Document) -> Result<GenerationDocument, StoreError> {
    parse(&document.body)
}

/// What a client gave its model, as the log has it.
pub(crate) fn to_prompt(record: Option<&Record>) -> Result<Prompt, StoreError> {
    let gone = || StoreError::Broken("what the model was to be given is no longer kept".to_owned());
    let entry = outlast_core::decode(&record.ok_or_else(gone)?.bytes).map_err(|error| broken(&error))?;
    match entry.event {
        Event::GenerationQueued { prompt: Some(prompt), .. } => Ok(prompt),
        _ => Err(gone()),
    }
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| broken(&error))
}

fn broken(error: &dyn std::error::Error) -> StoreError {
    StoreError::Broken(format!("a stored document cannot be read: {error}"))
}
