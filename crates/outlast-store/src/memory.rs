//! A store that keeps everything in memory. Durable stores are compared with it, the simulation uses it, and
//! people can try Outlast with it. It has no clock and no threads, so it is deterministic.

use std::collections::{BTreeMap, HashMap, btree_map};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use outlast_core::{ConversationId, Seq};
use tokio::sync::watch;

use crate::contract::{
    Append, AppendError, Change, Document, Fence, Listed, Loaded, Newest, Query, Record, Store, StoreError,
    Table,
};
use crate::owners::Owners;
use crate::page::{self, DocumentPage, Page};
use crate::wakes::Wakes;

mod items;

use items::KeptItems;

pub struct MemoryStore {
    kept: Mutex<Kept>,
    items: Mutex<KeptItems>,
    wakes: Wakes,
}

struct Kept {
    owners: Owners,
    logs: BTreeMap<ConversationId, Log>,
    documents: BTreeMap<(Table, String), Document>,
}

#[derive(Default)]
struct Log {
    // Not the same as the largest key of `records`, because the last records may have been trimmed.
    last: Seq,
    records: BTreeMap<Seq, Bytes>,
}

impl Log {
    fn after(&self, seq: Seq) -> btree_map::Range<'_, Seq, Bytes> {
        self.records.range((Bound::Excluded(seq), Bound::Unbounded))
    }
}

impl MemoryStore {
    pub fn new() -> Self {
        let kept = Kept { owners: Owners::after(0), logs: BTreeMap::new(), documents: BTreeMap::new() };
        Self { kept: Mutex::new(kept), items: Mutex::default(), wakes: Wakes::default() }
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
                if !page.add(Record { seq: *seq, bytes: bytes.clone() }, bytes.len()) {
                    break;
                }
            }
        }
        Ok(page.into_items())
    }

    async fn load(
        &self,
        conversation: &ConversationId,
        newest: Newest,
    ) -> Result<Option<Loaded>, StoreError> {
        Ok(self.lock().load(conversation, newest))
    }

    async fn get(&self, table: Table, id: &str) -> Result<Option<Document>, StoreError> {
        Ok(self.lock().documents.get(&(table, id.to_owned())).cloned())
    }

    async fn list(&self, query: Query) -> Result<Listed, StoreError> {
        let table = page::check(&query)?;
        Ok(self.lock().list(table, &query).into_listed(query.due_by.is_some()))
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
    /// Returns the new end of the log if it has grown.
    fn append(&mut self, append: &Append) -> Result<Option<Seq>, AppendError> {
        self.owners.admit(&append.conversation, append.fence)?;
        let last = self.logs.get(&append.conversation).map_or(Seq::ZERO, |log| log.last);
        if append.expected != last {
            return Err(AppendError::Conflict { last });
        }
        self.can_keep_states(&append.changes)?;
        for change in &append.changes {
            match change {
                Change::Put(document) => self.put(document.clone()),
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

    fn can_keep_states(&self, changes: &[Change]) -> Result<(), AppendError> {
        let mut changed: HashMap<&str, bool> = HashMap::new();
        for change in changes {
            match change {
                Change::Put(document) if document.table == Table::Conversations => {
                    let stored = || self.documents.contains_key(&(document.table, document.id.clone()));
                    let exists = changed.get(document.id.as_str()).copied().unwrap_or_else(stored);
                    if document.state.is_none() && !exists {
                        return Err(page::no_state_to_keep(&document.id));
                    }
                    changed.insert(&document.id, true);
                }
                Change::Remove(Table::Conversations, id) => {
                    changed.insert(id, false);
                }
                Change::Put(_) | Change::Remove(..) => {}
            }
        }
        Ok(())
    }

    fn put(&mut self, mut document: Document) {
        let key = (document.table, document.id.clone());
        if document.state.is_none()
            && let Some(stored) = self.documents.get(&key)
            && document.table == Table::Conversations
        {
            document.state.clone_from(&stored.state);
            document.seq = stored.seq;
        }
        self.documents.insert(key, document);
    }

    fn load(&self, conversation: &ConversationId, newest: Newest) -> Option<Loaded> {
        let id = conversation.as_str().to_owned();
        let document = self.documents.get(&(Table::Conversations, id))?.clone();
        let query = Query {
            conversation: Some(conversation.clone()),
            limit: newest.messages,
            max_bytes: newest.max_bytes,
            ..Query::default()
        };
        let (messages, more_messages) = self.list(Table::Messages, &query).into_ascending();
        let log = self.logs.get(conversation);
        let records = log
            .into_iter()
            .flat_map(|log| log.after(document.seq))
            .map(|(seq, bytes)| Record { seq: *seq, bytes: bytes.clone() })
            .collect();
        let last = log.map_or(Seq::ZERO, |log| log.last);
        Some(Loaded { conversation: document, messages, more_messages, records, last })
    }

    fn list(&self, table: Table, query: &Query) -> DocumentPage {
        let from = (table, String::new());
        let in_table = self.documents.range(from..).take_while(|((of, _), _)| *of == table);
        let mut found: Vec<&Document> =
            in_table.map(|(_, document)| document).filter(|document| matches(query, document)).collect();
        match query.due_by {
            Some(_) => found.sort_by(|a, b| (a.due, &a.id).cmp(&(b.due, &b.id))),
            None => found.sort_by(|a, b| (b.order, &b.id).cmp(&(a.order, &a.id))),
        }
        let mut page = DocumentPage::new(query.limit, query.max_bytes);
        for document in found {
            if !page.add(Document { state: None, ..document.clone() }) {
                break;
            }
        }
        page
    }
}

fn matches(query: &Query, document: &Document) -> bool {
    query.user.as_ref().is_none_or(|user| *user == document.user)
        && query.conversation.as_ref().is_none_or(|conversation| *conversation == document.conversation)
        && (query.statuses.is_empty() || query.statuses.contains(&document.status))
        && query.request.as_ref().is_none_or(|request| *request == document.request)
        && query.due_by.is_none_or(|by| document.due.is_some_and(|due| due <= by))
        && query.after.as_ref().is_none_or(|(key, id)| match query.due_by {
            Some(_) => (document.due, &document.id) > (Some(*key), id),
            None => (document.order, &document.id) < (*key, id),
        })
}
