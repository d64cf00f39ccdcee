//! Logging in from a browser: a session in a cookie, and tickets for what cannot send a header.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use outlast_core::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::AuthError;

use super::App;
use super::body::{Json, RequestName};
use super::caller::{Caller, Read, session_secret};
use super::error::Problem;

/// A browser sends a cookie with this prefix only to the host that set it, and only over a secure connection
/// (or to this machine).
pub(super) const COOKIE: &str = "__Host-outlast";
/// Longest path that a ticket can be for.
const RESOURCE_BYTES_MAX: usize = 1024;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(log_in, log_out)).routes(routes!(ticket))
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LogIn {
    /// An API key, or a token if the server accepts tokens.
    #[schema(max_length = 8192)]
    key: String,
    #[serde(rename = "requestId")]
    _request_id: Option<RequestName>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Session {
    user: String,
    expires_at: Timestamp,
}

/// Log in
///
/// Exchanges a key for a session cookie, which scripts cannot read. For the web app.
#[utoipa::path(post, path = "/v1/session", operation_id = "logIn", tag = "Users",
    responses(
        (status = 200, body = Session, description = "Logged in.",
            headers(("set-cookie" = String, description = "The session."))),
        (status = 401, description = "`unauthenticated`: the key is not valid."),
        (status = 429, description = "`limit_reached`: too many failed log-ins."),
    ))]
async fn log_in(State(app): State<App>, Json(body): Json<LogIn>) -> Result<Response, Problem> {
    let principal = match app.auth().by_bearer(body.key.trim()).await {
        Err(AuthError::Invalid) => {
            app.0.rates.login_failure()?;
            return Err(AuthError::Invalid.into());
        }
        identified => identified?,
    };
    let pass = app.auth().log_in(&principal).await?;
    let seconds = pass.expires_at.since(app.auth().now()).as_secs();
    let session = Session { user: principal.user().as_str().to_owned(), expires_at: pass.expires_at };
    Ok(([(header::SET_COOKIE, cookie(&pass.secret, seconds))], axum::Json(session)).into_response())
}

/// Log out
///
/// Ends the cookie's session, and the streams that it opened.
#[utoipa::path(delete, path = "/v1/session", operation_id = "logOut", tag = "Users",
    responses(
        (status = 204, description = "Logged out."),
        (status = 401, description = "`unauthenticated`: more than one session was sent."),
    ))]
async fn log_out(State(app): State<App>, headers: HeaderMap) -> Result<Response, Problem> {
    if let Some(secret) = session_secret(&headers)? {
        app.auth().log_out(secret).await?;
    }
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie("", 0))]).into_response())
}

fn cookie(secret: &str, seconds: u64) -> String {
    format!("{COOKIE}={secret}; Path=/; HttpOnly; Secure; SameSite=Strict; Max-Age={seconds}")
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TicketFor {
    /// The path that the ticket is for, like `/v1/conversations/{id}/events`.
    #[schema(min_length = 1, max_length = 1024, pattern = "^/v1/")]
    resource: String,
    #[serde(rename = "requestId")]
    _request_id: Option<RequestName>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Ticket {
    /// Send it as `?ticket=`, once.
    ticket: String,
    expires_at: Timestamp,
}

/// Get a ticket
///
/// For an `EventSource` or a WebSocket, which cannot send a header: a ticket stands for the caller's credential
/// in one GET to one path, for 30 seconds.
#[utoipa::path(post, path = "/v1/tickets", operation_id = "createTicket", tag = "Users",
    security(("key" = ["read"])),
    responses((status = 200, body = Ticket, description = "The ticket. It is shown only once.")))]
async fn ticket(caller: Caller<Read>, Json(body): Json<TicketFor>) -> Result<axum::Json<Ticket>, Problem> {
    if !body.resource.starts_with("/v1/") || body.resource.len() > RESOURCE_BYTES_MAX {
        return Err(Problem::invalid("resource", "must be a path that begins with /v1/"));
    }
    let pass = caller.app().auth().ticket(caller.principal(), body.resource).await?;
    Ok(axum::Json(Ticket { ticket: pass.secret, expires_at: pass.expires_at }))
}
