//! What comes of what clients ask.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::entries::Entries;
use crate::generation::Phase;
use crate::json::json_bytes;
use crate::message::plain_text;
use crate::observe::observe_stream;
use crate::{
    Approval, CallEnd, CancelReason, Command, Conversation, Decided, Earlier, Entry, Event, Generation,
    GenerationId, Message, MessageId, MessageStatus, Part, Piece, Produce, ProducedEnd, QUEUE_MAX, Refusal,
    Retry, RetryMode, RetryOf, Rules, Start, Streamed, TOOL_BYTES_MAX, Timestamp, WhenBusy,
};

/// What comes of a command: the events that make it true, or why nothing does.
pub fn decide(
    state: &Conversation,
    command: Command,
    rules: &Rules,
    now: Timestamp,
) -> Result<Vec<Entry>, Refusal> {
    let mut entries = Entries::after(state, now);
    match command {
        Command::Start(start) => decide_start(state, start, &mut entries)?,
        Command::Retry(retry) => decide_retry(state, &retry, &mut entries)?,
        Command::Cancel { generation } => {
            let generation = live(state, &generation)?; // the first cancel wins; later ones are told so
            entries.of(generation, Event::ChatCancelled { reason: CancelReason::User });
        }
        Command::Claim { generation, keep } => decide_claim(state, &generation, keep, &mut entries)?,
        Command::Produce(produce) => decide_produce(state, produce, rules, &mut entries)?,
        Command::Decide { generation, tool_use_id, decided } => {
            let generation = live(state, &generation)?;
            let asked = generation.approvals.iter().find(|approval| approval.tool_use_id == tool_use_id);
            let asked = asked.ok_or_else(|| Refusal::NotAsked { tool_use_id: tool_use_id.clone() })?;
            if let Some(earlier) = &asked.decided {
                return Err(Refusal::AlreadyDecided(earlier.clone())); // of two people, the first one counts
            }
            let Decided { decision, by, reason, always } = decided;
            entries.of(generation, Event::ApprovalResolved { tool_use_id, decision, by, reason, always });
        }
        Command::Resume { generation, by } => {
            let generation = interrupted(state, &generation)?; // of two tabs that press Resume, one wins
            if generation.producer.is_some() {
                return Err(Refusal::External);
            }
            entries.of(generation, Event::ChatResumed { by });
            start_again(generation, "resumed", rules, &mut entries);
        }
        Command::Dismiss { generation } => {
            let generation = interrupted(state, &generation)?;
            entries.of(generation, Event::ChatCancelled { reason: CancelReason::Dismissed });
        }
        Command::Update { title, metadata, request } => {
            if title.is_some() || metadata.is_some() {
                entries.of_conversation(request, Event::ConversationUpdated { title, metadata });
            }
        }
    }
    Ok(entries.finish())
}

fn decide_start(state: &Conversation, start: Start, entries: &mut Entries) -> Result<(), Refusal> {
    not_repeated(start.earlier, &start.digest)?;
    let busy = state.active().or(state.queue.front());
    if let Some(current) = busy {
        match start.when_busy {
            WhenBusy::Reject => return Err(Refusal::Busy { current: current.id.clone() }),
            WhenBusy::Queue if state.queue.len() >= QUEUE_MAX => return Err(Refusal::QueueFull),
            WhenBusy::Queue => {}
            // What waits goes too: the person wants this one answered now.
            WhenBusy::Interrupt => {
                for superseded in state.active().into_iter().chain(&state.queue) {
                    entries.of(superseded, Event::ChatCancelled { reason: CancelReason::Superseded });
                }
            }
        }
    }
    let message = Message {
        id: start.message.clone(),
        conversation_id: state.id.clone(),
        generation_id: Some(start.generation.clone()),
        role: start.role,
        content: plain_text(&start.parts),
        parts: start.parts,
        status: MessageStatus::Complete,
        error_message: None,
        seq: entries.next_seq(),
        created_at: entries.now(),
    };
    entries.of_new(&start.generation, &start.request, Event::MessageAdded { message });
    let queued = Event::GenerationQueued {
        message_id: start.message,
        model: start.model.clone(),
        digest: start.digest,
        system: start.system,
        metadata: start.metadata.filter(|metadata| !metadata.is_null()), // null and absent are the same
        retry_of: None,
        prompt: start.prompt,
        answer_id: start.answer_id,
        producer: start.producer,
    };
    entries.of_new(&start.generation, &start.request, queued);
    if busy.is_none() || start.when_busy == WhenBusy::Interrupt {
        let started = Event::ChatStarted { model: start.model, attempt: 1 };
        entries.of_new(&start.generation, &start.request, started);
    }
    Ok(())
}

