use std::time::Duration;

use crate::testing::*;
use crate::{GenerationStatus, Recovery, Refusal, Role, Rules, SandboxState};

/// An agent that a crash has interrupted in the middle of its second answer.
fn interrupted_in_its_answer() -> World {
    let mut world = agent().with(Rules { recovery: Recovery::Ask, ..agent_rules() });
    world.ask_for(&[("w1", "write", "a")]);
    world.model(vec![thoughts("Hm."), words("The file is")], None);
    world.crash();
    world.settle();
    world
}

fn told(world: &World) -> String {
    let of_server = |message: &&crate::Message| message.role == Role::System;
    world.transcript.messages.iter().rev().find(of_server).unwrap().content.clone()
}

#[test]
fn p3_resuming_tells_the_model_where_the_run_stands_and_goes_on() {
    let mut world = interrupted_in_its_answer();
    let interrupted = world.log.last().unwrap().event.clone();
    assert!(matches!(interrupted, crate::Event::ChatInterrupted { round: 2, .. }), "{interrupted:?}");
    let place = world.log.len();
    world.command(resume(G1)).unwrap();
    world.settle();
    let kinds = ["chat.resumed", "attempt.retracted", "message.added", "chat.started"];
    assert_eq!(world.kinds_after(place), kinds);
    let told = told(&world);
    for part in ["[SESSION_RESUMED]", "round 2", " M src/main.rs", "The file is"] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
    world.model(vec![words("The file is written.")], Some(finished()));
    world.settle();
    assert_eq!(world.generation(G1).status(), GenerationStatus::Completed);
    assert_eq!(world.outside.ran.values().sum::<u32>(), 1);
}

#[test]
fn p5_of_two_who_press_resume_one_wins_and_a_cancelled_run_offers_none() {
    let mut world = interrupted_in_its_answer();
    world.command(resume(G1)).unwrap();
    let refused = Refusal::NotInterrupted { status: GenerationStatus::Running };
    assert_eq!(world.command(resume(G1)), Err(refused));
    let mut world = interrupted_in_its_answer();
    world.command(dismiss(G1)).unwrap();
    let ended = Refusal::AlreadyEnded { status: GenerationStatus::Cancelled };
    assert_eq!(world.command(resume(G1)), Err(ended));
}

#[test]
fn p3_a_crash_while_resuming_asks_the_sandbox_again_and_tells_the_model_once() {
    let mut world = interrupted_in_its_answer();
    world.rules.recovery = Recovery::Safe;
    world.command(resume(G1)).unwrap();
    for _ in 0..3 {
        world.crash();
    }
    world.settle();
    let messages = world.transcript.messages.iter().filter(|message| message.role == Role::System);
    assert_eq!(messages.count(), 1);
    assert_eq!(world.generation(G1).counters.lost_in_a_row, 0);
}

#[test]
fn p5_an_expired_sandbox_with_an_old_checkpoint_starts_fresh_and_says_so() {
    for (wait, expected) in [(20, SandboxState::Restored), (40, SandboxState::Created)] {
        let mut world = interrupted_in_its_answer();
        world.outside.sandboxes.clear();
        world.now = world.now.after(Duration::from_secs(wait * 60));
        world.command(resume(G1)).unwrap();
        world.settle();
        assert_eq!(world.transcript.state.sandbox.as_ref().unwrap().state, expected);
        let says_so = told(&world).contains("sandbox expired");
        assert_eq!(says_so, expected == SandboxState::Created, "{}", told(&world));
        assert!(told(&world).starts_with("[SESSION_RESUMED]"));
        let messages = world.transcript.messages.iter().filter(|message| message.role == Role::System);
        assert_eq!(messages.count(), 1, "one message says all of it");
    }
}

#[test]
fn p3_an_agent_without_a_sandbox_resumes_as_a_plain_answer_does() {
    let mut world = agent().with(Rules { recovery: Recovery::Ask, ..agent_rules() });
    world.model(vec![words("I will")], None);
    world.crash();
    world.settle();
    let place = world.log.len();
    world.command(resume(G1)).unwrap();
    assert_eq!(world.kinds_after(place), ["chat.resumed", "attempt.retracted", "chat.started"]);
}

#[test]
fn g5_a_cancel_ends_a_run_that_is_being_resumed() {
    let mut world = interrupted_in_its_answer();
    world.command(resume(G1)).unwrap();
    world.command(cancel(G1)).unwrap();
    world.settle();
    assert_eq!(world.generation(G1).status(), GenerationStatus::Cancelled);
    assert!(world.call.is_none());
}

#[test]
fn p3_a_run_that_was_interrupted_while_finishing_just_finishes() {
    let mut world = agent();
    world.ask_for(&[("w1", "write", "a")]);
    world.model(vec![words("Done.")], Some(finished()));
    world.rules.recovery = Recovery::Ask;
    world.crash();
    world.settle();
    assert_eq!(world.generation(G1).status(), GenerationStatus::Interrupted);
    world.command(resume(G1)).unwrap();
    world.settle();
    assert_eq!(world.generation(G1).status(), GenerationStatus::Completed);
    assert_eq!(world.generation(G1).progress.attempt, 2);
}
