//! The only place that changes a conversation: durable, then true, then visible.

use outlast_core::{
    Conversation, DocumentChange, Durability, Entry, Generation, apply_with_documents, conversation_document,
};
use outlast_store::{Record, fault};

use super::{Actor, STORE_WAIT, UNFOLDED_BYTES_MAX, UNFOLDED_TIMES_MAX, UNSAVED_BYTES_MAX};
use crate::documents::to_changes;
use crate::feed::Batch;
use crate::journal::RecordError;

impl Actor {
    /// The only way anything changes: durable, then true, then visible.
    pub(super) async fn record(&mut self, entries: Vec<Entry>) -> Result<(), RecordError> {
        let Some(state) = self.state.as_mut().filter(|_| !entries.is_empty()) else { return Ok(()) };
        let records: Vec<Record> = entries
            .iter()
            .map(|entry| Record { seq: entry.seq, bytes: outlast_core::encode(entry).into() })
            .collect();
        let text = entries.iter().all(|entry| entry.event.is_text());
        // A worker is told that its words were taken, and forgets them: they are saved in every mode.
        let acknowledged = state.active().is_some_and(|run| run.producer.is_some());
        if text && self.shared.settings.durability != Durability::Commit && !acknowledged {
            return self.show_first(&entries, records).await;
        }
        self.unfolded += size(&records);
        if text && !is_long(self.unfolded, state) {
            self.journal.append(&records, Vec::new()).await?;
            fault::point("record.durable");
            state.apply_all(&entries);
        } else {
            let mut after = state.clone();
            let mut changes = apply_with_documents(&mut after, &entries);
            if text {
                changes.push(DocumentChange::Conversation(conversation_document(&after)));
            }
            self.journal.append(&records, to_changes(&after, changes)).await?;
            fault::point("record.durable");
            *state = after;
            self.save_at = None;
            self.unfolded = 0;
            self.count_live();
        }
        fault::point("record.applied");
        self.feed.publish(Batch::new(records));
        fault::point("record.visible");
        Ok(())
    }

    /// Where the operator chose fewer writes over safety: text is visible first and saved later.
    pub(super) async fn show_first(
        &mut self,
        entries: &[Entry],
        records: Vec<Record>,
    ) -> Result<(), RecordError> {
        if let Some(state) = &mut self.state {
            state.apply_all(entries);
        }
        self.unfolded += size(&records);
        self.journal.hold(&records);
        self.feed.publish_unsaved(Batch::new(records));
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
        let folds = self.state.as_ref().filter(|state| is_long(self.unfolded, state));
        let changes = folds.map_or(Vec::new(), |state| {
            to_changes(state, vec![DocumentChange::Conversation(conversation_document(state))])
        });
        let folded = !changes.is_empty();
        match self.journal.append(&[], changes).await {
            Ok(()) => {
                self.unfolded = if folded { 0 } else { self.unfolded };
                self.feed.saved();
            }
            Err(RecordError::Unavailable(reason)) => {
                tracing::error!(conversation = ?self.id, reason, "the store cannot write; trying again");
                self.save_at = Some(self.shared.clock.now().after(STORE_WAIT));
            }
            Err(lost @ RecordError::Lost(_)) => return Err(lost),
        }
        Ok(())
    }
}

/// Whether so much of the log should not be replayed to get to this state.
fn is_long(unfolded: usize, state: &Conversation) -> bool {
    let said = |run: &Generation| run.answer_bytes();
    unfolded > UNFOLDED_BYTES_MAX
        && unfolded > UNFOLDED_TIMES_MAX.saturating_mul(state.active().map_or(0, said))
}

pub(super) fn size(records: &[Record]) -> usize {
    records.iter().map(|record| record.bytes.len()).sum()
}
