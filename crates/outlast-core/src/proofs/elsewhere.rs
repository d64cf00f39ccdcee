//! Tools that do not run in the sandbox: what is asked, what is asked again after a crash, and what a person decides.

use crate::testing::*;
use crate::{Effect, Entry, Event, GenerationStatus, Outcome, Place, Recovery, SandboxState};

const CALLS: [(&str, &str, &str); 4] =
    [("c1", "fetch", "a"), ("c2", "fetch", "b"), ("c3", "put", "c"), ("c4", "send", "d")];

fn elsewhere(world: &World) -> Vec<Effect> {
    let asks = |effect: &Effect| matches!(effect, Effect::AskTool { .. });
    world.next().effects.into_iter().filter(asks).collect()
}

/// How each call ended. An attempt that was lost leaves its ids behind, so a call may have another id than it was given.
fn outcomes(log: &[Entry]) -> Vec<(&str, Option<Outcome>)> {
    let mut ended = Vec::new();
    for entry in log {
        if let Event::ToolEnd { tool_use_id, outcome, .. } = &entry.event {
            ended.push((&tool_use_id[..2], *outcome));
        }
    }
    ended
}

#[test]
fn x4_tools_elsewhere_run_without_a_sandbox_and_are_recorded_before_they_are_asked() {
    let mut world = agent_with_tools_elsewhere(Recovery::Safe);
    let place = world.log.len();
    world.ask_for(&CALLS);
    assert!(world.outside.sandboxes.is_empty());
    assert_eq!(world.outside.asked.len(), 4);
    let began = world.log[place..].iter().find_map(|entry| match &entry.event {
        Event::ToolBegan { read_only, place, idempotent, .. } => Some((*read_only, *place, *idempotent)),
        _ => None,
    });
    assert_eq!(began, Some((true, Place::Elsewhere, false)));
    assert_eq!(world.generation(G1).progress.rounds.round, 2);
}

#[test]
fn x4_the_sandbox_is_made_only_for_calls_that_need_it() {
    let mut world = agent_with_tools_elsewhere(Recovery::Safe);
    world.ask_for(&[("c1", "send", "a"), ("c2", "write", "b")]);
    assert_eq!((world.outside.sandboxes.len(), world.outside.asked.len()), (1, 1));
    assert_eq!(world.result_of("c2").unwrap(), OUTPUT.concat());
}

#[test]
fn i7_after_a_crash_an_idempotent_tool_is_asked_again_with_the_same_key() {
    for call in ["fetch", "put"] {
        let mut world = agent_with_tools_elsewhere(Recovery::Safe);
        world.outside.held = true;
        world.ask_for(&[("c1", call, "a")]);
        let wanted = elsewhere(&world);
        world.crash();
        world.settle();
        assert_eq!(elsewhere(&world), wanted, "{call}: the same execution");
        world.outside.held = false;
        world.settle();
        assert_eq!(world.result_of("c1").unwrap(), "asked");
        assert_eq!(world.outside.asked.len(), 1, "{call}: one key");
    }
}

#[test]
fn i7_after_a_crash_any_other_tool_is_not_asked_again_and_a_person_decides() {
    for (recovery, status) in [
        (Recovery::Safe, GenerationStatus::Interrupted),
        (Recovery::Auto, GenerationStatus::Running),
        (Recovery::Ask, GenerationStatus::Interrupted),
    ] {
        let mut world = agent_with_tools_elsewhere(recovery);
        world.outside.held = true;
        world.ask_for(&[("c1", "send", "a")]);
        world.crash();
        world.outside.held = false;
        world.settle();
        assert_eq!(world.generation(G1).status(), status, "{recovery:?}");
        for _ in 0..2 {
            if world.generation(G1).status() == GenerationStatus::Interrupted {
                world.command(resume(G1)).unwrap();
                world.settle();
            }
        }
        assert_eq!(outcomes(&world.log), [("c1", Some(Outcome::Unknown))], "{recovery:?}");
        assert!(world.result_of("c1").unwrap().contains("did not arrive"));
        let asked: Vec<u32> = world.outside.asked.values().copied().collect();
        assert!(asked.len() == 1, "{recovery:?}: {asked:?}");
        assert!(
            world.outside.sandboxes.is_empty(),
            "nothing is asked what is true where there is no sandbox"
        );
    }
}

#[test]
fn i7_a_crash_at_any_step_asks_no_tool_twice_that_is_not_idempotent() {
    let whole = {
        let mut world = agent_with_tools_elsewhere(Recovery::Auto);
        world.ask_for(&CALLS);
        world.model(vec![words("Done.")], Some(finished()));
        world.settle();
        world
    };
    for place in 3..whole.log.len() {
        let mut world = World::recovered(&whole.log[..place], &whole.rules);
        for _ in 0..100 {
            if world.step() {
                continue;
            }
            if world.call.is_none() {
                break;
            }
            let first = world.generation(G1).progress.rounds.round == 1;
            let calls = CALLS.iter().filter(|_| first).map(|(id, name, path)| call(id, name, path));
            let calls: Vec<_> = calls.collect();
            let end = if first { wants_tools() } else { finished() };
            world.model(if first { calls } else { vec![words("Done.")] }, Some(end));
        }
        assert_eq!(world.generation(G1).status(), GenerationStatus::Completed, "{place}");
        assert!(world.outside.asked.values().all(|times| *times == 1), "{place}: {:?}", world.outside.asked);
        let ended = outcomes(&world.log);
        assert_eq!(ended.len(), 4, "{place}");
        let unknown: Vec<&str> =
            ended.iter().filter(|(_, outcome)| outcome.is_some()).map(|(id, _)| *id).collect();
        assert!(unknown.is_empty() || unknown == ["c4"], "{place}: only `send` can be unknown: {unknown:?}");
    }
}

#[test]
fn i7_losing_the_sandbox_changes_nothing_about_calls_elsewhere() {
    let mut world = agent_with_tools_elsewhere(Recovery::Safe);
    world.ask_for(&[("c0", "write", "z")]);
    world.outside.held = true;
    world.ask_for(&[("c1", "send", "a")]);
    let wanted = elsewhere(&world);
    let sandbox = world.transcript.state.sandbox.as_ref().unwrap().id.clone();
    world.report(crate::Report::SandboxGone { sandbox, not_started: Vec::new() });
    assert_eq!(world.transcript.state.sandbox.as_ref().unwrap().state, SandboxState::Lost);
    assert_eq!(elsewhere(&world), wanted);
    assert_eq!(world.generation(G1).status(), GenerationStatus::Running);
}

#[test]
fn i9_a_cancel_leaves_nothing_to_kill_elsewhere() {
    let mut world = agent_with_tools_elsewhere(Recovery::Safe);
    world.outside.held = true;
    world.ask_for(&[("c1", "send", "a")]);
    world.command(cancel(G1)).unwrap();
    assert!(world.next().is_nothing(), "the effect is not wanted any more: {:?}", world.next());
    assert!(world.transcript.state.owed_stops.is_empty());
}
