//! Who makes a request. A handler can reach the engine only through its caller, so no handler can forget to check.

use std::borrow::Cow;
use std::marker::PhantomData;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, header};
use outlast_core::UserId;
use outlast_engine::{Engine, StartRequest};

use super::App;
use super::error::Problem;
use super::per_user::{ConnectionUser, Open};
use super::session::COOKIE;
use crate::auth::{AuthError, Principal, Scope, Source};

/// Headers that proxies add. A server without keys trusts every client on this machine, and behind a proxy that would
/// be everyone.
const FORWARDED: [HeaderName; 5] = [
    header::FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
];

/// The caller of a handler that needs the scope of `S`.
pub(crate) struct Caller<S> {
    app: App,
    principal: Principal,
    needs: PhantomData<S>,
}

/// The scope that a handler needs.
pub(crate) trait Needs: Send + Sync {
    /// `None` if any valid credential is enough.
    const SCOPE: Option<Scope>;
}

pub(crate) struct Anyone;
pub(crate) struct Read;
pub(crate) struct Write;
pub(crate) struct Approve;
pub(crate) struct Produce;
pub(crate) struct Admin;

impl Needs for Anyone {
    const SCOPE: Option<Scope> = None;
}
impl Needs for Read {
    const SCOPE: Option<Scope> = Some(Scope::Read);
}
impl Needs for Write {
    const SCOPE: Option<Scope> = Some(Scope::Write);
}
impl Needs for Approve {
    const SCOPE: Option<Scope> = Some(Scope::Approve);
}
impl Needs for Produce {
    const SCOPE: Option<Scope> = Some(Scope::Produce);
}

impl Needs for Admin {
    const SCOPE: Option<Scope> = Some(Scope::Admin);
}

impl<S: Needs> FromRequestParts<App> for Caller<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Caller<S>, Problem> {
        let principal = identify(app, parts).await?;
        super::audited::note(parts, &principal);
        if let Some(connection) = parts.extensions.get::<ConnectionUser>() {
            connection.becomes(&principal, &app.0.user_connections)?;
        }
        if let Some(scope) = S::SCOPE {
            allow(&principal, scope)?;
        }
        Ok(Caller { app: app.clone(), principal, needs: PhantomData })
    }
}

async fn identify(app: &App, parts: &Parts) -> Result<Principal, Problem> {
    let (auth, headers) = (&app.0.auth, &parts.headers);
    // A server without keys ignores credentials: many clients must send one.
    if let Some(local) = auth.local().await? {
        if !app.0.insecure && FORWARDED.iter().any(|name| headers.contains_key(name)) {
            return Err(Problem::through_proxy());
        }
        return Ok(local);
    }
    if let Some(credential) = bearer(headers)? {
        return Ok(auth.by_bearer(credential).await?);
    }
    if let Some(key) = event_key(parts) {
        return Ok(auth.by_bearer(key).await?);
    }
    if parts.method == Method::GET
        && let Some(ticket) = ticket(parts.uri.query().unwrap_or_default())
    {
        return Ok(auth.by_ticket(&ticket, parts.uri.path()).await?);
    }
    match session_secret(headers)? {
        Some(secret) => Ok(auth.by_session(secret).await?),
        None => Err(AuthError::Missing.into()),
    }
}

/// The key in the path of an event. The SDK that sends it has no other place for one.
fn event_key(parts: &Parts) -> Option<&str> {
    parts.uri.path().strip_prefix("/e/").filter(|_| parts.method == Method::POST)
}

fn ticket(query: &str) -> Option<Cow<'_, str>> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(name, _)| name == "ticket").map(|(_, ticket)| ticket)
}

/// The session in the cookie. If there are two, it cannot be known which one the browser meant.
pub(super) fn session_secret(headers: &HeaderMap) -> Result<Option<&str>, AuthError> {
    let mut found = None;
    for value in headers.get_all(header::COOKIE) {
        let Ok(value) = value.to_str() else { continue }; // other cookies may hold anything
        let pairs = value.split(';').filter_map(|pair| pair.trim().split_once('='));
        for (_, secret) in pairs.filter(|(name, _)| *name == COOKIE) {
            if found.replace(secret).is_some() {
                return Err(AuthError::Invalid);
            }
        }
    }
    Ok(found)
}

/// The credential in `Authorization`. Two are refused, because a proxy and this server could use different ones.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, AuthError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let value = value.to_str().map_err(|_| AuthError::Invalid)?;
    match (value.split_once(' '), values.next()) {
        (Some((scheme, credential)), None) if scheme.eq_ignore_ascii_case("bearer") => {
            Ok(Some(credential.trim()))
        }
        _ => Err(AuthError::Invalid),
    }
}

fn allow(principal: &Principal, scope: Scope) -> Result<(), Problem> {
    if principal.may(scope) { Ok(()) } else { Err(Problem::forbidden(scope)) }
}

impl<S> Caller<S> {
    pub(crate) fn user(&self) -> &UserId {
        self.principal.user()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.app.0.engine
    }

    pub(crate) fn app(&self) -> &App {
        &self.app
    }

    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Counts a start of a generation against the caller's limits, and notes in the request which key asks.
    pub(crate) async fn admit(&self, request: StartRequest) -> Result<StartRequest, Problem> {
        self.count_start().await?;
        Ok(StartRequest { api_key_id: self.api_key_id(), ..request })
    }

    /// Counts a start of a generation against the caller's limits.
    pub(crate) async fn count_start(&self) -> Result<(), Problem> {
        self.app.0.rates.start(&self.principal)?;
        self.app.0.quotas.start(&self.app.0.engine, &self.principal).await
    }

    /// Refuses a caller who already stores too much.
    pub(crate) async fn may_store(&self) -> Result<(), Problem> {
        self.app.0.quotas.disk(&self.app.0.engine, &self.principal).await
    }

    /// The key that limits are counted for, even if the caller has a session that was opened with it.
    pub(crate) fn api_key_id(&self) -> Option<String> {
        match self.principal.credential() {
            Source::Key(id) => Some(id.clone()),
            Source::Local | Source::Token(_) | Source::Session(_) => None,
        }
    }

    /// Counts a stream of the caller until it is dropped.
    pub(super) fn open_stream(&self) -> Result<Open, Problem> {
        self.app.0.streams.open(&self.principal)
    }

    /// For what comes after the request, like a command on a WebSocket: the credential must still be valid
    /// and allow this.
    pub(crate) async fn still_may(&self, scope: Scope) -> Result<(), Problem> {
        self.app.0.auth.recheck(&self.principal).await?;
        allow(&self.principal, scope)
    }
}

impl<S> Clone for Caller<S> {
    fn clone(&self) -> Caller<S> {
        Caller { app: self.app.clone(), principal: self.principal.clone(), needs: PhantomData }
    }
}
