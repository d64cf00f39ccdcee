//! A person's decision about a tool call that waits for it.

use outlast_core::{Decided, Decision, GenerationId, Patterns, UserId};
use outlast_engine::ToolDecision;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::body::{Json, RequestName, TwoIds};
use super::caller::{Approve, Caller};
use super::error::Problem;
use super::free::{ArgumentPatterns, Sentences, Short};
use super::generations::Outcome;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(submit))
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Decide)]
pub(crate) struct DecisionBody {
    decision: Decision,
    /// Why, for the record.
    #[schema(value_type = Option<String>, max_length = 2048)]
    reason: Option<Sentences>,
    /// Whether the decision applies to every later call of this tool in this conversation.
    #[serde(default)]
    always: bool,
    /// Limits `always` to calls whose arguments match: `*` stands for any text, `?` for one character.
    pattern: Option<ArgumentPatterns>,
    /// The `hash` of the question that was shown. Refused if the question has changed since.
    #[schema(max_length = 200)]
    hash: Option<String>,
    #[serde(rename = "requestId")]
    _request_id: Option<RequestName>,
}

/// Approve or deny a tool call
///
/// The first decision counts.
#[utoipa::path(post, path = "/v1/generations/{id}/approvals/{toolUseId}", operation_id = "submitApproval", tag = "Approvals",
    security(("key" = ["approve"])),
    responses(
        (status = 200, body = Outcome, description = "Decided. The decision is durable."),
        (status = 409, description = "`already_decided`, `approval_changed` or `already_ended`."),
        (status = 429, description = "`limit_reached`: too many live generations."),
    ))]
async fn submit(
    caller: Caller<Approve>,
    TwoIds(id, tool_use_id): TwoIds<GenerationId, String>,
    Json(body): Json<DecisionBody>,
) -> Result<axum::Json<Outcome>, Problem> {
    let DecisionBody { decision, reason, always, pattern, hash, .. } = body;
    let user = caller.user();
    let decided = decided(user, decision, reason, (always, pattern))?;
    let decision = ToolDecision { tool_use_id, hash, decided };
    Ok(axum::Json(caller.engine().decide(user, &id, decision).await?.into()))
}

/// The decision of this user.
pub(crate) fn decided(
    user: &UserId,
    decision: Decision,
    reason: Option<Sentences>,
    (always, pattern): (bool, Option<ArgumentPatterns>),
) -> Result<Decided, Problem> {
    if pattern.is_some() && !always {
        return Err(Problem::invalid("pattern", "is allowed only with `always`"));
    }
    let reason = reason.map(|Short(reason)| reason);
    let pattern: Option<Patterns> = pattern.map(|ArgumentPatterns(patterns)| patterns);
    Ok(Decided { decision, by: user.as_str().to_owned(), reason, always, pattern })
}
