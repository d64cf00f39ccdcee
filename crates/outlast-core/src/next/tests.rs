use std::time::Duration;

use super::*;
use crate::Recovery;
use crate::testing::{running, *};

const HALF_AN_HOUR: Duration = Duration::from_secs(30 * 60);

fn nothing() -> Next {
    Next::default()
}

fn call_model(generation: &str, attempt: u32) -> Next {
    let call = Effect::CallModel { generation: generation.into(), attempt };
    Next { effects: vec![call], ..Next::default() }
}

fn observe(report: Report) -> Next {
    Next { report: Some(report), ..Next::default() }
}

fn wake_at(time: Timestamp) -> Next {
    Next { wake_at: Some(time), ..Next::default() }
}

#[test]
fn an_empty_conversation_wants_nothing() {
    assert_eq!(given([]).next(), nothing());
}

#[test]
fn g1_a_started_generation_wants_a_call() {
    assert_eq!(given([running(G1)]).next(), call_model(G1, 1));
}

#[test]
fn i6_the_same_call_is_wanted_while_its_attempt_runs() {
    let world = given([answering(G1, "Hel")]);
    assert_eq!(world.next(), call_model(G1, 1));
    let world = given([running(G1), retrying(G1, 2, 0), started(G1, 2)]);
    assert_eq!(world.next(), call_model(G1, 2));
}

#[test]
fn g5_a_call_is_not_wanted_after_a_cancel() {
    assert_eq!(given([answering(G1, "Hel"), cancelled(G1)]).next(), nothing());
}

#[test]
fn i10_what_is_due_is_what_a_new_owner_would_act_on() {
    let due = |past: Vec<Past>| due(&given(past).transcript.state, &crate::Rules::default());
    let now = Some(Timestamp::default());
    assert_eq!(due(vec![]), None);
    assert_eq!(due(vec![answering(G1, "Hel")]), now);
    assert_eq!(due(vec![running(G1), interrupted(G1)]), None, "waits for a person");
    assert_eq!(due(vec![running(G1), interrupted(G1), asked(G2)]), None, "so does the one behind it");
    assert_eq!(due(vec![running(G1), asked(G2), completed(G1)]), now);
    assert_eq!(due(vec![answered(G1, "Hello")]), None);
    let waits = given([running(G1), retrying(G1, 2, 5_000)]);
    let until = waits.now.after(Duration::from_secs(5));
    assert_eq!(super::due(&waits.transcript.state, &waits.rules), Some(until));
    let ask = crate::Rules { recovery: Recovery::Ask, ..crate::Rules::default() };
    assert_eq!(super::due(&waits.transcript.state, &ask), now, "a person is asked at once");
}

#[test]
fn p2_a_call_of_a_previous_owner_is_lost() {
    let mut world = given([answering(G1, "Hel")]);
    world.owned_after = Seq(5);
    assert_eq!(world.next(), observe(call_lost(G1)));
    world.owned_after = Seq(2); // this owner took over before the attempt started, so the call is its own
    assert_eq!(world.next(), call_model(G1, 1));
}

#[test]
fn p2_recovery_records_an_attempt_before_it_calls_the_model_again() {
    let mut world = given([answering(G1, "Hel")]);
    world.crash();
    assert!(world.step());
    assert_eq!(world.next(), call_model(G1, 2));
}

#[test]
fn p2_an_interrupted_generation_waits_for_a_person_without_limit() {
    let mut world = given([answering(G1, "Hel"), interrupted(G1)]);
    world.unwatched_since = Some(CREATED);
    world = world.later(Duration::from_secs(365 * 86_400));
    assert_eq!(world.next(), nothing());
    world.crash();
    assert_eq!(world.next(), nothing());
}

#[test]
fn p2_ask_does_not_interrupt_a_queued_generation() {
    let ask = crate::Rules { recovery: Recovery::Ask, ..crate::Rules::default() };
    let mut world = given([running(G1), asked(G2)]).with(ask);
    world.crash();
    world.settle();
    assert_eq!(world.generation(G1).progress.phase, Phase::Interrupted);
    assert_eq!(world.generation(G2).progress.phase, Phase::Queued);
    world.command(dismiss(G1)).unwrap();
    world.settle();
    assert_eq!(world.call, Some((G2.into(), 1)));
}

#[test]
fn g11_a_crash_does_not_shorten_the_delay_before_a_retry() {
    let mut world = given([running(G1), retrying(G1, 2, 5_000)]);
    let due = world.now.after(Duration::from_secs(5));
    assert_eq!(world.next(), wake_at(due));
    world.crash();
    assert_eq!(world.next(), wake_at(due));
    world.now = due;
    assert_eq!(world.next(), observe(retry_due(G1)));
}

