//! Who makes a request.

use std::sync::{Arc, Weak};

use outlast_core::{Timestamp, UserId};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::scopes::{Scope, Scopes};

/// A user, what they may do here, and for how long. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Principal(Arc<Grant>);

pub(super) struct Grant {
    pub(super) user: UserId,
    pub(super) scopes: Scopes,
    pub(super) source: Source,
    /// For a session, what it was opened with; otherwise the source itself. Limits per key count this, so that nobody
    /// has a limit once for every session.
    pub(super) credential: Source,
    pub(super) expires: Option<Timestamp>,
    pub(super) ended: CancellationToken,
}

/// Which credential made it so. Never a secret: it may be logged.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Source {
    /// No credential: this server has no keys.
    Local,
    /// The id of an API key.
    Key(String),
    /// The hash of a JSON Web Token. Nothing but its expiry ends it.
    Token(String),
    /// The hash of a session's secret.
    Session(String),
}

impl Principal {
    pub(super) fn new(grant: Grant) -> Principal {
        Principal(Arc::new(grant))
    }

    pub(super) fn downgrade(&self) -> Weak<Grant> {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn user(&self) -> &UserId {
        &self.0.user
    }

    pub(crate) fn source(&self) -> &Source {
        &self.0.source
    }

    /// The key or token behind it, even if a session was opened with it.
    pub(crate) fn credential(&self) -> &Source {
        &self.0.credential
    }

    /// Whether it is the one user of a server without keys.
    pub(crate) fn is_local(&self) -> bool {
        self.0.source == Source::Local
    }

    pub(super) fn scopes(&self) -> Scopes {
        self.0.scopes
    }

    pub(super) fn expires(&self) -> Option<Timestamp> {
        self.0.expires
    }

    pub(crate) fn may(&self, scope: Scope) -> bool {
        self.0.scopes.contains(scope)
    }

    pub(crate) fn scope_names(&self) -> Vec<&'static str> {
        self.0.scopes.names().collect()
    }

    /// Returns when the credential is no longer valid. An open stream holds its principal and waits for this; other
    /// credentials are not watched.
    pub(crate) async fn ended(&self) {
        self.0.ended.cancelled().await;
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.ended.is_cancelled()
    }

    pub(super) fn end(&self) {
        self.0.ended.cancel();
    }

    pub(super) fn has_expired(&self, now: Timestamp) -> bool {
        self.0.expires.is_some_and(|expires| expires <= now)
    }

    pub(super) fn is_for(&self, user: &UserId, scopes: Scopes) -> bool {
        self.0.user == *user && self.0.scopes == scopes && !self.0.ended.is_cancelled()
    }
}

impl From<Arc<Grant>> for Principal {
    fn from(grant: Arc<Grant>) -> Principal {
        Principal(grant)
    }
}
