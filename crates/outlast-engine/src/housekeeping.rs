//! Background work: wakes conversations that are due, and removes events whose retention time is over.

use std::time::Duration;

use futures_util::future::join_all;
use outlast_core::{ConversationId, GenerationId, GenerationStatus, Timestamp};
use outlast_store::{ClaimError, Query, StoreError, Table};

use crate::actor::{Answer, Mail};
use crate::engine::Engine;
use crate::error::EngineError;

/// How many documents are read at once.
const PAGE: usize = 500;
/// How long the start waits for servers that bring tools, so that the first generation has their tools.
const TOOLS_WITHIN: Duration = Duration::from_secs(3);
/// How often the store is asked what has become due. After a restart, a retry may be late by this much.
const DUE_EVERY: Duration = Duration::from_secs(1);
/// An instance that leaves wakes the others, which look at once, but not more often than this.
const DUE_EVERY_MIN: Duration = Duration::from_millis(100);
/// Whoever holds this, as if it were a conversation, removes what is old. No client can name it.
const HOUSEKEEPING: &str = "(housekeeping)";

impl Engine {
    /// Wakes every conversation that is due, and returns how many there were. From then on, conversations are woken
    /// when they become due. So every generation makes progress, waits for a person, or has ended, and waiting costs
    /// nothing.
    pub async fn take_up(&self) -> Result<usize, StoreError> {
        self.shared.renew().await?;
        let now = self.shared.clock.now();
        // Taking up much work may take longer than the lease lasts.
        self.shared.spawn(self.shared.clone().keep_lease());
        self.shared.spawn(self.clone().deliver_letters());
        let taken_up = self.wake_orphans(now).await?;
        self.shared.spawn(self.clone().keep_time(now));
        self.shared.spawn(self.clone().keep_accounts());
        self.shared.spawn(self.clone().keep_clear());
        self.shared.spawn(self.clone().end_strays());
        for server in self.shared.settings.toolbox.servers() {
            let (store, stop) = (self.shared.store.clone(), self.shared.stop.clone());
            self.shared.spawn(server.clone().keep_connected(store, stop));
        }
        Ok(taken_up)
    }

    /// Waits for the servers that bring tools, but not for long: one that is down must not keep this server from starting.
    pub async fn connect_tools(&self) {
        let servers = self.shared.settings.toolbox.servers();
        let tried = join_all(servers.map(|server| server.tried()));
        tokio::time::timeout(TOOLS_WITHIN, tried).await.ok(); // the others may come later
    }

    async fn keep_time(self, mut since: Timestamp) {
        let mut arrived = self.shared.store.watch_mail();
        loop {
            tokio::select! {
                () = self.shared.stop.cancelled() => return,
                () = tokio::time::sleep(DUE_EVERY) => {}
                changed = arrived.changed() => if changed.is_err() { return },
            }
            if !self.shared.lease.is_safe() {
                continue; // nothing may be claimed
            }
            let now = self.shared.clock.now();
            match self.wake_due(since, now).await {
                Ok(_) => since = now,
                Err(error) => tracing::warn!(%error, "cannot list due conversations; will retry"),
            }
            tokio::select! {
                () = self.shared.stop.cancelled() => return,
                () = tokio::time::sleep(DUE_EVERY_MIN) => {}
            }
        }
    }

    /// Wakes what nobody owns, and what has become due since the last time, whoever owned it last.
    async fn wake_due(&self, since: Timestamp, now: Timestamp) -> Result<(), StoreError> {
        self.wake_orphans(now).await?;
        self.wake_all(due_by(now), Some((since.0, String::new()))).await?;
        Ok(())
    }

    /// Wakes the conversations that are due and have no live owner: after a start, all of them; later, those of
    /// an instance that died or left.
    async fn wake_orphans(&self, now: Timestamp) -> Result<usize, StoreError> {
        self.wake_all(Query { unowned: true, ..due_by(now) }, None).await
    }

    async fn wake_all(&self, due: Query, mut after: Option<(i64, String)>) -> Result<usize, StoreError> {
        let mut woken = 0;
        loop {
            let page = self.shared.store.list(Query { after, ..due.clone() }).await?;
            for document in &page.documents {
                if !self.shared.left_to_others.has(&document.conversation) {
                    self.wake(&document.conversation).await;
                    woken += 1;
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(woken),
            }
        }
    }

    /// Removes the events of generations whose retention time is over, and returns how many there were. It looks
    /// only at generations that are due, and calling it again changes nothing.
    pub async fn trim(&self) -> Result<usize, StoreError> {
        match self.shared.store.claim(&ConversationId::from(HOUSEKEEPING)).await {
            Ok(_) => {}
            Err(ClaimError::HeldBy(_)) => return Ok(0), // another instance does it
            Err(ClaimError::Store(error)) => return Err(error),
        }
        let kept = self.shared.settings.retention;
        let now = self.shared.clock.now();
        self.shared.sweep_notifications().await?;
        let mut trimmed = 0;
        for (status, kept) in [
            (GenerationStatus::Completed, kept.completed),
            (GenerationStatus::Cancelled, kept.completed),
            (GenerationStatus::Error, kept.error),
        ] {
            trimmed += self.trim_status(status, now, kept).await?;
        }
        self.shared.sweep_notes(now).await?;
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
        let trimmed: Result<bool, EngineError> = match self.ask_here(conversation, trim).await {
            Ok(Answer::Done(trimmed)) => trimmed,
            Ok(Answer::Elsewhere) => Ok(false), // it is in use; its turn comes another time
            Err(error) => Err(error),
        };
        trimmed.unwrap_or_else(|error| {
            tracing::error!(?conversation, generation, %error, "cannot remove the events of a generation");
            false
        })
    }
}

/// Conversations that are due.
fn due_by(now: Timestamp) -> Query {
    Query { table: Some(Table::Conversations), due_by: Some(now.0), limit: PAGE, ..Query::default() }
}
