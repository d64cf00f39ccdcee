//! The tools that the server offers, and the whole output of their calls.

use axum::body::Body;
use axum::response::Response;
use futures_util::stream;
use outlast_core::{GenerationId, PatternRule, Place, Policy, ToolStream};
use outlast_engine::tools::McpStanding;
use outlast_engine::{OfferedTool, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::body::TwoIds;
use super::caller::{Caller, Read};
use super::error::Problem;
use super::files::attachment;
use super::query::{Query, Whole};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(output))
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolList {
    data: Vec<ToolOffer>,
    /// Why there is no sandbox, and so none of the tools that run in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    unavailable: Option<String>,
    /// MCP servers, whose tools come and go.
    servers: Vec<ToolServer>,
}

/// A server that brings tools of its own.
#[derive(Serialize, ToSchema)]
pub(crate) struct ToolServer {
    name: String,
    /// Why none of its tools can be called. Absent if it is connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    problem: Option<String>,
    /// Its tools that cannot be called now.
    unavailable: Vec<UnavailableTool>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct UnavailableTool {
    name: String,
    /// For example that the server is not reachable, or that the tool has changed and nobody has agreed to that.
    reason: String,
}

impl From<McpStanding> for ToolServer {
    fn from(standing: McpStanding) -> ToolServer {
        let McpStanding { name, problem, unavailable } = standing;
        let unavailable = unavailable.into_iter();
        let unavailable = unavailable.map(|tool| UnavailableTool { name: tool.name, reason: tool.reason });
        ToolServer { name, problem, unavailable: unavailable.collect() }
    }
}

/// A tool that a model may ask for.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Tool)]
pub(crate) struct ToolOffer {
    name: String,
    description: String,
    /// A JSON schema of its arguments.
    #[schema(value_type = BTreeMap<String, Value>)]
    schema: Value,
    /// Where it runs.
    runs_in: Place,
    /// Whether it changes nothing.
    read_only: bool,
    /// The policy for calls that no rule matches.
    policy: PolicyName,
    /// The first rule that matches a call decides.
    rules: Vec<Rule>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ToolPolicy)]
pub(crate) enum PolicyName {
    Allow,
    /// A person decides.
    Ask,
    Deny,
}

impl From<Policy> for PolicyName {
    fn from(policy: Policy) -> PolicyName {
        match policy {
            Policy::Allow => PolicyName::Allow,
            Policy::Ask => PolicyName::Ask,
            Policy::Deny => PolicyName::Deny,
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = ToolPolicyRule)]
pub(crate) struct Rule {
    /// Glob patterns over arguments; all must match.
    #[serde(rename = "match")]
    #[schema(value_type = BTreeMap<String, String>)]
    patterns: outlast_core::Patterns,
    policy: PolicyName,
}

impl From<OfferedTool> for ToolOffer {
    fn from(offered: OfferedTool) -> ToolOffer {
        let OfferedTool { spec, rule } = offered;
        let of = |PatternRule { patterns, policy }| Rule { patterns, policy: PolicyName::from(policy) };
        ToolOffer {
            name: spec.name,
            description: spec.description.unwrap_or_default(),
            schema: spec.parameters.unwrap_or_else(|| json!({"type": "object"})),
            runs_in: rule.place,
            read_only: rule.read_only,
            policy: rule.policy.into(),
            rules: rule.rules.into_iter().map(of).collect(),
        }
    }
}

/// List the tools
#[utoipa::path(get, path = "/v1/tools", operation_id = "listTools", tag = "Files",
    security(("key" = ["read"])),
    responses((status = 200, body = ToolList, description = "All of them.")))]
async fn list(caller: Caller<Read>) -> axum::Json<ToolList> {
    let data = caller.engine().offered_tools().into_iter().map(ToolOffer::from).collect();
    let servers = caller.engine().tool_servers().into_iter().map(ToolServer::from).collect();
    axum::Json(ToolList { data, unavailable: caller.engine().no_tools().map(str::to_owned), servers })
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct OutputQuery {
    #[serde(default)]
    #[param(value_type = Option<StreamName>)]
    stream: StreamName,
    /// The first byte, as in the `offset` of `tool.output`.
    #[param(value_type = Option<u64>, default = 0)]
    offset: Option<Whole>,
}

#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ToolOutputStream)]
pub(crate) enum StreamName {
    #[default]
    Stdout,
    Stderr,
}

impl From<StreamName> for ToolStream {
    fn from(name: StreamName) -> ToolStream {
        match name {
            StreamName::Stdout => ToolStream::Stdout,
            StreamName::Stderr => ToolStream::Stderr,
        }
    }
}

/// Download the whole output of a tool call
///
/// Events have the first 256 KiB. The whole output is in the sandbox. When the tool has ended, up to 64 MiB of each stream
/// are kept for the time after the sandbox, as long as the events of the generation are. A response has at most 64 MiB of
/// what was written so far; continue with `offset`.
#[utoipa::path(get, path = "/v1/generations/{id}/tools/{toolUseId}/output", operation_id = "getToolOutput", tag = "Files",
    params(OutputQuery),
    security(("key" = ["read"])),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>, description = "The output, as an attachment."),
        (status = 410, description = "`gone`: the sandbox no longer exists, and this part of the output was not kept; `detail` says what was kept."),
    ))]
async fn output(
    caller: Caller<Read>,
    TwoIds(id, tool_use_id): TwoIds<GenerationId, String>,
    Query(query): Query<OutputQuery>,
) -> Result<Response, Problem> {
    let offset = query.offset.map_or(0, |Whole(offset)| offset);
    let call = ToolCall { tool_use_id: &tool_use_id, stream: query.stream.into(), offset };
    let output = caller.engine().tool_output(caller.user(), &id, &call).await?;
    let pieces = stream::try_unfold(output, async |mut output| {
        Ok::<_, outlast_engine::EngineError>(output.next().await?.map(|piece| (piece, output)))
    });
    Ok(attachment(Body::from_stream(pieces), "output.txt"))
}
