use std::time::Duration;

use super::*;
use crate::testing::{running, *};
use crate::{
    CallEnd, Failure, FailureClass, GenerationStatus, LOST_IN_A_ROW_MAX, MessageStatus, Part, Piece,
    Recovery, Seq, TextKind,
};

const RETRYABLE: [FailureClass; 3] =
    [FailureClass::Transient, FailureClass::Timeout, FailureClass::RateLimited];

#[test]
fn o2_a_segment_opens_at_its_first_token_and_closes_at_the_end() {
    let world = given([titled("Tea"), running(G1)])
        .observed(says(G1, 1, "Hel"))
        .then(["assistant.segment.started", "chat.delta"])
        .observed(says(G1, 1, "lo"))
        .then(["chat.delta"])
        .observed(finishes(G1, 1))
        .then(["assistant.segment.ended", "chat.done"]);
    assert_eq!(world.shown(), ["question of gen_1", "Hello"]);
    assert_eq!(world.stored.messages[1].status, MessageStatus::Complete);
}

#[test]
fn o2_the_new_message_has_the_id_it_was_given() {
    let world =
        given([running(G1)]).observed(says(G1, 1, "Hel")).then(["assistant.segment.started", "chat.delta"]);
    assert_eq!(world.generation(G1).open_segment().unwrap().message.as_str(), answer(G1, 1));
}

#[test]
fn o2_messages_after_one_with_a_chosen_id_are_named_after_the_generation() {
    let brief = crate::Brief { answer_id: Some("mine".into()), ..crate::Brief::default() };
    let chosen = crate::Start { brief, ..request(G1) };
    let mut world = World::new();
    world.command(crate::Command::Start(chosen)).unwrap();
    world.model(vec![words("Let me look."), tool_call("a", serde_json::json!({}))], None);
    world.model(vec![tool_call("b", serde_json::json!({})), words("So.")], None);
    let ids: Vec<String> = world.generation(G1).progress.shown.iter().map(ToString::to_string).collect();
    assert_eq!(ids, ["mine", "gen_1-2", "answer_1_of_gen_1_2", "answer_1_of_gen_1_2-2"]);
}

#[test]
fn o2_thinking_and_text_share_a_segment_in_order() {
    let pieces = vec![thoughts("Hm"), thoughts("m."), words("Hel"), words("lo"), thoughts("Good.")];
    let world = given([titled("Tea"), running(G1)]).observed(stream(G1, 1, pieces, Some(finished()))).then([
        "assistant.segment.started",
        "thinking.delta",
        "thinking.delta",
        "chat.delta",
        "chat.delta",
        "thinking.delta",
        "assistant.segment.ended",
        "chat.done",
    ]);
    let said = &world.stored.messages[1];
    assert_eq!(said.content, "Hello", "thinking is not part of the content");
    assert_eq!(
        said.parts,
        [
            Part::Thinking { text: "Hmm.".into(), signature: None },
            Part::Text { text: "Hello".into() },
            Part::Thinking { text: "Good.".into(), signature: None }
        ]
    );
}

#[test]
fn o2_empty_text_opens_no_segment() {
    given([running(G1)]).observed(says(G1, 1, "")).then_nothing();
    given([running(G1)]).observed(stream(G1, 1, vec![], None)).then_nothing();
}

#[test]
fn g4_an_answer_without_text_completes() {
    let world = given([titled("Tea"), running(G1)]).observed(finishes(G1, 1)).then(["chat.done"]);
    assert_eq!(world.generation(G1).status(), GenerationStatus::Completed);
    assert_eq!(world.shown(), ["question of gen_1"]);
}

#[test]
fn g4_nothing_follows_an_end() {
    let ends = [completed(G1), cancelled(G1), failed(G1)];
    for end in ends {
        let reports = [
            says(G1, 1, "more"),
            finishes(G1, 1),
            breaks(G1, 1, FailureClass::Transient),
            call_lost(G1),
            retry_due(G1),
            turn_came(G1),
            abandoned(G1),
        ];
        for report in reports {
            given([running(G1), end.clone()]).observed(report).then_nothing();
        }
    }
}

