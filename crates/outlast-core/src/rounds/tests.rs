use std::time::Duration;

use serde_json::json;

use crate::testing::*;
use crate::{
    CancelReason, Command, Decision, Event, FailureClass, GenerationStatus, Outcome, Phase, Policy, Recovery,
    Refusal, Report, RetryMode, Rules, Stage, WhenBusy,
};

#[test]
fn an_answer_with_calls_settles_the_round_and_its_tools_run() {
    let mut world = agent();
    world.model(vec![words("Let me look."), call("c1", "write", "a")], Some(wants_tools()));
    let place = world.log.len();
    assert_eq!(world.log[place - 1].event, Event::RoundEnded { round: 1, finish_reason: None });
    world.settle();
    let expected = [
        "sandbox.changed",
        "tool.began",
        "tool.output",
        "tool.output",
        "tool.end",
        "chat.started",
        "checkpoint.taken",
    ];
    assert_eq!(world.kinds_after(place), expected);
    assert_eq!(world.result_of("c1").unwrap(), OUTPUT.concat());
    let rounds = &world.generation(G1).progress.rounds;
    assert_eq!((rounds.round, rounds.stage, world.generation(G1).progress.attempt), (2, Stage::Answering, 2));
}

#[test]
fn read_only_calls_run_side_by_side_and_others_in_order() {
    let calls = [
        ("r1", "read", "a"),
        ("r2", "read", "b"),
        ("w1", "write", "c"),
        ("r3", "read", "d"),
        ("w2", "write", "e"),
    ];
    let mut world = World::asking_for(&calls);
    assert_eq!(world.running(), ["r1", "r2"]);
    let mut seen = vec![];
    world.outside.held = false;
    while world.transcript.state.active().unwrap().progress.rounds.round == 1 {
        world.step();
        let running = world.running().join(" ");
        if seen.last() != Some(&running) && !running.is_empty() {
            seen.push(running);
        }
    }
    assert_eq!(seen, ["r1 r2", "r2", "w1", "r3", "w2"]);
}

#[test]
fn i7_no_more_than_eight_read_only_calls_run_at_once() {
    let ids: Vec<String> = (0..20).map(|n| format!("r{n}")).collect();
    let calls: Vec<(&str, &str, &str)> = ids.iter().map(|id| (id.as_str(), "read", id.as_str())).collect();
    assert_eq!(World::asking_for(&calls).running().len(), 8);
}

#[test]
fn what_the_policy_denies_and_what_makes_no_sense_is_told_to_the_model() {
    let mut world = agent();
    let odd = crate::Piece::ToolCall { id: "c3".into(), name: "write".into(), input: json!("{\"pa") };
    let calls = vec![call("c1", "format", "/"), call("c2", "fly", "a"), odd];
    world.model(calls, Some(wants_tools()));
    world.settle();
    assert_eq!(world.result_of("c1").unwrap(), "denied by policy");
    assert_eq!(world.result_of("c2").unwrap(), "not run: unknown tool");
    assert_eq!(world.result_of("c3").unwrap(), "not run: the arguments are not a JSON object");
    assert!(
        world.outside.started.is_empty() && world.outside.sandboxes.is_empty(),
        "nothing runs, nothing is made"
    );
    assert_eq!(world.generation(G1).progress.rounds.round, 2);
}

#[test]
fn a_tool_that_was_not_offered_to_this_generation_does_not_run() {
    let mut world = World::new().with(agent_rules());
    let asked = agent_request(G1);
    let brief = crate::Brief { tools: vec!["read".into()], ..asked.brief };
    world.command(Command::Start(crate::Start { brief, ..agent_request(G1) })).unwrap();
    world.ask_for(&[("c1", "write", "a")]);
    assert!(world.result_of("c1").unwrap().starts_with("not run"));
}

#[test]
fn an_answer_with_too_many_calls_runs_the_first_ones() {
    let ids: Vec<String> = (0..130).map(|n| format!("c{n}")).collect();
    let calls: Vec<(&str, &str, &str)> = ids.iter().map(|id| (id.as_str(), "read", id.as_str())).collect();
    let mut world = agent();
    world.ask_for(&calls);
    assert_eq!(world.outside.started.len(), 128);
    assert!(world.result_of("c129").unwrap().contains("too many"));
}

