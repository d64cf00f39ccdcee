//! Workers: claim a generation, append to it, send heartbeats.

use outlast_core::{Approval, GenerationId, GenerationStatus, Piece, Seq, TextKind, ToolStream, WorkerEnd};
use outlast_engine::{WorkerBatch, WorkerPosition};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::body::{Id, Json, RequestName};
use super::caller::{Caller, Produce};
use super::error::Problem;
use super::free::{Free, Sentences, Short, ToolName, ToolUseId, Word};
use super::query::Whole;

/// The maximum number of events in one batch. A worker with more should send more often.
const BATCH_EVENTS_MAX: usize = 1_000;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(claim)).routes(routes!(heartbeat)).routes(routes!(append))
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Claim)]
pub(crate) struct ClaimBody {
    /// Whether what the previous worker appended is kept.
    #[serde(default = "yes")]
    keep: bool,
    #[serde(rename = "requestId")]
    _request_id: Option<RequestName>,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Heartbeat)]
pub(crate) struct HeartbeatBody {
    epoch: Whole,
    /// The lease of the claim. A server without keys does not ask for it.
    #[schema(max_length = 200)]
    lease: Option<String>,
    #[serde(rename = "requestId")]
    _request_id: Option<RequestName>,
}

/// A batch is recorded as a whole or not at all.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Append)]
pub(crate) struct AppendBody {
    /// The epoch of the claim.
    epoch: Whole,
    /// The lease of the claim. A server without keys does not ask for it.
    #[schema(max_length = 200)]
    lease: Option<String>,
    /// `lastSeq` of the last response. This batch continues there.
    expected_seq: Whole,
    #[schema(min_items = 1, max_items = 1000)]
    events: Vec<Made>,
    #[serde(rename = "requestId")]
    _request_id: Option<RequestName>,
}

/// What a worker may append, under the names that followers see. The server assigns messages and their ids.
/// `chat.done` and `chat.error` end the generation and must come last.
#[derive(Deserialize, ToSchema)]
#[serde(tag = "type", content = "payload", deny_unknown_fields)]
#[schema(as = WorkerEvent)]
enum Made {
    #[serde(rename = "chat.delta")]
    Text(Text),
    #[serde(rename = "thinking.delta")]
    Thinking(Text),
    #[serde(rename = "tool.start")]
    Tool(Tool),
    #[serde(rename = "tool.output")]
    ToolOutput(ToolOutput),
    #[serde(rename = "tool.end")]
    ToolEnd(ToolEnd),
    #[serde(rename = "approval.requested")]
    Approval(Tool),
    #[serde(rename = "usage")]
    Usage(Usage),
    #[serde(rename = "chat.done")]
    Done(Done),
    #[serde(rename = "chat.error")]
    Failed(Failed),
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WorkerText)]
struct Text {
    text: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = WorkerTool)]
struct Tool {
    tool_use_id: ToolUseId,
    tool_name: ToolName,
    tool_input: Free,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = WorkerToolOutput)]
struct ToolOutput {
    tool_use_id: ToolUseId,
    stream: ToolStream,
    text: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = WorkerToolEnd)]
struct ToolEnd {
    tool_use_id: ToolUseId,
    result: Free,
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = WorkerUsage)]
struct Usage {
    input_tokens: Whole,
    output_tokens: Whole,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = WorkerDone)]
struct Done {
    #[serde(default = "stop")]
    #[schema(value_type = String, max_length = 200)]
    finish_reason: Word,
}

fn stop() -> Word {
    Short("stop".to_owned())
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = WorkerFailed)]
struct Failed {
    #[schema(value_type = String, max_length = 2048)]
    error_message: Sentences,
    #[serde(default = "producer_failed")]
    #[schema(value_type = String, max_length = 200)]
    code: Word,
}

fn producer_failed() -> Word {
    Short("producer_failed".to_owned())
}

/// The state of a worker.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WorkerState {
    /// The epoch in which this worker may append.
    epoch: u32,
    /// Proof of the claim: send it with every heartbeat and batch. Only a claim returns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lease: Option<String>,
    /// The worker's last event: the `expectedSeq` of the next batch.
    last_seq: Seq,
    status: GenerationStatus,
    /// The questions to a person, and the decisions.
    approvals: Vec<Approval>,
}

impl From<WorkerPosition> for WorkerState {
    fn from(producing: WorkerPosition) -> WorkerState {
        let WorkerPosition { epoch, last, status, approvals } = producing;
        WorkerState { epoch, lease: None, last_seq: last, status, approvals }
    }
}

/// Claim a generation
///
/// The caller becomes its worker. The previous worker can no longer append.
#[utoipa::path(post, path = "/v1/generations/{id}/claim", operation_id = "claimGeneration", tag = "Workers",
    security(("key" = ["produce"])),
    responses(
        (status = 200, body = WorkerState, description = "Claimed."),
        (status = 409, description = "`not_external` or `already_ended`."),
        (status = 429, description = "`limit_reached`."),
    ))]
async fn claim(
    caller: Caller<Produce>,
    Id(id): Id<GenerationId>,
    Json(body): Json<ClaimBody>,
) -> Result<axum::Json<WorkerState>, Problem> {
    let claimed = caller.engine().claim(caller.user(), &id, body.keep).await?;
    let lease = caller.app().auth().leases().of(&id, claimed.epoch);
    Ok(axum::Json(WorkerState { lease: Some(lease), ..claimed.into() }))
}

