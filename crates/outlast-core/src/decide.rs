//! Turns a command into events, or refuses it.

mod approvals;
mod workers;

use approvals::decide_approval;
use workers::{decide_append, decide_claim};

use crate::attempts::start_again;
use crate::delegation;
use crate::entries::Entries;
use crate::generation::Phase;
use crate::message::plain_text;
use crate::resuming::asks_the_sandbox;
use crate::{
    Brief, CancelReason, Command, Conversation, Earlier, Entry, Event, Facts, Generation, GenerationId,
    GenerationStatus, Message, MessageStatus, QUEUE_MAX, Refusal, Retry, RetryMode, RetryOf, Role, Rules,
    Seq, Start, Timestamp, WhenBusy,
};

/// The maximum length of a title that is taken from the first message.
const TITLE_CHARS: usize = 60;

pub fn decide(
    state: &Conversation,
    command: Command,
    facts: Facts,
    rules: &Rules,
    now: Timestamp,
) -> Result<Vec<Entry>, Refusal> {
    let mut entries = Entries::after(state, now);
    match command {
        Command::Create { title, metadata, key, request } => {
            if state.seq.0 > 0 {
                return Err(Refusal::AlreadyExists);
            }
            entries.of_conversation(
                request,
                Event::ConversationUpdated { title: title.map(Some), metadata, files: None, key },
            );
        }
        Command::Update { title, metadata } => {
            if title.is_some() || metadata.is_some() {
                entries.of_conversation(
                    None,
                    Event::ConversationUpdated { title, metadata, files: None, key: None },
                );
            }
        }
        Command::Start(start) => decide_start(state, start, facts, &mut entries)?,
        Command::Cancel { generation } => {
            let generation = live(state, &generation)?; // the first cancel wins; later ones are refused
            entries.of(generation, Event::ChatCancelled { reason: CancelReason::User });
        }
        Command::Resume { generation, by } => {
            let generation = resumable(state, &generation)?; // if two tabs press Resume, one wins
            if generation.brief.is_for_worker() {
                return Err(Refusal::MadeByWorker);
            }
            entries.of(generation, Event::ChatResumed { by });
            // A paused sandbox is only woken. If there is a sandbox to ask, it reports the state of its files before
            // the run continues.
            if generation.progress.phase == Phase::Interrupted && !asks_the_sandbox(state, generation) {
                start_again(generation, "resumed", rules, &mut entries);
            }
        }
        Command::Dismiss { generation } => {
            let generation = interrupted(state, &generation)?;
            entries.of(generation, Event::ChatCancelled { reason: CancelReason::Dismissed });
        }
        Command::Retry(retry) => decide_retry(state, retry, facts, &mut entries)?,
        Command::ChildChanged(news) => delegation::hear(state, news, &mut entries)?,
        Command::Decide(decide) => decide_approval(state, decide, rules, &mut entries)?,
        Command::Claim { generation, keep } => decide_claim(state, &generation, keep, &mut entries)?,
        Command::Append(produce) => decide_append(state, produce, rules, &mut entries)?,
    }
    Ok(entries.finish())
}

fn decide_start(
    state: &Conversation,
    start: Start,
    facts: Facts,
    entries: &mut Entries,
) -> Result<(), Refusal> {
    not_repeated(state, &start.generation, &start.digest, facts.earlier)?;
    not_in_a_child(state)?;
    if let Some(id) = start.brief.answer_id.clone().filter(|_| facts.answer_id_is_taken) {
        return Err(Refusal::MessageExists { id });
    }
    let busy = state.active().or(state.queue.front());
    if let Some(current) = busy {
        match start.when_busy {
            WhenBusy::Reject => return Err(Refusal::Busy { current: current.id.clone() }),
            WhenBusy::Queue if state.queue.len() >= QUEUE_MAX => return Err(Refusal::QueueFull),
            WhenBusy::Queue => {}
            // Queued generations are cancelled too: the user wants this message answered now.
            WhenBusy::Interrupt => {
                for superseded in state.active().into_iter().chain(&state.queue) {
                    entries.of(superseded, Event::ChatCancelled { reason: CancelReason::Superseded });
                }
            }
        }
    }
    let Start { generation, message, request, digest, role, parts, brief, when_busy, key } = start;
    if let Some(key) = key.filter(|_| state.seq == Seq::ZERO) {
        let named = Event::ConversationUpdated { title: None, metadata: None, files: None, key: Some(key) };
        entries.of_conversation(None, named);
    }
    let content = plain_text(&parts);
    if let Some(title) = first_title(state, role, &content) {
        let titled =
            Event::ConversationUpdated { title: Some(Some(title)), metadata: None, files: None, key: None };
        entries.of_conversation(None, titled);
    }
    let said = Message {
        id: message.clone(),
        conversation_id: state.id.clone(),
        generation_id: Some(generation.clone()),
        role,
        content,
        parts,
        status: MessageStatus::Complete,
        error_message: None,
        seq: entries.next_seq(),
        created_at: entries.now(),
    };
    entries.of_new(&generation, &request, Event::MessageAdded { message: said, resumes: false });
    let model = brief.model.clone();
    let round = u32::from(brief.is_agent());
    let metadata = brief.metadata.filter(|metadata| !metadata.is_null()); // null and absent are the same
    let brief = Box::new(Brief { metadata, ..brief });
    let queued = Event::GenerationQueued { message_id: message, digest, retry_of: None, brief };
    entries.of_new(&generation, &request, queued);
    if busy.is_none() || when_busy == WhenBusy::Interrupt {
        entries.of_new(&generation, &request, Event::ChatStarted { model, attempt: 1, round });
    }
    Ok(())
}

