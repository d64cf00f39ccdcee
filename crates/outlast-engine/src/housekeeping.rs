//! Background work: wakes conversations that are due, and removes events whose retention time is over.

use std::time::Duration;

use outlast_core::{ConversationId, GenerationId, GenerationStatus, Timestamp};
use outlast_store::{Query, StoreError, Table};

use crate::actor::Mail;
use crate::engine::Engine;
use crate::error::EngineError;

/// How many documents are read at once.
const PAGE: usize = 500;
/// How often the store is asked what has become due. After a restart, a retry may be late by this much.
const DUE_EVERY: Duration = Duration::from_secs(1);

impl Engine {
    /// Wakes every conversation that is due, and returns how many there were. From then on, conversations are woken
    /// when they become due. So every generation makes progress, waits for a person, or has ended, and waiting costs
    /// nothing.
    pub async fn take_up(&self) -> Result<usize, StoreError> {
        let now = self.shared.clock.now();
        let taken_up = self.wake_due(None, now).await?;
        self.shared.spawn(self.clone().keep_time(now));
        Ok(taken_up)
    }

    async fn keep_time(self, mut since: Timestamp) {
        loop {
            tokio::select! {
                () = self.shared.stop.cancelled() => return,
                () = tokio::time::sleep(DUE_EVERY) => {}
            }
            let now = self.shared.clock.now();
            match self.wake_due(Some(since), now).await {
                Ok(_) => since = now,
                Err(error) => tracing::warn!(%error, "cannot list due conversations; will retry"),
            }
        }
    }

    /// Wakes the conversations that are due by `now`; with `since`, only those that became due after that time.
    async fn wake_due(&self, since: Option<Timestamp>, now: Timestamp) -> Result<usize, StoreError> {
        let due =
            Query { table: Some(Table::Conversations), due_by: Some(now.0), limit: PAGE, ..Query::default() };
        let (mut woken, mut after) = (0, since.map(|since| (since.0, String::new())));
        loop {
            let page = self.shared.store.list(Query { after, ..due.clone() }).await?;
            for document in &page.documents {
                self.wake(&document.conversation).await;
            }
            woken += page.documents.len();
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(woken),
            }
        }
    }

    /// Removes the events of generations whose retention time is over, and returns how many there were. It looks
    /// only at generations that are due, and calling it again changes nothing.
    pub async fn trim(&self) -> Result<usize, StoreError> {
        let kept = self.shared.settings.retention;
        let now = self.shared.clock.now();
        let mut trimmed = 0;
        for (status, kept) in [
            (GenerationStatus::Completed, kept.completed),
            (GenerationStatus::Cancelled, kept.completed),
            (GenerationStatus::Error, kept.error),
        ] {
            trimmed += self.trim_status(status, now, kept).await?;
        }
        Ok(trimmed)
    }

    async fn trim_status(
        &self,
        status: GenerationStatus,
        now: Timestamp,
        kept: Duration,
    ) -> Result<usize, StoreError> {
        let kept_ms = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
        let due = Query {
            table: Some(Table::Generations),
            statuses: vec![status.as_str().to_owned()],
            due_by: Some(now.0.saturating_sub(kept_ms)),
            limit: PAGE,
            ..Query::default()
        };
        let (mut trimmed, mut after) = (0, None);
        loop {
            let page = self.shared.store.list(Query { after, ..due.clone() }).await?;
            for document in &page.documents {
                trimmed += usize::from(self.trim_one(&document.conversation, &document.id).await);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(trimmed),
            }
        }
    }

    /// A generation that cannot be read or written now must not hold up the others.
    async fn trim_one(&self, conversation: &ConversationId, generation: &str) -> bool {
        let id = GenerationId::from(generation);
        let trim = |reply| Mail::Trim { generation: id.clone(), reply };
        let trimmed: Result<bool, EngineError> = self.ask(conversation, trim).await;
        trimmed.unwrap_or_else(|error| {
            tracing::error!(?conversation, generation, %error, "cannot remove the events of a generation");
            false
        })
    }
}
