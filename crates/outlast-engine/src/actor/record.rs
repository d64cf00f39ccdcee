//! The only place that changes a conversation: durable, then true, then visible.

use std::pin::pin;

use outlast_core::{
    Conversation, DocumentChange, Durability, Entry, Generation, apply_with_documents, conversation_document,
    due, owe_notifications,
};
use outlast_store::{Change, Limit, Record, fault};

use super::{Actor, STORE_WAIT, UNFOLDED_BYTES_MIN, UNFOLDED_TIMES_MIN, UNSAVED_BYTES_MAX};
use crate::call::Call;
use crate::documents::{Folded, to_changes};
use crate::feed::Batch;
use crate::journal::{RecordError, Write};
use crate::presence::Watched;

impl Actor {
    /// Records events; nothing else changes the state. Text and tool output may be shown before they are saved if
    /// the operator chose fewer writes over safety.
    pub(super) async fn record(&mut self, entries: Vec<Entry>) -> Result<(), RecordError> {
        self.record_within(entries, Vec::new()).await
    }

    /// The same, unless one of these limits would be exceeded.
    pub(super) async fn record_within(
        &mut self,
        mut entries: Vec<Entry>,
        limits: Vec<Limit>,
    ) -> Result<(), RecordError> {
        self.owe_notifications(&mut entries).await;
        let Some(state) = self.state.as_mut().filter(|_| !entries.is_empty()) else { return Ok(()) };
        let records: Vec<Record> = entries
            .iter()
            .map(|entry| Record { seq: entry.seq, bytes: outlast_core::encode(entry).into() })
            .collect();
        // The reply to a letter is made from the state after it.
        let streams = entries.iter().all(|entry| entry.event.is_stream()) && self.answering.is_none();
        if streams && self.shared.settings.durability != Durability::Commit && !is_acknowledged(state) {
            state.apply_all(&entries);
            self.unfolded += size(&records);
            self.journal.hold(&records);
            self.feed.publish_unsaved(Batch::live(&entries, records));
            return self.save_later().await;
        }
        let unfolded = self.unfolded + size(&records);
        if streams && !is_long(unfolded, self.folded) {
            self.append(Write { records: &records, ..Write::default() }).await?;
            fault::point("record.durable");
            if let Some(state) = &mut self.state {
                state.apply_all(&entries);
            }
            self.unfolded = unfolded;
        } else {
            let mut after = state.clone();
            let changes = apply_with_documents(&mut after, &entries);
            let folds = is_long(unfolded, self.folded) || is_at_rest(&after);
            let replies = self.reply_from(&after).into_iter().collect();
            let write = Write { records: &records, replies, limits, ..Write::default() };
            let folded = self.write(write, &after, changes, folds).await?;
            self.answering = None;
            fault::point("record.durable");
            if let Some(before) = &self.state {
                self.shared.figures.recorded(&entries, before, &after);
                self.shared.endings.tell(&after.user, &entries);
            }
            self.state = Some(after);
            (self.unfolded, self.folded) = folded.map_or((unfolded, self.folded), |size| (0, Some(size)));
            self.save_at = None;
            self.count_live();
            self.charge(&entries);
        }
        fault::point("record.applied");
        self.feed.publish(Batch::live(&entries, records));
        fault::point("record.visible");
        Ok(())
    }

    /// Adds the notifications that are owed because nobody watches, neither here nor at another instance. If that cannot
    /// be found out, one too many is better than one too few.
    async fn owe_notifications(&mut self, entries: &mut Vec<Entry>) {
        let Some(state) = self.state.as_ref().filter(|_| *self.watchers.borrow() == 0) else { return };
        let recorded = entries.len();
        owe_notifications(state, entries);
        if entries.len() > recorded
            && matches!(self.shared.watched_elsewhere(&self.id).await, Ok(Watched::Now))
        {
            entries.truncate(recorded);
        }
    }

    /// Appends records and documents. If the state is written too, returns its size.
    async fn write(
        &mut self,
        write: Write<'_>,
        after: &Conversation,
        changes: Vec<DocumentChange>,
        folds: bool,
    ) -> Result<Option<usize>, RecordError> {
        let due = due(after, &self.shared.settings.rules);
        let says_due =
            folds || changes.iter().any(|change| matches!(change, DocumentChange::Conversation(_)));
        let Folded { changes, size } = to_changes(after, changes, due, folds);
        self.append(Write { changes, ..write }).await?;
        if says_due {
            self.stored_due = due.map(|due| due.0);
        }
        Ok(size)
    }

