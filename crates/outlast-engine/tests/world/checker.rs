//! Compares the log with what clients were told.

use std::collections::{BTreeMap, BTreeSet};

use outlast_core::{
    Conversation, ConversationId, Event, GenerationDocument, GenerationId, GenerationStatus, Message, Seq,
    Transcript, decode,
};
use outlast_store::{Document, Faults, MemoryStore, Query, Record, Store, Table};

use super::Summary;
use super::people::{Ledger, user};

const EVERYTHING: usize = 1_000_000;

pub(crate) fn check(store: &MemoryStore, ledger: &Ledger, crashes: u64, faults: &Faults) -> Summary {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut summary = Summary { crashes, faults: count(faults), ..Summary::default() };
        let conversations = list(store, Table::Conversations, None).await;
        let mut generations = BTreeMap::new();
        for conversation in &conversations {
            let log = store.read(&conversation.conversation, Seq::ZERO, usize::MAX).await.unwrap();
            check_log(store, conversation, &log, &mut summary, &mut generations).await;
            check_readers(ledger, &conversation.conversation, &log);
        }
        check_clients(ledger, &generations, &mut summary);
        summary
    })
}

pub(super) fn count(faults: &Faults) -> u64 {
    faults.append_refused
        + faults.append_unanswered
        + faults.append_lost
        + faults.append_late
        + faults.claim_failed
}

async fn list(store: &MemoryStore, table: Table, conversation: Option<&ConversationId>) -> Vec<Document> {
    let query = Query {
        table: Some(table),
        conversation: conversation.cloned(),
        limit: EVERYTHING,
        max_bytes: usize::MAX,
        ..Query::default()
    };
    store.list(query).await.unwrap().documents
}

/// I3, I11: the log has no gaps, each generation has one end and nothing after it, and the documents agree with
/// the log.
async fn check_log(
    store: &MemoryStore,
    conversation: &Document,
    log: &[Record],
    summary: &mut Summary,
    generations: &mut BTreeMap<GenerationId, GenerationDocument>,
) {
    let whole = store.get(Table::Conversations, &conversation.id).await.unwrap().unwrap();
    let stored: Conversation = serde_json::from_str(whole.state.as_deref().unwrap()).unwrap();
    let begin = Conversation::new(conversation.conversation.clone(), user(), stored.created_at);
    let mut transcript = Transcript::new(begin);
    let mut ended: BTreeSet<GenerationId> = BTreeSet::new();
    for (index, record) in log.iter().enumerate() {
        assert_eq!(record.seq, Seq(index as u64 + 1), "the log has a gap");
        let entry = decode(&record.bytes).unwrap();
        assert_eq!(entry.seq, record.seq);
        if let Some(generation) = &entry.generation {
            assert!(!ended.contains(generation), "I3: {:?} after the end of {generation}", entry.event);
            if entry.event.is_end() {
                ended.insert(generation.clone());
            }
        }
        summary.retracted += u64::from(matches!(entry.event, Event::AttemptRetracted { .. }));
        transcript.apply(&entry);
    }
    summary.events += log.len() as u64;

    let id = &conversation.conversation;
    let mut messages: Vec<Message> = parse(&list(store, Table::Messages, Some(id)).await);
    messages.reverse();
    transcript.messages.sort_by_key(|message| message.seq);
    assert_eq!(messages, transcript.messages, "I11: the stored messages disagree with the log");
    assert_eq!(stored, transcript.state.clone(), "I11: the stored state disagrees with the log");
    for document in parse::<GenerationDocument>(&list(store, Table::Generations, Some(id)).await) {
        assert!(ended.contains(&document.id), "I10: {} is still {:?}", document.id, document.status);
        check_text(&document, &messages);
        generations.insert(document.id.clone(), document);
    }
}

/// The model numbers its words, so that a duplicate or a gap is noticed.
fn check_text(document: &GenerationDocument, messages: &[Message]) {
    let said = |message: &&Message| {
        message.generation_id.as_ref() == Some(&document.id) && message.role == outlast_core::Role::Assistant
    };
    let text: String = messages.iter().filter(said).map(|message| &*message.content).collect();
    for (index, word) in text.split_whitespace().enumerate() {
        assert_eq!(word, index.to_string(), "{} said {text:?}", document.id);
    }
}

fn parse<T: serde::de::DeserializeOwned>(documents: &[Document]) -> Vec<T> {
    documents.iter().map(|document| serde_json::from_str(&document.body).unwrap()).collect()
}

/// I1: whatever a reader saw is in the log, byte for byte.
fn check_readers(ledger: &Ledger, conversation: &ConversationId, log: &[Record]) {
    let Some(seen) = ledger.seen.get(conversation) else { return };
    for (seq, bytes) in seen {
        let index = usize::try_from(seq.0 - 1).unwrap();
        let kept = log.get(index).unwrap_or_else(|| panic!("I1: event {seq} was seen and is lost"));
        assert_eq!(kept.bytes, *bytes, "I1: event {seq} was seen with other content");
    }
}

/// I1, I4, X5: acknowledged commands took effect.
fn check_clients(
    ledger: &Ledger,
    generations: &BTreeMap<GenerationId, GenerationDocument>,
    summary: &mut Summary,
) {
    let mut requests = BTreeSet::new();
    for document in generations.values() {
        assert!(requests.insert(document.request_id.clone()), "I4: a request started two generations");
        match document.status {
            GenerationStatus::Completed => summary.completed += 1,
            GenerationStatus::Cancelled => summary.cancelled += 1,
            GenerationStatus::Error => summary.failed += 1,
            other => panic!("{} is {other:?}", document.id),
        }
    }
    for (request, sent) in &ledger.starts {
        if let Some((conversation, generation, message)) = &sent.acknowledged {
            let document = generations.get(generation);
            let document =
                document.unwrap_or_else(|| panic!("I1: the acknowledged start of {request} is lost"));
            assert_eq!((&document.conversation_id, &document.message_id), (conversation, message));
        }
    }
    for generation in &ledger.cancelled {
        let status = generations[generation].status;
        assert_eq!(status, GenerationStatus::Cancelled, "X5: an acknowledged cancel was undone");
    }
}
