//! Removes the events of a generation whose retention time is over. The owner does it, so that nothing else
//! changes the conversation meanwhile, and a conversation that was deleted and created again loses nothing.

use std::collections::BTreeSet;

use outlast_core::{
    Conversation, Event, GenerationDocument, GenerationId, NotificationId, Seq, decode, head,
};
use outlast_store::{Change, Query, Record, StoreError, Table};
use tokio::sync::oneshot;

use super::sweeping::{Sweep, Sweeping, Trim};
use super::{Actor, Answer};
use crate::checkpoints::Swept;
use crate::documents::{generation_document, to_generation};
use crate::engine::Shared;
use crate::error::EngineError;
use crate::journal::RecordError;
use crate::reading::readable;

/// How much of a log is read at once when it is trimmed.
const PAGE_BYTES: usize = 256 * 1024;
/// With the state before how many of the newest generations the workspace can be compared.
const COMPARED_GENERATIONS_MAX: usize = 500;

impl Actor {
    /// Removes the events here, then checkpoints and outputs beside the owner, which goes on serving meanwhile. Replies with
    /// whether anything was removed. Calling it again changes nothing.
    pub(super) async fn trim(
        &mut self,
        generation: GenerationId,
        reply: oneshot::Sender<Answer<bool>>,
    ) -> Result<(), RecordError> {
        if self.sweeping.is_some() {
            return self.answer(reply, Ok(false)); // its turn comes another time
        }
        let trimmed = match self.trim_events(&generation).await {
            Ok(Trimmed::Nothing) => Ok(false),
            Ok(Trimmed::Events { removed, sweep: Some(sweep) }) => {
                self.sweeping =
                    Some(Sweeping::begin(&self.shared, sweep, Trim { generation, removed, reply }));
                return Ok(());
            }
            Ok(Trimmed::Events { removed, sweep: None }) => {
                self.finish_trim(&generation).await.map(|()| removed)
            }
            Err(error) => Err(error),
        };
        self.answer(reply, trimmed)
    }

    /// Checkpoints and outputs are gone, or as many as could be removed now.
    pub(super) async fn swept(&mut self, swept: Result<Swept, String>) -> Result<(), RecordError> {
        let Some(Trim { generation, removed, reply }) = self.sweeping.take().map(Sweeping::end) else {
            return Ok(());
        };
        let trimmed = match swept {
            Ok(Swept { unfinished: true, .. }) => Ok(removed), // still due
            Ok(Swept { .. }) => self.finish_trim(&generation).await.map(|()| removed),
            Err(reason) => Err(EngineError::Unavailable(reason)),
        };
        self.answer(reply, trimmed)
    }

    async fn trim_events(&mut self, id: &GenerationId) -> Result<Trimmed, EngineError> {
        let Some(state) = self.state.clone() else { return Ok(Trimmed::Nothing) };
        let Some(document) = self.shared.store.get(Table::Generations, id.as_str()).await? else {
            return Ok(Trimmed::Nothing);
        };
        let generation = to_generation(&document)?;
        if document.conversation != self.id || generation.status.is_live() {
            return Ok(Trimmed::Nothing);
        }
        let ended = generation.completed_at.map(|at| at.0);
        if !is_over(&self.shared, &generation) {
            // The document was written by a version without `due`.
            if document.due != ended {
                self.put(Change::Put(generation_document(&state, &generation, ended))).await?;
            }
            return Ok(Trimmed::Nothing);
        }
        self.fold().await?; // the stored state must not need what is removed
        let kept = prompt_still_needed(&state, &generation);
        let removed = remove_events(&self.shared, &generation, kept).await?;
        let sweep = match &self.shared.workshop {
            Ok(workshop) if generation.brief.is_agent() => {
                let ids = checkpoints_needed(&self.shared, &state).await?;
                let (checkpoints, now) = (workshop.checkpoints.clone(), self.shared.clock.now());
                Some(Sweep { checkpoints, conversation: self.id.clone(), generation: id.clone(), ids, now })
            }
            Ok(_) | Err(_) => None,
        };
        Ok(Trimmed::Events { removed, sweep })
    }

