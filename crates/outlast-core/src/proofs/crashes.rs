//! Crashes at every event: for each prefix of each log a new owner takes over and finishes, and crashes up
//! to five more times on the way. What clients see in the end must not depend on the crashes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fixtures::logs;
use crate::testing::*;
use crate::{Decision, Entry, Event, GenerationId, Phase, Place, Recovery, Rules, WorkerEnd, due};

/// The model's answer to every call, in two pieces.
const ANSWER: [&str; 2] = ["All is ", "well."];

const CRASHES: u32 = 5;

/// What the person does with an interrupted generation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Person {
    Resumes,
    Dismisses,
    IsAway,
}

/// Performs one step. Returns false when nothing is left.
fn advance(world: &mut World, person: Person) -> bool {
    if world.step() {
        return true;
    }
    if let Some(made) = world.transcript.state.active().filter(|active| active.brief.is_for_worker())
        && made.progress.phase == Phase::Running
        && world.worker == Some(made.progress.attempt)
    {
        let done = WorkerEnd::Done { reason: "stop".into() };
        match world.answer_shown(&made.id.clone()) {
            said if said.is_empty() => world.produce(vec![words(ANSWER[0])], None),
            _ => world.produce(vec![words(ANSWER[1])], Some(done)),
        }
        return true;
    }
    if let Some(time) = world.next().wake_at.filter(|_| world.call.is_none()) {
        world.now = time;
        return true;
    }
    if let Some((generation, _)) = world.call.clone() {
        match has_begun_to_answer(world, &generation) {
            false => world.model(vec![words(ANSWER[0])], None),
            true => world.model(vec![words(ANSWER[1]), usage(1, 2)], Some(finished())),
        }
        return true;
    }
    let Some(active) = world.transcript.state.active() else { return falls_due(world) };
    let asked = active.pending_approvals().next().map(|asked| asked.tool_use_id.clone());
    if let Some(asked) = asked {
        let decides = person != Person::IsAway && world.command(decide_about(&asked, Decision::Deny)).is_ok();
        return decides || falls_due(world);
    }
    assert_eq!(
        active.progress.phase,
        Phase::Interrupted,
        "the generation neither ended nor waits for a person"
    );
    let id = active.id.to_string();
    match person {
        Person::Resumes if active.brief.is_for_worker() => world.claim(false),
        Person::Resumes => world.command(resume(&id)).unwrap(),
        Person::Dismisses => world.command(dismiss(&id)).unwrap(),
        Person::IsAway => return falls_due(world),
    }
    true
}

/// Lets time pass until the sandbox has to be looked after.
fn falls_due(world: &mut World) -> bool {
    let due = due(&world.transcript.state, &world.rules).filter(|due| *due > world.now);
    due.inspect(|due| world.now = *due).is_some()
}

/// Whether the current answer has begun. For an agent, only the current round counts.
fn has_begun_to_answer(world: &World, generation: &GenerationId) -> bool {
    let run = world.transcript.state.generation(generation).unwrap();
    match run.is_agent() {
        true => run.open_segment().is_some(),
        false => !world.answer_shown(generation).is_empty(),
    }
}

/// Removes what a crash may change: attempts, positions, times, and ids that contain the attempt.
fn timeless(mut value: Value) -> Value {
    const CHANGING: [&str; 15] = [
        "attempt",
        "failures",
        "lost",
        "tokens",
        "chunks",
        "until",
        "produced",
        "worked",
        "since",
        "ends",
        "dirty",
        "reason",
        "resumed",
        "duration",
        "said_bytes",
    ];
    match &mut value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                let name = name.to_lowercase();
                let changes =
                    name.ends_with("seq") || name.ends_with("at") || name.ends_with("at_work_since");
                let counts_messages = name == "messages" && field.is_number();
                let changes =
                    changes || counts_messages || CHANGING.iter().any(|changing| name.contains(changing));
                *field = if changes { Value::Null } else { timeless(field.take()) };
            }
            *fields =
                std::mem::take(fields).into_iter().map(|(name, field)| (same_answer(&name), field)).collect();
        }
        Value::Array(list) => {
            list.retain(|item| !is_told_by_the_server(item));
            list.iter_mut().for_each(|item| *item = timeless(item.take()));
        }
        Value::String(text) => *text = same_answer(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    value
}