#[test]
fn ids_that_a_model_repeats_become_unique() {
    let mut world = agent();
    world.ask_for(&[("call_0", "read", "a"), ("call_0", "read", "b"), ("", "read", "c")]);
    world.ask_for(&[("call_0", "read", "d"), (&"x".repeat(500), "read", "e")]);
    let ids = &world.generation(G1).progress.rounds.call_ids;
    assert_eq!(ids[..4], ["call_0", "call_0-2", "call", "call_0-3"]);
    assert!(ids[4].len() <= 64);
    assert_eq!(world.outside.started.len(), 5);
}

#[test]
fn a_model_that_repeats_one_id_for_ever_costs_no_more_with_each_call() {
    let mut world = agent().with(Rules { max_rounds: 100, ..agent_rules() });
    for _ in 0..20 {
        world.ask_for(&[("c", "read", "a"); 64]);
    }
    assert_eq!(world.outside.started.len(), 20 * 64, "each call ran");
    let ids = &world.generation(G1).progress.rounds.call_ids;
    assert_eq!(ids.len(), 1024);
    assert_eq!(ids[..3], ["c", "c-2", "c-3"]);
    assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), ids.len());
}

#[test]
fn i18_a_settled_round_is_never_retracted_and_failures_count_for_each_round() {
    let mut world = agent();
    for round in 1..=4 {
        for _ in 0..2 {
            world
                .model(vec![words("Let me "), call("c", "write", "a")], Some(broke(FailureClass::Transient)));
            world.wait();
        }
        world.ask_for(&[("c", "read", "a")]);
        assert_eq!(world.generation(G1).progress.rounds.round, round + 1);
    }
    world.model(vec![words("Half an ans")], Some(broke(FailureClass::Invalid)));
    let retracted = |entry: &&crate::Entry| matches!(entry.event, Event::AttemptRetracted { .. });
    assert_eq!(world.log.iter().filter(retracted).count(), 8, "check_log has looked at each of them");
    assert!(matches!(world.generation(G1).progress.phase, Phase::Failed { .. }));
}

#[test]
fn an_answer_that_breaks_off_with_calls_runs_none_of_them() {
    let mut world = agent();
    world.model(vec![call("c1", "write", "a")], Some(broke(FailureClass::Transient)));
    world.settle();
    assert!(world.outside.started.is_empty());
    world.wait();
    world.crash();
    world.settle();
    assert!(world.outside.started.is_empty());
}

#[test]
fn the_run_ends_with_a_reason_when_it_has_used_up_its_rounds_tokens_or_time() {
    let ends = |rules: Rules, wait: Duration| {
        let mut world = agent().with(rules);
        world.model(vec![call("c1", "read", "a"), usage(70, 30)], Some(wants_tools()));
        world.now = world.now.after(wait);
        world.settle();
        world.generation(G1).end_reason().0
    };
    let second = Duration::from_secs(1);
    let rules = agent_rules;
    assert_eq!(ends(Rules { max_rounds: 1, ..rules() }, second).unwrap(), "too_many_rounds");
    assert_eq!(ends(Rules { max_tokens: Some(100), ..rules() }, second).unwrap(), "too_many_tokens");
    assert_eq!(ends(Rules { max_time: Some(60 * second), ..rules() }, 60 * second).unwrap(), "too_much_time");
    let roomy = Rules { max_rounds: 2, max_tokens: Some(101), max_time: Some(600 * second), ..rules() };
    assert_eq!(ends(roomy, second), None);
}

#[test]
fn a_run_whose_time_is_used_up_ends_while_a_tool_runs_and_the_tool_is_stopped() {
    let limited = || Rules { max_time: Some(Duration::from_secs(60)), ..agent_rules() };
    let mut world = agent().with(limited());
    world.outside.held = true;
    world.ask_for(&[("w1", "write", "a")]);
    let began = world.generation(G1).progress.at_work_since.unwrap();
    assert_eq!(world.next().wake_at.map(|time| time.since(began).as_secs()), Some(60));
    world.wait();
    assert_eq!(world.generation(G1).end_reason().0.unwrap(), "too_much_time");
    assert_eq!(world.outside.stopped.len(), 1);
    assert_eq!(world.transcript.state.owed_stops, []);

    let mut answers = agent().with(limited());
    answers.model(vec![words("Let me think")], None);
    answers.wait();
    assert_eq!(answers.generation(G1).end_reason().0.unwrap(), "too_much_time");

    let mut crashed = agent().with(limited());
    crashed.outside.held = true;
    crashed.ask_for(&[("w1", "write", "a")]);
    crashed.now = crashed.now.after(Duration::from_secs(600));
    crashed.crash();
    crashed.settle();
    assert_eq!(crashed.generation(G1).end_reason().0.unwrap(), "too_much_time", "at the next start");
}

