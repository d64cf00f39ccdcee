//! A store that keeps everything in memory. Durable stores are compared with it, the simulation uses it, and
//! people can try Outlast with it. It has no threads and takes its clock from the caller, so it is deterministic.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use outlast_core::{ConversationId, Seq};
use tokio::sync::watch;

use crate::contract::{
    Append, AppendError, Change, ClaimError, Document, Fence, InstanceId, Listed, Loaded, Mail, MailId,
    Newest, Query, Record, Store, StoreError, Table,
};
use crate::instances::Instances;
use crate::mailbox::Mailbox;
use crate::owners::Owners;
use crate::page::{self, DocumentPage, Page};
use crate::wakes::Wakes;

mod checks;
mod items;

use items::KeptItems;

/// Everything is lost when the last handle is dropped.
pub struct MemoryStore {
    instance: InstanceId,
    shared: Arc<Shared>,
}

struct Shared {
    kept: Mutex<Kept>,
    items: Mutex<KeptItems>,
    wakes: Wakes,
    mailbox: Mailbox,
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
}

struct Kept {
    owners: Owners,
    instances: Instances,
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
        let began = tokio::time::Instant::now();
        Self::with_clock(move || began.elapsed())
    }

    /// An empty store whose leases run by this clock.
    pub fn with_clock(clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let kept = Kept {
            owners: Owners::after(0),
            instances: Instances::default(),
            logs: BTreeMap::new(),
            documents: BTreeMap::new(),
        };
        let (wakes, mailbox) = (Wakes::default(), Mailbox::default());
        let shared = Shared {
            kept: Mutex::new(kept),
            items: Mutex::default(),
            wakes,
            mailbox,
            clock: Box::new(clock),
        };
        Self { instance: InstanceId("one".to_owned()), shared: Arc::new(shared) }
    }

    /// A handle of another instance to the same store.
    pub fn join(&self, instance: &str) -> MemoryStore {
        MemoryStore { instance: InstanceId(instance.to_owned()), shared: Arc::clone(&self.shared) }
    }

    fn now(&self) -> Duration {
        (self.shared.clock)()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner)
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
            self.shared.wakes.wake(&append.conversation, last);
        }
        self.shared.mailbox.answer(&append.replies);
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
        let asker = (&self.instance, self.now());
        Ok(self.lock().load(conversation, newest, asker))
    }

    async fn get(&self, table: Table, id: &str) -> Result<Option<Document>, StoreError> {
        Ok(self.lock().documents.get(&(table, id.to_owned())).cloned())
    }

    async fn list(&self, query: Query) -> Result<Listed, StoreError> {
        let table = page::check(&query)?;
        let asker = (&self.instance, self.now());
        Ok(self.lock().list(table, &query, asker).into_listed(query.due_by.is_some()))
    }

    fn instance(&self) -> &InstanceId {
        &self.instance
    }

    async fn renew(&self, lease: Duration) -> Result<(), StoreError> {
        let until = self.now() + lease;
        self.lock().instances.renew(&self.instance, until);
        Ok(())
    }

    async fn leave(&self) -> Result<(), StoreError> {
        {
            let mut kept = self.lock();
            for conversation in kept.instances.leave(&self.instance) {
                kept.owners.evict(&conversation);
            }
        }
        self.shared.mailbox.leave(&self.instance);
        self.shared.mailbox.wake();
        Ok(())
    }

    async fn others(&self) -> Result<Vec<InstanceId>, StoreError> {
        let now = self.now();
        Ok(self.lock().instances.live(now).into_iter().filter(|other| *other != self.instance).collect())
    }

    async fn raise_fences(&self, fence: Fence) -> Result<Fence, StoreError> {
        Ok(self.lock().owners.raise(fence))
    }

    async fn claim(&self, conversation: &ConversationId) -> Result<Fence, ClaimError> {
        let now = self.now();
        let mut kept = self.lock();
        match kept.instances.live_holder(conversation, now) {
            Some(holder) if *holder != self.instance => Err(ClaimError::HeldBy(holder.clone())),
            Some(_) | None => {
                kept.instances.hold(conversation, &self.instance);
                Ok(kept.owners.claim(conversation))
            }
        }
    }

    async fn release(&self, conversation: &ConversationId, fence: Fence) -> Result<bool, StoreError> {
        let now = self.now();
        let mut kept = self.lock();
        if kept.owners.release(conversation, fence) {
            kept.instances.give_up(conversation);
        }
        let mail = self.shared.mailbox.of(conversation, |sender| kept.instances.is_live(sender, now));
        Ok(!mail.is_empty())
    }

    async fn send(&self, mail: Mail) -> Result<(), StoreError> {
        self.shared.mailbox.send(&self.instance, mail);
        Ok(())
    }

    async fn mail_waiting(&self) -> Result<Vec<ConversationId>, StoreError> {
        let now = self.now();
        let kept = self.lock();
        let mut waiting = self.shared.mailbox.waiting(|sender| kept.instances.is_live(sender, now));
        waiting.retain(|conversation| kept.instances.holder(conversation) == Some(&self.instance));
        Ok(waiting)
    }

    async fn mail(&self, conversation: &ConversationId) -> Result<Vec<Mail>, StoreError> {
        let now = self.now();
        let kept = self.lock();
        Ok(self.shared.mailbox.of(conversation, |sender| kept.instances.is_live(sender, now)))
    }

    async fn reply(&self, mail: &MailId) -> Result<Option<Bytes>, StoreError> {
        Ok(self.shared.mailbox.reply(mail))
    }

    async fn forget(&self, mail: &MailId) -> Result<(), StoreError> {
        self.shared.mailbox.forget(mail);
        Ok(())
    }

    fn watch_mail(&self) -> watch::Receiver<()> {
        self.shared.mailbox.watch()
    }

    fn watch(&self, conversation: &ConversationId) -> watch::Receiver<Seq> {
        self.shared.wakes.watch(conversation)
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
            kept.instances.give_up(conversation);
            kept.logs.remove(conversation);
            kept.documents.retain(|_, document| document.conversation != *conversation);
        }
        self.shared.wakes.wake(conversation, Seq::ZERO);
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
        if let Some(limit) = append.limits.iter().position(|limit| self.exceeds(limit, &append.changes)) {
            return Err(AppendError::OverLimit { limit });
        }
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

    fn load(
        &self,
        conversation: &ConversationId,
        newest: Newest,
        asker: (&InstanceId, Duration),
    ) -> Option<Loaded> {
        let id = conversation.as_str().to_owned();
        let document = self.documents.get(&(Table::Conversations, id))?.clone();
        let query = Query {
            conversation: Some(conversation.clone()),
            limit: newest.messages,
            max_bytes: newest.max_bytes,
            ..Query::default()
        };
        let (messages, more_messages) = self.list(Table::Messages, &query, asker).into_ascending();
        let log = self.logs.get(conversation);
        let records = log
            .into_iter()
            .flat_map(|log| log.after(document.seq))
            .map(|(seq, bytes)| Record { seq: *seq, bytes: bytes.clone() })
            .collect();
        let last = log.map_or(Seq::ZERO, |log| log.last);
        Some(Loaded { conversation: document, messages, more_messages, records, last })
    }

    fn list(&self, table: Table, query: &Query, (instance, now): (&InstanceId, Duration)) -> DocumentPage {
        let from = (table, String::new());
        let in_table = self.documents.range(from..).take_while(|((of, _), _)| *of == table);
        let is_owned = |document: &Document| {
            let holder = self.instances.holder(&document.conversation);
            holder.is_some_and(|holder| holder == instance || self.instances.is_live(holder, now))
        };
        let mut found: Vec<&Document> = in_table
            .map(|(_, document)| document)
            .filter(|document| page::matches(query, document) && !(query.unowned && is_owned(document)))
            .collect();
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