/// Replaces `answer_2_of_gen_1` with a name that is the same for every attempt of `gen_1`.
fn same_answer(text: &str) -> String {
    // Ids that are derived from a position in the log.
    for derived in ["exec_", "cp_", "msg_"] {
        if text.starts_with(derived) {
            return derived.to_owned();
        }
    }
    match text.strip_prefix("answer_").and_then(|rest| rest.split_once("_of_")) {
        Some((_, generation)) => format!("answer of {generation}"),
        None => text.to_owned(),
    }
}

/// In `ask` mode every crash adds a system message. The message about a lost sandbox is recorded together with the event
/// that it explains, but these tests may cut the log between the two.
fn is_told_by_the_server(item: &Value) -> bool {
    item["role"] == "system"
}

/// What clients see in the end, by state, so that each state is explored once.
type Known = BTreeMap<String, Value>;

/// Continues from here to the end, and also crashes at every event on the way. The owners that take over do
/// the same. All of these runs must lead to the same view.
fn check_outcome(world: World, person: Person, known: &mut Known) {
    let mut heirs: Vec<(World, Option<Value>)> = vec![(world, None)];
    while let Some((world, expected)) = heirs.pop() {
        let state =
            timeless(serde_json::to_value((&world.transcript.state, world.view())).unwrap()).to_string();
        // Most of the new owners return to a state that has already been seen.
        if let Some(view) = known.get(&state) {
            assert!(expected.is_none_or(|expected| expected == *view), "after a crash: {:#?}", world.log);
            continue;
        }
        let lived = live_on(world.clone(), person);
        let view = seen_in_the_end(&lived);
        if let Some(expected) = expected {
            let (seen, expected) = (view.to_string(), expected.to_string());
            assert!(seen == expected, "after a crash at {}:\n{seen}\n{expected}", world.log.len());
        }
        known.insert(state, view.clone());
        let cuts = world.log.len() + 1..=lived.log.len();
        heirs.extend(cuts.map(|cut| (World::recovered(&lived.log[..cut], &lived.rules), Some(view.clone()))));
    }
}

fn seen_in_the_end(world: &World) -> Value {
    timeless(serde_json::to_value(world.view()).unwrap())
}

fn live_on(mut world: World, person: Person) -> World {
    for _ in 0..400 {
        if !advance(&mut world, person) {
            return world;
        }
    }
    panic!("the generation never ends: {:#?}", world.log)
}

fn every_cut(check: impl Fn(&str, &[Entry], World, Person)) {
    let policies = [
        (Recovery::Safe, Person::IsAway),
        (Recovery::Auto, Person::IsAway),
        (Recovery::Ask, Person::IsAway),
        (Recovery::Ask, Person::Resumes),
        (Recovery::Ask, Person::Dismisses),
    ];
    for (name, log) in logs_of_one() {
        for cut in 0..=log.len() {
            for (recovery, person) in policies {
                let rules = Rules { recovery, ..agent_rules() };
                check(&name, &log[..cut], World::recovered(&log[..cut], &rules), person);
            }
        }
    }
}

#[test]
fn i10_after_a_crash_at_any_event_everything_ends_or_waits_for_a_person() {
    every_cut(|name, prefix, world, person| {
        let world = live_on(world, person);
        let queued = |entry: &&Entry| matches!(entry.event, Event::GenerationQueued { .. });
        let accepted = world.log.iter().filter(queued).count();
        let ends = world.log.iter().filter(|entry| entry.event.is_end()).count();
        match world.transcript.state.active() {
            None => assert_eq!(ends, accepted, "{name} cut at {}", prefix.len()),
            Some(waiting) => {
                let for_a_person =
                    waiting.progress.phase == Phase::Interrupted || waiting.waits_for_a_decision();
                assert!(person == Person::IsAway && for_a_person, "{:?}", waiting.progress.phase);
                assert_eq!(ends + 1 + world.transcript.state.queue.len(), accepted);
            }
        }
    });
}

