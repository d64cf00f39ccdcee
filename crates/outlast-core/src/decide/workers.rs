//! Commands of workers. A worker's answer is recorded, shown and cancelled like one produced by this server.

use std::collections::BTreeMap;

use serde_json::Value;

use super::live;
use crate::attempts::begin_attempt;
use crate::entries::Entries;
use crate::generation::Phase;
use crate::json::json_bytes;
use crate::telling::{Standing, tell};
use crate::{
    CallEnd, Conversation, Event, Generation, GenerationId, Piece, Refusal, Rules, Streamed, TOOL_BYTES_MAX,
    WorkerAppend, WorkerEnd,
};

pub(super) fn decide_claim(
    state: &Conversation,
    id: &GenerationId,
    keep: bool,
    entries: &mut Entries,
) -> Result<(), Refusal> {
    let generation = external(state, id)?;
    match generation.progress.phase {
        Phase::Interrupted => entries.of(generation, Event::ChatResumed { by: "worker".to_owned() }),
        Phase::Running => {}
        _ => return Err(stale(generation, 0)), // a queued generation must wait for its turn
    }
    // A question is withdrawn even if there is no text, because no worker waits for the decision any longer.
    let progress = &generation.progress;
    if !keep && (!progress.shown.is_empty() || !progress.approvals.is_empty()) {
        let (attempt, message_ids) = (progress.attempt, progress.shown.clone());
        let reason = "restarted by its worker".to_owned();
        entries.of(generation, Event::AttemptRetracted { attempt, message_ids, reason });
    }
    begin_attempt(generation, entries);
    Ok(())
}

pub(super) fn decide_append(
    state: &Conversation,
    produce: WorkerAppend,
    rules: &Rules,
    entries: &mut Entries,
) -> Result<(), Refusal> {
    let generation = external(state, &produce.generation)?;
    if generation.progress.phase != Phase::Running || generation.progress.attempt != produce.epoch {
        return Err(stale(generation, produce.epoch));
    }
    let last = generation.progress.produced;
    if let Some(expected) = produce.expected.filter(|expected| *expected != last) {
        return Err(Refusal::SeqConflict { expected, last });
    }
    must_know_tools(generation, &produce.pieces)?;
    let (end, failed) = match produce.end {
        None => (None, None),
        Some(WorkerEnd::Done { reason }) => (Some(CallEnd::Finished { reason }), None),
        Some(WorkerEnd::Failed { message, code }) => (None, Some((message, code))),
    };
    let pieces = without_repeated_questions(generation, produce.pieces)?;
    let new_message = generation.next_message().cloned().unwrap_or(produce.new_message);
    let (id, attempt) = (produce.generation, produce.epoch);
    let streamed = Streamed { generation: id, attempt, pieces, end, new_message };
    tell(generation, streamed, Standing { rules, always: &[] }, entries);
    // If the answer exceeded its limit, it has already ended.
    if let Some((error_message, code)) = failed.filter(|_| !entries.has_end()) {
        entries.of(generation, Event::ChatError { error_message, code });
    }
    Ok(())
}

/// Tool output must come between the call's start and its end, and has a size limit.
fn must_know_tools(generation: &Generation, pieces: &[Piece]) -> Result<(), Refusal> {
    let mut open: Vec<&str> = generation.open_calls().map(|(id, _)| id).collect();
    for piece in pieces {
        let (id, bytes) = match piece {
            Piece::ToolCall { id, .. } => {
                open.push(id);
                continue;
            }
            Piece::ToolOutput { id, text, .. } => (id, text.len()),
            Piece::ToolEnd { id, result, .. } => (id, json_bytes(result)),
            Piece::Text { .. } | Piece::Signature { .. } | Piece::Approval { .. } | Piece::Usage { .. } => {
                continue;
            }
        };
        let known = open.iter().position(|known| known == id);
        let known = known.ok_or_else(|| Refusal::NotCalled { tool_use_id: id.clone() })?;
        if bytes > TOOL_BYTES_MAX {
            return Err(Refusal::ToolTooLong { tool_use_id: id.clone() });
        }
        if matches!(piece, Piece::ToolEnd { .. }) {
            open.remove(known);
        }
    }
    Ok(())
}

/// Drops questions that were already asked word for word: a worker that was restarted may not know that it
/// asked. A different question under the same id is refused, or the decision about one would be taken for a
/// decision about the other.
fn without_repeated_questions(generation: &Generation, pieces: Vec<Piece>) -> Result<Vec<Piece>, Refusal> {
    let mut asked_here: BTreeMap<String, (String, Value)> = BTreeMap::new();
    let mut kept = Vec::with_capacity(pieces.len());
    for piece in pieces {
        if let Piece::Approval { id, name, input } = &piece {
            let mut approvals = generation.progress.approvals.iter();
            let same = match approvals.find(|approval| approval.tool_use_id == *id) {
                Some(before) => Some(before.asks(name, input)),
                None => asked_here.get(id).map(|before| before == &(name.clone(), input.clone())),
            };
            match same {
                Some(true) => continue,
                Some(false) => return Err(Refusal::AskedOtherwise { tool_use_id: id.clone() }),
                None => asked_here.insert(id.clone(), (name.clone(), input.clone())),
            };
        }
        kept.push(piece);
    }
    Ok(kept)
}

/// The generation with this id, if a worker produces it and it has not ended.
fn external<'a>(state: &'a Conversation, id: &GenerationId) -> Result<&'a Generation, Refusal> {
    let generation = live(state, id)?;
    if generation.brief.is_for_worker() { Ok(generation) } else { Err(Refusal::NotForWorkers) }
}

fn stale(generation: &Generation, epoch: u32) -> Refusal {
    Refusal::StaleEpoch { epoch, current: generation.progress.attempt, status: generation.status() }
}

#[cfg(test)]
mod tests;