    /// Writes the state, so that the log up to here need not be replayed again.
    pub(super) async fn fold(&mut self) -> Result<(), RecordError> {
        let Some(state) = self.state.clone().filter(|_| self.unfolded > 0) else { return Ok(()) };
        let size = self.write(Write::default(), &state, Vec::new(), true).await?;
        (self.unfolded, self.folded, self.save_at) = (0, size, None);
        self.feed.saved();
        Ok(())
    }

    /// Corrects the stored `due` if there is nothing to do, as after an upgrade or a change of settings. Otherwise every
    /// start of the server would wake this conversation, or nobody would when it is due. If the store cannot write, says
    /// when to try again.
    pub(super) async fn correct_due(&mut self) -> Result<(), RecordError> {
        let Some(state) = self.state.clone() else { return Ok(()) };
        let due = due(&state, &self.shared.settings.rules).map(|due| due.0);
        if due == self.stored_due {
            return Ok(());
        }
        let document = DocumentChange::Conversation(conversation_document(&state));
        match self.write(Write::default(), &state, vec![document], false).await {
            Err(RecordError::Unavailable(reason)) => {
                tracing::error!(conversation = ?self.id, reason, "the store cannot write; will retry");
                self.store_again = Some(self.shared.clock.now().after(STORE_WAIT));
                Ok(())
            }
            written => written.map(|_| ()),
        }
    }

    async fn save_later(&mut self) -> Result<(), RecordError> {
        if self.journal.unsaved_bytes() > UNSAVED_BYTES_MAX {
            return self.save().await;
        }
        if let Durability::Debounce(delay) = self.shared.settings.durability {
            let due = self.shared.clock.now().after(delay);
            self.save_at.get_or_insert(due);
        }
        Ok(())
    }

    /// Saves text that was held back.
    pub(super) async fn save(&mut self) -> Result<(), RecordError> {
        self.save_at = None;
        if self.journal.unsaved_bytes() == 0 {
            return Ok(());
        }
        let Some(state) = self.state.clone() else { return Ok(()) };
        let folds = is_long(self.unfolded, self.folded);
        let changes = folds.then(|| DocumentChange::Conversation(conversation_document(&state)));
        match self.write(Write::default(), &state, changes.into_iter().collect(), folds).await {
            Ok(folded) => {
                (self.unfolded, self.folded) =
                    folded.map_or((self.unfolded, self.folded), |size| (0, Some(size)));
                self.feed.saved();
            }
            Err(RecordError::Unavailable(reason)) => {
                tracing::error!(conversation = ?self.id, reason, "the store cannot write; will retry");
                self.save_at = Some(self.shared.clock.now().after(STORE_WAIT));
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// Changes documents without an event.
    pub(super) async fn put(&mut self, change: Change) -> Result<(), RecordError> {
        self.append(Write { changes: vec![change], ..Write::default() }).await
    }

    /// Appends, and meanwhile gathers what the model says. If the lease runs out meanwhile, what is under way ends,
    /// however long the store takes.
    pub(super) async fn append(&mut self, write: Write<'_>) -> Result<(), RecordError> {
        let Actor { journal, call, works, shared, fenced, lapses, .. } = self;
        let _measured = shared.figures.append();
        let mut writing = pin!(journal.append(write));
        let written = tokio::select! {
            biased;
            written = Call::gather_during(call.as_mut(), writing.as_mut()) => Some(written),
            () = shared.lease.lapsed_since(*lapses) => None,
        };
        let written = match written {
            Some(written) => written,
            None => {
                *call = None;
                works.keep(&[]);
                writing.await
            }
        };
        *fenced |= matches!(written, Err(RecordError::Fenced(_)));
        written
    }
}

/// A worker discards its text once it is acknowledged, so that text is saved at once in every mode.
fn is_acknowledged(state: &Conversation) -> bool {
    state.active().is_some_and(|run| run.brief.is_for_worker())
}

/// At rest nothing is open, so the state is small and will not be written again for a long time.
fn is_at_rest(state: &Conversation) -> bool {
    state.queue.is_empty() && state.current.as_ref().is_none_or(Generation::ended)
}

fn is_long(unfolded: usize, folded: Option<usize>) -> bool {
    folded.is_none_or(|folded| {
        unfolded > UNFOLDED_BYTES_MIN && unfolded > UNFOLDED_TIMES_MIN.saturating_mul(folded)
    })
}

pub(super) fn size(records: &[Record]) -> usize {
    records.iter().map(|record| record.bytes.len()).sum()
}
