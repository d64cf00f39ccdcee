//! The documents as a store would hold them after every append.

use std::collections::BTreeMap;

use crate::{
    Conversation, ConversationDocument, DocumentChange, Entry, GenerationDocument, GenerationId, Message,
    Transcript, apply_with_documents, conversation_document, generation_document,
};

/// A store's three tables.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) state: Conversation,
    pub(crate) conversation: ConversationDocument,
    pub(crate) messages: Vec<Message>,
    pub(crate) generations: BTreeMap<GenerationId, GenerationDocument>,
}

impl Stored {
    pub(crate) fn new(state: Conversation) -> Stored {
        let conversation = conversation_document(&state);
        Stored { state, conversation, messages: Vec::new(), generations: BTreeMap::new() }
    }

    pub(crate) fn append(&mut self, entries: &[Entry]) {
        for change in apply_with_documents(&mut self.state, entries) {
            match change {
                DocumentChange::Conversation(document) => self.conversation = document,
                DocumentChange::Message(message) => {
                    self.messages.retain(|known| known.id != message.id);
                    self.messages.push(message);
                    self.messages.sort_by_key(|message| message.seq);
                }
                DocumentChange::MessageRemoved(id) => self.messages.retain(|known| known.id != id),
                DocumentChange::Generation(document) => {
                    self.generations.insert(document.id.clone(), *document);
                }
            }
        }
    }

    /// I11: the documents agree with the log. Only text may be missing, and only from documents of a running
    /// generation.
    pub(crate) fn must_agree_with(&self, transcript: &Transcript) {
        let state = &transcript.state;
        assert_eq!(self.state, *state, "applying with and without documents must be the same");
        assert_eq!(self.messages, transcript.messages, "stored messages and the fold differ");
        let late = |document: &GenerationDocument| document.last_seq < state.seq;
        for generation in state.current.iter().chain(&state.queue) {
            let folded = generation_document(&state.id, generation);
            let stored = &self.generations[&generation.id];
            if generation.ended() || !late(stored) {
                assert_eq!(*stored, folded);
            } else {
                assert_eq!(stored.status, folded.status, "a change of status must be stored at once");
                assert_eq!(stored.attempt, folded.attempt);
            }
        }
        // Times and positions may lag behind, because some events change nothing that a list shows.
        let ConversationDocument { last_seq, updated_at, .. } = self.conversation;
        assert_eq!(
            self.conversation,
            ConversationDocument { last_seq, updated_at, ..conversation_document(state) }
        );
    }
}
