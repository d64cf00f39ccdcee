//! Who makes a request. A handler can reach the engine only through its caller, so no handler can forget to check.

use std::borrow::Cow;
use std::marker::PhantomData;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, header};
use outlast_core::UserId;
use outlast_engine::Engine;

use super::App;
use super::error::Problem;
use super::session::COOKIE;
use crate::auth::{AuthError, Principal, Scope};

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

impl<S: Needs> FromRequestParts<App> for Caller<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Caller<S>, Problem> {
        let principal = identify(app, parts).await?;
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

fn ticket(query: &str) -> Option<Cow<'_, str>> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(name, _)| name == "ticket").map(|(_, ticket)| ticket)
}

/// The session in the cookie. Of two, nobody can tell which one the browser meant.
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

    /// For actions after the request, such as a command on a WebSocket: the credential must still be valid and allow
    /// them.
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
