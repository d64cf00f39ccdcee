//! One conversation: its log with the holes that were trimmed, its documents, and a digest of it all.

use bytes::Bytes;
use outlast_core::{ConversationId, Seq};
use sha2::{Digest, Sha256};

use super::{MigrateError, PAGE};
use crate::contract::{
    Append, Change, Document, Fence, Newest, PAGE_BYTES, Query, Record, Store, StoreError, Table,
};

/// Records of one append that fill a hole, before it is trimmed again.
const FILLING: u64 = 4096;

pub(super) struct Copied {
    pub(super) digest: [u8; 32],
    pub(super) events: u64,
    /// Whether it was there already.
    pub(super) found: bool,
}

/// A digest, and how much it is of.
#[derive(PartialEq, Eq)]
struct Sum {
    digest: [u8; 32],
    events: u64,
}

/// Copies a conversation unless it is in the target already, and compares.
pub(super) async fn copy(
    from: &dyn Store,
    to: &dyn Store,
    conversation: &ConversationId,
    resumed: bool,
) -> Result<Copied, MigrateError> {
    // Only a server that uses the source can have removed it since it was listed.
    let expected = sum(from, conversation).await?.ok_or(MigrateError::Changed)?;
    if resumed {
        if sum(to, conversation).await?.as_ref() == Some(&expected) {
            return Ok(expected.copied(true));
        }
        to.delete(conversation).await?;
    }
    let loaded = from.load(conversation, Newest::NONE).await?.ok_or(MigrateError::Changed)?;
    let mut writing = Writing { to, conversation, fence: to.claim(conversation).await?, last: Seq::ZERO };
    // Its document first, so that lists show whatever a run leaves behind.
    writing.append(Vec::new(), vec![Change::Put(loaded.conversation)]).await?;
    let holes = writing.log(from, loaded.last).await?;
    for (first, last) in holes {
        to.trim(conversation, first, last).await?;
    }
    for table in [Table::Messages, Table::Generations] {
        writing.documents(from, table).await?;
    }
    to.release(conversation, writing.fence).await?;
    if sum(to, conversation).await?.as_ref() != Some(&expected) {
        return Err(MigrateError::Differs(conversation.clone()));
    }
    Ok(expected.copied(false))
}

impl Sum {
    fn copied(self, found: bool) -> Copied {
        Copied { digest: self.digest, events: self.events, found }
    }
}

struct Writing<'a> {
    to: &'a dyn Store,
    conversation: &'a ConversationId,
    fence: Fence,
    last: Seq,
}

impl Writing<'_> {
    /// Copies the records up to `end`, and returns the holes, which are filled with empty records for now.
    async fn log(&mut self, from: &dyn Store, end: Seq) -> Result<Vec<(Seq, Seq)>, MigrateError> {
        let mut holes = Vec::new();
        loop {
            let page = records(from, self.conversation, self.last).await?;
            if page.is_empty() {
                self.fill(end, &mut holes).await?;
                return Ok(holes);
            }
            for run in page.chunk_by(|a, b| a.seq.next() == b.seq) {
                let before = Seq(run.first().map_or(0, |first| first.seq.0.saturating_sub(1)));
                self.fill(before, &mut holes).await?;
                self.append(run.to_vec(), Vec::new()).await?;
            }
        }
    }

    /// Appends empty records up to `end`. An append must have no gaps.
    async fn fill(&mut self, end: Seq, holes: &mut Vec<(Seq, Seq)>) -> Result<(), MigrateError> {
        if self.last < end {
            holes.push((self.last.next(), end));
        }
        while self.last < end {
            let until = end.0.min(self.last.0 + FILLING);
            let empty = |seq| Record { seq: Seq(seq), bytes: Bytes::new() };
            self.append((self.last.0 + 1..=until).map(empty).collect(), Vec::new()).await?;
        }
        Ok(())
    }

    async fn documents(&mut self, from: &dyn Store, table: Table) -> Result<(), MigrateError> {
        let mut pages = Pages::of(from, self.conversation, table);
        while let Some(page) = pages.next().await? {
            self.append(Vec::new(), page.into_iter().map(Change::Put).collect()).await?;
        }
        Ok(())
    }

    async fn append(&mut self, records: Vec<Record>, changes: Vec<Change>) -> Result<(), MigrateError> {
        let last = self.last.plus(records.len());
        let append = Append {
            conversation: self.conversation.clone(),
            fence: self.fence,
            expected: self.last,
            records,
            changes,
            replies: Vec::new(),
            limits: Vec::new(),
        };
        self.to.append(append).await?;
        self.last = last;
        Ok(())
    }
}

/// The documents of one conversation in one table, page by page.
struct Pages<'a> {
    store: &'a dyn Store,
    query: Option<Query>,
}

impl<'a> Pages<'a> {
    fn of(store: &'a dyn Store, conversation: &ConversationId, table: Table) -> Self {
        let (table, conversation) = (Some(table), Some(conversation.clone()));
        Self { store, query: Some(Query { table, conversation, limit: PAGE, ..Query::default() }) }
    }

    async fn next(&mut self) -> Result<Option<Vec<Document>>, StoreError> {
        let Some(query) = self.query.take() else { return Ok(None) };
        let page = self.store.list(query.clone()).await?;
        self.query = page.next.map(|next| Query { after: Some(next), ..query });
        Ok(Some(page.documents))
    }
}

/// A digest of all that a store has of a conversation; `None` if it has no document.
async fn sum(store: &dyn Store, conversation: &ConversationId) -> Result<Option<Sum>, StoreError> {
    let Some(loaded) = store.load(conversation, Newest::NONE).await? else { return Ok(None) };
    let mut hasher = Sha256::new();
    // How Rust prints a document names every field, also those that are added later.
    hasher.update(format!("{:?} {}", loaded.conversation, loaded.last));
    for table in [Table::Messages, Table::Generations] {
        let mut pages = Pages::of(store, conversation, table);
        while let Some(page) = pages.next().await? {
            for document in page {
                hasher.update(format!("{document:?}"));
            }
        }
    }
    let (mut events, mut after) = (0, Seq::ZERO);
    loop {
        let page = records(store, conversation, after).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for Record { seq, bytes } in &page {
            hasher.update(format!("{seq} {}\n", bytes.len()));
            hasher.update(bytes);
            events += 1;
        }
    }
    Ok(Some(Sum { digest: hasher.finalize().into(), events }))
}

/// The next page of records, which is empty at the end of the log.
async fn records(
    store: &dyn Store,
    conversation: &ConversationId,
    after: Seq,
) -> Result<Vec<Record>, StoreError> {
    store.read(conversation, after, PAGE_BYTES).await
}