/// Keep a claim alive
#[utoipa::path(post, path = "/v1/generations/{id}/heartbeat", operation_id = "sendHeartbeat", tag = "Workers",
    security(("key" = ["produce"])),
    responses(
        (status = 200, body = WorkerState, description = "Still claimed."),
        (status = 409, description = "`not_external`, `stale_producer` or `already_ended`."),
    ))]
async fn heartbeat(
    caller: Caller<Produce>,
    Id(id): Id<GenerationId>,
    Json(body): Json<HeartbeatBody>,
) -> Result<axum::Json<WorkerState>, Problem> {
    check_lease(&caller, &id, epoch(body.epoch), body.lease.as_deref()).await?;
    let alive = WorkerBatch { epoch: epoch(body.epoch), expected: None, pieces: Vec::new(), end: None };
    Ok(axum::Json(caller.engine().produce(caller.user(), &id, alive).await?.into()))
}

/// Append events
///
/// The batch is durable when the response is sent.
#[utoipa::path(post, path = "/v1/generations/{id}/events", operation_id = "appendEvents", tag = "Workers",
    security(("key" = ["produce"])),
    responses(
        (status = 200, body = WorkerState, description = "Recorded."),
        (status = 409, description = "`not_external`, `stale_producer`, `seq_conflict`, `already_asked` or `already_ended`."),
    ))]
async fn append(
    caller: Caller<Produce>,
    Id(id): Id<GenerationId>,
    Json(body): Json<AppendBody>,
) -> Result<axum::Json<WorkerState>, Problem> {
    check_lease(&caller, &id, epoch(body.epoch), body.lease.as_deref()).await?;
    let batch = batch(body)?;
    Ok(axum::Json(caller.engine().produce(caller.user(), &id, batch).await?.into()))
}

/// An epoch is easy to guess, so it is not enough to write as its worker. On a server without keys there is
/// nobody to keep out, and workers written before there were leases still work.
async fn check_lease(
    caller: &Caller<Produce>,
    id: &GenerationId,
    epoch: u32,
    lease: Option<&str>,
) -> Result<(), Problem> {
    let problem = match lease {
        Some(lease) if caller.app().auth().leases().fits(lease, id, epoch) => return Ok(()),
        Some(_) => Problem::wrong_lease(),
        None if caller.principal().is_local() => return Ok(()),
        None => Problem::invalid("lease", "is missing: send the one that the claim returned"),
    };
    // A generation of somebody else is not found, whatever is wrong with the lease.
    caller.engine().generation(caller.user(), id).await?;
    Err(problem)
}

/// An epoch beyond any possible claim is treated as stale.
fn epoch(Whole(epoch): Whole) -> u32 {
    u32::try_from(epoch).unwrap_or(u32::MAX)
}

fn batch(body: AppendBody) -> Result<WorkerBatch, Problem> {
    if body.events.is_empty() || body.events.len() > BATCH_EVENTS_MAX {
        return Err(Problem::invalid("events", format!("must be 1 to {BATCH_EVENTS_MAX} events")));
    }
    let mut pieces = Vec::with_capacity(body.events.len());
    let mut end = None;
    for (place, made) in body.events.into_iter().enumerate() {
        if end.is_some() {
            return Err(Problem::invalid("events", format!("[{place}] comes after the end")));
        }
        match made {
            Made::Text(Text { text }) => {
                pieces.push(Piece::Text { kind: TextKind::Answer, text, chunks: 1 });
            }
            Made::Thinking(Text { text }) => {
                pieces.push(Piece::Text { kind: TextKind::Thinking, text, chunks: 1 });
            }
            Made::Tool(Tool {
                tool_use_id: ToolUseId(id),
                tool_name: ToolName(name),
                tool_input: Free(input),
            }) => {
                pieces.push(Piece::ToolCall { id, name, input });
            }
            Made::ToolOutput(ToolOutput { tool_use_id: ToolUseId(id), stream, text }) => {
                pieces.push(Piece::ToolOutput { id, stream, text });
            }
            Made::ToolEnd(ToolEnd { tool_use_id: ToolUseId(id), result: Free(result), is_error }) => {
                pieces.push(Piece::ToolEnd { id, result, is_error });
            }
            Made::Approval(Tool {
                tool_use_id: ToolUseId(id),
                tool_name: ToolName(name),
                tool_input: Free(input),
            }) => {
                pieces.push(Piece::Approval { id, name, input });
            }
            Made::Usage(Usage { input_tokens: Whole(input_tokens), output_tokens: Whole(output_tokens) }) => {
                pieces.push(Piece::Usage { input_tokens, output_tokens });
            }
            Made::Done(Done { finish_reason: Short(reason) }) => end = Some(WorkerEnd::Done { reason }),
            Made::Failed(Failed { error_message: Short(message), code: Short(code) }) => {
                end = Some(WorkerEnd::Failed { message, code });
            }
        }
    }
    let expected = Some(Seq(body.expected_seq.0));
    Ok(WorkerBatch { epoch: epoch(body.epoch), expected, pieces, end })
}
