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
mod keys;
mod lease;
mod principal;
mod scopes;
mod secret;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use outlast_core::{Timestamp, UserId};
use outlast_engine::Clock;
use outlast_store::{ItemQuery, Items, StoreError};
use tokio_util::sync::CancellationToken;

pub(crate) use command::KeysCommand;
pub(crate) use keys::PresentedKey;
pub(crate) use lease::Leases;
pub(crate) use principal::Principal;
pub(crate) use scopes::{Scope, Scopes};

use keys::KEY;
use principal::{Grant, Source};

/// The user of a server without keys.
const LOCAL: &str = "local";

/// How often the credentials of open streams are reread. Revoking a key ends its streams within 5 s.
const RECHECK_EVERY: Duration = Duration::from_secs(1);

/// Determines who makes a request.
pub(crate) struct Auth {
    items: Arc<dyn Items>,
    clock: Clock,
    leases: Leases,
    /// The principals of open streams, by credential.
    held: Mutex<HashMap<Source, Weak<Grant>>>,
    /// `Some` while requests need no credential.
    local: Mutex<Option<Principal>>,
}

/// Why a request could not be authenticated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthError {
    #[error("this server needs an API key: send it as `Authorization: Bearer <key>`")]
    Missing,
    /// Unknown, revoked and expired keys look the same from outside.
    #[error("the API key is not valid")]
    Invalid,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Auth {
    pub(crate) async fn open(items: Arc<dyn Items>, clock: Clock) -> Result<Auth, StoreError> {
        let leases = Leases::open(&*items).await?;
        let local = Principal::new(Grant {
            user: UserId::from(LOCAL),
            scopes: Scopes::ALL,
            source: Source::Local,
            expires: None,
            ended: CancellationToken::new(),
        });
        let auth = Auth { items, clock, leases, held: Mutex::default(), local: Mutex::new(Some(local)) };
        auth.local().await?;
        Ok(auth)
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
        tracing::info!("a key exists; every request needs one from now on");
        if let Some(local) = self.local.lock().unwrap_or_else(PoisonError::into_inner).take() {
            local.end();
        }
        Ok(None)
    }

    /// The principal of an API key.
    pub(crate) async fn by_key(&self, presented: &str) -> Result<Principal, AuthError> {
        let presented = PresentedKey::parse(presented).ok_or(AuthError::Invalid)?;
        let key = keys::get(&*self.items, presented.id()).await?.ok_or(AuthError::Invalid)?;
        if !presented.matches(&key) || !key.is_valid_at(self.clock.now()) {
            return Err(AuthError::Invalid);
        }
        let source = Source::Key(presented.id().to_owned());
        Ok(self.hold(source, key.user, key.scopes, key.expires_at))
    }

    /// Checks that the credential is still valid, and ends its streams if not. A store error leaves them open.
    pub(crate) async fn recheck(&self, principal: &Principal) -> Result<(), AuthError> {
        let now = self.clock.now();
        let valid = !principal.has_expired(now)
            && match principal.source() {
                Source::Local => self.local().await?.is_some(),
                Source::Key(id) => keys::get(&*self.items, id).await?.is_some_and(|key| key.is_valid_at(now)),
            };
        if !valid {
            principal.end();
            return Err(AuthError::Invalid);
        }
        Ok(())
    }

    /// Ends the streams of credentials that are no longer valid. Runs until it is dropped.
    pub(crate) async fn watch(&self) {
        loop {
            tokio::time::sleep(RECHECK_EVERY).await;
            for principal in self.holding() {
                match self.recheck(&principal).await {
                    Ok(()) | Err(AuthError::Invalid | AuthError::Missing) => {}
                    Err(AuthError::Store(error)) => {
                        tracing::warn!(%error, "cannot check the keys of open streams; will retry");
                    }
                }
            }
        }
    }

    /// Returns the same principal for all streams of one credential.
    fn hold(&self, source: Source, user: UserId, scopes: Scopes, expires: Option<Timestamp>) -> Principal {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = held.get(&source).and_then(Weak::upgrade).map(Principal::from)
            && known.is_for(&user, scopes)
        {
            return known;
        }
        let ended = CancellationToken::new();
        let principal = Principal::new(Grant { user, scopes, source: source.clone(), expires, ended });
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
