//! `[jwt]`: a login elsewhere whose tokens are accepted.

use anyhow::{Context as _, bail};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;

use crate::auth::{Jwks, Jwt, JwtOptions, Verifier};

/// RFC 7518 asks for a secret as long as the hash.
const SECRET_BYTES_MIN: usize = 32;

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields)]
pub(crate) struct JwtSection {
    issuer: String,
    audience: String,
    /// The environment variable with the secret that is shared with the issuer.
    secret_env: Option<String>,
    /// The file or URL with the issuer's public keys.
    jwks: Option<String>,
    algorithms: Option<Vec<AlgorithmName>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
enum AlgorithmName {
    HS256,
    RS256,
    ES256,
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl From<AlgorithmName> for Algorithm {
    fn from(name: AlgorithmName) -> Algorithm {
        match name {
            AlgorithmName::HS256 => Algorithm::HS256,
            AlgorithmName::RS256 => Algorithm::RS256,
            AlgorithmName::ES256 => Algorithm::ES256,
            AlgorithmName::EdDsa => Algorithm::EdDSA,
        }
    }
}

impl JwtSection {
    pub(crate) async fn open(&self) -> anyhow::Result<Jwt> {
        if self.issuer.is_empty() || self.audience.is_empty() {
            bail!("the settings jwt.issuer and jwt.audience must not be empty");
        }
        let (verifier, allowed) = match (&self.secret_env, &self.jwks) {
            (Some(name), None) => (Verifier::Secret(secret(name)?), vec![AlgorithmName::HS256]),
            (None, Some(place)) => {
                let keys = Jwks::open(place).await.context("the setting jwt.jwks cannot be used")?;
                let allowed = vec![AlgorithmName::RS256, AlgorithmName::ES256, AlgorithmName::EdDsa];
                (Verifier::Jwks(keys.into()), allowed)
            }
            _ => bail!("the section jwt needs either secret_env or jwks"),
        };
        let chosen = self.algorithms.clone().unwrap_or_else(|| allowed.clone());
        if chosen.is_empty() || chosen.iter().any(|name| !allowed.contains(name)) {
            // Never both kinds: a public key must not pass for a secret.
            bail!("the setting jwt.algorithms cannot be used: choose from {allowed:?} with this kind of key");
        }
        Ok(Jwt::new(JwtOptions {
            issuer: self.issuer.clone(),
            audience: self.audience.clone(),
            verifier,
            algorithms: chosen.into_iter().map(Algorithm::from).collect(),
        }))
    }
}

fn secret(name: &str) -> anyhow::Result<DecodingKey> {
    let Ok(secret) = std::env::var(name) else {
        bail!("the setting jwt.secret_env names {name}, which is not set in the environment");
    };
    if secret.len() < SECRET_BYTES_MIN {
        bail!("the secret in {name} is too short: HS256 needs at least {SECRET_BYTES_MIN} bytes");
    }
    Ok(DecodingKey::from_secret(secret.as_bytes()))
}
