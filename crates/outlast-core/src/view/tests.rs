use super::*;
use crate::testing::*;
use crate::{ConversationStatus, MessageStatus};

#[test]
fn o4_an_empty_conversation_can_be_shown() {
    let view = given([]).view();
    assert_eq!(view.conversation.generation_status, ConversationStatus::Idle);
    assert_eq!((view.messages.len(), view.active_run, view.last_seq), (0, None, Seq::ZERO));
}

#[test]
fn o4_the_text_of_the_open_segment_is_only_in_the_overlay() {
    let view = given([answering(G1, "Hel")]).view();
    let id = MessageId::from(answer(G1, 1));
    assert_eq!(view.overlays[&id], "Hel");
    assert_eq!(view.overlay_parts[&id], [Part::Text { text: "Hel".into() }]);
    assert_eq!((&*view.messages[1].content, view.messages[1].parts.len()), ("", 0));
    assert_eq!(view.messages[1].status, MessageStatus::Streaming);
    assert_eq!(view.active_run.unwrap().status, GenerationStatus::Running);
}

#[test]
fn o4_an_interrupted_answer_is_shown_once_although_it_is_stored() {
    let world = given([answering(G1, "Hel"), interrupted(G1)]);
    assert_eq!(world.stored.messages[1].content, "Hel");
    let view = view(&world.transcript.state, world.stored.messages.clone(), false);
    assert_eq!(view.messages[1].content, "");
    assert_eq!(view.overlays.values().collect::<Vec<_>>(), ["Hel"]);
    assert_eq!(view.active_run.unwrap().status, GenerationStatus::Interrupted);
}

#[test]
fn o4_after_the_end_there_is_no_overlay_and_no_run() {
    for end in [completed(G1), cancelled(G1), failed(G1)] {
        let view = given([answering(G1, "Hel"), end]).view();
        assert_eq!((view.overlays.len(), view.overlay_parts.len(), view.active_run), (0, 0, None));
        assert_eq!(view.messages[1].content, "Hel");
    }
}

#[test]
fn o4_thinking_is_in_the_overlay_but_not_in_its_text() {
    let world = given([running(G1)])
        .observed(stream(G1, 1, vec![thoughts("Hm"), words("Hel")], None))
        .then(["assistant.segment.started", "thinking.delta", "chat.delta"]);
    let view = world.view();
    assert_eq!(view.overlays.values().collect::<Vec<_>>(), ["Hel"]);
    assert_eq!(view.overlay_parts.values().next().unwrap().len(), 2);
}

#[test]
fn g14_a_run_says_how_many_are_queued_behind_it() {
    let queued = |past: Vec<Past>| {
        let run = given(past).view().active_run.unwrap();
        (run.generation_id.to_string(), run.status, run.queued)
    };
    let running_first = vec![running(G1), asked(G2), asked(G3)];
    assert_eq!(queued(running_first.clone()), (G1.into(), GenerationStatus::Running, 2));
    let between = [running_first, vec![completed(G1)]].concat();
    assert_eq!(queued(between.clone()), (G2.into(), GenerationStatus::Queued, 1));
    let second = [between, vec![started(G2, 1)]].concat();
    assert_eq!(queued(second), (G2.into(), GenerationStatus::Running, 1));
}

#[test]
fn i11_a_view_of_stored_messages_is_the_view_of_the_log() {
    let world = given([answered(G1, "Hello"), answering(G2, "Hel")]);
    assert_eq!(view(&world.transcript.state, world.stored.messages.clone(), false), world.view());
}

#[test]
fn g9_a_view_survives_serialisation() {
    let view = given([answered(G1, "Hello"), answering(G2, "Hel"), interrupted(G2)]).view();
    let bytes = serde_json::to_vec(&view).unwrap();
    assert_eq!(serde_json::from_slice::<ConversationView>(&bytes).unwrap(), view);
}