#[test]
fn i1_answers_from_before_a_crash_are_unchanged_and_later_ones_are_complete() {
    every_cut(|name, prefix, world, person| {
        let before = world.clone();
        let after = live_on(world, person);
        for (place, entry) in after.log.iter().enumerate() {
            let Event::ChatDone { .. } = entry.event else { continue };
            let id = entry.generation.as_ref().unwrap();
            let shown = after.answer_shown(id);
            if place < prefix.len() {
                assert_eq!(shown, before.answer_shown(id), "{name} cut at {}", prefix.len());
                assert_eq!(after.stored.generations[id], before.stored.generations[id]);
            } else if after.stored.generations[id].brief.tools.is_empty() {
                assert_eq!(shown, ANSWER.concat(), "{name} cut at {}", prefix.len());
            } else {
                let settled =
                    |entry: &Entry| matches!(&entry.event, Event::RoundEnded { finish_reason: Some(_), .. });
                let settled =
                    prefix.iter().any(|entry| settled(entry) && entry.generation.as_ref() == Some(id));
                assert!(
                    settled || shown.contains(&ANSWER.concat()),
                    "{name} cut at {}: {shown}",
                    prefix.len()
                );
            }
        }
        assert_eq!(after.log[..prefix.len()], *prefix, "the log was changed");
    });
}

#[test]
fn x5_a_recorded_cancel_is_final_whatever_crashes_after_it() {
    every_cut(|_, prefix, world, person| {
        let after = live_on(world, person);
        for entry in prefix.iter().filter(|entry| matches!(entry.event, Event::ChatCancelled { .. })) {
            let mut of_it = after.log.iter().rev().filter(|other| other.generation == entry.generation);
            assert_eq!(of_it.next().unwrap().seq, entry.seq);
        }
    });
}

/// Without `Dismisses`: if there was no crash, there is nothing to dismiss, so the outcomes differ.
const GOING_ON: [(Recovery, Person); 2] =
    [(Recovery::Safe, Person::IsAway), (Recovery::Ask, Person::Resumes)];

/// The logs of conversations that have neither a child nor a parent. Those that do end only together, and `delegations`
/// crashes them together.
fn logs_of_one() -> impl Iterator<Item = (String, Vec<Entry>)> {
    let with_others = |entry: &Entry| {
        let child = matches!(entry.event, Event::ToolBegan { place: Place::Child, .. });
        child || matches!(entry.event, Event::ParentTold { .. })
    };
    logs().into_iter().filter(move |(_, log)| !log.iter().any(with_others))
}

/// The logs whose outcome a crash must not change.
fn repeatable_logs() -> impl Iterator<Item = (String, Vec<Entry>)> {
    let differs = |entry: &Entry| match entry.event {
        // Whether the checkpoint is taken before the end depends on when it is tried again.
        Event::CheckpointFailed { .. } => true,
        // After a crash, the outcome of a tool elsewhere that is not idempotent is unknown, and a person decides.
        Event::ToolBegan { place, read_only, idempotent, .. } => {
            place == Place::Elsewhere && !read_only && !idempotent
        }
        _ => false,
    };
    logs_of_one().filter(move |(_, log)| !log.iter().any(differs))
}

#[test]
fn i15_crashes_during_recovery_lead_to_the_same_view() {
    for (_, log) in repeatable_logs() {
        for (recovery, person) in GOING_ON {
            let rules = Rules { recovery, ..agent_rules() };
            let mut known = Known::new();
            for cut in 0..=log.len() {
                check_outcome(World::recovered(&log[..cut], &rules), person, &mut known);
            }
        }
    }
}

#[test]
fn i15_five_crashes_in_a_row_at_the_same_event_lead_to_the_same_view() {
    for (name, log) in repeatable_logs() {
        for (recovery, person) in GOING_ON {
            let rules = Rules { recovery, ..agent_rules() };
            for cut in 0..=log.len() {
                let once = live_on(World::recovered(&log[..cut], &rules), person);
                for place in 1..=once.log.len() - cut {
                    let mut world = World::recovered(&log[..cut], &rules);
                    for _ in 0..CRASHES {
                        let before = world.log.len();
                        while world.log.len() < before + place && advance(&mut world, person) {}
                        let durable = world.log.len().min(before + place);
                        world = World::recovered(&world.log[..durable], &rules);
                    }
                    let world = live_on(world, person);
                    let (many, once) = (seen_in_the_end(&world), seen_in_the_end(&once));
                    assert!(many == once, "{name}: {cut}, {place}\n{many}\n{once}");
                }
            }
        }
    }
}