#[test]
fn time_that_a_person_takes_is_not_time_at_work() {
    let mut world = agent().with(Rules { max_time: Some(Duration::from_secs(60)), ..agent_rules() });
    world.ask_for(&[("c1", "rm", "a")]);
    world.now = world.now.after(Duration::from_secs(3_600));
    world.command(decide_about("c1", Decision::Approve)).unwrap();
    world.settle();
    assert!(world.call.is_some(), "{:?}", world.generation(G1).progress.phase);
    assert!(world.generation(G1).counters.worked_ms < 10_000);
}

#[test]
fn i8_nothing_runs_before_the_decision_and_calls_behind_it_wait() {
    let mut world = agent();
    let calls = [("w1", "write", "a"), ("d1", "rm", "b"), ("w2", "write", "c")];
    world.ask_for(&calls);
    assert_eq!(world.generation(G1).status(), GenerationStatus::AwaitingApproval);
    assert!(world.result_of("w1").is_some(), "what stands before the question runs");
    assert_eq!(world.outside.started.len(), 1);
    assert!(world.next().is_nothing(), "it waits without an owner: {:?}", world.next());
    world.command(decide_about("d1", Decision::Approve)).unwrap();
    world.settle();
    assert_eq!(world.outside.started.len(), 3);
    assert_eq!(world.generation(G1).progress.rounds.round, 2);
}

#[test]
fn g6_a_call_that_a_person_denies_ends_at_once_and_the_model_is_told_why() {
    let mut world = agent();
    world.ask_for(&[("d1", "rm", "b"), ("w2", "write", "c")]);
    let place = world.log.len();
    world.command(decide_about("d1", Decision::Deny)).unwrap();
    assert_eq!(world.kinds_after(place), ["approval.resolved", "tool.end"]);
    assert_eq!(world.result_of("d1").unwrap(), "denied by a person: I say so");
    assert_eq!(world.ending_of("d1"), (None, Some(Outcome::Denied), None), "it did not run");
    world.settle();
    assert!(world.result_of("w2").is_some());
    let (exit_code, outcome, duration_ms) = world.ending_of("w2");
    assert_eq!((exit_code, outcome), (Some(0), None));
    assert!(duration_ms.is_some(), "the server ran it");
    assert!(!world.outside.ran.keys().any(|ran| ran.starts_with("rm")));
}

#[test]
fn g6_a_batch_asks_for_each_call_that_needs_it_and_any_order_of_decisions_runs_them_in_order() {
    let mut world = World::asking_for(&[("d1", "rm", "a"), ("d2", "rm", "b")]);
    let pending = |world: &World| world.generation(G1).pending_approvals().count();
    assert_eq!(pending(&world), 2);
    world.command(decide_about("d2", Decision::Approve)).unwrap();
    world.settle();
    assert_eq!((pending(&world), world.running()), (1, vec![]));
    world.command(decide_about("d1", Decision::Approve)).unwrap();
    world.settle();
    assert_eq!(world.running(), ["d1"]);
    assert_eq!(world.generation(G1).status(), GenerationStatus::Running);
}

#[test]
fn i8_one_decision_counts_whatever_races_it() {
    let again = |world: World, decision| {
        let mut world = world;
        world.command(decide_about("d1", decision))
    };
    let mut world = World::asking_for(&[("d1", "rm", "a")]);
    world.command(decide_about("d1", Decision::Approve)).unwrap();
    for decision in [Decision::Approve, Decision::Deny] {
        assert!(matches!(again(world.clone(), decision), Err(Refusal::AlreadyDecided(_))));
    }
    let mut world = World::asking_for(&[("d1", "rm", "a")]);
    world.command(cancel(G1)).unwrap();
    let ended = Refusal::AlreadyEnded { status: GenerationStatus::Cancelled };
    assert_eq!(again(world.clone(), Decision::Approve), Err(ended));
    world.settle();
    assert!(world.outside.started.is_empty());
}

