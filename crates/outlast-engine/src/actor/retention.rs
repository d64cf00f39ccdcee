//! Removes the events of a generation whose retention time is over. The owner does it, so that nothing else
//! changes the conversation meanwhile, and a conversation that was deleted and created again loses nothing.

use outlast_core::{Conversation, GenerationDocument, GenerationId, Seq, head};
use outlast_store::{Change, Record, StoreError, Table};

use super::Actor;
use crate::documents::{generation_document, to_generation};
use crate::engine::Shared;
use crate::error::EngineError;

/// How much of a log is read at once when it is trimmed.
const PAGE_BYTES: usize = 256 * 1024;

impl Actor {
    /// Returns whether anything was removed. Calling it again changes nothing.
    pub(super) async fn trim(&mut self, id: &GenerationId) -> Result<bool, EngineError> {
        let Some(state) = self.state.clone() else { return Ok(false) };
        let Some(document) = self.shared.store.get(Table::Generations, id.as_str()).await? else {
            return Ok(false);
        };
        let generation = to_generation(&document)?;
        if document.conversation != self.id || generation.status.is_live() {
            return Ok(false);
        }
        let now = self.shared.clock.now();
        let over = self.shared.settings.retention.is_over(generation.status, generation.completed_at, now);
        let ended = generation.completed_at.map(|at| at.0);
        if !over {
            // The document was written by a version without `due`.
            if document.due != ended {
                self.put(Change::Put(generation_document(&state, &generation, ended))).await?;
            }
            return Ok(false);
        }
        self.fold().await?; // the stored state must not need what is removed
        let kept = prompt_still_needed(&state, &generation);
        let removed = remove_events(&self.shared, &generation, kept).await?;
        // If a prompt is still needed, check again after another retention period.
        let again = kept.map(|_| now.0);
        self.put(Change::Put(generation_document(&state, &generation, again))).await?;
        Ok(removed)
    }
}

/// Removes the generation's own events, and keeps those of other generations in between.
async fn remove_events(
    shared: &Shared,
    generation: &GenerationDocument,
    kept: Option<Seq>,
) -> Result<bool, StoreError> {
    let (store, conversation) = (&shared.store, &generation.conversation_id);
    let ours = |record: &Record| {
        let head = head(&record.bytes);
        record.seq <= generation.last_seq
            && Some(record.seq) != kept
            && head.is_ok_and(|head| head.generation_id.as_ref() == Some(&generation.id))
    };
    let mut after = Seq(generation.first_seq.0.saturating_sub(1));
    let mut removed = false;
    while after < generation.last_seq {
        let records = store.read(conversation, after, PAGE_BYTES).await?;
        let Some(last) = records.last().map(|record| record.seq) else { break };
        for run in records.chunk_by(|one, next| ours(one) == ours(next)) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            if ours(first) {
                store.trim(conversation, first.seq, last.seq).await?;
                removed = true;
            }
        }
        after = last;
    }
    Ok(removed)
}

/// The last generation can be retried or resumed as long as it is the last, and its prompt may be among the
/// events of the generation that is to be trimmed.
fn prompt_still_needed(state: &Conversation, trimmed: &GenerationDocument) -> Option<Seq> {
    let prompts = state.current.iter().chain(&state.queue).filter_map(|generation| generation.prompt_seq);
    prompts.into_iter().find(|seq| (trimmed.first_seq..=trimmed.last_seq).contains(seq))
}
