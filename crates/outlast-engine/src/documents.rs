//! Converts between the core's documents and the store's.

use outlast_core::{
    Conversation, ConversationDocument, ConversationId, ConversationStatus, DocumentChange, Entry, Event,
    GenerationDocument, Message, MessageId, Prompt, Timestamp, conversation_document, read_state,
};
use outlast_store::{Change, Document, Loaded, Record, StoreError, Table};
use serde::de::DeserializeOwned;

use crate::tags::tags_of;

/// The store's changes, and the size of the state if it is written too.
pub(crate) struct Folded {
    pub(crate) changes: Vec<Change>,
    pub(crate) size: Option<usize>,
}

/// With `folds`, the state is written too, so that the log before it need not be replayed.
pub(crate) fn to_changes(
    state: &Conversation,
    mut changes: Vec<DocumentChange>,
    due: Option<Timestamp>,
    folds: bool,
) -> Folded {
    if folds && !changes.iter().any(|change| matches!(change, DocumentChange::Conversation(_))) {
        changes.push(DocumentChange::Conversation(conversation_document(state)));
    }
    let folded = folds.then(|| json(state));
    let size = folded.as_ref().map(String::len);
    let changes = changes.into_iter().map(|change| to_change(state, change, due, folded.as_ref())).collect();
    Folded { changes, size }
}

/// The status of a child in the store: lists ask for the others.
const CHILD: &str = "child";

/// The key by which a list finds conversations of this status.
pub(crate) fn status_key(status: ConversationStatus) -> String {
    json(&status).trim_matches('"').to_owned()
}

fn to_change(
    state: &Conversation,
    change: DocumentChange,
    due: Option<Timestamp>,
    folded: Option<&String>,
) -> Change {
    match change {
        DocumentChange::Conversation(document) => Change::Put(Document {
            order: document.created_at.0,
            due: due.map(|due| due.0),
            status: if state.parent().is_some() {
                CHILD.to_owned()
            } else {
                status_key(document.generation_status)
            },
            tags: tags_of(document.metadata.as_ref()),
            state: folded.cloned(),
            ..blank(state, Table::Conversations, document.id.as_str(), json(&document))
        }),
        DocumentChange::Message(message) => Change::Put(Document {
            seq: message.seq,
            order: i64::try_from(message.seq.0).unwrap_or(i64::MAX),
            ..blank(state, Table::Messages, &message_key(&state.id, &message.id), json(&message))
        }),
        DocumentChange::MessageRemoved(id) => Change::Remove(Table::Messages, message_key(&state.id, &id)),
        DocumentChange::Generation(document) => {
            // From its end on, it is due for retention.
            let due = document.completed_at.map(|at| at.0);
            Change::Put(generation_document(state, &document, due))
        }
    }
}

pub(crate) fn generation_document(
    state: &Conversation,
    document: &GenerationDocument,
    due: Option<i64>,
) -> Document {
    Document {
        order: document.created_at.0,
        due,
        status: document.status.as_str().to_owned(),
        request: document.request_id.as_str().to_owned(),
        ..blank(state, Table::Generations, document.id.as_str(), json(document))
    }
}

fn blank(state: &Conversation, table: Table, id: &str, body: String) -> Document {
    Document {
        table,
        id: id.to_owned(),
        conversation: state.id.clone(),
        user: state.user.clone(),
        seq: state.seq,
        order: 0,
        due: None,
        status: String::new(),
        request: String::new(),
        tags: Vec::new(),
        body,
        state: None,
    }
}

/// The key of a message. Clients may choose ids, so they are unique only within their conversation.
pub(crate) fn message_key(conversation: &ConversationId, message: &MessageId) -> String {
    format!("{conversation}/{message}")
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("our own documents have string keys")
}

/// The state of a conversation: the stored state with the later records applied.
pub(crate) fn to_state(loaded: &Loaded) -> Result<Conversation, StoreError> {
    let state = loaded.conversation.state.as_deref().unwrap_or_default();
    let mut state = read_state(state).map_err(|error| broken(&error))?;
    for record in &loaded.records {
        let entry: Entry = outlast_core::decode(&record.bytes).map_err(|error| broken(&error))?;
        state.apply(&entry);
    }
    Ok(state)
}

pub(crate) fn to_conversation(document: &Document) -> Result<ConversationDocument, StoreError> {
    parse(&document.body)
}

pub(crate) fn to_message(document: &Document) -> Result<Message, StoreError> {
    parse(&document.body)
}

pub(crate) fn to_generation(document: &Document) -> Result<GenerationDocument, StoreError> {
    parse(&document.body)
}

/// The prompt in a record of the log.
pub(crate) fn to_prompt(record: Option<&Record>) -> Result<Prompt, StoreError> {
    let gone = || StoreError::Broken("the prompt is no longer kept".to_owned());
    let entry = outlast_core::decode(&record.ok_or_else(gone)?.bytes).map_err(|error| broken(&error))?;
    match entry.event {
        Event::GenerationQueued { brief, .. } => brief.prompt.ok_or_else(gone),
        _ => Err(gone()),
    }
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| broken(&error))
}

fn broken(error: &dyn std::error::Error) -> StoreError {
    StoreError::Broken(format!("a stored document cannot be read: {error}"))
}
