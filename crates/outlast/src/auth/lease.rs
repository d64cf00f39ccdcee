//! A worker's lease: proof that it made the claim.
//!
//! An epoch is a small number that anyone could guess. The lease is an HMAC of generation and epoch with a secret of
//! the server, so that nothing needs to be stored for a claim, and every instance on the same store can check it.

use aws_lc_rs::hmac;
use outlast_core::{GenerationId, UserId};
use outlast_store::{Item, Items, PutError, StoreError};
use serde::{Deserialize, Serialize};

use super::secret::{self, SECRET_BYTES, random_hex};

const SECRET: &str = "secret";
const LEASE: &str = "lease";

#[derive(Deserialize, Serialize)]
struct Body {
    secret: String,
}

pub(crate) struct Leases(hmac::Key);

impl Leases {
    /// Uses the secret in the store, which the first start creates.
    pub(super) async fn open(items: &dyn Items) -> Result<Leases, StoreError> {
        let secret = server_secret(items, LEASE).await?;
        Ok(Leases(hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())))
    }

    pub(crate) fn of(&self, generation: &GenerationId, epoch: u32) -> String {
        secret::hex(hmac::sign(&self.0, message(generation, epoch).as_bytes()).as_ref())
    }

    pub(crate) fn fits(&self, lease: &str, generation: &GenerationId, epoch: u32) -> bool {
        secret::equal(lease, &self.of(generation, epoch))
    }
}

/// The epoch has only digits, so different pairs never give the same message.
fn message(generation: &GenerationId, epoch: u32) -> String {
    format!("{epoch}:{generation}")
}

/// A secret that all instances on one store share. The first one that needs it creates it.
async fn server_secret(items: &dyn Items, id: &str) -> Result<String, StoreError> {
    let broken = |error: serde_json::Error| StoreError::Broken(format!("secret {id}: {error}"));
    if items.get_item(SECRET, id).await?.is_none() {
        let body = Body { secret: random_hex::<SECRET_BYTES>() };
        let made = items.put_item(Item {
            kind: SECRET.to_owned(),
            id: id.to_owned(),
            user: UserId::from(""),
            order: 0,
            due: None,
            version: 0,
            body: serde_json::to_string(&body).map_err(broken)?,
        });
        match made.await {
            Ok(_) | Err(PutError::Conflict | PutError::Unconfirmed(_)) => {}
            Err(PutError::Unavailable(why)) => return Err(StoreError::Unavailable(why)),
        }
    }
    // Another instance may have been faster; the stored secret counts.
    let item = items.get_item(SECRET, id).await?;
    let item = item.ok_or_else(|| StoreError::Unavailable("the server's secret was not stored".into()))?;
    let body: Body = serde_json::from_str(&item.body).map_err(broken)?;
    Ok(body.secret)
}