    /// Nothing is left to remove, so the generation is not due any more.
    async fn finish_trim(&mut self, id: &GenerationId) -> Result<(), EngineError> {
        let Some(state) = self.state.clone() else { return Ok(()) };
        let Some(document) = self.shared.store.get(Table::Generations, id.as_str()).await? else {
            return Ok(());
        };
        let generation = to_generation(&document)?;
        // If a prompt is still needed, or a server with sandboxes has to remove the rest, check again after another
        // retention period.
        let is_left = self.shared.workshop.is_err() && generation.brief.is_agent();
        let again = prompt_still_needed(&state, &generation).is_some() || is_left;
        let again = again.then(|| self.shared.clock.now().0);
        Ok(self.put(Change::Put(generation_document(&state, &generation, again))).await?)
    }
}

/// What the owner itself has removed.
enum Trimmed {
    Nothing,
    Events {
        removed: bool,
        /// What is left to remove beside it.
        sweep: Option<Sweep>,
    },
}

/// The checkpoints that stay: the newest one and the states before each generation whose events are kept, so that what
/// changed since then can still be shown.
async fn checkpoints_needed(shared: &Shared, state: &Conversation) -> Result<Vec<String>, EngineError> {
    let query = Query {
        table: Some(Table::Generations),
        conversation: Some(state.id.clone()),
        limit: COMPARED_GENERATIONS_MAX,
        max_bytes: usize::MAX,
        ..Query::default()
    };
    let documents = shared.store.list(query).await?.documents;
    let kept = |generation: &GenerationDocument| generation.status.is_live() || !is_over(shared, generation);
    let generations = readable(&documents, to_generation).into_iter().filter(kept);
    let sandbox = state.sandbox.as_ref();
    let newest = sandbox.and_then(|sandbox| sandbox.checkpoint.as_ref()).map(|newest| newest.id.clone());
    let before = sandbox.and_then(|sandbox| sandbox.before.clone());
    let needed = generations.filter_map(|generation| generation.checkpoint_before);
    Ok(needed.chain(newest).chain(before).map(|id| id.to_string()).collect())
}

fn is_over(shared: &Shared, generation: &GenerationDocument) -> bool {
    shared.settings.retention.is_over(generation.status, generation.completed_at, shared.clock.now())
}

/// Removes the generation's own events and what was told about it, and keeps those of other generations in between.
async fn remove_events(
    shared: &Shared,
    generation: &GenerationDocument,
    kept: Option<Seq>,
) -> Result<bool, StoreError> {
    let (store, conversation) = (&shared.store, &generation.conversation_id);
    let mut trimming = Trimming { generation, kept, told: BTreeSet::new() };
    let mut after = Seq(generation.first_seq.0.saturating_sub(1));
    let mut removed = false;
    // What is told about the end is recorded right after it, and that it was told a moment later.
    while after <= generation.last_seq || !trimming.told.is_empty() {
        let records = store.read(conversation, after, PAGE_BYTES).await?;
        let Some(last) = records.last().map(|record| record.seq) else { break };
        let ours: Vec<(Seq, bool)> =
            records.iter().map(|record| (record.seq, trimming.takes(record))).collect();
        for run in ours.chunk_by(|(_, one), (_, next)| one == next) {
            if let (Some((first, true)), Some((last, _))) = (run.first(), run.last()) {
                store.trim(conversation, *first, *last).await?;
                removed = true;
            }
        }
        after = last;
    }
    Ok(removed)
}

/// Decides which records go with a generation.
struct Trimming<'a> {
    generation: &'a GenerationDocument,
    kept: Option<Seq>,
    /// Notifications about it that were owed and, so far, not made.
    told: BTreeSet<NotificationId>,
}

impl Trimming<'_> {
    fn takes(&mut self, record: &Record) -> bool {
        let Ok(head) = head(&record.bytes) else { return false };
        if Some(record.seq) == self.kept {
            return false;
        }
        if !head.kind.starts_with("notification.") {
            let ours = head.generation_id.as_ref() == Some(&self.generation.id);
            return ours && record.seq <= self.generation.last_seq;
        }
        match decode(&record.bytes).map(|entry| entry.event) {
            Ok(Event::NotificationOwed { notification_id, generation_id, .. }) => {
                generation_id == self.generation.id && self.told.insert(notification_id)
            }
            Ok(Event::NotificationMade { notification_id }) => self.told.remove(&notification_id),
            _ => false,
        }
    }
}

/// The last generation can be retried or resumed as long as it is the last, and its prompt may be among the
/// events of the generation that is to be trimmed.
fn prompt_still_needed(state: &Conversation, trimmed: &GenerationDocument) -> Option<Seq> {
    let prompts = state.current.iter().chain(&state.queue).filter_map(|generation| generation.prompt_seq);
    prompts.into_iter().find(|seq| (trimmed.first_seq..=trimmed.last_seq).contains(seq))
}
