use std::time::Duration;

use serde_json::json;

use crate::testing::*;
use crate::{
    Command, Decision, Effect, Event, GenerationStatus, Recovery, RetryMode, Rules, SandboxState, Timestamp,
    due,
};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn state_of(world: &World) -> SandboxState {
    world.transcript.state.sandbox.as_ref().unwrap().state
}

fn status(world: &World) -> GenerationStatus {
    world.generation(G1).status()
}

fn sandbox_id(world: &World) -> String {
    world.transcript.state.sandbox.as_ref().unwrap().id.to_string()
}

/// Loses the sandbox, as a reboot of its machine does.
fn lose(world: &mut World) {
    world.outside.sandboxes.clear();
}

/// An agent that has changed a file and then asks about another call.
fn waiting() -> World {
    let mut world = agent();
    world.ask_for(&[("w1", "write", "a"), ("d1", "rm", "b")]);
    world
}

fn system_messages(world: &World) -> Vec<String> {
    let of_server = |message: &&crate::Message| message.role == crate::Role::System;
    world.transcript.messages.iter().filter(of_server).map(|message| message.content.clone()).collect()
}

#[test]
fn g6_an_approval_pauses_the_sandbox_after_five_minutes_and_kills_it_a_day_later() {
    let mut world = waiting();
    let asked = world.now;
    assert_eq!(status(&world), GenerationStatus::AwaitingApproval);
    assert!(world.next().is_nothing(), "no owner waits with it");
    world.wait_until_due();
    assert_eq!(world.now.since(asked).as_secs(), 5 * 60);
    assert_eq!((state_of(&world), status(&world)), (SandboxState::Paused, GenerationStatus::Paused));
    let place = world.log.len();
    assert_eq!(
        world.kinds_after(place - 2),
        ["checkpoint.taken", "sandbox.changed"],
        "saved before it sleeps"
    );
    assert!(world.next().is_nothing());
    let paused = world.now;
    world.wait_until_due();
    assert_eq!(world.now.since(paused).as_secs(), DAY.as_secs());
    assert_eq!((state_of(&world), status(&world)), (SandboxState::Killed, GenerationStatus::Paused));
    assert_eq!(due(&world.transcript.state, &world.rules), None, "from here on it costs a row");
    assert!(world.outside.sandboxes.is_empty());
}

#[test]
fn g6_a_decision_resumes_a_paused_sandbox_and_restores_a_killed_one() {
    for decision in [Decision::Approve, Decision::Deny] {
        for kill in [false, true] {
            let mut world = waiting();
            let first = sandbox_id(&world);
            world.wait_until_due();
            if kill {
                world.wait_until_due();
            }
            world.crash();
            world.settle();
            assert_eq!(status(&world), GenerationStatus::Paused, "a restart changes nothing");
            world.command(decide_about("d1", decision)).unwrap();
            world.settle();
            assert_eq!(world.generation(G1).progress.rounds.round, 2);
            let ran = world.outside.ran.keys().any(|ran| ran.starts_with("rm"));
            assert_eq!(ran, decision == Decision::Approve);
            if ran {
                let expected = if kill { SandboxState::Restored } else { SandboxState::Resumed };
                assert_eq!(state_of(&world), expected);
                assert_eq!(sandbox_id(&world) == first, !kill, "a new sandbox has a new id");
            }
            assert!(system_messages(&world).is_empty(), "nothing was lost");
        }
    }
}

#[test]
fn g6_a_person_can_wake_a_paused_sandbox_and_it_falls_asleep_again() {
    let mut world = waiting();
    world.wait_until_due();
    world.command(resume(G1)).unwrap();
    assert!(world.command(resume(G1)).is_err(), "one wakes it");
    world.settle();
    assert_eq!(
        (state_of(&world), status(&world)),
        (SandboxState::Resumed, GenerationStatus::AwaitingApproval)
    );
    let woken = world.now;
    world.wait_until_due();
    assert!(world.now.since(woken) > 4 * MINUTE);
    assert_eq!(status(&world), GenerationStatus::Paused);
}