fn decide_retry(state: &Conversation, retry: &Retry, entries: &mut Entries) -> Result<(), Refusal> {
    not_repeated(retry.earlier.clone(), &retry.digest)?;
    if let Some(current) = state.active().or(state.queue.front()) {
        return Err(Refusal::Busy { current: current.id.clone() });
    }
    let failed = state.current.as_ref().filter(|generation| generation.id == retry.of);
    let failed = failed.ok_or(Refusal::NotRetryable)?;
    if !matches!(failed.phase, Phase::Failed { .. } | Phase::Cancelled { .. }) {
        return Err(Refusal::NotRetryable);
    }
    let queued = Event::GenerationQueued {
        message_id: failed.message.clone(),
        model: failed.model.clone(),
        digest: retry.digest.clone(),
        system: failed.system.clone(),
        metadata: failed.metadata.clone(),
        retry_of: Some(RetryOf { generation_id: failed.id.clone(), mode: retry.mode }),
        prompt: None, // the first one's holds for all that take it up again
        answer_id: None,
        producer: failed.producer,
    };
    entries.of_new(&retry.generation, &retry.request, queued);
    let shown = failed.answer_messages();
    if retry.mode == RetryMode::Retry && !shown.is_empty() {
        let dropped = Event::AttemptRetracted {
            attempt: failed.attempt,
            message_ids: shown,
            reason: format!("retried after {}", failed.status().as_str()),
        };
        entries.of_new(&retry.generation, &retry.request, dropped);
    }
    let started = Event::ChatStarted { model: failed.model.clone(), attempt: 1 };
    entries.of_new(&retry.generation, &retry.request, started);
    Ok(())
}

fn decide_claim(
    state: &Conversation,
    id: &GenerationId,
    keep: bool,
    entries: &mut Entries,
) -> Result<(), Refusal> {
    let generation = external(state, id)?;
    match generation.phase {
        Phase::Interrupted => entries.of(generation, Event::ChatResumed { by: "worker".to_owned() }),
        Phase::Running => {}
        _ => return Err(stale(generation, 0)), // it has to wait for its turn
    }
    // A question is withdrawn too, also where nothing was said beside it: nobody waits for the answer.
    if !keep && (!generation.segments.is_empty() || !generation.approvals.is_empty()) {
        let (attempt, message_ids) = (generation.attempt, generation.shown());
        let reason = "begun anew by its worker".to_owned();
        entries.of(generation, Event::AttemptRetracted { attempt, message_ids, reason });
    }
    let attempt = generation.attempt + 1;
    entries.of(generation, Event::ChatStarted { model: generation.model.clone(), attempt });
    Ok(())
}

fn decide_produce(
    state: &Conversation,
    produce: Produce,
    rules: &Rules,
    entries: &mut Entries,
) -> Result<(), Refusal> {
    let generation = external(state, &produce.generation)?;
    if generation.phase != Phase::Running || generation.attempt != produce.epoch {
        return Err(stale(generation, produce.epoch));
    }
    if let Some(expected) = produce.expected.filter(|expected| *expected != generation.produced) {
        return Err(Refusal::SeqConflict { expected, last: generation.produced });
    }
    must_know_tools(generation, &produce.pieces)?;
    let (end, failed) = match produce.end {
        None => (None, None),
        Some(ProducedEnd::Done { reason }) => (Some(CallEnd::Finished { reason }), None),
        Some(ProducedEnd::Failed { message, code }) => (None, Some((message, code))),
    };
    let pieces = without_repeated_questions(generation, produce.pieces)?;
    let new_message = generation.next_message().cloned().unwrap_or(produce.new_message);
    let (id, attempt) = (produce.generation, produce.epoch);
    let streamed = Streamed { generation: id, attempt, pieces, end, new_message };
    observe_stream(generation, streamed, rules, entries);
    // An answer that grew too long has ended by that already.
    if let Some((error_message, code)) = failed.filter(|_| !entries.has_end()) {
        entries.of(generation, Event::ChatError { error_message, code });
    }
    Ok(())
}

