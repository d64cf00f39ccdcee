use serde_json::{Value, json};

use super::*;
use crate::testing::{interrupted, *};
use crate::{GenerationStatus, MessageId, Part, Seq};

const START: [&str; 3] = ["message.added", "generation.queued", "chat.started"];

fn retract_event(world: &World) -> (u32, Vec<MessageId>, String) {
    let retraction = |entry: &Entry| match &entry.event {
        Event::AttemptRetracted { attempt, message_ids, reason } => {
            Some((*attempt, message_ids.clone(), reason.clone()))
        }
        _ => None,
    };
    world.log.iter().rev().find_map(retraction).expect("nothing was retracted")
}

#[test]
fn g1_a_start_records_the_question_before_anything_else() {
    let world = given([]).when(start(G1)).then(FIRST_START);
    assert_eq!(world.shown(), ["question of gen_1"]);
    let generation = world.generation(G1);
    assert_eq!((generation.progress.first_seq, generation.progress.attempt), (Seq(2), 1));
    assert_eq!(generation.progress.phase, Phase::Running);
    assert_eq!(generation.message.as_str(), question(G1));
}

#[test]
fn g1_every_part_of_a_question_is_kept_and_its_text_is_its_content() {
    let parts = vec![
        Part::Text { text: "look ".into() },
        Part::tool_result("t".into(), json!([1, null]), false),
        Part::Text { text: "here".into() },
    ];
    let asked = Start { parts: parts.clone(), ..request(G1) };
    let world = given([]).when(Command::Start(asked)).then(FIRST_START);
    let message = &world.transcript.messages[0];
    assert_eq!((&*message.content, &message.parts), ("look here", &parts));
}

#[test]
fn o5_a_repeated_request_starts_nothing_and_names_the_first_generation() {
    let earlier =
        Earlier { generation: G1.into(), message: question(G1).into(), digest: format!("digest of {G1}") };
    for past in [running(G1), answered(G1, "Hello"), interrupted_at(G1)] {
        let again = Command::Start(Start { generation: G2.into(), ..request(G1) });
        given([past]).knowing(earlier.clone()).when(again).refused(Refusal::Repeated(earlier.clone()));
    }
}

fn interrupted_at(generation: &str) -> Past {
    [answering(generation, "Hel"), interrupted(generation)].concat()
}

#[test]
fn o5_a_request_id_used_with_another_body_is_a_conflict() {
    let earlier = Earlier { generation: G1.into(), message: question(G1).into(), digest: "another".into() };
    let conflict = Refusal::IdempotencyConflict { generation: G1.into() };
    given([running(G1)]).knowing(earlier.clone()).when(start(G2)).refused(conflict.clone());
    let world = given([running(G1), failed(G1)]).knowing(earlier);
    world.when(retry(G1, RetryMode::Retry, G2)).refused(conflict);
}

#[test]
fn o5_a_repeated_retry_starts_nothing() {
    let earlier =
        Earlier { generation: G2.into(), message: question(G1).into(), digest: format!("digest of {G2}") };
    let Command::Retry(again) = retry(G1, RetryMode::Retry, G2) else { unreachable!() };
    let again = Retry { generation: G3.into(), ..again };
    given([running(G1), failed(G1)])
        .when(retry(G1, RetryMode::Retry, G2))
        .then(["generation.queued", "chat.started"])
        .knowing(earlier.clone())
        .when(Command::Retry(again))
        .refused(Refusal::Repeated(earlier));
}

#[test]
fn g14_a_second_message_is_rejected_while_one_is_running() {
    for past in [running(G1), answering(G1, "Hel"), interrupted_at(G1)] {
        given([past]).when(start(G2)).refused(Refusal::Busy { current: G1.into() });
    }
}

#[test]
fn g14_a_second_message_is_rejected_while_one_is_queued() {
    given([running(G1), asked(G2), cancelled(G1)])
        .when(start(G3))
        .refused(Refusal::Busy { current: G2.into() });
}

#[test]
fn g14_a_queued_message_waits_and_is_visible_at_once() {
    let world = given([answering(G1, "Hel")])
        .when(start_when_busy(G2, WhenBusy::Queue))
        .then(["message.added", "generation.queued"]);
    assert_eq!(world.generation(G2).progress.phase, Phase::Queued);
    assert_eq!(world.generation(G1).progress.phase, Phase::Running);
    assert_eq!(world.shown(), ["question of gen_1", "Hel", "question of gen_2"]);
}

#[test]
fn g14_a_message_starts_when_nothing_runs_whatever_when_busy_says() {
    for when_busy in [WhenBusy::Reject, WhenBusy::Queue, WhenBusy::Interrupt] {
        given([]).when(start_when_busy(G1, when_busy)).then(FIRST_START);
        given([answered(G1, "Hello")]).when(start_when_busy(G2, when_busy)).then(START);
    }
}