#[test]
fn g6_the_sandbox_is_made_while_a_person_is_asked() {
    let mut world = agent();
    world.ask_for(&[("d1", "rm", "b")]);
    assert_eq!(state_of(&world), SandboxState::Created);
    assert!(world.outside.started.is_empty());
}

#[test]
fn s2_an_idle_sandbox_pauses_after_a_quarter_of_an_hour_and_the_next_generation_reuses_it() {
    let mut world = agent();
    world.ask_for(&[("w1", "write", "a")]);
    world.model(vec![words("Done.")], Some(finished()));
    world.settle();
    let (first, ended) = (sandbox_id(&world), world.now);
    assert!(world.next().is_nothing());
    world.wait_until_due();
    assert_eq!(world.now.since(ended).as_secs(), 15 * 60);
    assert_eq!(state_of(&world), SandboxState::Paused);
    world.command(Command::Start(agent_request(G2))).unwrap();
    world.ask_for(&[("w2", "write", "b")]);
    assert_eq!((state_of(&world), sandbox_id(&world)), (SandboxState::Resumed, first.clone()));
    world.model(vec![words("Done.")], Some(finished()));
    world.settle();
    assert_eq!(world.stored.generations[&G2.into()].sandbox_id, Some(first));
}

#[test]
fn p1_files_are_saved_after_each_round_that_may_have_changed_them_and_before_the_next_tool() {
    let mut world = agent();
    world.ask_for(&[("w1", "write", "a")]);
    world.ask_for(&[("r1", "read", "a")]);
    world.ask_for(&[("w2", "write", "a"), ("w3", "write", "b")]);
    let marks = |entry: &crate::Entry| match entry.event {
        Event::ToolBegan { read_only, .. } => Some(if read_only { 'r' } else { 'w' }),
        Event::CheckpointTaken { .. } => Some('c'),
        Event::ChatStarted { .. } => Some('m'),
        _ => None,
    };
    let order: String = world.log.iter().filter_map(marks).collect();
    assert_eq!(order, "mwmcrmwwmc");
}

#[test]
fn a_tool_waits_for_the_checkpoint_of_the_round_before() {
    let mut world = World::asking_for(&[("w1", "write", "a")]);
    world.outside.held = false;
    while world.generation(G1).progress.rounds.round == 1 {
        assert!(world.next().effects.iter().all(|effect| !matches!(effect, Effect::TakeCheckpoint { .. })));
        world.step();
    }
    // The model answers before the checkpoint is there.
    assert_ne!(world.report(stream(G1, 2, vec![call("w2", "write", "b")], Some(wants_tools()))), 0);
    assert!(matches!(world.next().effects[..], [Effect::TakeCheckpoint { .. }]));
    assert_eq!(world.next().report, None);
    world.settle();
    assert!(world.result_of("w2").is_some());
}

#[test]
fn a_checkpoint_of_files_that_changed_since_is_not_taken_for_one_of_them() {
    let mut world = waiting();
    world.now = world.now.after(5 * MINUTE);
    let Effect::TakeCheckpoint { checkpoint, .. } = world.next().effects.remove(0) else { panic!() };
    world.command(decide_about("d1", Decision::Approve)).unwrap();
    world.outside.held = true;
    world.settle();
    assert_eq!(world.running(), ["d1"]);
    let late = crate::Report::CheckpointTaken { checkpoint, files: 1, bytes: 1, truth: None, left_out: None };
    assert_eq!(world.report(late), 0);
    assert!(world.transcript.state.sandbox.as_ref().unwrap().dirty.is_some());
}