/// A tool is told of between its beginning and its one end, and what it brings at once has a limit.
fn must_know_tools(generation: &Generation, pieces: &[Piece]) -> Result<(), Refusal> {
    let open = generation.tool_calls().filter(|call| !call.ended);
    let mut open: Vec<&str> = open.map(|call| call.id).collect();
    for piece in pieces {
        let (id, bytes) = match piece {
            Piece::ToolCall { id, .. } => {
                open.push(id);
                continue;
            }
            Piece::ToolOutput { id, text, .. } => (id, text.len()),
            Piece::ToolEnd { id, result, .. } => (id, json_bytes(result)),
            Piece::Text { .. } | Piece::Approval { .. } | Piece::Usage { .. } => continue,
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

/// The pieces without questions that were asked before, word for word: a worker that comes back may not know
/// that it asked. Another question under the same name is refused, or the decision about one would be taken
/// for a decision about the other.
fn without_repeated_questions(generation: &Generation, pieces: Vec<Piece>) -> Result<Vec<Piece>, Refusal> {
    if !pieces.iter().any(|piece| matches!(piece, Piece::Approval { .. })) {
        return Ok(pieces);
    }
    let question = |asked: &Approval| (asked.tool_name.clone(), asked.tool_input.clone());
    let asked = generation.approvals.iter().map(|asked| (asked.tool_use_id.clone(), question(asked)));
    let mut asked: BTreeMap<String, (String, Value)> = asked.collect();
    let mut kept = Vec::with_capacity(pieces.len());
    for piece in pieces {
        if let Piece::Approval { id, name, input } = &piece {
            let question = (name.clone(), input.clone());
            match asked.get(id) {
                Some(earlier) if *earlier == question => continue,
                Some(_) => return Err(Refusal::AskedOtherwise { tool_use_id: id.clone() }),
                None => asked.insert(id.clone(), question),
            };
        }
        kept.push(piece);
    }
    Ok(kept)
}

/// The generation of that id, if a worker makes it and it is not over.
fn external<'a>(state: &'a Conversation, id: &GenerationId) -> Result<&'a Generation, Refusal> {
    let generation = live(state, id)?;
    if generation.producer.is_some() { Ok(generation) } else { Err(Refusal::NotExternal) }
}

fn stale(generation: &Generation, epoch: u32) -> Refusal {
    Refusal::StaleProducer { epoch, current: generation.attempt, status: generation.status() }
}

/// Withdraws what the last attempt showed and begins the next: no client may see the same text twice.
pub(crate) fn start_again(generation: &Generation, reason: &str, rules: &Rules, entries: &mut Entries) {
    if !goes_on(generation, rules) {
        retract(generation, generation.shown(), reason, entries);
    }
    let attempt = generation.attempt + 1;
    entries.of(generation, Event::ChatStarted { model: generation.model.clone(), attempt });
}

/// Whether the next attempt goes on from the last word of this one, so that nothing has to be withdrawn.
/// Only words can be gone on from: after thinking or a tool call the model begins anew.
pub(crate) fn goes_on(generation: &Generation, rules: &Rules) -> bool {
    let parts = || generation.segments.iter().flat_map(|segment| &segment.parts);
    rules.prefill.contains(&generation.model) && parts().all(|part| matches!(part, Part::Text { .. }))
}

/// Withdraws what the last attempt showed, if it showed anything.
pub(crate) fn retract(
    generation: &Generation,
    message_ids: Vec<MessageId>,
    reason: &str,
    entries: &mut Entries,
) {
    if !message_ids.is_empty() {
        let attempt = generation.attempt;
        entries.of(generation, Event::AttemptRetracted { attempt, message_ids, reason: reason.to_owned() });
    }
}

fn not_repeated(earlier: Option<Earlier>, digest: &str) -> Result<(), Refusal> {
    match earlier {
        None => Ok(()),
        Some(earlier) if earlier.digest == digest => Err(Refusal::Repeated(earlier)),
        Some(earlier) => Err(Refusal::IdempotencyConflict { generation: earlier.generation }),
    }
}

/// The generation of that id, if it is not over. The state forgets all but the last that ended.
fn live<'a>(state: &'a Conversation, id: &GenerationId) -> Result<&'a Generation, Refusal> {
    match state.generation(id) {
        Some(generation) if !generation.ended() => Ok(generation),
        Some(generation) => Err(Refusal::AlreadyEnded { status: generation.status() }),
        None => Err(Refusal::EndedLongAgo),
    }
}

