//! Authentication: who makes a request, and what they may do.
//!
//! Every request is made by a [`Principal`]. Without keys there is one, the user `local` on this machine. Once the
//! first key exists, every request needs a credential. A server never returns to serving everyone, because a
//! revoked key still counts.
//!
//! A credential is looked up in the store for every request, so a revoked one fails at once, at every instance.
//! A stream outlives its request and holds its principal. A task rereads the credentials of open streams, and ends
//! the streams whose credentials are no longer valid.

mod command;
mod jwks;
mod jwt;
mod keys;
mod lease;
mod passes;
mod principal;
mod scopes;
mod secret;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use outlast_core::{Timestamp, UserId};
use outlast_engine::Clock;
use outlast_store::{ItemQuery, Items, StoreError};
use tokio_util::sync::CancellationToken;

pub(crate) use command::KeysCommand;
pub(crate) use jwks::{Jwks, JwksError};
pub(crate) use jwt::{Jwt, JwtOptions, Verifier};
pub(crate) use keys::PresentedKey;
pub(crate) use lease::Leases;
pub(crate) use passes::Pass;
pub(crate) use principal::{Principal, Source};
pub(crate) use scopes::{Scope, Scopes};
pub(crate) use secret::hex;

use jwt::TokenError;
use keys::KEY;
use passes::{SESSION, TICKET};
use principal::Grant;

/// The user of a server without keys.
const LOCAL: &str = "local";

/// How often the credentials of open streams are reread. Revoking a key ends its streams within 5 s, which leaves
/// the store 3 s to read the credentials of everybody who is connected.
const RECHECK_EVERY: Duration = Duration::from_secs(2);
/// How many are reread at the same time.
const RECHECKS_AT_ONCE: usize = 64;

/// How often expired sessions and tickets are removed.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Decides who a request is made by.
pub(crate) struct Auth {
    items: Arc<dyn Items>,
    clock: Clock,
    leases: Leases,
    jwt: Option<Jwt>,
    /// Those who hold a stream, by their credential.
    held: Mutex<HashMap<Source, Weak<Grant>>>,
    /// `Some` while requests need no credential.
    local: Mutex<Option<Principal>>,
}