#[test]
fn x5_text_after_a_cancel_is_ignored() {
    given([answering(G1, "Hel")])
        .when(crate::testing::cancel(G1))
        .then(["chat.cancelled"])
        .observed(stream(G1, 1, vec![words("lo"), usage(1, 2)], Some(finished())))
        .then_nothing();
}

#[test]
fn x5_a_cancel_wins_against_recovery() {
    for recovery in [Recovery::Safe, Recovery::Auto, Recovery::Ask] {
        let mut world =
            given([answering(G1, "Hel"), cancelled(G1)]).with(Rules { recovery, ..Rules::default() });
        world.crash();
        assert_eq!(world.next(), crate::Next::default());
        world.observed(call_lost(G1)).then_nothing();
    }
}

#[test]
fn g8_tokens_and_pieces_are_counted_over_all_attempts() {
    let gathered = Piece::Text { kind: TextKind::Answer, text: "Hello there".into(), chunks: 3 };
    let pieces = vec![gathered, thoughts("Hm"), usage(10, 4)];
    let world = given([running(G1)])
        .observed(stream(G1, 1, pieces.clone(), Some(broke(FailureClass::Transient))))
        .then([
            "assistant.segment.started",
            "chat.delta",
            "thinking.delta",
            "usage",
            "attempt.retracted",
            "retry.scheduled",
        ])
        .later(Duration::from_secs(1))
        .observed(retry_due(G1))
        .then(["chat.started"])
        .observed(stream(G1, 2, pieces, None))
        .then(["assistant.segment.started", "chat.delta", "thinking.delta", "usage"]);
    let generation = world.generation(G1);
    assert_eq!((generation.counters.input_tokens, generation.counters.output_tokens), (20, 8));
    assert_eq!(generation.counters.chunks_received, 8);
}

#[test]
fn g8_absurd_token_counts_saturate() {
    let pieces = vec![usage(u64::MAX, u64::MAX), usage(1, u64::MAX)];
    let world = given([running(G1)]).observed(stream(G1, 1, pieces, None)).then(["usage", "usage"]);
    let generation = world.generation(G1);
    assert_eq!((generation.counters.input_tokens, generation.counters.output_tokens), (u64::MAX, u64::MAX));
}

#[test]
fn g11_every_transient_failure_is_retried_and_the_text_is_withdrawn_once() {
    for class in RETRYABLE {
        let world = given([answering(G1, "Hel")])
            .observed(breaks(G1, 1, class))
            .then(["attempt.retracted", "retry.scheduled"]);
        assert_eq!(world.shown(), ["question of gen_1"]);
        world
            .later(Duration::from_secs(1))
            .observed(retry_due(G1))
            .then(["chat.started"])
            .observed(says(G1, 2, "Hello"))
            .then(["assistant.segment.started", "chat.delta"]);
    }
}

#[test]
fn g11_a_failure_before_the_first_token_retracts_nothing() {
    given([running(G1)]).observed(breaks(G1, 1, FailureClass::Transient)).then(["retry.scheduled"]);
}

#[test]
fn g11_a_message_that_began_in_the_failing_report_is_withdrawn_too() {
    let world = given([running(G1)])
        .observed(stream(G1, 1, vec![words("Hel")], Some(broke(FailureClass::Transient))))
        .then(["assistant.segment.started", "chat.delta", "attempt.retracted", "retry.scheduled"]);
    assert_eq!(world.shown(), ["question of gen_1"]);
}

#[test]
fn g11_a_permanent_failure_ends_it_at_once_and_keeps_the_text() {
    for class in [FailureClass::Refused, FailureClass::Invalid] {
        let world = given([answering(G1, "Hel")]).observed(breaks(G1, 1, class)).then(["chat.error"]);
        let partial = &world.stored.messages[1];
        assert_eq!((&*partial.content, partial.status), ("Hel", MessageStatus::Error));
        assert_eq!(partial.error_message.as_deref(), Some(&*format!("{class:?} failure")));
        let document = &world.stored.generations[&G1.into()];
        assert_eq!(document.error_message, partial.error_message);
        assert_eq!(document.end_reason.as_deref(), Some(class.code()));
    }
}