#[test]
fn checkpoints_that_fail_hold_up_nothing_are_tried_three_times_and_keep_the_sandbox_alive() {
    let mut world = agent();
    world.outside.no_checkpoints = true;
    world.ask_for(&[("w1", "write", "a")]);
    world.ask_for(&[("w2", "write", "a")]);
    assert!(world.result_of("w2").is_some());
    world.model(vec![words("Done.")], Some(finished()));
    world.settle();
    assert_eq!(status(&world), GenerationStatus::Completed);
    assert_eq!(world.shown().pop().unwrap(), "Done.", "there is nothing to compare with");
    for _ in 0..3 {
        world.wait_until_due();
    }
    let failures = |entry: &&crate::Entry| matches!(entry.event, Event::CheckpointFailed { .. });
    assert_eq!(
        world.log.iter().rev().take_while(|entry| entry.generation.is_none()).filter(failures).count(),
        2
    );
    assert_eq!(state_of(&world), SandboxState::Paused);
    assert_eq!(due(&world.transcript.state, &world.rules), None, "what is not saved is not killed");
}

#[test]
fn x5_files_that_a_cancelled_generation_changed_are_still_saved() {
    let mut world = World::asking_for(&[("w1", "write", "a")]);
    world.command(cancel(G1)).unwrap();
    let place = world.log.len();
    world.crash();
    world.settle();
    assert_eq!(world.kinds_after(place), ["tool.stopped", "checkpoint.taken"]);
}

#[test]
fn s4_what_an_earlier_generation_left_is_not_counted_as_changed_by_this_one() {
    let mut world = World::asking_for(&[("w1", "write", "a")]);
    world.command(cancel(G1)).unwrap();
    world.command(Command::Start(agent_request(G2))).unwrap();
    world.settle();
    let left = world.transcript.state.sandbox.as_ref().unwrap().checkpoint.clone().unwrap().id;
    world.outside.held = false;
    world.ask_for(&[("w2", "write", "b")]);
    world.model(vec![words("Done.")], Some(finished()));
    while !matches!(world.next().effects.first(), Some(Effect::Summarize { .. })) {
        world.step();
    }
    let Effect::Summarize { from, .. } = world.next().effects.remove(0) else { panic!() };
    assert_eq!(from, Some(left));
}

#[test]
fn s6_a_lost_sandbox_is_restored_and_a_message_says_what_was_lost() {
    for recovery in [Recovery::Safe, Recovery::Auto] {
        let mut world = agent();
        world.rules.recovery = recovery;
        world.ask_for(&[("w1", "write", "a")]);
        lose(&mut world);
        world.ask_for(&[("w2", "write", "b")]);
        assert_eq!(state_of(&world), SandboxState::Restored);
        assert_eq!(world.outside.ran.len(), 2, "w2 had not started: it is not lost, it runs in the new one");
        assert!(system_messages(&world)[0].starts_with("The sandbox was lost. Its files were restored"));
        assert_eq!(world.generation(G1).progress.rounds.round, 3);
    }
}

#[test]
fn s6_a_sandbox_lost_before_any_checkpoint_is_replaced_and_a_running_tool_is_unknown() {
    for recovery in [Recovery::Safe, Recovery::Auto] {
        let mut world = World::asking_for(&[("w1", "write", "a"), ("r1", "read", "a")]);
        world.rules.recovery = recovery;
        lose(&mut world);
        world.outside.held = false;
        world.settle();
        assert!(world.result_of("w1").unwrap().starts_with("outcome unknown"));
        if recovery == Recovery::Safe {
            assert_eq!(status(&world), GenerationStatus::Interrupted);
            world.command(resume(G1)).unwrap();
            world.settle();
        }
        assert!(world.result_of("r1").is_some());
        assert!(system_messages(&world)[0].contains("it had no checkpoint"), "{:?}", system_messages(&world));
        assert!(world.outside.ran.values().all(|runs| *runs == 1));
    }
}

#[test]
fn a_sandbox_that_dies_again_and_again_ends_the_run() {
    let mut world = World::asking_for(&[("r1", "read", "a")]);
    for _ in 0..3 {
        lose(&mut world);
        world.settle();
    }
    assert_eq!(world.generation(G1).end_reason().0.unwrap(), "sandbox_unavailable");
    assert!(world.next().is_nothing());
}

