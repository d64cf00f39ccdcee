//! The only place that changes a conversation: durable, then true, then visible.

use outlast_core::{Durability, Entry, apply_with_documents};
use outlast_store::{Record, fault};

use super::{Actor, STORE_WAIT, UNSAVED_BYTES_MAX};
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
        if entries.iter().all(|entry| entry.event.is_text()) {
            if self.shared.settings.durability != Durability::Commit {
                return self.show_first(&entries, records).await;
            }
            self.journal.append(&records, Vec::new()).await?;
            fault::point("record.durable");
            state.apply_all(&entries);
        } else {
            let mut after = state.clone();
            let changes = apply_with_documents(&mut after, &entries);
            self.journal.append(&records, to_changes(&after, changes)).await?;
            fault::point("record.durable");
            *state = after;
            self.save_at = None;
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
        match self.journal.append(&[], Vec::new()).await {
            Ok(()) => self.feed.saved(),
            Err(RecordError::Unavailable(reason)) => {
                tracing::error!(conversation = %self.id, reason, "the store cannot write; trying again");
                self.save_at = Some(self.shared.clock.now().after(STORE_WAIT));
            }
            Err(lost @ RecordError::Lost(_)) => return Err(lost),
        }
        Ok(())
    }
}
