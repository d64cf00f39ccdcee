//! Passes: what a browser gets in exchange for a credential, because it cannot keep or send the credential
//! itself. A session lives in a cookie; a ticket is used once, in a URL, for an `EventSource` or a WebSocket.
//!
//! The store has a hash of a pass. A pass never outlives the credential behind it.

use std::time::Duration;

use outlast_core::{Timestamp, UserId};
use outlast_store::{Item, ItemQuery, Items, PutError, StoreError, remove_due};
use serde::{Deserialize, Serialize};

use super::principal::{Principal, Source};
use super::scopes::Scopes;
use super::secret::{SECRET_BYTES, hash, random_hex};

pub(super) const SESSION: &str = "session";
pub(super) const TICKET: &str = "ticket";

/// A person logs in again after this time.
const SESSION_LIVES: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// A ticket is made to be used at once.
const TICKET_LIVES: Duration = Duration::from_secs(30);
/// How many sessions one user has: more than anybody has browsers. The oldest makes room, so that nobody can fill the
/// store by logging in. Tickets are not limited: they are gone in half a minute.
const SESSIONS_MAX: usize = 100;

/// A pass as it is handed out. This is the only time that its secret is known.
pub(crate) struct Pass {
    pub(crate) secret: String,
    pub(crate) expires_at: Timestamp,
}

/// A pass as it is stored.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stored {
    #[serde(skip)]
    pub(super) user: String,
    pub(super) scopes: Scopes,
    pub(super) expires_at: Timestamp,
    /// The credential that it was made with.
    pub(super) source: Source,
    /// What that one was made with, if it is a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    credential: Option<Source>,
    /// When that credential expires.
    pub(super) until: Option<Timestamp>,
    /// The path that a ticket is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resource: Option<String>,
}

pub(super) async fn make(
    items: &dyn Items,
    kind: &str,
    holder: &Principal,
    resource: Option<String>,
    now: Timestamp,
) -> Result<Pass, StoreError> {
    let lives = if kind == SESSION { SESSION_LIVES } else { TICKET_LIVES };
    let expires_at = holder.expires().map_or(now.after(lives), |expires| expires.min(now.after(lives)));
    let (scopes, source, until) = (holder.scopes(), holder.source().clone(), holder.expires());
    let credential = (holder.credential() != &source).then(|| holder.credential().clone());
    let stored = Stored { user: String::new(), scopes, expires_at, source, credential, until, resource };
    let secret = random_hex::<SECRET_BYTES>();
    let item = Item {
        kind: kind.to_owned(),
        id: hash(&secret),
        user: holder.user().clone(),
        order: now.0,
        due: Some(expires_at.0),
        version: 0,
        body: serde_json::to_string(&stored).expect("a pass has string keys"),
    };
    match items.put_item(item).await {
        Ok(_) => {
            if kind == SESSION {
                forget_the_oldest(items, holder.user()).await?;
            }
            Ok(Pass { secret, expires_at })
        }
        Err(error @ (PutError::Conflict | PutError::Unavailable(_) | PutError::Unconfirmed(_))) => {
            Err(StoreError::Unavailable(error.to_string()))
        }
    }
}

/// Ends the sessions of a user beyond the limit.
async fn forget_the_oldest(items: &dyn Items, user: &UserId) -> Result<(), StoreError> {
    let newest = ItemQuery { user: Some(user.clone()), ..ItemQuery::newest(SESSION, SESSIONS_MAX) };
    let Some(after) = items.list_items(newest.clone()).await?.next else { return Ok(()) };
    for old in items.list_items(ItemQuery { after: Some(after), ..newest }).await?.items {
        items.remove_item(SESSION, &old.id).await?;
    }
    Ok(())
}

/// The pass with this hash, if it has not expired.
pub(super) async fn get(
    items: &dyn Items,
    kind: &str,
    id: &str,
    now: Timestamp,
) -> Result<Option<Stored>, StoreError> {
    let Some(item) = items.get_item(kind, id).await? else { return Ok(None) };
    let stored: Stored =
        serde_json::from_str(&item.body).map_err(|error| StoreError::Broken(format!("{kind}: {error}")))?;
    let stored = Stored { user: item.user.as_str().to_owned(), ..stored };
    Ok((now < stored.expires_at).then_some(stored))
}

impl Stored {
    pub(super) fn user(&self) -> UserId {
        UserId::from(&self.user)
    }

    /// The key or token behind it.
    pub(super) fn credential(&self) -> Source {
        self.credential.as_ref().unwrap_or(&self.source).clone()
    }
}

/// Removes passes that have expired.
pub(super) async fn sweep(items: &dyn Items, now: Timestamp) -> Result<(), StoreError> {
    for kind in [SESSION, TICKET] {
        remove_due(items, kind, now.0).await?;
    }
    Ok(())
}
