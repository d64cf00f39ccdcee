//! Web push: messages are encrypted for one browser (RFC 8291) and signed with the key of this server (VAPID, RFC
//! 8292). The primitives are those of the TLS library; what is here is the order in which the RFCs combine them.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use aws_lc_rs::rand::{self, SystemRandom};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use outlast_core::{Timestamp, UserId};
use outlast_store::{Item, PutError, StoreError};
use reqwest::Url;
use serde_json::json;

use crate::engine::Engine;

const SERVER_KEY: &str = "server-key";
const VAPID: &str = "vapid";
/// Push services accept messages of this size, and so one record of it is enough.
const RECORD_BYTES: u32 = 4096;
/// What encryption adds to a message: its header, a delimiter and a tag.
const OVERHEAD_BYTES: usize = 86 + 1 + 16;
/// The length of an uncompressed point on P-256, and of the browser's secret.
const POINT_BYTES: usize = 65;
const AUTH_BYTES: usize = 16;
/// How long a token for a push service is valid, in seconds: at most a day.
const TOKEN_LIVES: i64 = 12 * 60 * 60;

/// The key that identifies this server to push services. Browsers subscribe with its public part.
pub struct VapidKey {
    pair: EcdsaKeyPair,
    contact: String,
}

impl Engine {
    /// The key of this server. It is made at the first start and kept in the store, because subscriptions depend on it.
    pub async fn vapid_key(&self) -> Result<VapidKey, StoreError> {
        let store = &self.shared.store;
        let stored = match store.get_item(SERVER_KEY, VAPID).await? {
            Some(stored) => stored,
            None => {
                match store.put_item(new_key(self.now())?).await {
                    // A conflict: another instance was faster.
                    Ok(_) | Err(PutError::Conflict | PutError::Unconfirmed(_)) => {}
                    Err(PutError::Unavailable(reason)) => return Err(StoreError::Unavailable(reason)),
                }
                let missing = || StoreError::Unavailable("the key for web push was not stored".to_owned());
                store.get_item(SERVER_KEY, VAPID).await?.ok_or_else(missing)?
            }
        };
        let broken = || StoreError::Broken("the key for web push cannot be read".to_owned());
        let body: serde_json::Value = serde_json::from_str(&stored.body).map_err(|_| broken())?;
        let key = BASE64_URL_SAFE_NO_PAD.decode(body["pkcs8"].as_str().unwrap_or_default());
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key.map_err(|_| broken())?);
        let contact = self.shared.settings.notifications.contact.clone();
        Ok(VapidKey { pair: pair.map_err(|_| broken())?, contact })
    }
}

fn new_key(now: Timestamp) -> Result<Item, StoreError> {
    let pair = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
    let pair = pair.map_err(|_| StoreError::Broken("cannot create a key for web push".to_owned()))?;
    let body = json!({"pkcs8": BASE64_URL_SAFE_NO_PAD.encode(pair.as_ref())}).to_string();
    let (kind, id, user) = (SERVER_KEY.to_owned(), VAPID.to_owned(), UserId::from(""));
    Ok(Item { kind, id, user, order: now.0, due: None, version: 0, body })
}

impl VapidKey {
    /// What browsers call `applicationServerKey`.
    pub fn public(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.pair.public_key())
    }

    /// The header for a push service. `None` if the URL is not one.
    pub(super) fn authorization(&self, endpoint: &str, now: Timestamp) -> Option<String> {
        let audience = Url::parse(endpoint).ok()?.origin().ascii_serialization();
        let claims = json!({"aud": audience, "exp": now.0 / 1000 + TOKEN_LIVES, "sub": self.contact});
        let part = |value: serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(json!({"typ": "JWT", "alg": "ES256"})), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).ok()?;
        let token = format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature));
        Some(format!("vapid t={token}, k={}", self.public()))
    }
}

/// Whether a browser gave us these: a point and a secret of the right length.
pub fn is_valid(p256dh: &str, auth: &str) -> bool {
    encrypt(p256dh, auth, b"").is_some()
}

/// Encrypts a message for the browser with these keys. `None` if they are invalid or the message is too long.
pub(super) fn encrypt(p256dh: &str, auth: &str, message: &[u8]) -> Option<Vec<u8>> {
    let browser = decode(p256dh).filter(|point| point.len() == POINT_BYTES)?;
    let auth = decode(auth).filter(|secret| secret.len() == AUTH_BYTES)?;
    if message.len() + OVERHEAD_BYTES > RECORD_BYTES as usize {
        return None;
    }
    let ours = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()).ok()?;
    let our_point = ours.compute_public_key().ok()?;
    let theirs = UnparsedPublicKey::new(&ECDH_P256, &browser);
    let info = [b"WebPush: info\0", &browser[..], our_point.as_ref()].concat();
    let secret = agree_ephemeral(ours, theirs, (), |shared| Ok(expand(&mac(&auth, shared), &info))).ok()?;
    let mut salt = [0; 16];
    rand::fill(&mut salt).ok()?;
    let key = mac(&salt, &secret);
    let content_key = expand(&key, b"Content-Encoding: aes128gcm\0");
    let nonce = expand(&key, b"Content-Encoding: nonce\0");
    let content_key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &content_key[..16]).ok()?);
    let nonce = Nonce::try_assume_unique_for_key(&nonce[..12]).ok()?;
    // The last record ends with a 2.
    let mut record = [message, &[2]].concat();
    content_key.seal_in_place_append_tag(nonce, Aad::empty(), &mut record).ok()?;
    let length = u8::try_from(POINT_BYTES).ok()?;
    Some([&salt[..], &RECORD_BYTES.to_be_bytes(), &[length], our_point.as_ref(), &record].concat())
}

/// Browsers write base64url, some of them with padding.
fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
}

/// The first half of HKDF.
fn mac(key: &[u8], content: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(HMAC_SHA256, key), content).as_ref().to_vec()
}

/// The second half of HKDF, for at most one block.
fn expand(key: &[u8], info: &[u8]) -> Vec<u8> {
    mac(key, &[info, &[1]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The browser's keys in the example of RFC 8291.
    const P256DH: &str =
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

    #[test]
    fn b6_a_message_has_the_form_of_rfc_8188_and_never_the_same_bytes_twice() {
        let (one, other) = (encrypt(P256DH, AUTH, b"hi").unwrap(), encrypt(P256DH, AUTH, b"hi").unwrap());
        assert_eq!(one.len(), 2 + OVERHEAD_BYTES);
        assert_eq!((&one[16..20], one[20]), (&RECORD_BYTES.to_be_bytes()[..], 65));
        assert_ne!(one, other);
    }

    #[test]
    fn b6_invalid_keys_and_long_messages_are_refused() {
        let point_not_on_the_curve = BASE64_URL_SAFE_NO_PAD.encode([4; POINT_BYTES]);
        for (p256dh, auth) in
            [("", AUTH), (P256DH, ""), ("!", AUTH), (&P256DH[4..], AUTH), (&point_not_on_the_curve, AUTH)]
        {
            assert!(!is_valid(p256dh, auth), "{p256dh} {auth}");
        }
        assert!(is_valid(P256DH, AUTH) && is_valid(P256DH, &format!("{AUTH}==")));
        assert!(encrypt(P256DH, AUTH, &vec![b'x'; 4096]).is_none());
    }
}