#[test]
fn always_holds_for_this_tool_in_this_conversation_and_answers_what_is_asked_already() {
    let mut world = agent();
    world.ask_for(&[("d1", "rm", "a"), ("d2", "rm", "b"), ("p1", "peek", "c")]);
    world.command(always("d1", Decision::Approve)).unwrap();
    let asked: Vec<String> =
        world.generation(G1).pending_approvals().map(|asked| asked.tool_use_id.clone()).collect();
    assert_eq!(asked, ["p1"], "another tool is another question");
    world.command(decide_about("p1", Decision::Deny)).unwrap();
    world.ask_for(&[("d3", "rm", "c")]);
    assert!(world.result_of("d3").is_some(), "not asked again");
    world.model(vec![words("Done.")], Some(finished()));
    world.settle();
    world.command(Command::Start(agent_request(G2))).unwrap();
    world.ask_for(&[("d4", "rm", "d")]);
    assert!(world.result_of("d4").is_some(), "nor in the next generation");
}

#[test]
fn an_operator_who_denies_overrules_always() {
    let mut world = agent();
    world.ask_for(&[("d1", "rm", "a")]);
    world.command(always("d1", Decision::Approve)).unwrap();
    world.settle();
    world.rules.tools.get_mut("rm").unwrap().policy = Policy::Deny;
    world.ask_for(&[("d2", "rm", "b")]);
    assert_eq!(world.result_of("d2").unwrap(), "denied by policy");
}

#[test]
fn i9_a_cancel_owes_the_running_tools_a_kill_until_they_are_dead() {
    for crash in [false, true] {
        let mut world = World::asking_for(&[("r1", "read", "a"), ("r2", "read", "b")]);
        let place = world.log.len();
        world.command(cancel(G1)).unwrap();
        assert_eq!(world.transcript.state.owed_stops.len(), 2);
        if crash {
            world.crash();
        }
        assert_eq!(crate::due(&world.transcript.state, &world.rules), Some(crate::Timestamp::default()));
        world.settle();
        assert_eq!(world.outside.stopped.len(), 2);
        assert_eq!(world.kinds_after(place), ["chat.cancelled", "tool.stopped", "tool.stopped"]);
        assert!(world.transcript.state.owed_stops.is_empty());
    }
}

#[test]
fn g14_a_message_that_interrupts_stops_the_tools_before_any_other_begins() {
    let mut world = World::asking_for(&[("w1", "write", "a")]);
    world
        .command(Command::Start(crate::Start { when_busy: WhenBusy::Interrupt, ..agent_request(G2) }))
        .unwrap();
    let superseded = |entry: &crate::Entry| {
        matches!(entry.event, Event::ChatCancelled { reason: CancelReason::Superseded })
    };
    assert!(world.log.iter().any(superseded));
    // The next model answers before the tool is dead.
    let stream = stream(G2, 1, vec![call("w2", "write", "b")], Some(wants_tools()));
    assert_ne!(world.report(stream), 0);
    assert_eq!(
        world.report(Report::ToolsDue { generation: G2.into() }),
        0,
        "not beside a tool that is alive"
    );
    world.outside.held = false;
    world.settle();
    assert_eq!(world.outside.stopped.len(), 1);
    assert!(world.result_of("w2").is_some());
}

