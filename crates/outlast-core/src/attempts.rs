//! Attempts: how the next one starts, what is kept of the last one, and how failures are handled.

use crate::entries::Entries;
use crate::rules::{LOST_IN_A_ROW_MAX, retry_delay};
use crate::{CallEnd, Event, Failure, FailureClass, Generation, MessageId, Rules};

/// Withdraws what the last attempt showed and starts the next, so that no client sees the same text twice.
pub(crate) fn start_again(generation: &Generation, reason: &str, rules: &Rules, entries: &mut Entries) {
    if !goes_on(generation, rules) {
        retract(generation, generation.progress.shown.clone(), reason, entries);
    }
    begin_attempt(generation, entries);
}

/// Begins the next attempt, and with it the next round if the tools of the last one are done.
pub(crate) fn begin_attempt(generation: &Generation, entries: &mut Entries) {
    let (model, attempt) = (generation.brief.model.clone(), generation.progress.attempt + 1);
    let round = if generation.is_agent() { generation.progress.rounds.settled() + 1 } else { 0 };
    entries.of(generation, Event::ChatStarted { model, attempt, round });
}

/// Whether the next attempt continues the text of this one, so that nothing has to be withdrawn.
pub(crate) fn goes_on(generation: &Generation, rules: &Rules) -> bool {
    rules.prefill.contains(&generation.brief.model) && generation.progress.only_text
}

pub(crate) fn retract(
    generation: &Generation,
    message_ids: Vec<MessageId>,
    reason: &str,
    entries: &mut Entries,
) {
    if !message_ids.is_empty() {
        let attempt = generation.progress.attempt;
        entries.of(generation, Event::AttemptRetracted { attempt, message_ids, reason: reason.to_owned() });
    }
}

/// An attempt was lost with its owner. The generation starts another one, unless a person must be asked or
/// too many attempts in a row were lost.
pub(crate) fn lose(generation: &Generation, rules: &Rules, entries: &mut Entries) {
    let again = "the server was restarted";
    // If the text is kept and has grown, the attempt made progress and does not count as lost.
    let grew = goes_on(generation, rules) && generation.progress.last_seq > generation.progress.attempt_seq;
    if rules.ask_first() {
        entries.of(
            generation,
            Event::ChatInterrupted { reason: again.to_owned(), round: generation.progress.rounds.round },
        );
    } else if generation.counters.lost_in_a_row + 1 >= LOST_IN_A_ROW_MAX && !grew {
        let reason = format!("{again} {LOST_IN_A_ROW_MAX} times in a row during this answer");
        entries.of(generation, Event::ChatInterrupted { reason, round: generation.progress.rounds.round });
    } else {
        start_again(generation, again, rules, entries);
    }
}

/// The server stops, and another one, or the next start, goes on. That is neither a failure nor a loss, so a
/// hundred deploys during one answer do not end it.
pub(crate) fn hand_over(generation: &Generation, rules: &Rules, entries: &mut Entries) {
    let reason = "the server was stopped";
    if !goes_on(generation, rules) {
        retract(generation, generation.progress.shown.clone(), reason, entries);
    }
    let attempt = generation.progress.attempt + 1;
    let reason = reason.to_owned();
    entries.of(generation, Event::RetryScheduled { attempt, delay_ms: 0, reason, handed_over: true });
}

/// How an attempt failed, and which messages began in the same report. Those are not in the state yet, but
/// followers see them.
pub(crate) struct Failed<'a> {
    pub(crate) failure: &'a Failure,
    pub(crate) jitter: u8,
    pub(crate) newly_shown: Vec<MessageId>,
}

/// Retries a transient failure. A permanent failure, or one too many, ends the generation and keeps what was
/// said so far.
pub(crate) fn fail(generation: &Generation, failed: Failed<'_>, rules: &Rules, entries: &mut Entries) {
    let Failed { failure, jitter, newly_shown } = failed;
    if !failure.class.may_pass() || generation.counters.failures >= rules.retries {
        let error_message = failure.message.clone();
        entries.of(generation, Event::ChatError { error_message, code: failure.class.code().to_owned() });
        return;
    }
    if !goes_on(generation, rules) || entries.has_more_than_text() {
        let shown = generation.progress.shown.iter().cloned().chain(newly_shown).collect();
        retract(generation, shown, &failure.message, entries);
    }
    let delay = retry_delay(rules, generation.counters.failures, failure, jitter);
    let scheduled = Event::RetryScheduled {
        attempt: generation.progress.attempt + 1,
        delay_ms: u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
        reason: failure.message.clone(),
        handed_over: false,
    };
    entries.of(generation, scheduled);
}

/// Ends an answer that exceeds its limit, whatever else was reported.
pub(crate) fn too_long(generation: &Generation, entries: &Entries, rules: &Rules) -> Option<CallEnd> {
    let bytes = generation.counters.answer_bytes.saturating_add(entries.answer_bytes());
    (bytes > rules.answer_bytes).then(|| {
        let message = format!("the answer is longer than {} bytes", rules.answer_bytes);
        let failure = Failure { class: FailureClass::TooLong, message, retry_after: None };
        CallEnd::Failed { failure, jitter: 0 }
    })
}