#[test]
fn s6_a_sandbox_that_cannot_be_made_is_an_error_and_a_retry_goes_on_from_the_settled_round() {
    let mut world = agent();
    world.outside.no_sandboxes = true;
    world.ask_for(&[("w1", "write", "a")]);
    let (code, message) = world.generation(G1).end_reason();
    assert_eq!((code.as_deref(), message.as_deref()), (Some("sandbox_unavailable"), Some("no bwrap")));
    world.outside.no_sandboxes = false;
    world.command(retry(G1, RetryMode::Retry, G2)).unwrap();
    world.ask_for(&[("w1", "write", "a")]);
    assert!(world.result_of("w1-2").is_some());
    assert_eq!(world.outside.ran.values().sum::<u32>(), 1);
}

#[test]
fn a_checkpoint_that_cannot_be_restored_is_given_up_and_the_model_is_told() {
    let mut world = agent();
    world.ask_for(&[("w1", "write", "a")]);
    lose(&mut world);
    world.outside.no_restores = true;
    world.ask_for(&[("w2", "write", "b")]);
    assert_eq!(state_of(&world), SandboxState::Created);
    assert!(world.result_of("w2").is_some());
    assert!(system_messages(&world)[0].contains("its replacement is empty"));
}

#[test]
fn p5_a_checkpoint_of_another_branch_is_discarded() {
    let mut world = agent();
    let branch = |name: &str| Command::Update { title: None, metadata: Some(json!({"branch": name})) };
    world.command(branch("main")).unwrap();
    world.ask_for(&[("w1", "write", "a")]);
    world.command(branch("topic")).unwrap();
    lose(&mut world);
    world.ask_for(&[("w2", "write", "b")]);
    assert_eq!(state_of(&world), SandboxState::Created);
    assert!(system_messages(&world)[0].contains("the branch has changed"));
}

#[test]
fn i10_whatever_next_wants_is_due_and_whatever_is_due_is_wanted() {
    let mut world = waiting();
    world.wait_until_due();
    world.wait_until_due();
    for cut in 0..=world.log.len() {
        let owner = World::recovered(&world.log[..cut], &world.rules);
        let owed = due(&owner.transcript.state, &owner.rules);
        let next = owner.next();
        let wants = !next.effects.is_empty() || next.report.is_some();
        assert_eq!(wants, owed.is_some_and(|due| due <= owner.now), "at {cut}: {next:?}, due {owed:?}");
        if let Some(time) = owed.filter(|due| *due > owner.now) {
            let early = World { now: Timestamp(time.0 - 1), ..owner.clone() };
            assert!(early.next().is_nothing());
            assert!(!World { now: time, ..owner }.next().is_nothing());
        }
    }
}

#[test]
fn i18_a_hundred_thousand_parked_approvals_owe_nothing_but_a_time() {
    let world = waiting();
    let bytes = serde_json::to_vec(&world.transcript.state).unwrap().len();
    assert!(bytes < 4_096, "{bytes} bytes for a conversation that waits");
    let rules = Rules { tools: tools(), ..Rules::default() };
    assert!(due(&world.transcript.state, &rules).is_some_and(|due| due > world.now));
    assert_eq!(world.transcript.state.live_generations(), 0, "it counts for no limit");
}

/// An agent that has started a command in the background and is done.
fn left_running() -> World {
    let mut world = agent();
    let input = json!({"path": "a", "background": true});
    let serve = crate::Piece::ToolCall { id: "w1".into(), name: "write".into(), input };
    world.model(vec![serve], Some(wants_tools()));
    world.model(vec![words("It runs.")], Some(finished()));
    world.settle();
    world
}

fn checkpoints(world: &World) -> usize {
    world.log.iter().filter(|entry| matches!(entry.event, Event::CheckpointTaken { .. })).count()
}

