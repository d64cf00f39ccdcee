//! What a server does by itself: takes up what an earlier one left, and removes what is kept too long.

use std::collections::BTreeSet;

use outlast_core::{ConversationId, GenerationDocument, GenerationStatus, Seq, head};
use outlast_store::{Query, StoreError, Table};

use crate::documents::to_generation;
use crate::engine::Engine;

/// How many documents are looked at in one go.
const PAGE: usize = 500;
/// How much of a log is read at once when it is trimmed.
const PAGE_BYTES: usize = 256 * 1024;

impl Engine {
    /// Wakes every conversation that has something unfinished, and returns how many there were. After
    /// this, everything moves on, waits for a person, or has ended.
    pub async fn sweep(&self) -> Result<usize, StoreError> {
        let statuses = GenerationStatus::LIVE.iter().map(|status| status.as_str().to_owned()).collect();
        let unfinished = Query { table: Some(Table::Generations), statuses, ..Query::default() };
        let mut woken: BTreeSet<ConversationId> = BTreeSet::new();
        let mut before = None;
        loop {
            let page = self.shared.store.list(Query { before, limit: PAGE, ..unfinished.clone() }).await?;
            for document in &page {
                if woken.insert(document.conversation.clone()) {
                    self.wake(&document.conversation).await;
                }
            }
            match page.last() {
                Some(last) if page.len() == PAGE => before = Some((last.order, last.id.clone())),
                _ => return Ok(woken.len()),
            }
        }
    }

    /// Removes the events of generations that ended long enough ago, and returns how many generations
    /// that were. Doing it twice changes nothing.
    pub async fn trim(&self) -> Result<usize, StoreError> {
        let now = self.shared.clock.now();
        let retention = self.shared.settings.retention;
        let ended = [GenerationStatus::Completed, GenerationStatus::Cancelled, GenerationStatus::Error];
        let statuses = ended.iter().map(|status| status.as_str().to_owned()).collect();
        let old = Query { table: Some(Table::Generations), statuses, ..Query::default() };
        let mut before = None;
        let mut trimmed = 0;
        loop {
            let page = self.shared.store.list(Query { before, limit: PAGE, ..old.clone() }).await?;
            for document in &page {
                let generation = to_generation(document)?;
                if retention.is_over(generation.status, generation.completed_at, now) {
                    trimmed += usize::from(self.trim_generation(&generation).await?);
                }
            }
            match page.last() {
                Some(last) if page.len() == PAGE => before = Some((last.order, last.id.clone())),
                _ => return Ok(trimmed),
            }
        }
    }

    /// Removes one generation's events and leaves those of others that stand between them.
    async fn trim_generation(&self, generation: &GenerationDocument) -> Result<bool, StoreError> {
        let conversation = &generation.conversation_id;
        let mut after = Seq(generation.first_seq.0.saturating_sub(1));
        let mut any = false;
        while after < generation.last_seq {
            let records = self.shared.store.read(conversation, after, PAGE_BYTES).await?;
            let ours = |bytes: &[u8]| {
                head(bytes).is_ok_and(|head| head.generation_id.as_deref() == Some(generation.id.as_str()))
            };
            let mut run: Option<(Seq, Seq)> = None;
            let Some(last) = records.last().map(|record| record.seq) else { break };
            for record in records.iter().filter(|record| record.seq <= generation.last_seq) {
                match (&mut run, ours(&record.bytes)) {
                    (Some((_, end)), true) => *end = record.seq,
                    (None, true) => run = Some((record.seq, record.seq)),
                    (Some((first, end)), false) => {
                        self.shared.store.trim(conversation, *first, *end).await?;
                        (run, any) = (None, true);
                    }
                    (None, false) => {}
                }
            }
            if let Some((first, end)) = run {
                self.shared.store.trim(conversation, first, end).await?;
                any = true;
            }
            after = last;
        }
        Ok(any)
    }
}
