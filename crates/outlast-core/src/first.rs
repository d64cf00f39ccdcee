//! Reads states that the first version stored. They held the whole answer of a running generation. Only its
//! open messages are taken over; the others are stored as documents.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::Value;

use crate::generation::{Counters, Phase, Progress, Rounds, ScheduledRetry, Segment};
use crate::{
    Approval, Brief, Conversation, ConversationId, Generation, GenerationId, MessageId, MessageStatus, Part,
    Producer, Reporting, RequestId, RetryOf, Role, Seq, Timestamp, UserId,
};

/// Reads a state stored by this version or by the first.
pub fn read_state(text: &str) -> Result<Conversation, serde_json::Error> {
    match serde_json::from_str::<Conversation>(text) {
        Ok(state) => Ok(state),
        Err(error) => serde_json::from_str::<FirstConversation>(text).map(Into::into).map_err(|_| error),
    }
}

#[derive(Deserialize)]
struct FirstConversation {
    id: ConversationId,
    user: UserId,
    created_at: Timestamp,
    updated_at: Timestamp,
    seq: Seq,
    title: Option<String>,
    metadata: Option<Value>,
    opening: Option<String>,
    current: Option<FirstGeneration>,
    queue: VecDeque<FirstGeneration>,
}

#[derive(Deserialize)]
struct FirstGeneration {
    id: GenerationId,
    request: RequestId,
    digest: String,
    message: MessageId,
    model: String,
    system: Option<String>,
    metadata: Option<Value>,
    retry_of: Option<RetryOf>,
    #[serde(default)]
    prompt_seq: Option<Seq>,
    #[serde(default)]
    answer_id: Option<MessageId>,
    #[serde(default)]
    producer: Option<Producer>,
    #[serde(default)]
    produced: Seq,
    first_seq: Seq,
    last_seq: Seq,
    queued_at: Timestamp,
    kept: Vec<MessageId>,
    started_at: Option<Timestamp>,
    at_work_since: Option<Timestamp>,
    completed_at: Option<Timestamp>,
    phase: Phase,
    attempt: u32,
    attempt_seq: Seq,
    failures: u32,
    #[serde(default)]
    lost_in_a_row: u32,
    #[serde(default)]
    retry: Option<ScheduledRetry>,
    segments: Vec<FirstSegment>,
    #[serde(default)]
    approvals: Vec<Approval>,
    #[serde(default)]
    tool_bytes: usize,
    input_tokens: u64,
    output_tokens: u64,
    chunks_received: u64,
}

#[derive(Deserialize)]
struct FirstSegment {
    message: MessageId,
    seq: Seq,
    created_at: Timestamp,
    #[serde(default = "assistant")]
    role: Role,
    parts: Vec<Part>,
    status: MessageStatus,
}

fn assistant() -> Role {
    Role::Assistant
}

impl From<FirstConversation> for Conversation {
    fn from(first: FirstConversation) -> Conversation {
        Conversation {
            id: first.id,
            user: first.user,
            created_at: first.created_at,
            updated_at: first.updated_at,
            seq: first.seq,
            title: first.title,
            metadata: first.metadata,
            key: None,
            begun: first.opening.is_some(),
            current: first.current.map(Into::into),
            queue: first.queue.into_iter().map(Into::into).collect(),
            sandbox: None,
            always: Vec::new(),
            owed_stops: Vec::new(),
            owed_notifications: Vec::new(),
            files: Vec::new(),
            said_bytes: 0,
            children: Vec::new(),
        }
    }
}

impl From<FirstGeneration> for Generation {
    fn from(first: FirstGeneration) -> Generation {
        let ended =
            matches!(first.phase, Phase::Completed { .. } | Phase::Cancelled { .. } | Phase::Failed { .. });
        let bytes = |part: &Part| match part {
            Part::Text { text } | Part::Thinking { text, .. } => text.len(),
            Part::ToolUse { .. } | Part::ToolResult { .. } | Part::Image { .. } => 0,
        };
        let parts = || first.segments.iter().flat_map(|segment| &segment.parts);
        let answer_bytes = first.tool_bytes + parts().map(bytes).sum::<usize>();
        let only_text = parts().all(|part| matches!(part, Part::Text { .. }));
        let shown = first.segments.iter().map(|segment| segment.message.clone()).collect();
        let answers = |segment: &&FirstSegment| segment.role == Role::Assistant;
        let first_answer = first.segments.iter().find(answers).map(|segment| segment.message.clone());
        let open = first.segments.into_iter().filter(|_| !ended).map(Segment::from);
        let open = open.filter(|segment| segment.is_streaming() || is_unfinished_call(segment)).collect();
        Generation {
            id: first.id,
            request: first.request,
            digest: first.digest,
            message: first.message,
            retry_of: first.retry_of,
            brief: Brief {
                model: first.model,
                system: first.system,
                metadata: first.metadata,
                prompt: None,
                answer_id: first.answer_id,
                producer: first.producer,
                tools: Vec::new(),
                api_key_id: None,
                parent: None,
            },
            prompt_seq: first.prompt_seq,
            progress: Progress {
                phase: first.phase,
                attempt: first.attempt,
                attempt_seq: first.attempt_seq,
                retry: first.retry,
                first_seq: first.first_seq,
                last_seq: first.last_seq,
                produced: first.produced,
                queued_at: first.queued_at,
                started_at: first.started_at,
                at_work_since: first.at_work_since,
                completed_at: first.completed_at,
                kept: first.kept,
                shown,
                first_answer,
                only_text,
                open,
                approvals: first.approvals,
                rounds: Rounds::default(),
                reporting: Reporting::default(),
            },
            counters: Counters {
                failures: first.failures,
                lost_in_a_row: first.lost_in_a_row,
                answer_bytes,
                input_tokens: first.input_tokens,
                output_tokens: first.output_tokens,
                chunks_received: first.chunks_received,
                resumed: 0,
                worked_ms: 0,
            },
        }
    }
}

impl From<FirstSegment> for Segment {
    fn from(first: FirstSegment) -> Segment {
        let FirstSegment { message, seq, created_at, role, parts, status } = first;
        Segment { message, seq, created_at, role, parts, status }
    }
}

fn is_unfinished_call(segment: &Segment) -> bool {
    let ended = segment.parts.iter().any(|part| matches!(part, Part::ToolResult { .. }));
    segment.tool_use_id().is_some() && !ended
}
