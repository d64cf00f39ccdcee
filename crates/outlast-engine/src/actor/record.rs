//! The only place that changes a conversation: durable, then true, then visible.

use outlast_core::{
    Conversation, DocumentChange, Durability, Entry, Generation, apply_with_documents, conversation_document,
    due,
};
use outlast_store::{Change, Record, fault};

use super::{Actor, STORE_WAIT, UNFOLDED_BYTES_MIN, UNFOLDED_TIMES_MIN, UNSAVED_BYTES_MAX};
use crate::call::Call;
use crate::documents::{Folded, to_changes};
use crate::feed::Batch;
use crate::journal::RecordError;

impl Actor {
    /// Records events; nothing else changes the state. Text and tool output may be shown before they are saved if
    /// the operator chose fewer writes over safety.
    pub(super) async fn record(&mut self, entries: Vec<Entry>) -> Result<(), RecordError> {
        let Some(state) = self.state.as_mut().filter(|_| !entries.is_empty()) else { return Ok(()) };
        let records: Vec<Record> = entries
            .iter()
            .map(|entry| Record { seq: entry.seq, bytes: outlast_core::encode(entry).into() })
            .collect();
        let streams = entries.iter().all(|entry| entry.event.is_stream());
        if streams && self.shared.settings.durability != Durability::Commit && !is_acknowledged(state) {
            state.apply_all(&entries);
            self.unfolded += size(&records);
            self.journal.hold(&records);
            self.feed.publish_unsaved(Batch::live(&entries, records));
            return self.save_later().await;
        }
        let unfolded = self.unfolded + size(&records);
        if streams && !is_long(unfolded, self.folded) {
            self.append(&records, Vec::new()).await?;
            fault::point("record.durable");
            if let Some(state) = &mut self.state {
                state.apply_all(&entries);
            }
            self.unfolded = unfolded;
        } else {
            let mut after = state.clone();
            let changes = apply_with_documents(&mut after, &entries);
            let folds = is_long(unfolded, self.folded) || is_at_rest(&after);
            let folded = self.write(&records, &after, changes, folds).await?;
            fault::point("record.durable");
            self.state = Some(after);
            (self.unfolded, self.folded) = folded.map_or((unfolded, self.folded), |size| (0, Some(size)));
            self.save_at = None;
            self.count_live();
        }
        fault::point("record.applied");
        self.feed.publish(Batch::live(&entries, records));
        fault::point("record.visible");
        Ok(())
    }

    /// Appends records and documents. If the state is written too, returns its size.
    async fn write(
        &mut self,
        records: &[Record],
        after: &Conversation,
        changes: Vec<DocumentChange>,
        folds: bool,
    ) -> Result<Option<usize>, RecordError> {
        let due = due(after, &self.shared.settings.rules);
        let says_due =
            folds || changes.iter().any(|change| matches!(change, DocumentChange::Conversation(_)));
        let Folded { changes, size } = to_changes(after, changes, due, folds);
        self.append(records, changes).await?;
        if says_due {
            self.stored_due = due.map(|due| due.0);
        }
        Ok(size)
    }

    /// Writes the state, so that the log up to here need not be replayed again.
    pub(super) async fn fold(&mut self) -> Result<(), RecordError> {
        let Some(state) = self.state.clone().filter(|_| self.unfolded > 0) else { return Ok(()) };
        let size = self.write(&[], &state, Vec::new(), true).await?;
        (self.unfolded, self.folded, self.save_at) = (0, size, None);
        self.feed.saved();
        Ok(())
    }

    /// Corrects the stored `due` if there is nothing to do, as after an upgrade or a change of settings.
    /// Otherwise every start of the server would wake this conversation.
    pub(super) async fn correct_due(&mut self) -> Result<(), RecordError> {
        let Some(state) = self.state.clone() else { return Ok(()) };
        let due = due(&state, &self.shared.settings.rules).map(|due| due.0);
        if due == self.stored_due {
            return Ok(());
        }
        let document = DocumentChange::Conversation(conversation_document(&state));
        match self.write(&[], &state, vec![document], false).await {
            Err(RecordError::Unavailable(_)) => Ok(()), // the next owner will correct it
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
        match self.write(&[], &state, changes.into_iter().collect(), folds).await {
            Ok(folded) => {
                (self.unfolded, self.folded) =
                    folded.map_or((self.unfolded, self.folded), |size| (0, Some(size)));
                self.feed.saved();
            }
            Err(RecordError::Unavailable(reason)) => {
                tracing::error!(conversation = ?self.id, reason, "the store cannot write; will retry");
                self.save_at = Some(self.shared.clock.now().after(STORE_WAIT));
            }
            Err(lost @ RecordError::Lost(_)) => return Err(lost),
        }
        Ok(())
    }

    /// Changes documents without an event.
    pub(super) async fn put(&mut self, change: Change) -> Result<(), RecordError> {
        self.append(&[], vec![change]).await
    }

    /// Appends, and meanwhile gathers what the model says.
    async fn append(&mut self, records: &[Record], changes: Vec<Change>) -> Result<(), RecordError> {
        let Actor { journal, call, .. } = self;
        Call::gather_during(call.as_mut(), journal.append(records, changes)).await
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
