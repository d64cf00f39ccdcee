//! Commands and reports for `when` and `observed`.

use serde_json::json;

use super::{answer, question};
use crate::{
    Brief, CallEnd, Command, Decide, Decided, Decision, Failure, FailureClass, GenerationId, Part, Piece,
    Producer, Report, Retry, RetryMode, Role, Start, Streamed, TextKind, WhenBusy,
};

/// The request that starts `generation`. Tests change the fields they care about.
pub(crate) fn request(generation: &str) -> Start {
    Start {
        generation: generation.into(),
        message: question(generation).into(),
        request: format!("request_of_{generation}").into(),
        digest: format!("digest of {generation}"),
        role: Role::User,
        parts: vec![Part::Text { text: format!("question of {generation}") }],
        brief: Brief {
            system: Some("be brief".into()),
            metadata: Some(json!({"tab": 1})),
            ..Brief::default()
        },
        when_busy: WhenBusy::Reject,
        key: None,
    }
}

/// What the first start of a conversation records.
pub(crate) const FIRST_START: [&str; 4] =
    ["conversation.updated", "message.added", "generation.queued", "chat.started"];

/// The same for a generation that a worker produces.
pub(crate) fn for_a_worker(generation: &str) -> Start {
    let asked = request(generation);
    Start { brief: Brief { producer: Some(Producer::External), ..asked.brief }, ..asked }
}

pub(crate) fn start(generation: &str) -> Command {
    start_when_busy(generation, WhenBusy::Reject)
}

pub(crate) fn start_when_busy(generation: &str, when_busy: WhenBusy) -> Command {
    Command::Start(Start { when_busy, ..request(generation) })
}

pub(crate) fn cancel(generation: &str) -> Command {
    Command::Cancel { generation: generation.into() }
}

pub(crate) fn resume(generation: &str) -> Command {
    Command::Resume { generation: generation.into(), by: "ann".into() }
}

pub(crate) fn dismiss(generation: &str) -> Command {
    Command::Dismiss { generation: generation.into() }
}

pub(crate) fn retry(of: &str, mode: RetryMode, generation: &str) -> Command {
    Command::Retry(Retry {
        of: of.into(),
        mode,
        generation: generation.into(),
        request: format!("request_of_{generation}").into(),
        digest: format!("digest of {generation}"),
        api_key_id: None,
    })
}

pub(crate) fn decide_about(tool_use_id: &str, decision: Decision) -> Command {
    let reason = Some("I say so".into());
    let decided = Decided { decision, by: "ann".into(), reason, always: false, pattern: None };
    let (generation, tool_use_id) = (super::G1.into(), tool_use_id.into());
    Command::Decide(Decide { generation, tool_use_id, hash: None, decided })
}

pub(crate) fn rename(title: &str) -> Command {
    Command::Update { title: Some(Some(title.into())), metadata: None }
}

/// A report of that attempt. Tests change the fields they care about.
pub(crate) fn stream(generation: &str, attempt: u32, pieces: Vec<Piece>, end: Option<CallEnd>) -> Report {
    let new_message = answer(generation, attempt).into();
    Report::Streamed(Streamed { generation: generation.into(), attempt, pieces, end, new_message })
}

pub(crate) fn says(generation: &str, attempt: u32, text: &str) -> Report {
    stream(generation, attempt, vec![words(text)], None)
}

pub(crate) fn finishes(generation: &str, attempt: u32) -> Report {
    stream(generation, attempt, vec![], Some(finished()))
}

pub(crate) fn breaks(generation: &str, attempt: u32, class: FailureClass) -> Report {
    stream(generation, attempt, vec![], Some(broke(class)))
}

pub(crate) fn words(text: &str) -> Piece {
    Piece::Text { kind: TextKind::Answer, text: text.into(), chunks: 1 }
}

pub(crate) fn thoughts(text: &str) -> Piece {
    Piece::Text { kind: TextKind::Thinking, text: text.into(), chunks: 1 }
}

pub(crate) fn tool_call(id: &str, input: serde_json::Value) -> Piece {
    Piece::ToolCall { id: id.into(), name: "read".into(), input }
}

pub(crate) fn usage(input_tokens: u64, output_tokens: u64) -> Piece {
    Piece::Usage { input_tokens, output_tokens }
}

pub(crate) fn finished() -> CallEnd {
    CallEnd::Finished { reason: "stop".into() }
}

pub(crate) fn broke(class: FailureClass) -> CallEnd {
    CallEnd::Failed {
        failure: Failure { class, message: format!("{class:?} failure"), retry_after: None },
        jitter: 255,
    }
}

pub(crate) fn call_lost(generation: &str) -> Report {
    Report::CallLost { generation: GenerationId::from(generation) }
}

pub(crate) fn handed_over(generation: &str) -> Report {
    Report::HandedOver { generation: GenerationId::from(generation) }
}

pub(crate) fn retry_due(generation: &str) -> Report {
    Report::RetryDue { generation: GenerationId::from(generation) }
}

pub(crate) fn turn_came(generation: &str) -> Report {
    Report::TurnCame { generation: GenerationId::from(generation) }
}

pub(crate) fn abandoned(generation: &str) -> Report {
    Report::Abandoned { generation: GenerationId::from(generation) }
}
