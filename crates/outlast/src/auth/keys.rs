//! API keys: `ol_<id>_<secret>`. The store has the id and a hash of the secret.

use std::fmt;

use outlast_core::{Timestamp, UserId};
use outlast_store::{Item, ItemQuery, Items, PutError, StoreError};
use serde::{Deserialize, Serialize};

use super::scopes::Scopes;
use super::secret::{SECRET_BYTES, equal, hash, random_hex};

/// The kind of the stored items.
pub(super) const KEY: &str = "key";

const PREFIX: &str = "ol_";

/// An id is not secret; it only has to be unique.
const ID_BYTES: usize = 8;

/// The maximum length of a user's name, which is stored with every document.
const USER_BYTES_MAX: usize = 200;

/// How often a write is retried if the key has changed meanwhile, which does not happen often in a row.
const TRIES: usize = 5;

/// Keys on one page of the list.
const PAGE: usize = 500;

pub(crate) struct KeySpec {
    pub(crate) user: String,
    pub(crate) scopes: Scopes,
    pub(crate) expires_at: Option<Timestamp>,
}

/// A stored key.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) id: String,
    pub(super) user: UserId,
    pub(super) scopes: Scopes,
    pub(super) created_at: Timestamp,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) revoked_at: Option<Timestamp>,
    hash: String,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    hash: String,
    scopes: Scopes,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("a user's name must have 1 to {USER_BYTES_MAX} bytes and no control characters")]
    BadUser,
    #[error("no key has the id {0:?}")]
    NotFound(String),
    #[error("cannot reach the store: {0}")]
    Store(#[from] StoreError),
    #[error("the key was not stored: {0}")]
    NotStored(#[from] PutError),
}

impl Key {
    pub(super) fn is_valid_at(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|expires| now < expires)
    }

    fn read(item: &Item) -> Result<Key, StoreError> {
        let body: Body = serde_json::from_str(&item.body)
            .map_err(|error| StoreError::Broken(format!("key {}: {error}", item.id)))?;
        let Body { hash, scopes, created_at, expires_at, revoked_at } = body;
        let (id, user) = (item.id.clone(), item.user.clone());
        Ok(Key { id, user, scopes, created_at, expires_at, revoked_at, hash })
    }

    fn item(&self, version: u64) -> Item {
        let Key { id, user, scopes, created_at, expires_at, revoked_at, hash } = self.clone();
        let body = Body { hash, scopes, created_at, expires_at, revoked_at };
        Item {
            kind: KEY.to_owned(),
            id,
            user,
            order: created_at.0,
            due: None,
            version,
            body: serde_json::to_string(&body).expect("a key has string keys"),
        }
    }
}

/// A key from a request. It never appears in a log.
pub(crate) struct PresentedKey<'a> {
    id: &'a str,
    secret: &'a str,
}

impl<'a> PresentedKey<'a> {
    pub(crate) fn parse(text: &'a str) -> Option<PresentedKey<'a>> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let whole = id.len() == 2 * ID_BYTES && secret.len() == 2 * SECRET_BYTES;
        (whole && is_hex(id) && is_hex(secret)).then_some(PresentedKey { id, secret })
    }

    pub(crate) fn id(&self) -> &'a str {
        self.id
    }

    pub(super) fn matches(&self, key: &Key) -> bool {
        equal(&hash(self.secret), &key.hash)
    }
}

impl fmt::Debug for PresentedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_…", self.id)
    }
}

/// Stores a new key and returns it. This is the only time that its secret is known.
pub(crate) async fn create(items: &dyn Items, spec: KeySpec, now: Timestamp) -> Result<String, KeyError> {
    let KeySpec { user, scopes, expires_at } = spec;
    if user.is_empty() || user.len() > USER_BYTES_MAX || user.contains(char::is_control) {
        return Err(KeyError::BadUser);
    }
    let (id, secret) = (random_hex::<ID_BYTES>(), random_hex::<SECRET_BYTES>());
    let text = format!("{PREFIX}{id}_{secret}");
    let key = Key {
        id,
        user: UserId::from(user),
        scopes,
        created_at: now,
        expires_at,
        revoked_at: None,
        hash: hash(&secret),
    };
    items.put_item(key.item(0)).await?;
    Ok(text)
}

pub(super) async fn get(items: &dyn Items, id: &str) -> Result<Option<Key>, StoreError> {
    items.get_item(KEY, id).await?.map(|item| Key::read(&item)).transpose()
}

/// All keys, newest first. One that cannot be read is logged and left out.
pub(super) async fn list(items: &dyn Items) -> Result<Vec<Key>, StoreError> {
    let mut keys = Vec::new();
    let mut query = ItemQuery::newest(KEY, PAGE);
    loop {
        let listed = items.list_items(query.clone()).await?;
        for item in &listed.items {
            match Key::read(item) {
                Ok(key) => keys.push(key),
                Err(error) => tracing::error!(%error, "skipped an unreadable key"),
            }
        }
        match listed.next {
            Some(next) => query.after = Some(next),
            None => return Ok(keys),
        }
    }
}

/// Makes a key permanently invalid. Its record is kept, because a revoked key still counts as a key: without any, the
/// server would stop asking for one. Revoking twice changes nothing.
pub(crate) async fn revoke(items: &dyn Items, id: &str, now: Timestamp) -> Result<(), KeyError> {
    let mut last = PutError::Conflict;
    for _ in 0..TRIES {
        let item = items.get_item(KEY, id).await?.ok_or_else(|| KeyError::NotFound(id.to_owned()))?;
        let mut key = Key::read(&item)?;
        if key.revoked_at.is_some() {
            return Ok(());
        }
        key.revoked_at = Some(now);
        match items.put_item(key.item(item.version)).await {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last.into())
}
