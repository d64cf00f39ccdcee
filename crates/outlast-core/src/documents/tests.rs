use serde_json::json;

use super::*;
use crate::testing::*;
use crate::{CancelReason, decide, observe};

fn status(past: impl IntoIterator<Item = Past>) -> (ConversationStatus, Option<String>) {
    let document = given(past).stored.conversation;
    (document.generation_status, document.current_generation_id.map(|id| id.to_string()))
}

#[test]
fn g8_a_conversation_document_has_its_status() {
    let of = |status, id: &str| (status, Some(id.to_owned()));
    assert_eq!(status([]), (ConversationStatus::Idle, None));
    assert_eq!(status([running(G1)]), of(ConversationStatus::Generating, G1));
    assert_eq!(status([running(G1), retrying(G1, 2, 500)]), of(ConversationStatus::Generating, G1));
    assert_eq!(status([running(G1), interrupted(G1)]), of(ConversationStatus::Interrupted, G1));
    assert_eq!(status([running(G1), completed(G1)]), of(ConversationStatus::Complete, G1));
    assert_eq!(status([running(G1), cancelled(G1)]), of(ConversationStatus::Cancelled, G1));
    assert_eq!(status([running(G1), failed(G1)]), of(ConversationStatus::Error, G1));
}

#[test]
fn g8_status_and_current_generation_agree_even_between_two_turns() {
    let of = |status, id: &str| (status, Some(id.to_owned()));
    assert_eq!(status([asked(G1)]), of(ConversationStatus::Generating, G1));
    assert_eq!(status([running(G1), asked(G2)]), of(ConversationStatus::Generating, G1));
    assert_eq!(status([running(G1), asked(G2), completed(G1)]), of(ConversationStatus::Generating, G2));
    assert_eq!(
        status([running(G1), asked(G2), cancelled(G2), completed(G1)]),
        of(ConversationStatus::Complete, G1)
    );
}

#[test]
fn g8_a_generation_document_is_complete() {
    let world = given([titled("Tea"), running(G1)])
        .observed(stream(G1, 1, vec![thoughts("Hm"), words("Hello"), usage(7, 3)], Some(finished())))
        .then([
            "assistant.segment.started",
            "thinking.delta",
            "chat.delta",
            "usage",
            "assistant.segment.ended",
            "chat.done",
        ]);
    let document = serde_json::to_value(&world.stored.generations[&G1.into()]).unwrap();
    assert_eq!(
        document,
        json!({
            "id": "gen_1",
            "conversationId": "conv_fixture",
            "messageId": "question_of_gen_1",
            "answerId": "answer_1_of_gen_1",
            "requestId": "request_of_gen_1",
            "status": "completed",
            "pendingApproval": null,
            "sandboxId": null,
            "isPaused": false,
            "errorMessage": null,
            "endReason": "stop",
            "inputTokens": 7,
            "outputTokens": 3,
            "chunksReceived": 2,
            "attempt": 1,
            "model": "default",
            "metadata": {"tab": 1},
            "retryOf": null,
            "createdAt": "2026-01-01T00:00:00.300Z",
            "startedAt": "2026-01-01T00:00:00.400Z",
            "completedAt": "2026-01-01T00:00:00.500Z",
            "firstSeq": 2,
            "lastSeq": 10,
            "digest": "digest of gen_1",
        })
    );
}

#[test]
fn g4_each_end_is_in_the_documents() {
    let ends = [
        (completed(G1), GenerationStatus::Completed, MessageStatus::Complete, "stop"),
        (cancelled(G1), GenerationStatus::Cancelled, MessageStatus::Cancelled, "user"),
        (failed(G1), GenerationStatus::Error, MessageStatus::Error, "upstream_failed"),
    ];
    for (end, status, message_status, reason) in ends {
        let world = given([answering(G1, "Hel"), end]);
        let document = &world.stored.generations[&G1.into()];
        assert_eq!((document.status, document.end_reason.as_deref()), (status, Some(reason)));
        assert_eq!(document.error_message.is_some(), status == GenerationStatus::Error);
        let message = &world.stored.messages[1];
        assert_eq!((&*message.content, message.status), ("Hel", message_status));
        assert_eq!(message.error_message, document.error_message);
    }
}

#[test]
fn g10_text_changes_no_document_and_everything_else_does() {
    let world = given([answering(G1, "Hel")]);
    let mut state = world.transcript.state.clone();
    let text = observe(&state, says(G1, 1, "lo"), &world.rules, world.now);
    assert_eq!(apply_with_documents(&mut state, &text), []);
    let end = decide(&state, cancel(G1), crate::Facts::default(), &world.rules, world.now).unwrap();
    assert_eq!(apply_with_documents(&mut state, &end).len(), 3, "conversation, message, generation");
    assert_eq!(apply_with_documents(&mut state, &[]), []);
}

#[test]
fn o4_an_open_message_is_stored_without_its_text_until_it_closes() {
    let world = given([answering(G1, "Hel")]);
    let open = &world.stored.messages[1];
    assert_eq!((&*open.content, open.status), ("", MessageStatus::Streaming));
    let world = world.observed(finishes(G1, 1)).then(["assistant.segment.ended", "chat.done"]);
    assert_eq!(world.stored.messages[1].content, "Hel");
}

#[test]
fn g11_a_retracted_message_is_removed_from_the_store() {
    let world = given([answering(G1, "Hel"), retracted(G1, 1), retrying(G1, 2, 500)]);
    assert_eq!(world.stored.messages.len(), 1);
}

#[test]
fn a_generation_that_ends_and_is_replaced_in_one_append_gets_its_document() {
    let world = given([answering(G1, "Hel")]).when(start_when_busy(G2, crate::WhenBusy::Interrupt)).then([
        "chat.cancelled",
        "message.added",
        "generation.queued",
        "chat.started",
    ]);
    assert_eq!(world.transcript.state.generation(&G1.into()), None);
    let reason = Some(CancelReason::Superseded.as_str());
    assert_eq!(world.stored.generations[&G1.into()].end_reason.as_deref(), reason);
}

#[test]
fn o2_segments_that_close_and_open_in_one_append_are_all_stored() {
    let mut world = given([answering(G1, "Let me look. ")]);
    let of = |event| Entry {
        seq: Seq::ZERO,
        ts: world.now,
        generation: Some(G1.into()),
        request: Some(format!("request_of_{G1}").into()),
        event,
    };
    let open = |message: &str| of(Event::AssistantSegmentStarted { message_id: message.into() });
    let close = |message: &str| of(Event::AssistantSegmentEnded { message_id: message.into() });
    let say = |message: &str| {
        of(Event::ChatDelta { message_id: message.into(), text: format!("in {message}"), chunks: 1 })
    };
    // As a report will, once there are tool calls between segments.
    let first = answer(G1, 1);
    let mut entries =
        vec![close(&first), open("second"), say("second"), close("second"), open("third"), say("third")];
    entries.push(close("third"));
    entries.push(of(Event::ChatDone { finish_reason: "stop".into() }));
    let next = world.transcript.state.seq.next();
    for (index, entry) in entries.iter_mut().enumerate() {
        entry.seq = next.plus(index);
    }
    for split in 1..entries.len() {
        let mut split_world = world.clone();
        split_world.append(entries[..split].to_vec());
        split_world.append(entries[split..].to_vec());
    }
    world.append(entries); // also checks that the documents agree with the log
    assert_eq!(world.shown().len(), 4);
}
