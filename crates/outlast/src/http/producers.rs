//! Workers elsewhere: claim a generation, append what they make, say that they are alive.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use outlast_core::{GenerationId, Piece, ProducedEnd, Seq, TextKind, ToolStream};
use outlast_engine::{ProducedBatch, Producing};
use serde::Deserialize;
use serde_json::{Value, json};

use super::App;
use super::body::{Id, Json, request_id};
use super::error::Problem;

/// Events in one batch: more is a worker that should send more often.
const BATCH_EVENTS_MAX: usize = 1_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ClaimBody {
    #[serde(default = "yes")]
    keep: bool,
    request_id: Option<String>,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct HeartbeatBody {
    epoch: u32,
    request_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AppendBody {
    epoch: u32,
    expected_seq: u64,
    events: Vec<Made>,
    request_id: Option<String>,
}

/// What a worker may append, under the names that readers see. Messages and their ids are made here.
#[derive(Deserialize)]
#[serde(tag = "type", content = "payload")]
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Tool {
    tool_use_id: String,
    tool_name: String,
    tool_input: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ToolOutput {
    tool_use_id: String,
    stream: ToolStream,
    text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ToolEnd {
    tool_use_id: String,
    result: Value,
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Usage {
    input_tokens: u64,
    output_tokens: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Done {
    #[serde(default = "stop")]
    finish_reason: String,
}

fn stop() -> String {
    "stop".to_owned()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Failed {
    error_message: String,
    #[serde(default = "producer_failed")]
    code: String,
}

fn producer_failed() -> String {
    "producer_failed".to_owned()
}

pub(crate) async fn claim(
    State(app): State<App>,
    Id(id): Id<GenerationId>,
    headers: HeaderMap,
    Json(body): Json<ClaimBody>,
) -> Result<Response, Problem> {
    may_have_a_name(&headers, body.request_id.as_deref())?;
    Ok(answer(app.engine().claim(&app.user(), &id, body.keep).await?))
}

pub(crate) async fn heartbeat(
    State(app): State<App>,
    Id(id): Id<GenerationId>,
    headers: HeaderMap,
    Json(body): Json<HeartbeatBody>,
) -> Result<Response, Problem> {
    may_have_a_name(&headers, body.request_id.as_deref())?;
    let alive = ProducedBatch { epoch: body.epoch, expected: None, pieces: Vec::new(), end: None };
    Ok(answer(app.engine().produce(&app.user(), &id, alive).await?))
}

pub(crate) async fn append(
    State(app): State<App>,
    Id(id): Id<GenerationId>,
    headers: HeaderMap,
    Json(body): Json<AppendBody>,
) -> Result<Response, Problem> {
    may_have_a_name(&headers, body.request_id.as_deref())?;
    let batch = batch(body)?;
    Ok(answer(app.engine().produce(&app.user(), &id, batch).await?))
}

/// Names may be there. They do nothing: an epoch and a position say better what came before.
fn may_have_a_name(headers: &HeaderMap, name: Option<&str>) -> Result<(), Problem> {
    request_id(headers, name.map(str::to_owned)).map(|_| ())
}

fn batch(body: AppendBody) -> Result<ProducedBatch, Problem> {
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
            Made::Tool(Tool { tool_use_id: id, tool_name: name, tool_input: input }) => {
                pieces.push(Piece::ToolCall { id, name, input });
            }
            Made::ToolOutput(ToolOutput { tool_use_id: id, stream, text }) => {
                pieces.push(Piece::ToolOutput { id, stream, text });
            }
            Made::ToolEnd(ToolEnd { tool_use_id: id, result, is_error }) => {
                pieces.push(Piece::ToolEnd { id, result, is_error });
            }
            Made::Approval(Tool { tool_use_id: id, tool_name: name, tool_input: input }) => {
                pieces.push(Piece::Approval { id, name, input });
            }
            Made::Usage(Usage { input_tokens, output_tokens }) => {
                pieces.push(Piece::Usage { input_tokens, output_tokens });
            }
            Made::Done(Done { finish_reason: reason }) => end = Some(ProducedEnd::Done { reason }),
            Made::Failed(Failed { error_message: message, code }) => {
                end = Some(ProducedEnd::Failed { message, code });
            }
        }
    }
    Ok(ProducedBatch { epoch: body.epoch, expected: Some(Seq(body.expected_seq)), pieces, end })
}

fn answer(producing: Producing) -> Response {
    let body = json!({
        "epoch": producing.epoch,
        "lastSeq": producing.last,
        "status": producing.status,
        "approvals": producing.approvals,
    });
    axum::Json(body).into_response()
}
