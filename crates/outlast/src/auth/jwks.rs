//! The public keys of an issuer, from a file or from the one URL in the settings.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use reqwest::{Client, Url, redirect};
use tokio::time::Instant;

/// Keys are fetched again after this time, so that a key that the issuer withdrew stops working.
const FRESH_FOR: Duration = Duration::from_secs(10 * 60);
/// A token with an unknown key makes us look for new keys, but not more often than this.
const FETCH_PAUSE: Duration = Duration::from_secs(30);
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Issuers have a handful of keys.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;

#[derive(Debug, thiserror::Error)]
#[error("cannot read the keys in {place}: {why}")]
pub(crate) struct JwksError {
    place: String,
    why: String,
}

enum Place {
    File(PathBuf),
    Url { client: Client, url: Url },
}

pub(crate) struct Jwks {
    place: Place,
    known: Mutex<Known>,
    /// Held by whoever reads the keys again. Those whose key is known do not wait for that: anybody can cause it with
    /// an invalid token, and the issuer may be slow.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    keys: Vec<Jwk>,
    /// When they were read, and when somebody last tried to.
    read: Option<Instant>,
    tried: Option<Instant>,
}

impl Jwks {
    /// `place` is a URL if it has a scheme, else a file. A file must be readable now.
    pub(crate) async fn open(place: &str) -> Result<Jwks, JwksError> {
        let failed = |why: String| JwksError { place: place.to_owned(), why };
        let place = match Url::parse(place) {
            Ok(url) => {
                if url.scheme() != "https" && !is_this_machine(&url) {
                    return Err(failed("a URL of another machine must begin with https://".to_owned()));
                }
                let client = Client::builder().timeout(FETCH_TIMEOUT).redirect(redirect::Policy::none());
                Place::Url { client: client.build().map_err(|error| failed(error.to_string()))?, url }
            }
            Err(_) => Place::File(PathBuf::from(place)),
        };
        let jwks = Jwks { place, known: Mutex::default(), turn: tokio::sync::Mutex::default() };
        if let Place::File(_) = jwks.place {
            jwks.refresh().await?;
        }
        Ok(jwks)
    }

    /// The key that a token names, if it is one for this algorithm. A token without a key id is accepted
    /// while the issuer has one key.
    pub(super) async fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Option<DecodingKey>, JwksError> {
        let (has_key, is_fresh) = {
            let known = self.known();
            (pick(&known.keys, id).is_some(), known.read.is_some_and(|read| read.elapsed() < FRESH_FOR))
        };
        let turn = match (has_key, is_fresh) {
            (true, true) => None,
            (true, false) => self.turn.try_lock().ok(),
            (false, _) => Some(self.turn.lock().await),
        };
        if turn.is_some() && self.may_try() {
            match self.refresh().await {
                Ok(()) => {}
                // Keys that were read before still count for a while: the issuer may be down.
                Err(error) if !self.known().keys.is_empty() => {
                    tracing::warn!(%error, "cannot read the keys again; using those read before")
                }
                Err(error) => return Err(error),
            }
        }
        let known = self.known();
        if known.read.is_none() {
            return Err(self.failed("they could not be fetched; trying again soon"));
        }
        let key = pick(&known.keys, id).filter(|key| fits(key, algorithm));
        Ok(key.and_then(|key| DecodingKey::from_jwk(key).ok()))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the last try was long enough ago.
    fn may_try(&self) -> bool {
        self.known().tried.is_none_or(|tried| tried.elapsed() >= FETCH_PAUSE)
    }

    async fn refresh(&self) -> Result<(), JwksError> {
        let tried = Some(Instant::now());
        self.known().tried = tried;
        let bytes = match &self.place {
            Place::File(path) => tokio::fs::read(path).await.map_err(|error| self.failed(error))?,
            Place::Url { client, url } => fetch(client, url).await.map_err(|why| self.failed(why))?,
        };
        let set: JwkSet = serde_json::from_slice(&bytes).map_err(|error| self.failed(error))?;
        // A symmetric key in a public document would be a secret that everybody knows.
        let mut keys = set.keys;
        keys.retain(|key| !matches!(key.algorithm, AlgorithmParameters::OctetKey(_)));
        *self.known() = Known { keys, read: tried, tried };
        Ok(())
    }

    /// As if the last try had been long ago.
    #[cfg(test)]
    pub(super) fn let_time_pass(&self) {
        self.known().tried = None;
    }

    fn failed(&self, why: impl ToString) -> JwksError {
        let place = match &self.place {
            Place::File(path) => path.display().to_string(),
            Place::Url { url, .. } => url.host_str().unwrap_or_default().to_owned(),
        };
        JwksError { place, why: why.to_string() }
    }
}

async fn fetch(client: &Client, url: &Url) -> Result<Vec<u8>, String> {
    let sent = client.get(url.clone()).send().await.and_then(reqwest::Response::error_for_status);
    // Without the URL, which may hold a password.
    let mut response = sent.map_err(|error| error.without_url().to_string())?;
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error.without_url().to_string())? {
        if bytes.len() + chunk.len() > DOCUMENT_BYTES_MAX {
            return Err(format!("the document is larger than {DOCUMENT_BYTES_MAX} bytes"));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn is_this_machine(url: &Url) -> bool {
    matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

fn pick<'a>(keys: &'a [Jwk], id: Option<&str>) -> Option<&'a Jwk> {
    match (id, keys) {
        (Some(id), _) => keys.iter().find(|key| key.common.key_id.as_deref() == Some(id)),
        (None, [only]) => Some(only),
        (None, _) => None,
    }
}

/// Whether a key is one for signatures of this algorithm, by its type and curve as well as by its own claims.
fn fits(key: &Jwk, algorithm: Algorithm) -> bool {
    let kind = match (&key.algorithm, algorithm) {
        (AlgorithmParameters::RSA(_), Algorithm::RS256) => true,
        (AlgorithmParameters::EllipticCurve(key), Algorithm::ES256) => key.curve == EllipticCurve::P256,
        (AlgorithmParameters::OctetKeyPair(key), Algorithm::EdDSA) => key.curve == EllipticCurve::Ed25519,
        _ => false,
    };
    let named = key.common.key_algorithm.is_none_or(|named| named.to_string() == format!("{algorithm:?}"));
    let signs = key.common.public_key_use.as_ref().is_none_or(|used| *used == PublicKeyUse::Signature);
    kind && named && signs
}