/// The title that a conversation gets with its first message, if nobody gave it one: the first line that is
/// not blank, shortened.
fn first_title(state: &Conversation, role: Role, content: &str) -> Option<String> {
    if state.begun || state.title.is_some() || role != Role::User {
        return None;
    }
    let line = content.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(match line.char_indices().nth(TITLE_CHARS) {
        Some((cut, _)) => format!("{}…", line[..cut].trim_end()),
        None => line.to_owned(),
    })
}

fn decide_retry(
    state: &Conversation,
    retry: Retry,
    facts: Facts,
    entries: &mut Entries,
) -> Result<(), Refusal> {
    not_repeated(state, &retry.generation, &retry.digest, facts.earlier)?;
    not_in_a_child(state)?;
    if let Some(current) = state.active().or(state.queue.front()) {
        return Err(Refusal::Busy { current: current.id.clone() });
    }
    let failed = state.current.as_ref().filter(|generation| generation.id == retry.of);
    let failed = failed.ok_or(Refusal::NotRetryable)?;
    if !matches!(failed.progress.phase, Phase::Failed { .. } | Phase::Cancelled { .. }) {
        return Err(Refusal::NotRetryable);
    }
    if facts.prompt_is_gone {
        return Err(Refusal::PromptGone);
    }
    let Retry { mode, generation, request, digest, api_key_id, .. } = retry;
    // The chosen id belongs to the first answer. The prompt of the first generation is used again.
    let brief = Box::new(Brief { answer_id: None, api_key_id, ..failed.brief.clone() });
    let retry_of = Some(RetryOf { generation_id: failed.id.clone(), mode });
    let queued = Event::GenerationQueued { message_id: failed.message.clone(), digest, retry_of, brief };
    entries.of_new(&generation, &request, queued);
    let shown = failed.answer_messages();
    if mode == RetryMode::Retry && !shown.is_empty() {
        let dropped = Event::AttemptRetracted {
            attempt: failed.progress.attempt,
            message_ids: shown,
            reason: format!("retried after {}", failed.status().as_str()),
        };
        entries.of_new(&generation, &request, dropped);
    }
    let round = if failed.is_agent() { failed.progress.rounds.settled() + 1 } else { 0 };
    let started = Event::ChatStarted { model: failed.brief.model.clone(), attempt: 1, round };
    entries.of_new(&generation, &request, started);
    Ok(())
}

/// A request is a repetition if it started a generation before, or if the state already has the generation
/// that it would start, because the same command was delivered twice.
fn not_repeated(
    state: &Conversation,
    generation: &GenerationId,
    digest: &str,
    earlier: Option<Earlier>,
) -> Result<(), Refusal> {
    let known = || {
        state.generation(generation).map(|known| Earlier {
            generation: known.id.clone(),
            message: known.message.clone(),
            digest: known.digest.clone(),
        })
    };
    match earlier.or_else(known) {
        None => Ok(()),
        Some(earlier) if earlier.digest == digest => Err(Refusal::Repeated(earlier)),
        Some(earlier) => Err(Refusal::IdempotencyConflict { generation: earlier.generation }),
    }
}

/// A child has one task. Who wants more of it asks its parent.
fn not_in_a_child(state: &Conversation) -> Result<(), Refusal> {
    match state.parent().map(|parent| parent.conversation_id.clone()) {
        Some(parent) => Err(Refusal::BelongsToParent { parent }),
        None => Ok(()),
    }
}

/// The generation with this id, if it has not ended. Of ended generations the state keeps only the last.
fn live<'a>(state: &'a Conversation, id: &GenerationId) -> Result<&'a Generation, Refusal> {
    match state.generation(id) {
        Some(generation) if !generation.ended() => Ok(generation),
        Some(generation) => Err(Refusal::AlreadyEnded { status: generation.status() }),
        None => Err(Refusal::EndedLongAgo),
    }
}

fn interrupted<'a>(state: &'a Conversation, id: &GenerationId) -> Result<&'a Generation, Refusal> {
    let generation = live(state, id)?;
    match generation.progress.phase {
        Phase::Interrupted => Ok(generation),
        _ => Err(Refusal::NotInterrupted { status: generation.status() }),
    }
}

/// The generation, if it is interrupted, or if its sandbox sleeps and nobody has woken it.
fn resumable<'a>(state: &'a Conversation, id: &GenerationId) -> Result<&'a Generation, Refusal> {
    let generation = live(state, id)?;
    let sleeps = generation.status() == GenerationStatus::Paused && !generation.progress.rounds.woken;
    if sleeps { Ok(generation) } else { interrupted(state, id) }
}

#[cfg(test)]
mod tests;
