//! What a server does by itself: takes up what an earlier one left, and removes what is kept too long.

use std::collections::BTreeSet;
use std::time::Duration;

use outlast_core::{ConversationId, GenerationDocument, GenerationStatus, Seq, Timestamp, head};
use outlast_store::{Query, StoreError, Table};

use crate::documents::to_generation;
use crate::engine::Engine;

/// How many documents are looked at in one go.
const PAGE: usize = 500;
/// A generation that ran longer than this before it ended is found by the next pass over all of them.
const LONG_RUN: Duration = Duration::from_secs(24 * 60 * 60);
/// How much of a log is read at once when it is trimmed.
const PAGE_BYTES: usize = 256 * 1024;

impl Engine {
    /// Wakes every conversation that has something unfinished, and returns how many there were. After
    /// this, everything moves on, waits for a person, or has ended.
    pub async fn sweep(&self) -> Result<usize, StoreError> {
        let statuses = GenerationStatus::LIVE.iter().map(|status| status.as_str().to_owned()).collect();
        let unfinished = Query { table: Some(Table::Generations), statuses, ..Query::default() };
        let mut woken: BTreeSet<ConversationId> = BTreeSet::new();
        let mut after = None;
        loop {
            let page = self.shared.store.list(Query { after, limit: PAGE, ..unfinished.clone() }).await?;
            for document in &page.documents {
                if woken.insert(document.conversation.clone()) {
                    self.wake(&document.conversation).await;
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(woken.len()),
            }
        }
    }

    /// Removes the events of generations that ended long enough ago, and returns how many generations
    /// that were. Doing it twice changes nothing. With the time of an earlier pass, only those are looked
    /// at that may have become due since.
    pub async fn trim(&self, since: Option<Timestamp>) -> Result<usize, StoreError> {
        let kept = self.shared.settings.retention;
        let mut trimmed = 0;
        for (status, kept) in [
            (GenerationStatus::Completed, kept.completed),
            (GenerationStatus::Cancelled, kept.completed),
            (GenerationStatus::Error, kept.error),
        ] {
            trimmed += self.trim_status(status, kept, since).await?;
        }
        Ok(trimmed)
    }

    /// The time of a pass that begins now.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    async fn trim_status(
        &self,
        status: GenerationStatus,
        kept: Duration,
        since: Option<Timestamp>,
    ) -> Result<usize, StoreError> {
        let statuses = vec![status.as_str().to_owned()];
        let ended = Query { table: Some(Table::Generations), statuses, limit: PAGE, ..Query::default() };
        let kept_ms = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
        let long_ms = i64::try_from(LONG_RUN.as_millis()).unwrap_or(i64::MAX);
        let stop = since.map(|since| since.0.saturating_sub(kept_ms).saturating_sub(long_ms));
        let now = self.shared.clock.now();
        // Sorted by when they began; none that began later can have ended long enough ago.
        let mut after = Some((now.0.saturating_sub(kept_ms).saturating_add(1), String::new()));
        let mut trimmed = 0;
        loop {
            let page = self.shared.store.list(Query { after, ..ended.clone() }).await?;
            for document in &page.documents {
                let generation = to_generation(document)?;
                if self.shared.settings.retention.is_over(status, generation.completed_at, now) {
                    trimmed += usize::from(self.trim_generation(&generation).await?);
                }
            }
            match page.next {
                Some((order, id)) if stop.is_none_or(|stop| order > stop) => after = Some((order, id)),
                _ => return Ok(trimmed),
            }
        }
    }

    /// Removes one generation's events and leaves those of others that stand between them.
    async fn trim_generation(&self, generation: &GenerationDocument) -> Result<bool, StoreError> {
        let conversation = &generation.conversation_id;
        let mut after = Seq(generation.first_seq.0.saturating_sub(1));
        let next = self.shared.store.read(conversation, after, 1).await?;
        if next.first().is_none_or(|next| next.seq > generation.last_seq) {
            return Ok(false); // done by an earlier pass, as for most
        }
        let mut any = false;
        while after < generation.last_seq {
            let records = self.shared.store.read(conversation, after, PAGE_BYTES).await?;
            let ours = |bytes: &[u8]| {
                head(bytes).is_ok_and(|head| head.generation_id.as_ref() == Some(&generation.id))
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