fn interrupted<'a>(state: &'a Conversation, id: &GenerationId) -> Result<&'a Generation, Refusal> {
    let generation = live(state, id)?;
    match generation.phase {
        Phase::Interrupted => Ok(generation),
        _ => Err(Refusal::NotInterrupted { status: generation.status() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{interrupted, *};
    use crate::{Decision, GenerationStatus, Producer, Seq};

    const START: [&str; 3] = ["message.added", "generation.queued", "chat.started"];

    fn retract_event(world: &World) -> (u32, Vec<MessageId>, String) {
        let retraction = |entry: &Entry| match &entry.event {
            Event::AttemptRetracted { attempt, message_ids, reason } => {
                Some((*attempt, message_ids.clone(), reason.clone()))
            }
            _ => None,
        };
        world.log.iter().rev().find_map(retraction).expect("something was retracted")
    }

    #[test]
    fn g1_a_start_records_the_question_before_anything_else() {
        let world = given([]).when(start(G1)).then(START);
        assert_eq!(world.shown(), ["question of gen_1"]);
        let generation = world.generation(G1);
        assert_eq!((generation.first_seq, generation.attempt), (Seq(1), 1));
        assert_eq!(generation.phase, Phase::Running);
        assert_eq!(generation.message.as_str(), question(G1));
    }

    #[test]
    fn g1_every_part_of_a_question_is_kept_and_its_text_is_its_content() {
        let parts = vec![
            Part::Text { text: "look ".into() },
            Part::ToolResult { tool_use_id: "t".into(), content: json!([1, null]), is_error: false },
            Part::Text { text: "here".into() },
        ];
        let asked = Start { parts: parts.clone(), ..request(G1) };
        let world = given([]).when(Command::Start(asked)).then(START);
        let message = &world.transcript.messages[0];
        assert_eq!((&*message.content, &message.parts), ("look here", &parts));
    }

    #[test]
    fn o5_a_repeated_request_starts_nothing_and_names_what_it_began() {
        let earlier = Earlier {
            generation: G1.into(),
            message: question(G1).into(),
            digest: format!("digest of {G1}"),
        };
        let again = Start { generation: G2.into(), earlier: Some(earlier.clone()), ..request(G1) };
        for past in [running(G1), answered(G1, "Hello"), interrupted_at(G1)] {
            let again = Command::Start(again.clone());
            given([past]).when(again).refused(Refusal::Repeated(earlier.clone()));
        }
    }

    fn interrupted_at(generation: &str) -> Past {
        [answering(generation, "Hel"), interrupted(generation)].concat()
    }

    #[test]
    fn o5_a_request_id_used_with_another_body_is_a_conflict() {
        let earlier =
            Earlier { generation: G1.into(), message: question(G1).into(), digest: "another".into() };
        let conflict = Refusal::IdempotencyConflict { generation: G1.into() };
        let asked = Start { earlier: Some(earlier.clone()), ..request(G2) };
        given([running(G1)]).when(Command::Start(asked)).refused(conflict.clone());

        let Command::Retry(taken_up) = retry(G1, RetryMode::Retry, G2) else { unreachable!() };
        let taken_up = Retry { earlier: Some(earlier), ..taken_up };
        given([running(G1), failed(G1)]).when(Command::Retry(taken_up)).refused(conflict);
    }

    #[test]
    fn o5_a_repeated_retry_starts_nothing() {
        let earlier = Earlier {
            generation: G2.into(),
            message: question(G1).into(),
            digest: format!("digest of {G2}"),
        };
        let Command::Retry(again) = retry(G1, RetryMode::Retry, G2) else { unreachable!() };
        let again = Retry { generation: G3.into(), earlier: Some(earlier.clone()), ..again };
        given([running(G1), failed(G1)])
            .when(retry(G1, RetryMode::Retry, G2))
            .then(["generation.queued", "chat.started"])
            .when(Command::Retry(again))
            .refused(Refusal::Repeated(earlier));
    }

    #[test]
    fn g14_a_second_message_is_rejected_while_one_is_under_way() {
        for past in [running(G1), answering(G1, "Hel"), interrupted_at(G1)] {
            given([past]).when(start(G2)).refused(Refusal::Busy { current: G1.into() });
        }
    }

    #[test]
    fn g14_a_second_message_is_rejected_while_one_waits_for_its_turn() {
        given([running(G1), asked(G2), cancelled(G1)])
            .when(start(G3))
            .refused(Refusal::Busy { current: G2.into() });
    }

    #[test]
    fn g14_a_queued_message_waits_and_is_visible_at_once() {
        let world = given([answering(G1, "Hel")])
            .when(start_when_busy(G2, WhenBusy::Queue))
            .then(["message.added", "generation.queued"]);
        assert_eq!(world.generation(G2).phase, Phase::Queued);
        assert_eq!(world.generation(G1).phase, Phase::Running);
        assert_eq!(world.shown(), ["question of gen_1", "Hel", "question of gen_2"]);
    }

    #[test]
    fn g14_whatever_a_message_says_about_being_busy_it_starts_when_nothing_runs() {
        for when_busy in [WhenBusy::Reject, WhenBusy::Queue, WhenBusy::Interrupt] {
            given([]).when(start_when_busy(G1, when_busy)).then(START);
            given([answered(G1, "Hello")]).when(start_when_busy(G2, when_busy)).then(START);
        }
    }

    #[test]
    fn g14_the_queue_has_an_end() {
        let mut world = given([running(G1)]);
        for waiting in 0..QUEUE_MAX {
            world.command(start_when_busy(&format!("waiting_{waiting}"), WhenBusy::Queue)).unwrap();
        }
        world.when(start_when_busy(G2, WhenBusy::Queue)).refused(Refusal::QueueFull);
    }

    #[test]
    fn g14_an_interrupting_message_ends_what_runs_and_what_waits_and_starts() {
        let world = given([answering(G1, "Hel"), asked(G2)])
            .when(start_when_busy(G3, WhenBusy::Interrupt))
            .then(["chat.cancelled", "chat.cancelled", START[0], START[1], START[2]]);
        for superseded in [G1, G2] {
            let document = &world.stored.generations[&superseded.into()];
            assert_eq!(document.status, GenerationStatus::Cancelled);
            assert_eq!(document.end_reason.as_deref(), Some("superseded"));
        }
        assert_eq!(world.transcript.state.active().unwrap().id.as_str(), G3);
        assert_eq!(world.shown()[1], "Hel", "the partial answer stays");
    }

    #[test]
    fn g14_an_interrupting_message_also_takes_the_place_of_one_that_waits_for_a_person() {
        given([interrupted_at(G1)]).when(start_when_busy(G2, WhenBusy::Interrupt)).then([
            "chat.cancelled",
            START[0],
            START[1],
            START[2],
        ]);
    }

    #[test]
    fn g5_the_first_cancel_wins_and_the_second_is_told_so() {
        given([answering(G1, "Hel")])
            .when(cancel(G1))
            .then(["chat.cancelled"])
            .when(cancel(G1))
            .refused(Refusal::AlreadyEnded { status: GenerationStatus::Cancelled });
    }

    #[test]
    fn g5_a_cancel_that_comes_after_the_end_is_told_how_it_ended() {
        let ended = |status| Refusal::AlreadyEnded { status };
        given([answered(G1, "Hello")]).when(cancel(G1)).refused(ended(GenerationStatus::Completed));
        given([running(G1), failed(G1)]).when(cancel(G1)).refused(ended(GenerationStatus::Error));
    }

    #[test]
    fn g5_a_cancel_of_one_the_state_forgot_is_left_to_its_document() {
        given([answered(G1, "Hello"), running(G2)]).when(cancel(G1)).refused(Refusal::EndedLongAgo);
    }

    #[test]
    fn g5_everything_that_is_not_over_can_be_cancelled() {
        let retrying = [running(G1), retrying(G1, 2, 500)].concat();
        for past in [running(G1), answering(G1, "Hel"), retrying, interrupted_at(G1)] {
            let world = given([past]).when(cancel(G1)).then(["chat.cancelled"]);
            assert_eq!(world.generation(G1).phase, Phase::Cancelled { reason: CancelReason::User });
        }
    }

    #[test]
    fn g5_one_that_waits_can_be_cancelled_and_the_running_one_does_not_notice() {
        let world = given([answering(G1, "Hel"), asked(G2), asked(G3)])
            .when(cancel(G2))
            .then(["chat.cancelled"])
            .observed(says(G1, 1, "lo"))
            .then(["chat.delta"]);
        assert_eq!(world.answer_shown(&G1.into()), "Hello");
        assert_eq!(world.transcript.state.queue.len(), 1);
        assert_eq!(world.stored.generations[&G2.into()].status, GenerationStatus::Cancelled);
    }

    #[test]
    fn g4_a_cancel_keeps_the_partial_answer() {
        let world = given([answering(G1, "Hel")]).when(cancel(G1)).then(["chat.cancelled"]);
        let partial = &world.stored.messages[1];
        assert_eq!((&*partial.content, partial.status), ("Hel", MessageStatus::Cancelled));
        let document = &world.stored.generations[&G1.into()];
        assert_eq!(plain_text(&document.content_parts), "Hel");
        assert_eq!(document.completed_at, Some(world.now));
    }

    #[test]
    fn p2_a_resumed_generation_begins_again_without_what_was_shown() {
        let world = given([interrupted_at(G1)]).when(resume(G1)).then([
            "chat.resumed",
            "attempt.retracted",
            "chat.started",
        ]);
        assert_eq!(world.generation(G1).attempt, 2);
        assert_eq!(world.shown(), ["question of gen_1"]);
        assert_eq!(retract_event(&world), (1, vec![answer(G1, 1).into()], "resumed".into()));
    }

    #[test]
    fn p2_a_resume_retracts_nothing_when_nothing_was_shown() {
        given([running(G1), interrupted(G1)]).when(resume(G1)).then(["chat.resumed", "chat.started"]);
    }

    #[test]
    fn p5_of_two_tabs_that_press_resume_one_wins() {
        given([interrupted_at(G1)])
            .when(resume(G1))
            .then(["chat.resumed", "attempt.retracted", "chat.started"])
            .when(resume(G1))
            .refused(Refusal::NotInterrupted { status: GenerationStatus::Running });
    }

    #[test]
    fn p5_resume_and_dismiss_exclude_each_other() {
        given([interrupted_at(G1)])
            .when(resume(G1))
            .then(["chat.resumed", "attempt.retracted", "chat.started"])
            .when(dismiss(G1))
            .refused(Refusal::NotInterrupted { status: GenerationStatus::Running });
        given([interrupted_at(G1)])
            .when(dismiss(G1))
            .then(["chat.cancelled"])
            .when(resume(G1))
            .refused(Refusal::AlreadyEnded { status: GenerationStatus::Cancelled });
    }

    #[test]
    fn p5_what_a_person_cancelled_is_not_resumed() {
        given([interrupted_at(G1), cancelled(G1)])
            .when(resume(G1))
            .refused(Refusal::AlreadyEnded { status: GenerationStatus::Cancelled });
    }

    #[test]
    fn p3_a_dismissed_generation_ends_as_it_stands() {
        let world = given([interrupted_at(G1)]).when(dismiss(G1)).then(["chat.cancelled"]);
        assert_eq!(world.generation(G1).phase, Phase::Cancelled { reason: CancelReason::Dismissed });
        assert_eq!(world.shown(), ["question of gen_1", "Hel"]);
    }

    #[test]
    fn p3_only_an_interrupted_generation_is_resumed_or_dismissed() {
        let waiting = || given([running(G1), asked(G2)]);
        let not = |status| Refusal::NotInterrupted { status };
        waiting().when(resume(G1)).refused(not(GenerationStatus::Running));
        waiting().when(dismiss(G1)).refused(not(GenerationStatus::Running));
        waiting().when(resume(G2)).refused(not(GenerationStatus::Queued));
        waiting().when(dismiss(G3)).refused(Refusal::EndedLongAgo);
    }

    #[test]
    fn g7_a_retry_drops_the_partial_answer_and_asks_again() {
        let world = given([answering(G1, "Hel"), failed(G1)]).when(retry(G1, RetryMode::Retry, G2)).then([
            "generation.queued",
            "attempt.retracted",
            "chat.started",
        ]);
        assert_eq!(world.shown(), ["question of gen_1"]);
        let again = world.generation(G2);
        assert_eq!((again.message.as_str(), again.attempt), (&*question(G1), 1));
        assert_eq!((again.system.as_deref(), &again.metadata), (Some("be brief"), &Some(json!({"tab": 1}))));
        assert_eq!(again.first_seq.plus(2), again.last_seq, "its question is not its own");
    }

    #[test]
    fn g7_a_retry_retracts_nothing_when_nothing_was_said() {
        given([running(G1), failed(G1)])
            .when(retry(G1, RetryMode::Retry, G2))
            .then(["generation.queued", "chat.started"]);
    }

    #[test]
    fn g7_a_continuation_keeps_the_partial_answer() {
        let world = given([answering(G1, "Hel"), failed(G1)])
            .when(retry(G1, RetryMode::Continue, G2))
            .then(["generation.queued", "chat.started"])
            .observed(says(G2, 1, "lo"))
            .then(["assistant.segment.started", "chat.delta"]);
        assert_eq!(world.shown(), ["question of gen_1", "Hel", "lo"]);
    }

    #[test]
    fn g7_a_retry_of_a_continuation_answers_from_the_start() {
        let world =
            given([answering(G1, "Hel"), failed(G1), continuing(G2, G1), spoke(G2, 1, "l"), failed(G2)])
                .when(retry(G2, RetryMode::Retry, G3))
                .then(["generation.queued", "attempt.retracted", "chat.started"]);
        assert_eq!(world.shown(), ["question of gen_1"], "the first partial is dropped too");
    }

    #[test]
    fn g7_a_cancelled_generation_can_be_taken_up_too() {
        for mode in [RetryMode::Retry, RetryMode::Continue] {
            given([running(G1), cancelled(G1)])
                .when(retry(G1, mode, G2))
                .then(["generation.queued", "chat.started"]);
        }
    }

    #[test]
    fn g7_only_the_last_generation_and_only_a_broken_one_is_taken_up() {
        let again = |of| retry(of, RetryMode::Retry, G3);
        given([]).when(again(G1)).refused(Refusal::NotRetryable);
        given([answered(G1, "Hello")]).when(again(G1)).refused(Refusal::NotRetryable);
        given([running(G1), failed(G1), answered(G2, "Hello")])
            .when(again(G1))
            .refused(Refusal::NotRetryable);
        let busy = Refusal::Busy { current: G2.into() };
        given([running(G1), failed(G1), running(G2)]).when(again(G1)).refused(busy.clone());
        given([running(G1), asked(G2), failed(G1)]).when(again(G1)).refused(busy);
    }

    #[test]
    fn s1_title_and_metadata_are_set_apart() {
        let world = given([]).when(rename("Tea")).then(["conversation.updated"]);
        let world = world
            .when(Command::Update { title: None, metadata: Some(json!({"branch": "main"})), request: None })
            .then(["conversation.updated"]);
        assert_eq!(world.stored.conversation.title.as_deref(), Some("Tea"));
        assert_eq!(world.stored.conversation.metadata, Some(json!({"branch": "main"})));
    }

    #[test]
    fn s1_an_update_of_nothing_is_nothing() {
        given([]).when(Command::Update { title: None, metadata: None, request: None }).then_nothing();
    }

    #[test]
    fn s1_metadata_set_to_null_are_gone_also_after_the_log_is_read_again() {
        let set = |metadata| Command::Update { title: None, metadata: Some(metadata), request: None };
        let mut world = given([])
            .when(set(json!({"branch": "main"})))
            .then(["conversation.updated"])
            .when(set(Value::Null))
            .then(["conversation.updated"]);
        let before = world.view();
        assert_eq!(before.conversation.metadata, None);
        world.crash();
        assert_eq!(world.view(), before);
    }

    #[test]
    fn s1_a_generation_with_null_metadata_is_the_same_after_the_log_is_read_again() {
        let asked = Start { metadata: Some(Value::Null), ..request(G1) };
        let mut world = given([]).when(Command::Start(asked)).then(START);
        let before = world.transcript.state.clone();
        world.crash();
        assert_eq!(world.transcript.state, before);
    }

    fn made_elsewhere() -> World {
        let start = Start { producer: Some(Producer::External), ..request(G1) };
        let mut world = given([]).when(Command::Start(start)).then(START);
        world.worker = Some(1);
        world
    }

    fn batch(epoch: u32, expected: Seq, end: Option<ProducedEnd>) -> Command {
        let (generation, pieces) = (G1.into(), vec![words("Hel")]);
        let (expected, new_message) = (Some(expected), "made".into());
        Command::Produce(Produce { generation, epoch, expected, pieces, end, new_message })
    }

    #[test]
    fn x3_a_worker_appends_where_its_last_batch_ended() {
        let world = made_elsewhere();
        let first = batch(1, Seq(3), None);
        let world = world.when(first).then(["assistant.segment.started", "chat.delta"]);
        assert_eq!(world.generation(G1).produced, Seq(5));
        let again = batch(1, Seq(3), None);
        let conflict = Refusal::SeqConflict { expected: Seq(3), last: Seq(5) };
        let world = world.when(again).refused(conflict);
        let second = batch(1, Seq(5), Some(ProducedEnd::Done { reason: "stop".into() }));
        world.when(second).then(["chat.delta", "assistant.segment.ended", "chat.done"]);
    }

    #[test]
    fn x3_what_others_do_meanwhile_does_not_disturb_a_worker() {
        let world = made_elsewhere().when(rename("Tea")).then(["conversation.updated"]);
        let next = batch(1, Seq(3), None);
        world.when(next).then(["assistant.segment.started", "chat.delta"]);
    }

    #[test]
    fn x3_a_claim_ends_the_epoch_of_whoever_made_it_before() {
        let claim = |keep| Command::Claim { generation: G1.into(), keep };
        let world = made_elsewhere();
        let first = batch(1, Seq(3), None);
        let world = world.when(first).then(["assistant.segment.started", "chat.delta"]);
        let world = world.when(claim(true)).then(["chat.started"]);
        let old = batch(1, Seq(5), None);
        let status = GenerationStatus::Running;
        let world = world.when(old).refused(Refusal::StaleProducer { epoch: 1, current: 2, status });
        let new = batch(2, Seq(6), None);
        let world = world.when(new).then(["chat.delta"]);
        world.when(claim(false)).then(["attempt.retracted", "chat.started"]);
    }

    #[test]
    fn x3_a_worker_that_goes_on_says_every_space_it_means() {
        for prefill in [[].into(), ["default".to_owned()].into()] {
            let mut world = made_elsewhere().with(Rules { prefill, ..Rules::default() });
            world.produce(vec![words("def one():\n")], None);
            world.claim(true);
            world.produce(vec![words("\n\n")], None);
            world.claim(true);
            world.produce(vec![words("    return 1")], None);
            assert_eq!(world.answer_shown(&G1.into()), "def one():\n\n\n    return 1");
        }
    }

    #[test]
    fn x3_a_worker_that_was_lost_has_to_claim_again() {
        let silent = crate::Report::ProducerSilent { generation: G1.into() };
        let world = made_elsewhere().observed(silent).then(["chat.interrupted"]);
        let late = batch(1, Seq(3), None);
        let status = GenerationStatus::Interrupted;
        let world = world.when(late).refused(Refusal::StaleProducer { epoch: 1, current: 1, status });
        let world = world.when(resume(G1)).refused(Refusal::External);
        let claim = Command::Claim { generation: G1.into(), keep: true };
        world.when(claim).then(["chat.resumed", "chat.started"]);
    }

    #[test]
    fn x3_only_what_was_begun_for_a_worker_can_be_made_by_one() {
        let world = given([running(G1)]);
        let made = batch(1, Seq(3), None);
        let world = world.when(made).refused(Refusal::NotExternal);
        world.when(Command::Claim { generation: G1.into(), keep: true }).refused(Refusal::NotExternal);
    }

    #[test]
    fn x5_a_worker_is_told_that_its_generation_was_cancelled() {
        let world = made_elsewhere().when(cancel(G1)).then(["chat.cancelled"]);
        let late = batch(1, Seq(3), None);
        world.when(late).refused(Refusal::AlreadyEnded { status: GenerationStatus::Cancelled });
    }

    fn asking() -> World {
        let mut world = made_elsewhere();
        let asked =
            Piece::Approval { id: "call_1".into(), name: "bash".into(), input: json!({"command": "ls"}) };
        world.produce(vec![words("May I?"), asked], None);
        world
    }

    #[test]
    fn i8_of_two_decisions_the_first_one_counts() {
        let world = asking();
        assert_eq!(world.generation(G1).status(), GenerationStatus::AwaitingApproval);
        let world = world.when(decide_about("call_1", Decision::Deny)).then(["approval.resolved"]);
        assert_eq!(world.generation(G1).status(), GenerationStatus::Running);
        let won = world.generation(G1).approvals[0].decided.clone().unwrap();
        assert_eq!(won.decision, Decision::Deny);
        world.when(decide_about("call_1", Decision::Approve)).refused(Refusal::AlreadyDecided(won));
    }

    #[test]
    fn i8_what_was_not_asked_cannot_be_decided() {
        let not_asked = Refusal::NotAsked { tool_use_id: "call_9".into() };
        asking().when(decide_about("call_9", Decision::Approve)).refused(not_asked);
        let ended = Refusal::AlreadyEnded { status: GenerationStatus::Cancelled };
        let world = asking().when(cancel(G1)).then(["chat.cancelled"]);
        world.when(decide_about("call_1", Decision::Approve)).refused(ended);
    }

    #[test]
    fn g6_a_decision_is_waited_for_without_limit() {
        let mut world = asking();
        world.unwatched_since = Some(world.now);
        let year = std::time::Duration::from_secs(365 * 24 * 60 * 60);
        assert_eq!(world.later(year).next(), crate::Next::Nothing);
    }

    #[test]
    fn x3_a_worker_ends_only_tools_that_it_began() {
        let world = made_elsewhere();
        let end = Piece::ToolEnd { id: "call_9".into(), result: json!(1), is_error: false };
        let (generation, expected, new_message) = (G1.into(), Some(Seq(3)), "made".into());
        let made = Produce { generation, epoch: 1, expected, pieces: vec![end], end: None, new_message };
        let refusal = Refusal::NotCalled { tool_use_id: "call_9".into() };
        world.when(Command::Produce(made)).refused(refusal);
    }

    fn append(world: &World, pieces: Vec<Piece>) -> Command {
        let (epoch, expected) = (world.generation(G1).attempt, Some(world.generation(G1).produced));
        let (generation, new_message) = (G1.into(), "made".into());
        Command::Produce(Produce { generation, epoch, expected, pieces, end: None, new_message })
    }

    fn may_i(id: &str, command: &str) -> Piece {
        Piece::Approval { id: id.into(), name: "bash".into(), input: json!({"command": command}) }
    }

    #[test]
    fn i8_the_same_question_again_is_one_question() {
        for decided in [false, true] {
            let mut world = asking();
            if decided {
                world = world.when(decide_about("call_1", Decision::Approve)).then(["approval.resolved"]);
            }
            world.claim(true);
            let again = append(&world, vec![may_i("call_1", "ls")]);
            let world = world.when(again).then_nothing();
            assert_eq!(world.generation(G1).approvals.len(), 1);
            assert_eq!(world.generation(G1).approvals[0].decided.is_some(), decided);
        }
        let world = made_elsewhere();
        let twice = append(&world, vec![may_i("call_1", "ls"), may_i("call_1", "ls")]);
        world.when(twice).then(["approval.requested"]);
    }

    #[test]
    fn i8_a_decision_is_never_taken_for_one_about_other_arguments() {
        let refusal = Refusal::AskedOtherwise { tool_use_id: "call_1".into() };
        let world = asking();
        let other = append(&world, vec![words("Or this?"), may_i("call_1", "rm -rf /")]);
        let world = world.when(other).refused(refusal.clone());
        let world = world.when(decide_about("call_1", Decision::Approve)).then(["approval.resolved"]);
        let other = append(&world, vec![may_i("call_1", "rm -rf /")]);
        let mut world = world.when(other).refused(refusal.clone());
        let both = append(&world, vec![may_i("call_2", "ls"), may_i("call_2", "rm -rf /")]);
        world = world.when(both).refused(Refusal::AskedOtherwise { tool_use_id: "call_2".into() });
        world.claim(false); // begun anew, nothing was asked
        let other = append(&world, vec![may_i("call_1", "rm -rf /")]);
        world.when(other).then(["approval.requested"]);
    }

    #[test]
    fn x3_a_claim_that_keeps_nothing_withdraws_a_question_that_stands_alone() {
        let claim = |keep| Command::Claim { generation: G1.into(), keep };
        let world = made_elsewhere();
        let asked = append(&world, vec![may_i("call_1", "ls")]);
        let world = world.when(asked).then(["approval.requested"]);
        let kept = world.clone().when(claim(true)).then(["chat.started"]);
        assert_eq!(kept.generation(G1).status(), GenerationStatus::AwaitingApproval);
        let world = world.when(claim(false)).then(["attempt.retracted", "chat.started"]);
        assert_eq!(world.generation(G1).status(), GenerationStatus::Running);
        assert!(world.generation(G1).approvals.is_empty());
    }

    #[test]
    fn g6_a_worker_that_waits_for_a_person_is_not_silent() {
        let silent = crate::Report::ProducerSilent { generation: G1.into() };
        asking().observed(silent).then_nothing().observed(abandoned(G1)).then_nothing();
    }

    fn output(id: &str, text: &str) -> Piece {
        Piece::ToolOutput { id: id.into(), stream: crate::ToolStream::Stdout, text: text.into() }
    }

    fn result(id: &str, text: &str) -> Piece {
        Piece::ToolEnd { id: id.into(), result: json!(text), is_error: false }
    }

    #[test]
    fn x3_a_tool_writes_after_its_beginning_and_ends_once() {
        let not_called = Refusal::NotCalled { tool_use_id: "call_1".into() };
        let begun = tool_call("call_1", json!({}));
        for pieces in [
            vec![output("call_1", "x"), begun.clone()],
            vec![begun.clone(), result("call_1", "x"), result("call_1", "y")],
            vec![begun.clone(), result("call_1", "x"), output("call_1", "y")],
        ] {
            let world = made_elsewhere();
            let made = append(&world, pieces);
            world.when(made).refused(not_called.clone());
        }
        let mut world = made_elsewhere();
        world.produce(vec![begun.clone(), output("call_1", "x"), result("call_1", "x")], None);
        let again = append(&world, vec![result("call_1", "y")]);
        let mut world = world.when(again).refused(not_called);
        world.produce(vec![begun, result("call_1", "y")], None); // the same name again is another call
        let results = |part: &Part| match part {
            Part::ToolResult { content, .. } => Some(content.clone()),
            _ => None,
        };
        let results: Vec<Value> = world.generation(G1).content_parts().iter().filter_map(results).collect();
        assert_eq!(results, ["x", "y"]);
        assert!(world.generation(G1).tool_calls().all(|call| call.ended));
    }

    #[test]
    fn x3_what_a_tool_brings_at_once_has_a_limit() {
        let long = "x".repeat(TOOL_BYTES_MAX);
        let begun = tool_call("call_1", json!({}));
        let world = made_elsewhere();
        let most = append(&world, vec![begun.clone(), output("call_1", &long), result("call_1", &long[2..])]);
        world.when(most).then(["tool.start", "tool.output", "tool.end"]);
        for more in [output("call_1", &format!("{long}!")), result("call_1", &long)] {
            let world = made_elsewhere();
            let made = append(&world, vec![begun.clone(), more]);
            world.when(made).refused(Refusal::ToolTooLong { tool_use_id: "call_1".into() });
        }
    }

    #[test]
    fn x3_everything_that_a_worker_brings_counts_against_the_limit_of_its_answer() {
        let long = "x".repeat(60);
        let begun = tool_call("call_1", json!({}));
        for piece in [output("call_1", &long), result("call_1", &long), may_i("call_1", &long)] {
            let mut world = made_elsewhere();
            world.rules.answer_bytes = 100;
            world.produce(vec![begun.clone(), piece.clone()], None);
            assert!(!world.generation(G1).ended(), "{piece:?}");
            let more = tool_call("call_2", json!({"a": &long[..40]}));
            world.produce(vec![more], None);
            let (reason, _) = world.generation(G1).end_reason();
            assert_eq!(reason.as_deref(), Some("answer_too_long"), "{piece:?}");
        }
    }
}
