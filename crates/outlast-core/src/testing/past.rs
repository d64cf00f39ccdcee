//! Events for `given`: short names for parts of valid logs.

use super::{CREATED, G1, answer, question, request};
use crate::{
    CancelReason, Event, GenerationId, Message, MessageId, MessageStatus, Part, RetryMode, RetryOf, Role, Seq,
};

/// Events and their generations, in order. `given` adds positions and times.
pub(crate) type Past = Vec<(Option<GenerationId>, Event)>;

fn of(generation: &str, event: Event) -> Past {
    vec![(Some(generation.into()), event)]
}

pub(crate) fn asked(generation: &str) -> Past {
    asked_saying(generation, &format!("question of {generation}"))
}

pub(crate) fn asked_saying(generation: &str, text: &str) -> Past {
    let message = Message {
        id: question(generation).into(),
        conversation_id: "conv_fixture".into(),
        generation_id: Some(generation.into()),
        role: Role::User,
        content: text.into(),
        parts: vec![Part::Text { text: text.into() }],
        status: MessageStatus::Complete,
        error_message: None,
        seq: Seq::ZERO, // set by `given`
        created_at: CREATED,
    };
    [of(generation, Event::MessageAdded { message, resumes: false }), queued(generation, generation, None)]
        .concat()
}

fn queued(generation: &str, asked: &str, retry_of: Option<RetryOf>) -> Past {
    of(
        generation,
        Event::GenerationQueued {
            message_id: question(asked).into(),
            digest: format!("digest of {generation}"),
            retry_of,
            brief: Box::new(request(generation).brief),
        },
    )
}

/// Continues `failed`, which answers the question of `G1`, and keeps its partial answer.
pub(crate) fn continuing(generation: &str, failed: &str) -> Past {
    let retry_of = RetryOf { generation_id: failed.into(), mode: RetryMode::Continue };
    [queued(generation, G1, Some(retry_of)), started(generation, 1)].concat()
}

pub(crate) fn started(generation: &str, attempt: u32) -> Past {
    of(generation, Event::ChatStarted { model: "default".into(), attempt, round: 0 })
}

pub(crate) fn running(generation: &str) -> Past {
    [asked(generation), started(generation, 1)].concat()
}

/// The attempt writes its first text.
pub(crate) fn spoke(generation: &str, attempt: u32, text: &str) -> Past {
    let message_id = MessageId::from(answer(generation, attempt));
    let opened = Event::AssistantSegmentStarted { message_id: message_id.clone() };
    let text = Event::ChatDelta { message_id, text: text.into(), chunks: 1 };
    [of(generation, opened), of(generation, text)].concat()
}

/// Asked, started, and answered with this text so far.
pub(crate) fn answering(generation: &str, text: &str) -> Past {
    [running(generation), spoke(generation, 1, text)].concat()
}

pub(crate) fn retracted(generation: &str, attempt: u32) -> Past {
    let message_ids = vec![answer(generation, attempt).into()];
    of(generation, Event::AttemptRetracted { attempt, message_ids, reason: "reset".into() })
}

pub(crate) fn retrying(generation: &str, attempt: u32, delay_ms: u64) -> Past {
    of(generation, Event::RetryScheduled { attempt, delay_ms, reason: "reset".into(), handed_over: false })
}

pub(crate) fn interrupted(generation: &str) -> Past {
    of(generation, Event::ChatInterrupted { reason: "the server was restarted".into(), round: 0 })
}

pub(crate) fn completed(generation: &str) -> Past {
    of(generation, Event::ChatDone { finish_reason: "stop".into() })
}

pub(crate) fn failed(generation: &str) -> Past {
    of(generation, Event::ChatError { error_message: "reset".into(), code: "upstream_failed".into() })
}

pub(crate) fn cancelled(generation: &str) -> Past {
    of(generation, Event::ChatCancelled { reason: CancelReason::User })
}

/// Asked, answered with this text, and completed.
pub(crate) fn answered(generation: &str, text: &str) -> Past {
    let closed = Event::AssistantSegmentEnded { message_id: answer(generation, 1).into() };
    [answering(generation, text), of(generation, closed), completed(generation)].concat()
}

pub(crate) fn titled(title: &str) -> Past {
    vec![(
        None,
        Event::ConversationUpdated {
            title: Some(Some(title.into())),
            metadata: None,
            files: None,
            key: None,
        },
    )]
}
