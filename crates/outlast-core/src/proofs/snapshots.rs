//! I11: folding a log, folding the rest of it after a snapshot, and the stored documents all give the same
//! result.

use super::fixtures::{logs, read_first};
use super::scenarios::SCENARIOS;
use crate::testing::*;
use crate::{Conversation, Entry, Transcript, read_state, view};

fn fold(log: &[Entry]) -> Transcript {
    let mut transcript = Transcript::new(nothing_yet());
    log.iter().for_each(|entry| transcript.apply(entry));
    transcript
}

/// Stores the state and reads it again, as the next owner does.
fn through_bytes(state: Conversation) -> Conversation {
    read_state(&serde_json::to_string(&state).unwrap()).unwrap()
}

#[test]
fn i11_a_snapshot_at_any_event_plus_the_rest_equals_the_whole_log() {
    for (name, log) in logs() {
        for end in 0..=log.len() {
            let whole = fold(&log[..end]);
            for cut in 0..=end {
                let mut state = through_bytes(fold(&log[..cut]).state);
                state.apply_all(&log[cut..end]);
                assert_eq!(state.clone(), whole.state.clone(), "{name}: {cut} to {end}");
                let shown = view(&state, whole.messages.clone(), false);
                assert_eq!(shown, whole.view(), "{name}: {cut} to {end}");
            }
        }
    }
}

/// The documents agree however the log was split into appends, and with whichever append an owner started.
#[test]
fn i11_documents_agree_with_the_log_however_it_was_appended() {
    for (name, log) in logs() {
        for end in 0..=log.len() {
            let whole = fold(&log[..end]);
            for cut in 0..=end {
                let mut stored = Stored::new(nothing_yet());
                for entry in &log[..cut] {
                    stored.append(std::slice::from_ref(entry));
                }
                stored.state = through_bytes(stored.state);
                stored.append(&log[cut..end]); // all of it at once
                assert_eq!(stored.messages, whole.messages, "{name}: {cut} to {end}");
                stored.state = whole.state.clone();
                stored.must_agree_with(&whole);
            }
        }
    }
}

#[test]
fn i3_every_document_of_an_ended_generation_agrees_with_its_end_in_the_log() {
    for (name, scenario) in SCENARIOS {
        let world = scenario();
        let documents = &world.stored.generations;
        for end in world.log.iter().filter(|entry| entry.event.is_end()) {
            let document = &documents[end.generation.as_ref().unwrap()];
            assert_eq!((document.last_seq, document.completed_at), (end.seq, Some(end.ts)), "{name}");
        }
        let ends = world.log.iter().filter(|entry| entry.event.is_end()).count();
        let ended = documents.values().filter(|document| document.completed_at.is_some()).count();
        assert_eq!(ended, ends, "{name}");
    }
}

/// States as the first version stored them. Every later version must be able to continue from them.
const FIRST_STATES: [(&str, &str); 3] = [
    ("still-streaming", include_str!("states/first-still-streaming.json")),
    ("queue-of-two", include_str!("states/first-queue-of-two.json")),
    ("retry-waiting", include_str!("states/first-retry-waiting.json")),
];

#[test]
fn i11_a_state_stored_by_the_first_version_can_be_read() {
    for (name, stored) in FIRST_STATES {
        let state = read_state(stored).unwrap();
        let log = read_first(name);
        let (before, after) = log.split_at(usize::try_from(state.seq.0).unwrap());
        // Clear what the first version did not store.
        let mut state = state;
        for generation in state.current.iter_mut().chain(&mut state.queue) {
            let folded = fold(before).state.generation(&generation.id).unwrap().clone();
            (generation.progress.produced, generation.progress.retry) =
                (folded.progress.produced, folded.progress.retry);
            generation.counters.answer_bytes = folded.counters.answer_bytes;
        }
        state.said_bytes = fold(before).state.said_bytes;
        assert_eq!(state, fold(before).state, "{name}");
        state.apply_all(after);
        assert_eq!(state, fold(&log).state, "{name}");
    }
}

/// A state of the last version, which knew no agents, has none of these.
#[test]
fn i11_a_state_of_the_version_before_agents_opens() {
    fn strip(value: &mut serde_json::Value) {
        if let Some(fields) = value.as_object_mut() {
            for name in ["sandbox", "always", "owed_stops", "files", "rounds", "worked_ms", "tools"] {
                fields.remove(name);
            }
            fields.values_mut().for_each(strip);
        }
    }
    let agents = |name: &str| name.starts_with("agent-") || ["delegation", "sub-agent"].contains(&name);
    for (name, log) in logs().into_iter().filter(|(name, _)| !agents(name)) {
        let mut state = fold(&log).state;
        let mut stored = serde_json::to_value(&state).unwrap();
        strip(&mut stored);
        let read = read_state(&stored.to_string()).unwrap();
        for generation in state.current.iter_mut().chain(&mut state.queue) {
            generation.counters.worked_ms = 0;
            generation.progress.rounds = crate::Rounds::default();
        }
        assert_eq!(read, state, "{name}");
    }
}