#[test]
fn s2_what_a_command_in_the_background_changed_is_saved_before_each_pause() {
    let mut world = left_running();
    let saved = checkpoints(&world);
    for pause in 1..=2 {
        world.wait_until_due();
        assert_eq!(state_of(&world), SandboxState::Paused);
        let place = world.log.len();
        assert_eq!(world.kinds_after(place - 2), ["checkpoint.taken", "sandbox.changed"]);
        assert_eq!(checkpoints(&world), saved + 2 * pause - 1);
        let generation = format!("gen_{}", pause + 10);
        world.command(Command::Start(agent_request(&generation))).unwrap();
        world.ask_for(&[("w2", "write", "b")]);
        world.model(vec![words("Done.")], Some(finished()));
        world.settle();
        assert_eq!(state_of(&world), SandboxState::Resumed);
    }
    let mut failing = left_running();
    failing.outside.no_checkpoints = true;
    failing.wait_until_due();
    assert_eq!(state_of(&failing), SandboxState::Paused, "a checkpoint that fails does not keep it awake");
}

#[test]
fn the_transcript_says_that_commands_in_the_background_ended_with_their_sandbox() {
    let mut world = left_running();
    world.wait_until_due();
    world.wait_until_due();
    assert_eq!(state_of(&world), SandboxState::Killed);
    world.command(Command::Start(agent_request(G2))).unwrap();
    world.ask_for(&[("w2", "write", "b")]);
    assert_eq!(state_of(&world), SandboxState::Restored);
    assert!(system_messages(&world)[0].contains("background have ended"), "{:?}", system_messages(&world));
    assert!(!world.transcript.state.sandbox.as_ref().unwrap().background);
}

#[test]
fn s6_what_a_checkpoint_left_out_is_recorded_and_told_after_a_restore() {
    let mut world = agent();
    world.outside.left_out = Some("1 link that leaves the workspace: venv/bin/python".into());
    world.ask_for(&[("w1", "write", "a")]);
    let recorded = world.log.iter().any(|entry| {
        matches!(&entry.event, Event::CheckpointTaken { left_out: Some(left_out), .. } if left_out.contains("venv"))
    });
    assert!(recorded);
    lose(&mut world);
    world.ask_for(&[("w2", "write", "b")]);
    let told = &system_messages(&world)[0];
    assert!(told.contains("Not restored: 1 link that leaves the workspace: venv/bin/python."), "{told}");
}

#[test]
fn g6_a_tool_frozen_in_an_interrupted_run_is_saved_and_killed_in_the_end() {
    let mut world = World::asking_for(&[("w1", "write", "a")]);
    world.rules.recovery = Recovery::Ask;
    world.crash();
    world.settle();
    assert_eq!(status(&world), GenerationStatus::Interrupted);
    world.wait_until_due();
    assert_eq!(state_of(&world), SandboxState::Paused);
    let (paused, saved) = (world.now, checkpoints(&world));
    world.wait_until_due();
    assert_eq!(world.now.since(paused).as_secs(), DAY.as_secs());
    assert_eq!((state_of(&world), checkpoints(&world)), (SandboxState::Killed, saved + 1));
    assert_eq!(due(&world.transcript.state, &world.rules), None);
    assert!(world.result_of("w1").unwrap().starts_with("outcome unknown"));
    world.outside.held = false;
    world.command(resume(G1)).unwrap();
    world.settle();
    assert_eq!(world.outside.ran.values().copied().collect::<Vec<_>>(), [1], "it does not run twice");
    assert_eq!(state_of(&world), SandboxState::Restored);
}

#[test]
fn g6_a_frozen_tool_whose_files_cannot_be_saved_is_not_killed() {
    let mut world = World::asking_for(&[("w1", "write", "a")]);
    world.rules.recovery = Recovery::Ask;
    world.crash();
    world.settle();
    world.wait_until_due();
    world.outside.no_checkpoints = true;
    world.wait_until_due();
    assert_eq!(state_of(&world), SandboxState::Paused);
    assert_eq!(due(&world.transcript.state, &world.rules), None);
}
