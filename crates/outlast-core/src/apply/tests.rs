use super::*;
use crate::testing::*;

#[test]
fn o1_a_generation_becomes_current_at_its_first_attempt_and_stays_after_its_end() {
    let world = given([running(G1), asked(G2)]);
    assert_eq!(world.transcript.state.current.as_ref().unwrap().id.as_str(), G1);
    let world = given([running(G1), asked(G2), completed(G1)]);
    assert_eq!(world.transcript.state.current.as_ref().unwrap().id.as_str(), G1);
    assert_eq!(world.transcript.state.active(), None);
    let world = given([running(G1), asked(G2), completed(G1), started(G2, 1)]);
    assert_eq!(world.transcript.state.active().unwrap().id.as_str(), G2);
    assert_eq!(world.transcript.state.generation(&G1.into()), None, "only the last is remembered");
}

#[test]
fn the_last_one_that_ended_stays_current_even_if_it_never_ran() {
    let current = |past: Vec<Past>| given(past).transcript.state.current.unwrap().id.to_string();
    let one_waits = vec![running(G1), asked(G2)];
    let both_over = [one_waits.clone(), vec![completed(G1), cancelled(G2)]].concat();
    assert_eq!(current(both_over), G2);
    let one_runs = [one_waits, vec![cancelled(G2)]].concat();
    assert_eq!(current(one_runs), G1, "a running one is not replaced");
}

#[test]
fn i18_a_state_holds_only_what_is_open() {
    let text = "long ".repeat(10_000);
    let size = |past: Vec<Past>| serde_json::to_string(&given(past).transcript.state).unwrap().len();
    assert!(
        size(vec![answering(G1, &text)]) > text.len(),
        "text that is still arriving is only in the state"
    );
    assert!(size(vec![answered(G1, &text)]) < 2_000);
    assert!(size(vec![answering(G1, &text), cancelled(G1)]) < 2_000);
}

#[test]
fn every_event_but_text_updates_the_time_of_a_conversation() {
    let world = given([running(G1)]);
    let before = world.transcript.state.updated_at;
    let world = world.observed(says(G1, 1, "Hel")).then(["assistant.segment.started", "chat.delta"]);
    let opened = world.transcript.state.updated_at;
    assert!(opened > before);
    let world = world.observed(says(G1, 1, "lo")).then(["chat.delta"]);
    assert_eq!(world.transcript.state.updated_at, opened);
}

#[test]
fn g3_a_generation_begins_with_its_question_and_ends_with_its_end() {
    let world = given([answered(G1, "Hello"), answered(G2, "Hello")]);
    let second = world.generation(G2);
    assert_eq!((second.progress.first_seq, second.progress.last_seq), (Seq(8), Seq(14)));
    assert_eq!(world.transcript.state.seq, Seq(14));
}

#[test]
fn an_event_of_an_unknown_generation_is_ignored() {
    let mut state = given([running(G1)]).transcript.state;
    let before = state.clone();
    let entry = Entry {
        seq: state.seq.next(),
        ts: state.updated_at,
        generation: Some(G3.into()),
        request: None,
        event: Event::ChatDone { finish_reason: "stop".into() },
    };
    state.apply(&entry);
    let said_bytes = before.said_bytes + entry.event.said_bytes();
    assert_eq!(state, Conversation { seq: entry.seq, said_bytes, ..before });
}

#[test]
fn text_for_a_segment_that_is_not_open_is_counted_and_ignored() {
    let mut state = given([answering(G1, "Hel")]).transcript.state;
    let entry = Entry {
        seq: state.seq.next(),
        ts: state.updated_at,
        generation: Some(G1.into()),
        request: None,
        event: Event::ChatDelta { message_id: "elsewhere".into(), text: "lo".into(), chunks: 1 },
    };
    state.apply(&entry);
    let generation = state.active().unwrap();
    assert_eq!(crate::plain_text(&generation.open_segment().unwrap().parts), "Hel");
    assert_eq!(generation.counters.chunks_received, 2);
}

#[test]
fn b4_what_is_said_counts_as_stored_and_a_checkpoint_once() {
    let mut state = given([answering(G1, "Hel")]).transcript.state;
    let before = state.stored_bytes();
    assert!(before > "question of g1be brief".len() as u64, "{before}");
    let entry = |state: &Conversation, event| Entry {
        seq: state.seq.next(),
        ts: state.updated_at,
        generation: Some(G1.into()),
        request: None,
        event,
    };
    let text = "x".repeat(10_000);
    state.apply(&entry(&state, Event::ChatDelta { message_id: "elsewhere".into(), text, chunks: 1 }));
    let said = state.stored_bytes();
    assert!((before + 10_000..before + 10_100).contains(&said), "{before} {said}");
    let (sandbox_id, reason) = ("box".into(), "made".to_owned());
    state.apply(&entry(
        &state,
        Event::SandboxChanged { sandbox_id, state: crate::SandboxState::Created, reason },
    ));
    for (checkpoint_id, bytes) in [("a", 5_000_000), ("b", 7_000_000)] {
        let checkpoint_id = checkpoint_id.into();
        let (files, truth, left_out) = (1, None, None);
        let taken = Event::CheckpointTaken { checkpoint_id, files, bytes, truth, left_out };
        state.apply(&entry(&state, taken));
    }
    let stored = state.stored_bytes();
    assert!((7_000_000 + said..7_000_200 + said).contains(&stored), "only the newest one: {stored}");
}
