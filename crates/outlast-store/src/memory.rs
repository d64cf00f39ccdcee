//! A store that keeps everything in memory: the model the durable ones are compared with, the store of
//! the simulation, and a way to try Outlast out. It knows no time and no threads, so it is deterministic.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use outlast_core::{ConversationId, Seq};
use tokio::sync::watch;

use crate::contract::{
    Append, AppendError, Change, Document, Fence, Loaded, Query, Record, Store, StoreError, Table,
};
use crate::owners::Owners;
use crate::page::{self, Page};
use crate::wakes::Wakes;

/// Forgets everything when dropped.
pub struct MemoryStore {
    kept: Mutex<Kept>,
    wakes: Wakes,
}

struct Kept {
    owners: Owners,
    logs: BTreeMap<ConversationId, Log>,
    documents: BTreeMap<(Table, String), Document>,
}

#[derive(Default)]
struct Log {
    // Not the largest key of `records`: those at the end may have been trimmed.
    last: Seq,
    records: BTreeMap<Seq, Bytes>,
}

impl Log {
    fn after(&self, seq: Seq) -> btree_map::Range<'_, Seq, Bytes> {
        self.records.range((Bound::Excluded(seq), Bound::Unbounded))
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        let kept = Kept { owners: Owners::after(0), logs: BTreeMap::new(), documents: BTreeMap::new() };
        Self { kept: Mutex::new(kept), wakes: Wakes::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn append(&self, append: Append) -> Result<(), AppendError> {
        page::assert_sound(&append);
        let grown_to = self.lock().append(&append)?;
        if let Some(last) = grown_to {
            self.wakes.wake(&append.conversation, last);
        }
        Ok(())
    }

    async fn read(
        &self,
        conversation: &ConversationId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let kept = self.lock();
        let mut page = Page::of(max_bytes);
        if let Some(log) = kept.logs.get(conversation) {
            for (seq, bytes) in log.after(after) {
                if !page.add(Record { seq: *seq, bytes: bytes.clone() }) {
                    break;
                }
            }
        }
        Ok(page.into_records())
    }

    async fn load(
        &self,
        conversation: &ConversationId,
        messages: usize,
    ) -> Result<Option<Loaded>, StoreError> {
        Ok(self.lock().load(conversation, messages))
    }

    async fn get(&self, table: Table, id: &str) -> Result<Option<Document>, StoreError> {
        Ok(self.lock().documents.get(&(table, id.to_owned())).cloned())
    }

    async fn list(&self, query: Query) -> Result<Vec<Document>, StoreError> {
        let Some(table) = query.table else {
            return Err(StoreError::Broken("a query must name its table".into()));
        };
        Ok(self.lock().list(table, &query))
    }

    async fn claim(&self, conversation: &ConversationId) -> Result<Fence, StoreError> {
        Ok(self.lock().owners.claim(conversation))
    }

    async fn release(&self, conversation: &ConversationId, fence: Fence) -> Result<(), StoreError> {
        self.lock().owners.release(conversation, fence);
        Ok(())
    }

    fn watch(&self, conversation: &ConversationId) -> watch::Receiver<Seq> {
        self.wakes.watch(conversation)
    }

    async fn trim(&self, conversation: &ConversationId, first: Seq, last: Seq) -> Result<(), StoreError> {
        if let Some(log) = self.lock().logs.get_mut(conversation) {
            log.records.retain(|seq, _| *seq < first || *seq > last);
        }
        Ok(())
    }

    async fn delete(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        {
            let mut kept = self.lock();
            kept.owners.evict(conversation);
            kept.logs.remove(conversation);
            kept.documents.retain(|_, document| document.conversation != *conversation);
        }
        self.wakes.wake(conversation, Seq::ZERO);
        Ok(())
    }
}

impl Kept {
    /// The new end of the log, if it has grown.
    fn append(&mut self, append: &Append) -> Result<Option<Seq>, AppendError> {
        self.owners.admit(&append.conversation, append.fence)?;
        let last = self.logs.get(&append.conversation).map_or(Seq::ZERO, |log| log.last);
        if append.expected != last {
            return Err(AppendError::Conflict { last });
        }
        for change in &append.changes {
            match change {
                Change::Put(document) => {
                    self.documents.insert((document.table, document.id.clone()), document.clone());
                }
                Change::Remove(table, id) => {
                    self.documents.remove(&(*table, id.clone()));
                }
            }
        }
        if append.records.is_empty() {
            return Ok(None);
        }
        let log = self.logs.entry(append.conversation.clone()).or_default();
        log.records.extend(append.records.iter().map(|record| (record.seq, record.bytes.clone())));
        log.last = last.plus(append.records.len());
        Ok(Some(log.last))
    }

    fn load(&self, conversation: &ConversationId, messages: usize) -> Option<Loaded> {
        let id = conversation.as_str().to_owned();
        let document = self.documents.get(&(Table::Conversations, id))?.clone();
        let query = Query {
            conversation: Some(conversation.clone()),
            limit: messages.saturating_add(1),
            ..Query::default()
        };
        let newest = self.list(Table::Messages, &query);
        let (messages, more_messages) = page::ascending(newest, messages);
        let log = self.logs.get(conversation);
        let records = log
            .into_iter()
            .flat_map(|log| log.after(document.seq))
            .map(|(seq, bytes)| Record { seq: *seq, bytes: bytes.clone() })
            .collect();
        let last = log.map_or(Seq::ZERO, |log| log.last);
        Some(Loaded { conversation: document, messages, more_messages, records, last })
    }

    fn list(&self, table: Table, query: &Query) -> Vec<Document> {
        let from = (table, String::new());
        let in_table = self.documents.range(from..).take_while(|((of, _), _)| *of == table);
        let mut found: Vec<&Document> =
            in_table.map(|(_, document)| document).filter(|document| matches(query, document)).collect();
        found.sort_by(|a, b| (b.order, &b.id).cmp(&(a.order, &a.id)));
        found.into_iter().take(query.limit).cloned().collect()
    }
}

fn matches(query: &Query, document: &Document) -> bool {
    query.user.as_ref().is_none_or(|user| *user == document.user)
        && query.conversation.as_ref().is_none_or(|conversation| *conversation == document.conversation)
        && (query.statuses.is_empty() || query.statuses.contains(&document.status))
        && query.request.as_ref().is_none_or(|request| *request == document.request)
        && query.before.as_ref().is_none_or(|(order, id)| (document.order, &document.id) < (*order, id))
}