#[test]
fn p2_ask_also_interrupts_a_generation_that_waits_to_retry() {
    let ask = crate::Rules { recovery: Recovery::Ask, ..crate::Rules::default() };
    let mut world = given([running(G1), retrying(G1, 2, 5_000)]).with(ask);
    assert!(
        matches!(world.next(), Next { report: None, wake_at: Some(_), .. }),
        "without a crash no person is asked"
    );
    world.crash();
    world.settle();
    assert_eq!(world.generation(G1).progress.phase, Phase::Interrupted);
    assert_eq!(world.generation(G1).progress.retry, None);
    world.command(resume(G1)).unwrap();
    world.settle();
    assert_eq!(world.call, Some((G1.into(), 2)));
}

#[test]
fn g14_the_oldest_queued_generation_gets_its_turn() {
    let world = given([running(G1), asked(G2), asked(G3), cancelled(G1)]);
    assert_eq!(world.next(), observe(turn_came(G2)));
}

#[test]
fn g4_an_ended_conversation_wants_nothing() {
    for end in [completed(G1), cancelled(G1), failed(G1)] {
        assert_eq!(given([titled("Tea"), running(G1), end]).next(), nothing());
    }
}

fn watched_until(since: Timestamp, past: Past) -> World {
    let mut world = given([past]);
    world.unwatched_since = Some(since);
    world
}

#[test]
fn g12_a_followed_generation_has_no_time_limit() {
    let world = given([answering(G1, "Hel")]).later(Duration::from_secs(365 * 86_400));
    assert_eq!(world.next(), call_model(G1, 1));
}

#[test]
fn g12_an_unwatched_generation_is_abandoned_after_half_an_hour() {
    let left = CREATED.after(Duration::from_secs(60));
    let mut world = watched_until(left, answering(G1, "Hel"));
    assert_eq!(world.next().wake_at, Some(left.after(HALF_AN_HOUR)));
    world.now = left.after(HALF_AN_HOUR);
    assert_eq!(world.next(), observe(abandoned(G1)));
}

#[test]
fn g12_time_before_the_generation_ran_does_not_count() {
    let long_ago = Timestamp(CREATED.0 - 86_400_000);
    let world = watched_until(long_ago, running(G1));
    assert_eq!(world.next().wake_at, Some(world.now.after(HALF_AN_HOUR)));
}

#[test]
fn g12_time_spent_waiting_for_a_person_does_not_count() {
    let mut world = given([running(G1), interrupted(G1)]).later(Duration::from_secs(86_400));
    world.command(resume(G1)).unwrap();
    let resumed = world.now;
    world.unwatched_since = Some(CREATED);
    assert_eq!(world.next().wake_at, Some(resumed.after(HALF_AN_HOUR)));
}

#[test]
fn g12_retries_do_not_reset_the_timer() {
    let world = watched_until(CREATED, [running(G1), retrying(G1, 2, 0), started(G1, 2)].concat());
    let began = world.generation(G1).progress.started_at.unwrap();
    assert_eq!(world.next().wake_at, Some(began.after(HALF_AN_HOUR)));
}

#[test]
fn g12_a_generation_that_waits_for_a_retry_is_abandoned_too() {
    let late = watched_until(CREATED, [running(G1), retrying(G1, 2, 60 * 60_000)].concat());
    let limit = late.generation(G1).progress.started_at.unwrap().after(HALF_AN_HOUR);
    assert_eq!(late.next(), wake_at(limit));
    let late = World { now: limit, ..late };
    assert_eq!(late.next(), observe(abandoned(G1)));
}

#[test]
fn x3_a_worker_that_is_silent_for_too_long_is_lost() {
    let start = for_a_worker(G1);
    let mut world = given([]);
    world.command(crate::Command::Start(start)).unwrap();
    world.worker_heard = world.now;
    let silent = world.now.after(world.rules.worker_silence);
    assert_eq!(world.next(), wake_at(silent), "this server makes no call");
    world.now = silent;
    assert_eq!(world.next(), observe(Report::WorkerSilent { generation: G1.into() }));
}

#[test]
fn x3_the_silence_timer_of_a_queued_generation_starts_with_its_turn() {
    let start = for_a_worker(G2);
    let queued = crate::Start { when_busy: crate::WhenBusy::Queue, ..start };
    let mut world = given([running(G1)]);
    world.command(crate::Command::Start(queued)).unwrap();
    world.worker_heard = world.now;
    world = world.later(Duration::from_secs(60 * 60));
    world.command(cancel(G1)).unwrap();
    world.settle();
    assert_eq!(world.generation(G2).progress.phase, Phase::Running);
    let turn = world.generation(G2).progress.started_at.unwrap();
    assert_eq!(world.next(), wake_at(turn.after(world.rules.worker_silence)));
}