/// Why a request could not be authenticated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthError {
    #[error("this server needs an API key: send it as `Authorization: Bearer <key>`")]
    Missing,
    /// Unknown, revoked and expired credentials look the same from outside.
    #[error("the API key or token is not valid")]
    Invalid,
    /// Nobody can tell whether a token is valid.
    #[error(transparent)]
    Keys(#[from] JwksError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Auth {
    pub(crate) async fn open(
        items: Arc<dyn Items>,
        clock: Clock,
        jwt: Option<Jwt>,
    ) -> Result<Auth, StoreError> {
        let leases = Leases::open(&*items).await?;
        let local = Principal::new(Grant {
            user: UserId::from(LOCAL),
            scopes: Scopes::ALL,
            source: Source::Local,
            credential: Source::Local,
            expires: None,
            ended: CancellationToken::new(),
        });
        let local = Mutex::new(jwt.is_none().then_some(local));
        let auth = Auth { items, clock, leases, jwt, held: Mutex::default(), local };
        auth.local().await?;
        Ok(auth)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Whether requests need a credential.
    pub(crate) async fn is_required(&self) -> Result<bool, StoreError> {
        Ok(self.local().await?.is_none())
    }

    /// The one user of a server without keys.
    pub(crate) async fn local(&self) -> Result<Option<Principal>, StoreError> {
        let local = self.local.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if local.is_none() || self.items.list_items(ItemQuery::newest(KEY, 1)).await?.items.is_empty() {
            return Ok(local);
        }
        tracing::info!("an API key exists; from now on every request needs one");
        if let Some(local) = self.local.lock().unwrap_or_else(PoisonError::into_inner).take() {
            local.end();
        }
        Ok(None)
    }

    /// Who has this API key or token.
    pub(crate) async fn by_bearer(&self, presented: &str) -> Result<Principal, AuthError> {
        match &self.jwt {
            Some(jwt) if PresentedKey::parse(presented).is_none() => {
                let subject = jwt.verify(presented).await.map_err(|error| match error {
                    TokenError::Invalid => AuthError::Invalid,
                    TokenError::Keys(error) => AuthError::Keys(error),
                })?;
                let source = Source::Token(secret::hash(presented));
                Ok(self.hold(Grant {
                    user: subject.user,
                    scopes: subject.scopes,
                    credential: source.clone(),
                    source,
                    expires: Some(subject.expires),
                    ended: CancellationToken::new(),
                }))
            }
            _ => self.by_key(presented).await,
        }
    }

    async fn by_key(&self, presented: &str) -> Result<Principal, AuthError> {
        let presented = PresentedKey::parse(presented).ok_or(AuthError::Invalid)?;
        let key = keys::get(&*self.items, presented.id()).await?.ok_or(AuthError::Invalid)?;
        if !presented.matches(&key) || !key.is_valid_at(self.clock.now()) {
            return Err(AuthError::Invalid);
        }
        let source = Source::Key(presented.id().to_owned());
        Ok(self.hold(Grant {
            user: key.user,
            scopes: key.scopes,
            credential: source.clone(),
            source,
            expires: key.expires_at,
            ended: CancellationToken::new(),
        }))
    }

    /// Begins a session for somebody who has a credential.
    pub(crate) async fn log_in(&self, holder: &Principal) -> Result<Pass, StoreError> {
        passes::make(&*self.items, SESSION, holder, None, self.clock.now()).await
    }

    /// Ends a session, if it is one. What it holds open ends with it.
    pub(crate) async fn log_out(&self, secret: &str) -> Result<(), StoreError> {
        self.items.remove_item(SESSION, &secret::hash(secret)).await.map(|_| ())
    }

    /// Who has the session with this secret.
    pub(crate) async fn by_session(&self, secret: &str) -> Result<Principal, AuthError> {
        let id = secret::hash(secret);
        let stored = passes::get(&*self.items, SESSION, &id, self.clock.now()).await?;
        let stored = stored.ok_or(AuthError::Invalid)?;
        if !self.is_valid(&stored.source).await? {
            return Err(AuthError::Invalid);
        }
        Ok(self.hold(Grant {
            user: stored.user(),
            scopes: stored.scopes,
            source: Source::Session(id),
            credential: stored.credential(),
            expires: Some(stored.expires_at),
            ended: CancellationToken::new(),
        }))
    }

    /// A ticket for one request to a path.
    pub(crate) async fn ticket(&self, holder: &Principal, resource: String) -> Result<Pass, StoreError> {
        passes::make(&*self.items, TICKET, holder, Some(resource), self.clock.now()).await
    }

    /// Who this ticket was made for. It can be used once, for its path alone.
    pub(crate) async fn by_ticket(&self, secret: &str, path: &str) -> Result<Principal, AuthError> {
        let id = secret::hash(secret);
        let stored = passes::get(&*self.items, TICKET, &id, self.clock.now()).await?;
        let stored = stored.filter(|stored| stored.resource.as_deref() == Some(path));
        let stored = stored.ok_or(AuthError::Invalid)?;
        // Of several who come with it, one removes it.
        if !self.items.remove_item(TICKET, &id).await? || !self.is_valid(&stored.source).await? {
            return Err(AuthError::Invalid);
        }
        // The stream may outlive the ticket, but not the credential behind it.
        Ok(self.hold(Grant {
            user: stored.user(),
            scopes: stored.scopes,
            source: stored.source.clone(),
            credential: stored.credential(),
            expires: stored.until,
            ended: CancellationToken::new(),
        }))
    }

    /// Whether the credential is still good. A store that cannot be reached says nothing about that.
    pub(crate) async fn recheck(&self, principal: &Principal) -> Result<(), AuthError> {
        if principal.has_expired(self.clock.now()) || !self.is_valid(principal.source()).await? {
            principal.end();
            return Err(AuthError::Invalid);
        }
        Ok(())
    }

    /// Whether nobody has ended it. Its expiry is known to whoever holds it.
    async fn is_valid(&self, source: &Source) -> Result<bool, StoreError> {
        let Source::Session(id) = source else { return self.is_credential_valid(source).await };
        match passes::get(&*self.items, SESSION, id, self.clock.now()).await? {
            Some(session) => self.is_credential_valid(&session.source).await,
            None => Ok(false),
        }
    }

    async fn is_credential_valid(&self, source: &Source) -> Result<bool, StoreError> {
        match source {
            Source::Local => Ok(self.local().await?.is_some()),
            Source::Token(_) => Ok(true),
            Source::Key(id) => {
                let key = keys::get(&*self.items, id).await?;
                Ok(key.is_some_and(|key| key.is_valid_at(self.clock.now())))
            }
            // Nobody begins a session with a session.
            Source::Session(_) => Ok(false),
        }
    }

    /// Ends the streams of credentials that are no longer valid, and removes what has expired. Runs until it is
    /// dropped. Neither waits for the other: a hundred thousand expired tickets must not keep a revoked key alive.
    pub(crate) async fn watch(&self) {
        tokio::join!(self.recheck_regularly(), self.sweep_regularly());
    }

    async fn recheck_regularly(&self) {
        loop {
            tokio::time::sleep(RECHECK_EVERY).await;
            let rechecks = stream::iter(self.holding()).for_each_concurrent(RECHECKS_AT_ONCE, async |one| {
                match self.recheck(&one).await {
                    Ok(()) | Err(AuthError::Invalid | AuthError::Missing | AuthError::Keys(_)) => {}
                    Err(AuthError::Store(error)) => {
                        tracing::warn!(%error, "cannot check the keys of open streams; will retry");
                    }
                }
            });
            rechecks.await;
        }
    }

    async fn sweep_regularly(&self) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            if let Err(error) = passes::sweep(&*self.items, self.clock.now()).await {
                tracing::warn!(%error, "cannot remove expired sessions; will retry");
            }
        }
    }

    /// Returns the same principal for all streams of one credential.
    fn hold(&self, grant: Grant) -> Principal {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = held.get(&grant.source).and_then(Weak::upgrade).map(Principal::from)
            && known.is_for(&grant.user, grant.scopes)
        {
            return known;
        }
        let source = grant.source.clone();
        let principal = Principal::new(grant);
        held.insert(source, principal.downgrade());
        principal
    }

    /// The principals with open streams. The others are removed.
    fn holding(&self) -> Vec<Principal> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, grant| grant.strong_count() > 0);
        let local = self.local.lock().unwrap_or_else(PoisonError::into_inner).clone();
        held.values().filter_map(Weak::upgrade).map(Principal::from).chain(local).collect()
    }
}