#[test]
fn x8_another_owner_attaches_to_what_runs_and_nothing_runs_twice() {
    let mut world = World::asking_for(&[("w1", "write", "a"), ("w2", "write", "b")]);
    for _ in 0..3 {
        world.crash();
        world.settle();
        assert_eq!(world.running(), ["w1"]);
    }
    world.outside.held = false;
    while world.generation(G1).progress.rounds.round == 1 {
        world.step();
        world.crash();
    }
    assert!(world.outside.ran.values().all(|runs| *runs == 1), "{:?}", world.outside.ran);
    let output: String = world
        .log
        .iter()
        .filter_map(|entry| match &entry.event {
            Event::ToolOutput { tool_use_id, text, .. } if tool_use_id == "w1" => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(output, OUTPUT.concat(), "complete to the byte");
    assert_eq!(world.generation(G1).progress.attempt, 2, "no attempt is lost with the owner of a tool");
}

#[test]
fn p2_ask_interrupts_a_run_in_its_tools_too_and_resuming_attaches() {
    let mut world = World::asking_for(&[("w1", "write", "a")]);
    world.rules.recovery = Recovery::Ask;
    world.crash();
    world.settle();
    assert_eq!(world.generation(G1).status(), GenerationStatus::Interrupted);
    world.outside.held = false;
    world.command(resume(G1)).unwrap();
    world.settle();
    assert_eq!(world.outside.ran.len(), 1);
    assert_eq!(world.generation(G1).progress.rounds.round, 2);
}

#[test]
fn p2_a_run_that_waits_for_a_person_is_not_interrupted_by_a_restart() {
    let mut world = World::asking_for(&[("d1", "rm", "a")]);
    world.rules.recovery = Recovery::Ask;
    world.crash();
    world.settle();
    assert_eq!(world.generation(G1).status(), GenerationStatus::AwaitingApproval);
    world.outside.held = false;
    world.command(decide_about("d1", Decision::Approve)).unwrap();
    world.settle();
    assert!(world.result_of("d1").is_some());
}

#[test]
fn i7_a_lost_tool_ends_as_unknown_and_a_person_is_asked_unless_the_operator_said_go_on() {
    for recovery in [Recovery::Safe, Recovery::Ask, Recovery::Auto] {
        let mut world = World::asking_for(&[("w1", "write", "a"), ("w2", "write", "b")]);
        world.rules.recovery = recovery;
        let lost = world.generation(G1).progress.rounds.executions[0].id.clone();
        world.outside.forgotten.insert(lost);
        world.outside.held = false;
        world.settle();
        assert!(world.result_of("w1").unwrap().starts_with("outcome unknown"));
        let interrupted = world.generation(G1).status() == GenerationStatus::Interrupted;
        assert_eq!(interrupted, recovery != Recovery::Auto);
        if interrupted {
            world.command(resume(G1)).unwrap();
            world.settle();
            let said = world.shown().into_iter().find(|said| said.starts_with("[SESSION_RESUMED]")).unwrap();
            assert!(said.contains("Outcome unknown: w1") && said.contains("M src/main.rs"), "{said}");
        }
        assert_eq!(world.generation(G1).progress.rounds.round, 2);
        assert_eq!(world.outside.ran.values().copied().collect::<Vec<_>>(), [1, 1]);
    }
}

#[test]
fn i7_a_lost_tool_that_changes_nothing_begins_again_once() {
    let mut world = World::asking_for(&[("r1", "read", "a")]);
    let lose = |world: &mut World| {
        let lost = world.generation(G1).progress.rounds.executions[0].id.clone();
        world.outside.forgotten.insert(lost);
        world.settle();
    };
    lose(&mut world);
    assert_eq!(world.running(), ["r1"]);
    lose(&mut world);
    assert_eq!(world.running(), [""; 0], "a tool that is lost time and again is not begun for ever");
    assert_eq!(world.generation(G1).status(), GenerationStatus::Interrupted);
}

#[test]
fn output_that_was_recorded_is_not_recorded_again_and_has_a_limit() {
    let mut world = World::asking_for(&[("w1", "write", "a")]);
    let execution = world.generation(G1).progress.rounds.executions[0].id.clone();
    let write = |world: &mut World, offset: u64, text: &str| {
        let (stream, bytes, text) = (crate::ToolStream::Stdout, text.len() as u64, text.to_owned());
        let output = vec![crate::Output { stream, offset, bytes, text }];
        world.report(Report::Ran(crate::Ran {
            generation: G1.into(),
            execution: execution.clone(),
            output,
            end: None,
        }))
    };
    assert_eq!(write(&mut world, 0, "abc"), 1);
    assert_eq!(write(&mut world, 0, "abc"), 0, "again");
    assert_eq!(write(&mut world, 4, "e"), 0, "with a gap");
    assert_eq!(write(&mut world, 3, &"x".repeat(300_000)), 1);
    assert_eq!(write(&mut world, 300_003, "more"), 0, "over the limit; the sandbox has all of it");
}

#[test]
fn s4_a_run_that_changed_files_ends_with_a_summary_and_the_conversation_lists_them() {
    let mut world = agent();
    world.ask_for(&[("w1", "write", "a")]);
    let place = world.log.len();
    world.model(vec![words("All done.")], Some(finished()));
    world.settle();
    let kinds = world.kinds_after(place);
    let expected = [
        "assistant.segment.started",
        "chat.delta",
        "round.ended",
        "chat.delta",
        "assistant.segment.ended",
        "conversation.updated",
        "chat.done",
    ];
    assert_eq!(kinds, expected);
    let said = world.shown().pop().unwrap();
    assert!(said.starts_with("All done.") && said.ends_with("</files_summary>"), "{said}");
    assert_eq!(world.view().conversation.files[0]["path"], "src/main.rs");
    assert_eq!(world.generation(G1).status(), GenerationStatus::Completed);
}

#[test]
fn s4_a_run_that_changed_nothing_ends_as_a_plain_one() {
    let mut world = agent();
    world.ask_for(&[("r1", "read", "a")]);
    let place = world.log.len();
    world.model(vec![words("Nothing to do.")], Some(finished()));
    let kinds = ["assistant.segment.started", "chat.delta", "assistant.segment.ended", "chat.done"];
    assert_eq!(world.kinds_after(place), kinds);
}

#[test]
fn x8_a_crash_while_finishing_calls_no_model_again() {
    let mut world = agent();
    world.ask_for(&[("w1", "write", "a")]);
    world.model(vec![words("All done.")], Some(finished()));
    assert_eq!(world.generation(G1).progress.rounds.stage, Stage::Finishing);
    world.crash();
    world.settle();
    assert_eq!(world.generation(G1).progress.attempt, 2);
    assert_eq!(world.generation(G1).status(), GenerationStatus::Completed);
}

#[test]
fn g7_retry_and_continue_keep_the_settled_rounds_and_drop_or_keep_the_rest() {
    for mode in [RetryMode::Retry, RetryMode::Continue] {
        let mut world = agent();
        world.model(vec![words("First."), call("w1", "write", "a")], Some(wants_tools()));
        world.settle();
        world.model(vec![words("Half an ans")], None);
        world.model(vec![], Some(broke(FailureClass::Invalid)));
        world.settle();
        world.command(retry(G1, mode, G2)).unwrap();
        let shown = world.shown();
        assert!(shown.contains(&"First.".to_owned()));
        assert_eq!(shown.contains(&"Half an ans".to_owned()), mode == RetryMode::Continue);
        let rounds = world.generation(G2).progress.rounds.clone();
        assert_eq!((rounds.round, rounds.inherited, rounds.of), (2, 1, vec![G1.into()]));
        assert!(rounds.touched, "what the failed one changed is summarised too");
        world.ask_for(&[("w1", "write", "b")]);
        assert!(world.result_of("w1-2").is_some(), "ids stay unique over both");
    }
}

#[test]
fn i8_a_call_that_the_operator_forbids_by_now_does_not_run_though_it_was_approved() {
    let mut world = World::asking_for(&[("d1", "rm", "a")]);
    world.rules.tools.get_mut("rm").unwrap().policy = Policy::Deny;
    world.command(decide_about("d1", Decision::Approve)).unwrap();
    world.settle();
    assert_eq!(world.result_of("d1").unwrap(), "denied by policy");
    assert!(world.outside.started.is_empty());
}

#[test]
fn i8_a_call_whose_question_or_denial_is_missing_from_the_log_does_not_run() {
    let asked = World::asking_for(&[("d1", "rm", "a")]);
    let settled = asked.log.iter().position(|entry| matches!(entry.event, Event::RoundEnded { .. })).unwrap();
    let mut world = World::recovered(&asked.log[..=settled], &asked.rules);
    world.settle();
    assert_eq!(world.generation(G1).status(), GenerationStatus::AwaitingApproval);
    let mut denied = asked.clone();
    denied.command(decide_about("d1", Decision::Deny)).unwrap();
    let mut world = World::recovered(&denied.log[..denied.log.len() - 1], &denied.rules);
    world.settle();
    assert_eq!(world.result_of("d1").unwrap(), "denied by a person: I say so");
    assert!(world.outside.started.is_empty());
}