#[test]
fn g11_the_third_failure_ends_it_and_keeps_the_last_partial_answer() {
    let mut world = given([running(G1)]);
    for attempt in 1..=2 {
        world.report(says(G1, attempt, "Hel"));
        world.report(breaks(G1, attempt, FailureClass::Transient));
        assert_eq!(world.shown(), ["question of gen_1"]);
        world = world.later(Duration::from_secs(60));
        world.report(retry_due(G1));
    }
    world.report(says(G1, 3, "Hell"));
    let world = world.observed(breaks(G1, 3, FailureClass::Timeout)).then(["chat.error"]);
    assert_eq!(world.shown(), ["question of gen_1", "Hell"]);
    let document = &world.stored.generations[&G1.into()];
    assert_eq!((document.status, document.attempt), (GenerationStatus::Error, 3));
    assert_eq!(document.end_reason.as_deref(), Some("upstream_timed_out"));
    assert_eq!(world.answer_shown(&G1.into()), "Hell");
}

#[test]
fn g11_the_delay_grows_and_is_recorded() {
    let world =
        given([running(G1)]).observed(breaks(G1, 1, FailureClass::Transient)).then(["retry.scheduled"]);
    assert_eq!(world.generation(G1).progress.phase, Phase::Retrying { until: world.now.after(ms(500)) });
    let world = world
        .later(ms(500))
        .observed(retry_due(G1))
        .then(["chat.started"])
        .observed(breaks(G1, 2, FailureClass::Transient))
        .then(["retry.scheduled"]);
    assert_eq!(world.generation(G1).progress.phase, Phase::Retrying { until: world.now.after(ms(1_000)) });
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn g11_the_retry_waits_as_long_as_the_upstream_asks() {
    let failure = Failure {
        class: FailureClass::RateLimited,
        message: "slow down".into(),
        retry_after: Some(Duration::from_secs(7)),
    };
    let world = given([running(G1)])
        .observed(stream(G1, 1, vec![], Some(CallEnd::Failed { failure, jitter: 0 })))
        .then(["retry.scheduled"]);
    let too_early = world.clone().later(Duration::from_secs(6));
    too_early.observed(retry_due(G1)).then_nothing();
    world.later(Duration::from_secs(7)).observed(retry_due(G1)).then(["chat.started"]);
}

fn goes_on_after(shown: &str, pieces: Vec<Piece>) -> String {
    let prefill = Rules { prefill: ["default".to_owned()].into(), ..Rules::default() };
    let mut world = given([answering(G1, shown), retrying(G1, 2, 0), started(G1, 2)]).with(prefill);
    world.report(stream(G1, 2, pieces, None));
    world.answer_shown(&G1.into())
}

#[test]
fn g11_a_continued_answer_neither_repeats_nor_loses_white_space() {
    assert_eq!(goes_on_after("Hello, ", vec![words(" wor"), words(" ld")]), "Hello, wor ld");
    assert_eq!(goes_on_after("Hello, ", vec![words(" "), words("wor")]), "Hello, wor");
    assert_eq!(goes_on_after("if x:\n", vec![words("\n    return 1")]), "if x:\n    return 1");
    assert_eq!(goes_on_after("if x:\n", vec![words("\n\n"), words("y")]), "if x:\n\ny");
    assert_eq!(goes_on_after("if x: ", vec![words("\n    y")]), "if x: \n    y");
    assert_eq!(goes_on_after("Hello", vec![words(" world")]), "Hello world");
}

#[test]
fn g11_the_number_of_retries_is_a_setting() {
    let never = Rules { retries: 0, ..Rules::default() };
    given([running(G1)]).with(never).observed(breaks(G1, 1, FailureClass::Transient)).then(["chat.error"]);
}

#[test]
fn g11_attempts_lost_to_a_crash_do_not_count_against_the_retries() {
    let mut world = given([answering(G1, "Hel")]);
    for _ in 0..5 {
        world.crash();
        world.settle();
    }
    assert_eq!(world.generation(G1).progress.attempt, 6);
    world
        .observed(breaks(G1, 6, FailureClass::Transient))
        .then(["retry.scheduled"])
        .later(Duration::from_secs(60))
        .observed(retry_due(G1))
        .then(["chat.started"])
        .observed(breaks(G1, 7, FailureClass::Transient))
        .then(["retry.scheduled"])
        .later(Duration::from_secs(60))
        .observed(retry_due(G1))
        .then(["chat.started"])
        .observed(breaks(G1, 8, FailureClass::Transient))
        .then(["chat.error"]);
}

/// Loses one attempt after another until the generation is interrupted, and returns how many there were.
fn lost_until_interrupted(mut world: World) -> (u32, World) {
    for _ in 0..100 {
        world.crash();
        world.settle();
        if world.generation(G1).progress.phase == Phase::Interrupted {
            return (world.generation(G1).progress.attempt, world);
        }
        world.model(vec![words("Hel")], None);
    }
    panic!("the generation is restarted without end");
}

#[test]
fn i6_an_answer_that_is_lost_too_often_waits_for_a_person() {
    let (attempts, world) = lost_until_interrupted(given([answering(G1, "Hel")]));
    assert_eq!(attempts, LOST_IN_A_ROW_MAX);
    let mut world =
        world.when(crate::testing::resume(G1)).then(["chat.resumed", "attempt.retracted", "chat.started"]);
    world.model(vec![words("Hel")], Some(broke(FailureClass::Transient)));
    world.wait(); // the upstream responded, if only with a failure, so the count starts over
    let (attempts, _) = lost_until_interrupted(world);
    assert_eq!(attempts, LOST_IN_A_ROW_MAX + 1 + LOST_IN_A_ROW_MAX);
}

#[test]
fn i6_an_answer_that_grows_between_crashes_is_not_lost() {
    let prefill = Rules { prefill: ["default".to_owned()].into(), ..Rules::default() };
    let mut world = given([answering(G1, "Hel")]).with(prefill);
    for _ in 0..3 * LOST_IN_A_ROW_MAX {
        world.crash();
        world.settle();
        world.model(vec![words("l")], None);
    }
    world.crash();
    world.settle();
    assert_eq!(world.generation(G1).progress.phase, Phase::Running);
    world.crash(); // and this one produced nothing
    world.settle();
    assert_eq!(world.generation(G1).progress.phase, Phase::Interrupted);
}

#[test]
fn x2_an_attempt_that_is_handed_over_is_neither_a_failure_nor_lost() {
    let mut world = given([answering(G1, "Hel")]);
    for _ in 0..3 * LOST_IN_A_ROW_MAX {
        world = world.observed(handed_over(G1)).then(["attempt.retracted", "retry.scheduled"]);
        world.crash();
        world.settle();
        world.model(vec![words("Hel")], None);
    }
    let generation = world.generation(G1);
    assert_eq!(generation.progress.phase, Phase::Running);
    assert_eq!((generation.counters.failures, generation.counters.lost_in_a_row), (0, 0));
    given([running(G1), completed(G1)]).observed(handed_over(G1)).then([]);
}

#[test]
fn g11_failures_before_a_crash_still_count_after_it() {
    let mut world = given([running(G1), retrying(G1, 2, 500), started(G1, 2), retrying(G1, 3, 500)]);
    world.crash();
    world.wait();
    world.observed(breaks(G1, 3, FailureClass::Transient)).then(["chat.error"]);
}

#[test]
fn g11_late_text_of_an_older_attempt_is_ignored() {
    let second = [answering(G1, "Hel"), retracted(G1, 1), retrying(G1, 2, 500), started(G1, 2)].concat();
    for stale in [says(G1, 1, "lo"), finishes(G1, 1), breaks(G1, 1, FailureClass::Invalid)] {
        given([second.clone()]).observed(stale).then_nothing();
    }
    given([second]).observed(says(G1, 3, "from nowhere")).then_nothing();
}

#[test]
fn g11_text_of_a_failed_attempt_during_the_delay_is_ignored() {
    given([running(G1), retrying(G1, 2, 500)]).observed(says(G1, 1, "Hel")).then_nothing();
}

#[test]
fn p2_safe_and_auto_continue_by_themselves() {
    for recovery in [Recovery::Safe, Recovery::Auto] {
        let world = given([answering(G1, "Hel")])
            .with(Rules { recovery, ..Rules::default() })
            .observed(call_lost(G1))
            .then(["attempt.retracted", "chat.started"]);
        assert_eq!((world.generation(G1).progress.attempt, world.generation(G1).counters.failures), (2, 0));
        assert_eq!(world.shown(), ["question of gen_1"]);
    }
}

#[test]
fn p2_ask_waits_for_a_person_and_keeps_what_was_said() {
    let ask = Rules { recovery: Recovery::Ask, ..Rules::default() };
    let world = given([answering(G1, "Hel")]).with(ask).observed(call_lost(G1)).then(["chat.interrupted"]);
    assert_eq!(world.generation(G1).status(), GenerationStatus::Interrupted);
    assert_eq!(world.shown(), ["question of gen_1", "Hel"]);
    assert_eq!(world.stored.messages[1].content, "Hel", "the text is stored in case nobody ever comes back");
    world
        .observed(says(G1, 1, "lo")) // from a call that was reported as lost
        .then_nothing();
}

#[test]
fn p2_a_lost_call_is_ignored_while_waiting_for_a_retry_or_a_person() {
    given([running(G1), retrying(G1, 2, 500)]).observed(call_lost(G1)).then_nothing();
    given([running(G1), interrupted(G1)]).observed(call_lost(G1)).then_nothing();
    given([running(G1), asked(G2)]).observed(call_lost(G2)).then_nothing();
}

#[test]
fn g12_a_generation_that_nobody_follows_is_cancelled_and_keeps_its_text() {
    let world = given([answering(G1, "Hel")]).observed(abandoned(G1)).then(["chat.cancelled"]);
    assert_eq!(world.stored.generations[&G1.into()].end_reason.as_deref(), Some("abandoned"));
    assert_eq!(world.shown(), ["question of gen_1", "Hel"]);
}

#[test]
fn g12_one_that_waits_for_a_person_or_for_its_turn_is_not_abandoned() {
    given([answering(G1, "Hel"), interrupted(G1)]).observed(abandoned(G1)).then_nothing();
    given([running(G1), asked(G2)]).observed(abandoned(G2)).then_nothing();
}

#[test]
fn g14_the_first_queued_generation_runs_when_its_turn_comes() {
    let world = given([running(G1), asked(G2), asked(G3), completed(G1)])
        .observed(turn_came(G3))
        .then_nothing()
        .observed(turn_came(G2))
        .then(["chat.started"])
        .observed(turn_came(G3))
        .then_nothing();
    assert_eq!(world.transcript.state.active().unwrap().id.as_str(), G2);
    assert_eq!(world.generation(G2).progress.attempt, 1);
}

fn delta(text: &str) -> Event {
    Event::ChatDelta { message_id: answer(G1, 1).into(), text: text.into(), chunks: 1 }
}

#[test]
fn an_endless_answer_ends_at_its_limit_and_is_kept() {
    let mut world = given([answering(G1, "Hel")]);
    let room = world.generation(G1).counters.answer_bytes + Event::answer_bytes(&delta("lo"));
    world.rules.answer_bytes = room;
    let world = world
        .observed(stream(G1, 1, vec![words("lo")], None))
        .then(["chat.delta"])
        .observed(stream(G1, 1, vec![words("!")], None))
        .then(["chat.delta", "chat.error"]);
    let stored = &world.stored.generations[&G1.into()];
    assert_eq!(stored.end_reason.as_deref(), Some("answer_too_long"));
    assert_eq!(world.answer_shown(&G1.into()), "Hello!");
}

#[test]
fn s5_after_a_first_message_without_text_the_next_gives_the_title() {
    let world = given([asked_saying(G1, " \n "), started(G1, 1)])
        .observed(finishes(G1, 1))
        .then(["chat.done"])
        .when(start(G2))
        .then(FIRST_START);
    assert_eq!(world.stored.conversation.title.as_deref(), Some("question of gen_2"));
}

#[test]
fn every_event_of_a_report_has_the_same_time_and_its_own_position() {
    let world = given([running(G1)]);
    let pieces = vec![words("Hello"), usage(3, 1)];
    let report = stream(G1, 1, pieces, Some(finished()));
    let entries = observe(&world.transcript.state, report, &world.rules, Timestamp(7));
    assert_eq!(entries.len(), 5);
    for (index, entry) in entries.iter().enumerate() {
        assert_eq!((entry.seq, entry.ts), (Seq(4).plus(index), Timestamp(7)));
    }
}
