//! JSON Web Tokens of one issuer: a login elsewhere that this server trusts.
//!
//! Everything about a token that could be chosen by whoever made it is fixed here: the issuer, the audience,
//! the algorithm of each key, and where keys come from. Headers that point elsewhere (`jku`, `x5u`, `jwk`) or
//! demand something (`crit`) make a token invalid, like any other header that is not known.

use std::sync::Arc;

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use outlast_core::{Timestamp, UserId};
use serde::Deserialize;

use super::jwks::{Jwks, JwksError};
use super::scopes::Scopes;

/// A longer token is not looked at.
const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Longest `sub`: it is stored with every document.
const SUBJECT_BYTES_MAX: usize = 200;

/// What an operator says about the issuer.
pub(crate) struct JwtOptions {
    pub(crate) issuer: String,
    pub(crate) audience: String,
    pub(crate) verifier: Verifier,
    pub(crate) algorithms: Vec<Algorithm>,
}

/// What signatures are checked with.
pub(crate) enum Verifier {
    /// A secret shared with the issuer, for HS256 alone.
    Secret(DecodingKey),
    /// Public keys, by their ids.
    Jwks(Arc<Jwks>),
}

pub(crate) struct Jwt(JwtOptions);

/// Who a token speaks for.
pub(super) struct Subject {
    pub(super) user: UserId,
    pub(super) scopes: Scopes,
    pub(super) expires: Timestamp,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    #[error("the token is not valid")]
    Invalid,
    #[error(transparent)]
    Keys(#[from] JwksError),
}

/// The headers that a token may have. A header given twice is an error too.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    alg: Algorithm,
    kid: Option<String>,
    #[serde(rename = "typ")]
    _typ: Option<String>,
    /// Issuers add it; we find keys by `kid` alone.
    #[serde(rename = "x5t")]
    _fingerprint: Option<String>,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    exp: u64,
    scope: Option<String>,
}

impl Jwt {
    pub(crate) fn new(options: JwtOptions) -> Jwt {
        Jwt(options)
    }

    /// Checks everything about a token.
    pub(super) async fn verify(&self, token: &str) -> Result<Subject, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::Invalid);
        }
        let head = head(token).ok_or(TokenError::Invalid)?;
        if !self.0.algorithms.contains(&head.alg) {
            return Err(TokenError::Invalid);
        }
        let key = match &self.0.verifier {
            Verifier::Secret(key) => key.clone(),
            Verifier::Jwks(keys) => {
                keys.find(head.kid.as_deref(), head.alg).await?.ok_or(TokenError::Invalid)?
            }
        };
        let decoded = jsonwebtoken::decode::<Claims>(token, &key, &self.validation(head.alg));
        let claims = decoded.map_err(|_| TokenError::Invalid)?.claims;
        self.subject(claims).ok_or(TokenError::Invalid)
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = 0; // an expired token is expired
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.0.issuer]);
        validation.set_audience(&[&self.0.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation
    }

    /// The issuer is part of the user's name, so a key for a user called like a subject is somebody else.
    fn subject(&self, claims: Claims) -> Option<Subject> {
        let Claims { sub, exp, scope } = claims;
        if sub.is_empty() || sub.len() > SUBJECT_BYTES_MAX || sub.contains(char::is_control) {
            return None;
        }
        let expires = i64::try_from(exp).ok()?.checked_mul(1000)?;
        Some(Subject {
            user: UserId::from(format!("{}|{sub}", self.0.issuer)),
            scopes: scope.map_or_else(Scopes::usual, |scope| Scopes::of_token(&scope)),
            expires: Timestamp(expires),
        })
    }
}

/// The header, read strictly. The library reads it again and ignores what it does not know.
fn head(token: &str) -> Option<Head> {
    let (head, rest) = token.split_once('.')?;
    if rest.split('.').count() != 2 {
        return None;
    }
    serde_json::from_slice(&super::secret::from_base64url(head)?).ok()
}
