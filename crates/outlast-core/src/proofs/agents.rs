//! An agent whose owner dies at every step and between any two: nothing runs twice, no byte of output is lost.

use std::collections::BTreeMap;

use crate::testing::*;
use crate::{CallEnd, Decision, Entry, Event, GenerationStatus, Piece, Recovery, Rules};

/// The tool calls that the model makes in each round. After the last round it finishes.
const SCRIPT: [&[(&str, &str, &str)]; 3] = [
    &[("c1", "read", "a"), ("c2", "read", "b"), ("c3", "write", "c")],
    &[("c4", "write", "d"), ("c5", "rm", "e"), ("c6", "write", "f")],
    &[("c7", "write", "g")],
];

/// Where an owner dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Death {
    /// When this many events are recorded.
    After(usize),
    /// The same, but what should happen next has happened and is not recorded yet.
    Unsaid(usize),
}

/// The model's next answer: half of it, then the rest.
fn answer(world: &mut World) {
    let run = world.generation(G1);
    let begun = run.open_segment().is_some();
    let round = usize::try_from(run.progress.rounds.round).unwrap();
    let calls = SCRIPT.get(round - 1).copied().unwrap_or_default();
    if !begun {
        world.model(vec![words(&format!("Round {round}. "))], None);
        return;
    }
    let calls: Vec<Piece> = calls.iter().map(|(id, name, path)| call(id, name, path)).collect();
    let end = if calls.is_empty() { finished() } else { wants_tools() };
    let end = Some(end).filter(|end| matches!(end, CallEnd::Finished { .. }));
    world.model([calls, vec![usage(10, 5)]].concat(), end);
}

/// Performs one step. Returns false when nothing is left.
fn advance(world: &mut World) -> bool {
    if world.step() {
        return true;
    }
    if world.call.is_some() {
        answer(world);
        return true;
    }
    let Some(active) = world.transcript.state.active() else { return false };
    if active.status() == GenerationStatus::Interrupted {
        world.command(resume(G1)).unwrap();
        return true;
    }
    let asked = active.pending_approvals().next().expect("it waits for a decision").tool_use_id.clone();
    world.command(decide_about(&asked, Decision::Approve)).unwrap();
    true
}

fn live(recovery: Recovery, deaths: &[Death]) -> World {
    let mut world = agent().with(Rules { recovery, ..agent_rules() });
    let mut deaths = deaths.iter().peekable();
    for _ in 0..2_000 {
        let recorded = world.log.len();
        if let Some(death) = deaths.next_if(|death| match death {
            Death::After(place) | Death::Unsaid(place) => *place <= recorded,
        }) {
            if matches!(death, Death::Unsaid(_)) {
                let state = world.transcript.state.clone();
                for effect in world.next().effects {
                    world.outside.carry_out(&effect, &state);
                }
            }
            world.crash();
        }
        if !advance(&mut world) {
            return world;
        }
    }
    panic!("it never ends: {:#?}", world.log)
}

fn output(log: &[Entry]) -> BTreeMap<&str, String> {
    let mut output: BTreeMap<&str, String> = BTreeMap::new();
    for entry in log {
        if let Event::ToolOutput { tool_use_id, text, .. } = &entry.event {
            output.entry(tool_use_id).or_default().push_str(text);
        }
    }
    output
}

/// What a person reads, without the server's messages about restarts.
fn transcript(world: &World) -> Vec<String> {
    world.shown().into_iter().filter(|said| !said.starts_with("[SESSION_RESUMED]")).collect()
}

fn check(world: &World, whole: &World, deaths: &[Death]) {
    assert_eq!(world.generation(G1).status(), GenerationStatus::Completed, "{deaths:?}");
    assert_eq!(world.outside.ran.len(), 7, "{deaths:?}");
    assert!(world.outside.ran.values().all(|runs| *runs == 1), "{deaths:?}: {:?}", world.outside.ran);
    let output = output(&world.log);
    assert!(
        output.len() == 7 && output.values().all(|text| *text == OUTPUT.concat()),
        "{deaths:?}: {output:?}"
    );
    assert_eq!(transcript(world), transcript(whole), "{deaths:?}");
    assert_eq!(world.view().conversation.files, whole.view().conversation.files);
    assert_eq!(world.outside.sandboxes.len(), 1, "one sandbox for all of it");
}

#[test]
fn x8_an_owner_that_dies_at_any_step_or_between_two_repeats_no_tool_and_loses_no_byte() {
    let mut runs = 0;
    for recovery in [Recovery::Safe, Recovery::Auto, Recovery::Ask] {
        let whole = live(recovery, &[]);
        check(&whole, &whole, &[]);
        for place in 0..=whole.log.len() {
            for death in [Death::After(place), Death::Unsaid(place)] {
                check(&live(recovery, &[death]), &whole, &[death]);
                runs += 1;
            }
        }
    }
    println!("x8: {runs} runs, each died once; no execution was repeated and no byte of output was lost");
}

#[test]
fn x8_owners_that_die_at_every_step_repeat_no_tool_and_lose_no_byte() {
    for recovery in [Recovery::Safe, Recovery::Auto] {
        let whole = live(recovery, &[]);
        for gap in 1..=4 {
            for first in 0..gap {
                let places = (first..whole.log.len()).step_by(gap);
                let deaths: Vec<Death> = places
                    .map(|place| if place % 2 == 0 { Death::Unsaid(place) } else { Death::After(place) })
                    .collect();
                check(&live(recovery, &deaths), &whole, &deaths);
            }
        }
    }
}