#[test]
fn g14_the_queue_is_limited() {
    let mut world = given([running(G1)]);
    for waiting in 0..QUEUE_MAX {
        world.command(start_when_busy(&format!("waiting_{waiting}"), WhenBusy::Queue)).unwrap();
    }
    world.when(start_when_busy(G2, WhenBusy::Queue)).refused(Refusal::QueueFull);
}

#[test]
fn g14_an_interrupting_message_cancels_the_running_and_queued_ones_and_starts() {
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
fn g14_an_interrupting_message_also_replaces_one_that_waits_for_a_person() {
    given([interrupted_at(G1)]).when(start_when_busy(G2, WhenBusy::Interrupt)).then([
        "chat.cancelled",
        START[0],
        START[1],
        START[2],
    ]);
}

#[test]
fn g5_the_first_cancel_wins_and_the_second_is_refused() {
    given([answering(G1, "Hel")])
        .when(cancel(G1))
        .then(["chat.cancelled"])
        .when(cancel(G1))
        .refused(Refusal::AlreadyEnded { status: GenerationStatus::Cancelled });
}

#[test]
fn g5_a_cancel_after_the_end_is_refused_with_the_final_status() {
    let ended = |status| Refusal::AlreadyEnded { status };
    given([answered(G1, "Hello")]).when(cancel(G1)).refused(ended(GenerationStatus::Completed));
    given([running(G1), failed(G1)]).when(cancel(G1)).refused(ended(GenerationStatus::Error));
}

#[test]
fn g5_a_cancel_of_an_older_generation_is_refused_without_its_status() {
    given([answered(G1, "Hello"), running(G2)]).when(cancel(G1)).refused(Refusal::EndedLongAgo);
}

#[test]
fn g5_every_live_generation_can_be_cancelled() {
    let retrying = [running(G1), retrying(G1, 2, 500)].concat();
    for past in [running(G1), answering(G1, "Hel"), retrying, interrupted_at(G1)] {
        let world = given([past]).when(cancel(G1)).then(["chat.cancelled"]);
        assert_eq!(world.generation(G1).progress.phase, Phase::Cancelled { reason: CancelReason::User });
    }
}

#[test]
fn g5_a_queued_generation_can_be_cancelled_without_affecting_the_running_one() {
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
    assert_eq!(world.answer_shown(&G1.into()), "Hel");
    assert_eq!(document.completed_at, Some(world.now));
}

#[test]
fn p2_a_resumed_generation_starts_over_and_withdraws_its_text() {
    let world = given([interrupted_at(G1)]).when(resume(G1)).then([
        "chat.resumed",
        "attempt.retracted",
        "chat.started",
    ]);
    assert_eq!(world.generation(G1).progress.attempt, 2);
    assert_eq!(world.shown(), ["question of gen_1"]);
    assert_eq!(retract_event(&world), (1, vec![answer(G1, 1).into()], "resumed".into()));
}

#[test]
fn p2_a_resume_retracts_nothing_when_nothing_was_shown() {
    given([running(G1), interrupted(G1)]).when(resume(G1)).then(["chat.resumed", "chat.started"]);
}

#[test]
fn p5_if_two_tabs_press_resume_one_wins() {
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
fn p5_a_cancelled_generation_cannot_be_resumed() {
    given([interrupted_at(G1), cancelled(G1)])
        .when(resume(G1))
        .refused(Refusal::AlreadyEnded { status: GenerationStatus::Cancelled });
}

#[test]
fn p3_a_dismissed_generation_ends_and_keeps_its_text() {
    let world = given([interrupted_at(G1)]).when(dismiss(G1)).then(["chat.cancelled"]);
    assert_eq!(world.generation(G1).progress.phase, Phase::Cancelled { reason: CancelReason::Dismissed });
    assert_eq!(world.shown(), ["question of gen_1", "Hel"]);
}

#[test]
fn p3_only_an_interrupted_generation_can_be_resumed_or_dismissed() {
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
    assert_eq!((again.message.as_str(), again.progress.attempt), (&*question(G1), 1));
    assert_eq!(
        (again.brief.system.as_deref(), &again.brief.metadata),
        (Some("be brief"), &Some(json!({"tab": 1})))
    );
    assert_eq!(
        again.progress.first_seq.plus(2),
        again.progress.last_seq,
        "the question belongs to the first generation"
    );
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
    let world = given([answering(G1, "Hel"), failed(G1), continuing(G2, G1), spoke(G2, 1, "l"), failed(G2)])
        .when(retry(G2, RetryMode::Retry, G3))
        .then(["generation.queued", "attempt.retracted", "chat.started"]);
    assert_eq!(world.shown(), ["question of gen_1"], "the first partial answer is withdrawn too");
}

#[test]
fn g7_a_cancelled_generation_can_be_retried_too() {
    for mode in [RetryMode::Retry, RetryMode::Continue] {
        given([running(G1), cancelled(G1)])
            .when(retry(G1, mode, G2))
            .then(["generation.queued", "chat.started"]);
    }
}

#[test]
fn g7_only_the_last_generation_can_be_retried_and_only_if_it_failed() {
    let again = |of| retry(of, RetryMode::Retry, G3);
    given([]).when(again(G1)).refused(Refusal::NotRetryable);
    given([answered(G1, "Hello")]).when(again(G1)).refused(Refusal::NotRetryable);
    given([running(G1), failed(G1), answered(G2, "Hello")]).when(again(G1)).refused(Refusal::NotRetryable);
    let busy = Refusal::Busy { current: G2.into() };
    given([running(G1), failed(G1), running(G2)]).when(again(G1)).refused(busy.clone());
    given([running(G1), asked(G2), failed(G1)]).when(again(G1)).refused(busy);
}

#[test]
fn s1_title_and_metadata_are_set_separately() {
    let world = given([]).when(rename("Tea")).then(["conversation.updated"]);
    let world = world
        .when(Command::Update { title: None, metadata: Some(json!({"branch": "main"})) })
        .then(["conversation.updated"]);
    assert_eq!(world.stored.conversation.title.as_deref(), Some("Tea"));
    assert_eq!(world.stored.conversation.metadata, Some(json!({"branch": "main"})));
}

#[test]
fn s1_an_empty_update_records_nothing() {
    given([]).when(Command::Update { title: None, metadata: None }).then_nothing();
}

#[test]
fn s1_metadata_set_to_null_stays_cleared_after_the_log_is_read_again() {
    let set = |metadata| Command::Update { title: None, metadata: Some(metadata) };
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
    let asked = Start { brief: Brief { metadata: Some(Value::Null), ..Brief::default() }, ..request(G1) };
    let mut world = given([]).when(Command::Start(asked)).then(FIRST_START);
    let before = world.transcript.state.clone();
    world.crash();
    assert_eq!(world.transcript.state, before);
}

#[test]
fn i19_a_start_that_is_delivered_twice_is_repeated() {
    let earlier =
        Earlier { generation: G1.into(), message: question(G1).into(), digest: format!("digest of {G1}") };
    let world = given([]).when(start(G1)).then(FIRST_START);
    let world = world.when(start(G1)).refused(Refusal::Repeated(earlier));
    let other = Start { digest: "another".into(), ..request(G1) };
    let conflict = Refusal::IdempotencyConflict { generation: G1.into() };
    world.when(Command::Start(other)).refused(conflict);
}

#[test]
fn g13_a_generation_is_not_retried_once_its_prompt_is_gone() {
    let mut world = given([answering(G1, "Hel"), failed(G1)]);
    world.facts.prompt_is_gone = true;
    world.when(retry(G1, RetryMode::Retry, G2)).refused(Refusal::PromptGone);
}

#[test]
fn s5_the_first_message_gives_a_conversation_its_title_at_once() {
    let text = format!("\n  {}\nsecond line", "word ".repeat(20));
    let long = Start { parts: vec![Part::Text { text }], ..request(G1) };
    let world = given([]).when(Command::Start(long)).then(FIRST_START);
    let title = world.stored.conversation.title.clone().unwrap();
    assert!(title.starts_with("word word") && title.ends_with('…') && title.chars().count() <= 61);
    assert_eq!(title.lines().count(), 1);
}

#[test]
fn s5_a_title_that_was_set_or_cleared_is_not_replaced() {
    let world = given([titled("Tea")]).when(start(G1)).then(START);
    assert_eq!(world.stored.conversation.title.as_deref(), Some("Tea"));
    let clear = Command::Update { title: Some(None), metadata: None };
    let world = given([answered(G1, "Hello")]).when(clear).then(["conversation.updated"]);
    assert_eq!(world.stored.conversation.title, None);
    let world = world.when(start(G2)).then(START);
    assert_eq!(world.stored.conversation.title, None);
}

#[test]
fn s1_a_key_is_given_to_a_new_conversation_only() {
    let keyed = |id: &str, key: &str| Command::Start(Start { key: Some(key.into()), ..request(id) });
    let [titled_first, asked, queued, started] = FIRST_START;
    let first = ["conversation.updated", titled_first, asked, queued, started];
    let world = given([]).when(keyed(G1, "screen-17")).then(first);
    assert_eq!(world.stored.conversation.key.as_deref(), Some("screen-17"));
    let world = given([titled("Tea")]).when(keyed(G1, "screen-17")).then([asked, queued, started]);
    assert_eq!(world.stored.conversation.key, None, "it was created without one");
}

#[test]
fn s1_a_conversation_is_created_once() {
    let create =
        || Command::Create { title: None, metadata: Some(json!({"a": 1})), key: None, request: None };
    let world = given([]).when(create()).then(["conversation.updated"]);
    world.when(create()).refused(Refusal::AlreadyExists);
}
